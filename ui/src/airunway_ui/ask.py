"""The page on which a model is asked, through the API server's proxy. Nothing is kept: the dialogue is in the page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson
from aiohttp import web

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Forbidden, KubeError, NotFound
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, dig, entries_at
from airunway.snapshots.dialogue import Dialogue, DialogueError, DialogueOptions, dialogue_with, served_name
from airunway.snapshots.reader import denied
from airunway.snapshots.serving import endpoint_of
from airunway.view.answers import AnswerView, Piece, Task, counts_of, plain_text
from airunway_ui.details import frame_of
from airunway_ui.server import SITE, Drawn, key_in, page, problem_page

LONGEST = 200_000
"""Characters of a question, and of a dialogue."""

MOST_TURNS = 100
_SILENCE = 300.0
"""Longest wait in seconds for a part of an answer."""

_SHOWN = 8
"""Numbers of an embedding that are shown."""

TASKS = {
    "auto": "what the model does",
    "chat": "chat",
    "completion": "completion",
    "embedding": "embedding",
    "rerank": "rank documents",
}


class _Wrong(Exception):
    """A question that is not asked; the message is a sentence."""


async def form(request: web.Request) -> web.StreamResponse:
    """The empty page."""
    key = key_in(request)
    deployment = await request.app[SITE].identity.client.find(MODEL_DEPLOYMENT, key)
    if deployment is None:
        return problem_page(
            request, f"There is no ModelDeployment {key.name} in namespace {key.namespace}.", status=404
        )
    return await _page(request, key, deployment, {})


async def _page(
    request: web.Request, key: ObjectKey, deployment: Resource, fields: Mapping[str, str], **found: Any
) -> web.Response:
    values = {
        **await frame_of(request, key),
        "tab": "ask",
        "tasks": TASKS,
        "fields": {
            "task": "auto",
            "prompt": "",
            "system": "",
            "documents": "",
            "max_tokens": "",
            "model": "",
            **fields,
        },
        "model": bounded(served_name(deployment)),
        "phase": bounded(dig(deployment, "status", "phase", default="Unknown")),
        "ready": endpoint_of(deployment) is not None or dig(deployment, "status", "endpoint", "pool") is not None,
        "url": bounded(dig(deployment, "status", "gateway", "url", default="")),
        "commands": _commands(request, deployment),
        "answer": None,
        "problem": "",
        "remarks": [],
        **found,
    }
    return page(request, Drawn(title=f"Ask {key.name} – AI Runway", template="ask.html", values=values))


def _commands(request: web.Request, deployment: Resource) -> list[tuple[str, str]]:
    """How to ask it from elsewhere: what each command is for, and the command."""
    endpoint = endpoint_of(deployment)
    if endpoint is None:
        return []
    talk = Dialogue(
        client=request.app[SITE].identity.client,
        deployment=deployment,
        endpoint=endpoint,
        remark=lambda _: None,
        wanted=_options({}),
        model=served_name(deployment),
        tasks=[Task.CHAT],
        certain=True,
    )
    lines = talk.curl("Why is the sky blue?")
    found = [(about.removeprefix("# "), text) for about, text in zip(lines[::2], lines[1::2], strict=True)]
    where = f"service/{endpoint.key.name} 8000:{endpoint.port} -n {endpoint.key.namespace}"
    return [*found, ("to have it at 127.0.0.1:8000", f"kubectl port-forward {where}")]


def _options(fields: Mapping[str, str]) -> DialogueOptions:
    """What a form asks for. Raises _Wrong."""
    task, tokens = fields.get("task", "auto") or "auto", fields.get("max_tokens", "").strip()
    if task not in TASKS:
        raise _Wrong(f"{bounded(task, 40)!r} is nothing that a model is asked for")
    if tokens and not (tokens.isascii() and tokens.isdecimal() and 0 < int(tokens[:9]) < 10**7):
        raise _Wrong(f"{bounded(tokens, 40)!r} is no number of tokens")
    documents = tuple(each for each in fields.get("documents", "").splitlines() if each.strip())
    return DialogueOptions(
        task="rerank" if documents and task == "auto" else task,
        model=fields.get("model", ""),
        system=fields.get("system", ""),
        documents=documents,
        max_tokens=int(tokens) if tokens else None,
        silence=_SILENCE,
    )


def _history(text: str) -> list[dict[str, str]]:
    """The dialogue so far, as the page has it. Raises _Wrong."""
    try:
        turns = orjson.loads(text) if text else []
    except orjson.JSONDecodeError:
        turns = None
    if not isinstance(turns, list) or len(turns) > MOST_TURNS:
        raise _Wrong(f"the dialogue has more than {MOST_TURNS} parts, or cannot be read: begin a new one")
    found = [
        {"role": role, "content": content}
        for each in entries_at({"turns": turns}, "turns")
        if (role := each.get("role")) in ("user", "assistant") and isinstance(content := each.get("content"), str)
    ]
    if len(found) != len(turns):
        raise _Wrong("the dialogue cannot be read: begin a new one")
    return found


async def ask(request: web.Request) -> web.StreamResponse:
    """The answer: piece by piece for a script, else a page with the whole of it."""
    key, site = key_in(request), request.app[SITE]
    fields = {name: str(value) for name, value in (await request.post()).items() if name != "token"}
    streaming = "application/x-ndjson" in request.headers.get("Accept", "")
    async with site.a_log():
        if streaming:
            return await _streamed(request, key, fields)
        deployment = await site.identity.client.get(MODEL_DEPLOYMENT, key)
        remarks: list[str] = []
        try:
            talk, prompt = await _talk(request, key, fields, remarks.append)
            view = await talk.ask(prompt, lambda _: None)
        except (_Wrong, DialogueError) as error:
            return await _page(request, key, deployment, fields, problem=str(error), remarks=remarks)
        return await _page(request, key, deployment, fields, answer=shown(view, talk), remarks=remarks)


async def _talk(request: web.Request, key: ObjectKey, fields: Mapping[str, str], remark: Any) -> tuple[Dialogue, str]:
    prompt = fields.get("prompt", "")
    if not prompt.strip():
        raise _Wrong("the question is empty")
    if sum(map(len, fields.values())) > LONGEST:
        raise _Wrong(f"question and dialogue have more than {LONGEST:,} characters")
    wanted, history = _options(fields), _history(fields.get("history", ""))
    talk = await dialogue_with(request.app[SITE].identity.client, key, wanted, remark=remark)
    talk.history = history
    return talk, prompt


def shown(view: AnswerView, talk: Dialogue) -> dict[str, Any]:
    """Returns an answer for a page."""
    documents = talk.wanted.documents
    numbers = [f"{number:.6g}" for number in view.embedding[:_SHOWN]]
    return {
        "task": view.task,
        "model": view.model,
        "text": plain_text(view.text),
        "reasoning": plain_text(view.reasoning),
        "embedding": f"{', '.join(numbers)}, … ({len(view.embedding)} dimensions)" if numbers else "",
        "ranked": [
            {**asdict(each), "text": bounded(documents[each.index], 300) if each.index < len(documents) else "?"}
            for each in view.ranked
        ],
        "counts": counts_of(view),
    }


async def _streamed(request: web.Request, key: ObjectKey, fields: Mapping[str, str]) -> web.StreamResponse:
    """One JSON document a line: remarks, pieces of text, and the end or a problem."""
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson; charset=utf-8"})
    await response.prepare(request)
    queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def write(piece: Piece) -> None:
        if piece.text or piece.reasoning:
            queue.put_nowait({"text": plain_text(piece.text), "reasoning": plain_text(piece.reasoning)})

    async def answered() -> dict[str, Any]:
        try:
            talk, prompt = await _talk(request, key, fields, lambda text: queue.put_nowait({"remark": text}))
            view = await talk.ask(prompt, write)
        except (_Wrong, DialogueError) as error:
            return {"problem": f"{error}."}
        except Forbidden as error:
            return {"problem": f"{denied(error, key.namespace)}."}
        except NotFound:
            return {"problem": f"There is no ModelDeployment {key.name} in namespace {key.namespace} any more."}
        except KubeError as error:
            return {"problem": bounded(str(error), 300)}
        return {"end": shown(view, talk)}

    work = asyncio.create_task(answered())
    work.add_done_callback(lambda done: None if done.cancelled() else queue.put_nowait({}))
    try:
        while not (work.done() and queue.empty()):
            if found := await queue.get():
                await response.write(orjson.dumps(found) + b"\n")
        await response.write(orjson.dumps(work.result()) + b"\n")
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    return response


ROUTES = [("GET", "/d/{namespace}/{name}/ask", form), ("POST", "/d/{namespace}/{name}/ask", ask)]
