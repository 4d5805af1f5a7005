"""The dialogue with a deployment's model: what it is asked for, and what follows if its server refuses that."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from time import monotonic

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import ApiError, Client, Forbidden, KubeError, TransportError
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, dig
from airunway.snapshots.reader import denied
from airunway.snapshots.serving import Endpoint, advertised, ask, endpoint_of, pod_endpoint, proxy_path, schema_tasks
from airunway.templates.expansion import effective
from airunway.view.answers import PATHS, Answer, AnswerView, Piece, Task, request_body

_REFUSING = (404, 405, 415, 501)
"""HTTP codes by which a server says that it does not do this task."""

_FAULTY = (400, 422)
"""HTTP codes of a server that refuses this request, and of some that do not do this task: their message has it."""

_LONGEST_REFUSAL = 2000
"""Characters of a message that are searched."""

_OF_DEPLOYMENT = {"embed": Task.EMBEDDING, "rerank": Task.RERANK}
"""What is asked for where ``spec.model.task`` says that the model does not generate."""

_ELSEWHERE = {"transcribe": "/v1/audio/transcriptions", "classify": "/classify"}
"""Where tasks are asked for that this command does not know."""

_OTHER_TASK = re.compile(
    r"chat[_ ]template(?: is)? (?:not (?:set|found|defined)|no longer|missing)"
    r"|(?:missing|provide|needs|requires|has no|without) (?:a |the )?chat[_ ]template"
    r"|(?:not|n't) support (?:the |text |this )*[`'\"]*(?:/v1/|(?:chat|completions?|generat|embed|rerank|scor|task))"
    r"|unsupported task|task is not supported"
    r"|not (?:appear to be )?an? (?:embedding|chat|generative|rerank)",
    re.IGNORECASE,
)
"""What engines write where a model has no chat template, or does not do what it is asked for."""


class DialogueError(Exception):
    """There is no server, or no whole answer; the message is a sentence for the user."""


@dataclass(frozen=True, kw_only=True)
class DialogueOptions:
    """What is asked for."""

    task: str
    """A task, or ``auto``: what the deployment or its server says."""
    model: str
    """Served name; empty: the first that the server lists."""
    system: str
    """System message of a chat."""
    documents: tuple[str, ...]
    """What is ranked."""
    max_tokens: int | None
    """At most so many tokens of an answer."""
    silence: float
    """Longest wait in seconds for the first, or the next, part of an answer."""


async def dialogue_with(
    client: Client, key: ObjectKey, wanted: DialogueOptions, *, remark: Callable[[str], None]
) -> Dialogue:
    """Finds the server of a deployment, its model, and what that does. Raises DialogueError if there is none.

    `remark` gets what there is to say beside the answers.
    """
    deployment = await client.get(MODEL_DEPLOYMENT, key)
    stated = stated_task(deployment, asked=wanted.task)
    endpoint = endpoint_of(deployment) or await pod_endpoint(client, deployment)
    if endpoint is None:
        phase = bounded(str(dig(deployment, "status", "phase", default="Unknown")), 40)
        raise DialogueError(
            f"md/{key.name} in namespace {key.namespace} has no endpoint yet (it is {phase}): "
            f"airunway status md/{key.name} -n {key.namespace} shows why"
        )
    try:
        found = await advertised(client, endpoint)
    except TransportError as error:
        raise DialogueError(f"the model's server does not answer: {error}") from error
    model = wanted.model or (found.models[0] if found.models else served_name(deployment))
    if wanted.task != "auto":
        tasks = [Task(wanted.task)]
    elif stated is not None:
        tasks = [stated]
    else:
        tasks = [*found.tasks] or [task for task in PATHS if task is not Task.RERANK]
    return Dialogue(
        client=client,
        deployment=deployment,
        endpoint=endpoint,
        wanted=wanted,
        model=model,
        tasks=tasks,
        remark=remark,
        certain=wanted.task != "auto" or stated is not None or bool(found.tasks),
    )


def stated_task(deployment: Resource, *, asked: str) -> Task | None:
    """Returns what to ask for by ``spec.model.task``; None if that leaves it to the server.

    Raises DialogueError if there is no dialogue for it, unless the user has `asked` for a task by name.
    """
    task = dig(effective(deployment), "spec", "model", "task")
    if asked == "auto" and task in _ELSEWHERE:
        path, model = _ELSEWHERE[task], served_name(deployment)
        words = ["-H", "Content-Type: application/json", "-d", json.dumps({"model": model, "input": "text"})]
        if task == "transcribe":
            words = ["-F", "file=@speech.wav", "-F", f"model={model}"]
        name, namespace = (str(dig(deployment, "metadata", key)) for key in ("name", "namespace"))
        service = dig(deployment, "status", "endpoint", "service", default=name)
        port = dig(deployment, "status", "endpoint", "port", default=80)
        raise DialogueError(
            f"the model of md/{name} has spec.model.task {task}, for which there is no chat: it answers at {path}. "
            f"After `kubectl port-forward service/{bounded(str(service))} 8000:{port} -n {namespace}`: "
            f"curl http://127.0.0.1:8000{path} {shlex.join(words)}"
        )
    return _OF_DEPLOYMENT.get(task) if isinstance(task, str) else None


def served_name(deployment: Resource) -> str:
    """Returns the name that the server has by the deployment, where the server may not be asked for it."""
    model = dig(effective(deployment), "spec", "model")
    names = (dig(deployment, "status", "gateway", "modelName"), dig(model, "servedName"))
    last = str(dig(model, "id", default="")).rstrip("/").rpartition("/")[2]
    return next((name for name in names if isinstance(name, str) and name), last)


@dataclass(kw_only=True)
class Dialogue:
    """Questions to one server, and what was said so far."""

    client: Client
    deployment: Resource
    endpoint: Endpoint
    remark: Callable[[str], None]
    wanted: DialogueOptions
    model: str
    tasks: list[Task]
    """What is asked for: the first one; the others if the server refuses it."""
    certain: bool
    """Whether the user or the server named the first one, or it was answered; if not, a refusal leads to the next."""
    history: list[dict[str, str]] = field(default_factory=list)
    """The conversation so far."""

    def body(self, prompt: str) -> Resource:
        """The request for a prompt."""
        system = [{"role": "system", "content": self.wanted.system}] if self.wanted.system else []
        return request_body(
            self.tasks[0],
            model=self.model,
            messages=[*system, *self.history, {"role": "user", "content": prompt}],
            documents=self.wanted.documents,
            max_tokens=self.wanted.max_tokens,
        )

    def curl(self, prompt: str) -> list[str]:
        """The request as commands for a shell, for the gateway or from inside of the cluster, and for this machine."""
        path, gateway = PATHS[self.tasks[0]], dig(self.deployment, "status", "gateway")
        body = self.body(prompt)
        url, where = dig(self.deployment, "status", "endpoint", "url"), "in a pod of the cluster"
        if dig(gateway, "ready") is True and isinstance(dig(gateway, "url"), str):
            url, where = dig(gateway, "url"), "through the gateway"
            named = dig(gateway, "modelName")
            body["model"] = named if isinstance(named, str) and named else self.model

        def command(address: str) -> str:
            data = json.dumps(body)  # with escapes, so that no character of it is for a terminal
            words = ["curl", "-N", address, "-H", "Content-Type: application/json", "-d", data]
            return " ".join(map(shlex.quote, words))

        lines = []
        if isinstance(url, str) and url:
            lines += [f"# {where}", command(f"{bounded(url).rstrip('/')}{path}")]
        body["model"] = self.model
        proxy = f"http://127.0.0.1:8001{proxy_path(self.endpoint, path)}"
        return [*lines, "# on this machine, beside `kubectl proxy`", command(proxy)]

    async def ask(self, prompt: str, write: Callable[[Piece], None]) -> AnswerView:
        """The whole answer; `write` gets its pieces as they arrive.

        Raises DialogueError, whose message says why there is no whole answer.
        """
        while True:
            if self.tasks[0] is Task.RERANK and not self.wanted.documents:
                raise DialogueError("the model ranks documents: name them with --document")
            try:
                found = await self._ask(prompt, write)
            except ApiError as error:
                if not await self._has_next_task(error):
                    raise DialogueError(sentence(error, self.endpoint, self.deployment)) from error
            except KubeError as error:
                raise DialogueError(f"the answer broke off, or did not come: {bounded(str(error), 300)}") from error
            else:
                self.certain = True
                return found

    async def _has_next_task(self, error: ApiError) -> bool:
        """After an error: whether the server refuses this task, and another is to be asked for, which a remark names.

        It is what the server's paths say, else the next in their order.
        """
        if self.certain or len(self.tasks) < 2 or error.reason or error.status not in (*_REFUSING, *_FAULTY):
            return False
        refused, *rest = self.tasks
        listed = await schema_tasks(self.client, self.endpoint)
        # An existing path also answers 404, for an unknown model.
        request_is_at_fault = refused in listed if listed else error.status in _FAULTY
        if request_is_at_fault and error.status in (404, *_FAULTY) and not names_other_task(error.message):
            return False
        has = [task for task in listed if task is not refused]
        self.certain = bool(has)
        self.tasks = has or rest
        why = f"HTTP {error.status}: {bounded(error.message, 200) or 'no message'}"
        alone = ", of each prompt alone" if refused is Task.CHAT else ""
        self.remark(f"the server refuses {refused} ({why}): asking it for {self.tasks[0]}{alone}")
        return True

    async def _ask(self, prompt: str, write: Callable[[Piece], None]) -> AnswerView:
        body = self.body(prompt)
        answer = Answer(task=self.tasks[0], model=self.model, started=monotonic())
        pieces = ask(self.client, self.endpoint, self.tasks[0], body, silence=self.wanted.silence)
        async with aclosing(pieces) as stream:
            async for piece in stream:
                if piece.error:
                    raise DialogueError(piece.error)
                answer.add(piece, monotonic())
                write(piece)
        if self.tasks[0] is Task.CHAT:
            self.history += [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer.text}]
        return answer.view(monotonic())


def names_other_task(message: str) -> bool:
    """Returns whether a server's message says that the model has no chat template, or does not do this task."""
    return _OTHER_TASK.search(message[:_LONGEST_REFUSAL]) is not None


def sentence(error: KubeError, endpoint: Endpoint, deployment: Resource) -> str:
    """Returns why there is no answer: a missing right, no pod behind the Service, or what the server answered."""
    namespace = endpoint.key.namespace
    if isinstance(error, Forbidden) and error.reason:
        return denied(error, namespace)
    if not isinstance(error, ApiError):
        return bounded(str(error), 300)
    name = str(dig(deployment, "metadata", "name"))
    text = bounded(error.message, 200)
    if error.status == 503 and error.reason == "ServiceUnavailable":
        return f"no pod of md/{name} answers ({text}): airunway status md/{name} -n {namespace} shows why"
    if error.status == 401 and not error.reason:
        return f"the model's server asks for a key (HTTP 401), which the API server's proxy does not pass on: {text}"
    return f"the model's server answered with HTTP {error.status}: {text or 'no message'}"
