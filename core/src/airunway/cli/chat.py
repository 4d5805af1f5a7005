"""``airunway chat`` asks a deployment's model, and shows how fast the answer came."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import click

from airunway.cli import completers
from airunway.cli.cluster import Access, about_deployment, denied, duration, fail, remark
from airunway.cli.options import cluster_options, namespace_option, output_option
from airunway.cli.parameters import Command, IntRange, argument, option
from airunway.cli.printing import as_document, escape_what_cannot_be_encoded
from airunway.redaction import bounded
from airunway.resource import dig
from airunway.view import Unseen
from airunway.view.answers import PATHS, Answer, AnswerView, Piece, Task, plain_text, request_body

if TYPE_CHECKING:
    from airunway.kube import ApiError, Client, KubeError
    from airunway.resource import ObjectKey, Resource
    from airunway.snapshots.serving import Endpoint
LONGEST_PROMPT = 2**20
"""Characters of a prompt."""

_SURROGATES = re.compile("[\ud800-\udfff]")

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


@click.command(cls=Command)
@argument("target", metavar="md/NAME", shell_complete=completers.deployments, help="A deployment of the cluster.")
@argument(
    "prompt", default=None, metavar="PROMPT", help="The question. Default: a conversation; in a pipe, standard input."
)
@namespace_option()
@option(
    "task",
    "--as",
    default="auto",
    type=click.Choice(["auto", "chat", "completion", "embedding", "rerank"]),
    help="What to ask the model for. Default: what its server advertises.",
)
@option("--model", help="Served name (default: the first that the server lists).")
@option("--system", help="System message of a chat.")
@option("--document", multiple=True, help="Document to rank by its relevance to PROMPT; may be repeated.")
@option("--max-tokens", type=IntRange(min=1), help="At most so many tokens of an answer.")
@option(
    "--timeout", default="5m", metavar="DURATION", help="Longest wait for the first, or the next, part of an answer."
)
@option("--raw", is_flag=True, help="Print the request as a curl command instead.")
@output_option("text", "json", "yaml")
@cluster_options
def chat(
    target: str,
    prompt: str | None,
    *,
    namespace: str,
    task: str,
    model: str,
    system: str,
    document: tuple[str, ...],
    max_tokens: int | None,
    timeout: str,
    raw: bool,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Ask the model of a deployment, through the API server: one answer, or a conversation on a terminal.

    Standard output has the answer as it arrives; standard error the time to the first token, tokens per second, and
    the server's own counts.

    airunway chat md/llama "Why is the sky blue?" -n ml

    airunway chat md/reranker "capital of France" --document Paris --document Rome

    Needs the right to create services/proxy in the namespace (the ClusterRole edit). Your credentials do not reach the
    model.
    """
    if prompt is None and not sys.stdin.isatty():
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        prompt = sys.stdin.read(LONGEST_PROMPT + 1)
    prompt = None if prompt is None else _decodable(prompt)
    if prompt is not None and not prompt.strip():
        raise click.BadParameter("the prompt is empty")
    if prompt is not None and len(prompt) > LONGEST_PROMPT:
        raise click.BadParameter(f"the prompt has more than {LONGEST_PROMPT} characters")
    if prompt is None and (raw or output != "text" or document):
        raise click.BadParameter("--raw, --output and --document need a PROMPT")
    wanted = _Wanted(
        task="rerank" if document and task == "auto" else task,
        model=_decodable(model),
        system=_decodable(system),
        documents=tuple(map(_decodable, document or ())),
        max_tokens=max_tokens,
        silence=duration(timeout).total_seconds(),
    )
    if wanted.silence <= 0:
        raise click.BadParameter("--timeout must be longer than 0s")
    escape_what_cannot_be_encoded()

    async def work(client: Client, key: ObjectKey) -> None:
        talk = await _talk(client, key, wanted)
        if prompt is None:
            await talk.converse()
        elif raw:
            click.echo("\n".join(talk.curl(prompt)))
        elif (found := await talk.ask(prompt, show=output == "text")) is None:
            raise click.exceptions.Exit(1)
        elif output != "text":
            click.echo(as_document([found.as_resource()], output), nl=False)

    about_deployment([target], work, namespace=namespace, access=Access(kubeconfig, context))


def _decodable(text: str) -> str:
    """The text with U+FFFD for bytes that are no UTF-8: arguments have surrogates for them, and JSON takes none."""
    return _SURROGATES.sub("\ufffd", text)


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """What the user asked for."""

    task: str
    model: str
    system: str
    documents: tuple[str, ...]
    max_tokens: int | None
    silence: float


async def _talk(client: Client, key: ObjectKey, wanted: _Wanted) -> _Talk:
    """Find the server of a deployment, its model, and what that does. Exits with 1 if there is none."""
    from airunway.kinds import MODEL_DEPLOYMENT
    from airunway.kube import TransportError
    from airunway.snapshots.serving import advertised, endpoint_of, pod_endpoint

    deployment = await client.get(MODEL_DEPLOYMENT, key)
    stated = _stated_task(deployment, asked=wanted.task)
    endpoint = endpoint_of(deployment) or await pod_endpoint(client, deployment)
    if endpoint is None:
        phase = bounded(str(dig(deployment, "status", "phase", default="Unknown")), 40)
        fail(
            f"md/{key.name} in namespace {key.namespace} has no endpoint yet (it is {phase}): "
            f"airunway status md/{key.name} -n {key.namespace} shows why"
        )
    try:
        found = await advertised(client, endpoint)
    except TransportError as error:
        fail(f"the model's server does not answer: {error}")
    model = wanted.model or (found.models[0] if found.models else _served_name(deployment))
    if wanted.task != "auto":
        tasks = [Task(wanted.task)]
    elif stated is not None:
        tasks = [stated]
    else:
        tasks = [*found.tasks] or [task for task in PATHS if task is not Task.RERANK]
    return _Talk(
        client=client,
        deployment=deployment,
        endpoint=endpoint,
        wanted=wanted,
        model=model,
        tasks=tasks,
        certain=wanted.task != "auto" or stated is not None or bool(found.tasks),
    )


def _stated_task(deployment: Resource, *, asked: str) -> Task | None:
    """What to ask for by ``spec.model.task``; None if that leaves it to the server. Exits with 1 if it is nothing that
    this command asks for, unless the user has `asked` for a task by name.
    """
    from airunway.templates.expansion import effective

    task = dig(effective(deployment), "spec", "model", "task")
    if asked == "auto" and task in _ELSEWHERE:
        path, model = _ELSEWHERE[task], _served_name(deployment)
        words = ["-H", "Content-Type: application/json", "-d", json.dumps({"model": model, "input": "text"})]
        if task == "transcribe":
            words = ["-F", "file=@speech.wav", "-F", f"model={model}"]
        name, namespace = (str(dig(deployment, "metadata", key)) for key in ("name", "namespace"))
        service = dig(deployment, "status", "endpoint", "service", default=name)
        port = dig(deployment, "status", "endpoint", "port", default=80)
        fail(
            f"the model of md/{name} has spec.model.task {task}, for which there is no chat: it answers at {path}. "
            f"After `kubectl port-forward service/{bounded(str(service))} 8000:{port} -n {namespace}`: "
            f"curl http://127.0.0.1:8000{path} {shlex.join(words)}"
        )
    return _OF_DEPLOYMENT.get(task) if isinstance(task, str) else None


def _served_name(deployment: Resource) -> str:
    """The name that the server has by the deployment, where the server may not be asked for it."""
    from airunway.templates.expansion import effective

    model = dig(effective(deployment), "spec", "model")
    names = (dig(deployment, "status", "gateway", "modelName"), dig(model, "servedName"))
    last = str(dig(model, "id", default="")).rstrip("/").rpartition("/")[2]
    return next((name for name in names if isinstance(name, str) and name), last)


@dataclass(kw_only=True)
class _Talk:
    """Questions to one server."""

    client: Client
    deployment: Resource
    endpoint: Endpoint
    wanted: _Wanted
    model: str
    tasks: list[Task]
    """What is asked for: the first one; the others if the server refuses it."""
    certain: bool
    """Whether the user or the server named the first one, or it was answered; if not, a refusal leads to the next."""
    history: list[dict[str, str]] = field(default_factory=list)
    """The conversation so far."""

    def body(self, prompt: str) -> Resource:
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
        from airunway.snapshots.serving import proxy_path

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

    async def ask(self, prompt: str, *, show: bool = True) -> AnswerView | None:
        """Ask and print; None, after a sentence on standard error, if there is no whole answer."""
        from airunway.kube import ApiError, KubeError

        while True:
            if self.tasks[0] is Task.RERANK and not self.wanted.documents:
                _problem("the model ranks documents: name them with --document")
                return None
            try:
                found = await self._ask(prompt, show=show)
            except ApiError as error:
                if not await self._has_next_task(error):
                    _problem(_sentence(error, self.endpoint, self.deployment))
                    return None
            except KubeError as error:
                _problem(f"the answer broke off, or did not come: {bounded(str(error), 300)}")
                return None
            else:
                self.certain = self.certain or found is not None
                return found

    async def _has_next_task(self, error: ApiError) -> bool:
        """After an error: whether the server refuses this task, and another is to be asked for, which a remark names.

        It is what the server's paths say, else the next in their order.
        """
        from airunway.snapshots.serving import schema_tasks

        if self.certain or len(self.tasks) < 2 or error.reason or error.status not in (*_REFUSING, *_FAULTY):
            return False
        refused, *rest = self.tasks
        listed = await schema_tasks(self.client, self.endpoint)
        # A path that is there answers 404 to a model that it does not have.
        request_is_at_fault = refused in listed if listed else error.status in _FAULTY
        if request_is_at_fault and error.status in (404, *_FAULTY) and not names_other_task(error.message):
            return False
        has = [task for task in listed if task is not refused]
        self.certain = bool(has)
        self.tasks = has or rest
        why = f"HTTP {error.status}: {bounded(error.message, 200) or 'no message'}"
        alone = ", of each prompt alone" if refused is Task.CHAT else ""
        remark(f"the server refuses {refused} ({why}): asking it for {self.tasks[0]}{alone}")
        return True

    async def _ask(self, prompt: str, *, show: bool) -> AnswerView | None:
        from airunway.snapshots.serving import ask

        body = self.body(prompt)
        answer = Answer(task=self.tasks[0], model=self.model, started=monotonic())
        printer = Printer(show)
        pieces = ask(self.client, self.endpoint, self.tasks[0], body, silence=self.wanted.silence)
        try:
            async with aclosing(pieces) as stream:
                async for piece in stream:
                    if piece.error:
                        printer.end()
                        _problem(piece.error)
                        return None
                    answer.add(piece, monotonic())
                    printer.write(piece)
        finally:
            printer.end()
        view = answer.view(monotonic())
        if show:
            print_rest(view, self.wanted.documents)
        self._remember(prompt, answer)
        return view

    def _remember(self, prompt: str, answer: Answer) -> None:
        if self.tasks[0] is Task.CHAT:
            self.history += [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer.text}]

    async def converse(self) -> None:
        """Ask what is typed until the end of input; Ctrl-C ends an answer, or at the prompt the conversation."""
        remark(f"{self.model} of md/{dig(self.deployment, 'metadata', 'name')}; Ctrl-C ends an answer, Ctrl-D the talk")
        terminal = Terminal()
        while True:
            sys.stdout.write("> ")
            sys.stdout.flush()
            typed = await terminal.line()
            if typed is None:
                click.echo()
                return
            if not typed.strip():
                continue
            if len(typed) > LONGEST_PROMPT:
                remark(f"the prompt has more than {LONGEST_PROMPT} characters")
                continue
            await _interruptible(self.ask(typed))


def names_other_task(message: str) -> bool:
    """Whether a server's message says that the model has no chat template, or does not do this task."""
    return _OTHER_TASK.search(message[:_LONGEST_REFUSAL]) is not None


async def _interruptible(work: Coroutine[object, object, object]) -> None:
    """Wait for `work`; Ctrl-C ends it, and nothing else."""
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, task.cancel)
    except NotImplementedError:  # Windows: Ctrl-C ends the conversation
        await task
        return
    try:
        with suppress(asyncio.CancelledError):
            await task
        if task.cancelled():
            remark("the answer was ended")
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, before)


def _sentence(error: KubeError, endpoint: Endpoint, deployment: Resource) -> str:
    """Why there is no answer: a missing right, no pod behind the Service, or what the model's server answered."""
    from airunway.kube import ApiError, Forbidden

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


def _problem(text: str) -> None:
    click.echo(f"airunway: {bounded(text)}", err=True)


# ----------------------------------------------------------------------------------------------------- the terminal


_HEAD = "\x1b[2m"
_END = "\x1b[0m"


class Terminal:
    """Lines that are typed. Waiting for one can be cancelled, unlike a thread that reads."""

    def __init__(self) -> None:
        self._typed = b""
        self._ended = False

    async def line(self) -> str | None:
        """The next line; None at the end of input."""
        while b"\n" not in self._typed and not self._ended:
            await self._read()
        line, found, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace") if found or line else None

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        number = sys.stdin.fileno()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        try:
            loop.add_reader(number, wake)
        except NotImplementedError:  # Windows
            self._typed += (await asyncio.to_thread(sys.stdin.readline)).encode()
            self._ended = not self._typed
            return
        try:
            await ready
        finally:
            loop.remove_reader(number)
        read = os.read(number, 65536)
        self._typed += read
        self._ended = not read


class Printer:
    """Writes an answer to standard output as it arrives; the model's reasoning only on a terminal."""

    def __init__(self, show: bool) -> None:
        self._show, self._terminal = show, sys.stdout.isatty()
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._head, self._end = ("", "") if plain else (_HEAD, _END)
        self._reasons = self._wrote = False
        self._last = "\n"

    def write(self, piece: Piece) -> None:
        if piece.reasoning and self._show and self._terminal:
            self._write(f"{self._head}{plain_text(piece.reasoning)}{self._end}")
            self._reasons = True
        if piece.text and self._show:
            if self._reasons:
                self._write("\n\n")
                self._reasons = False
            self._write(plain_text(piece.text))

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._last = text[-1]

    def end(self) -> None:
        """The next output begins a line."""
        if self._last != "\n":
            self._write("\n")


def print_rest(view: AnswerView, documents: tuple[str, ...]) -> None:
    """What is no text, and the line of counts."""
    if view.embedding:
        shown = ", ".join(f"{number:.6g}" for number in view.embedding[:8])
        more = f", … {len(view.embedding) - 8} more" if len(view.embedding) > 8 else ""
        click.echo(f"[{shown}{more}]")
        remark(f"{len(view.embedding)} dimensions; -o json prints all")
    for each in view.ranked:
        text = documents[each.index] if each.index < len(documents) else "?"
        click.echo(f"{each.score:.6f}  {bounded(text, 300)}")
    remark("; ".join(_counts(view)))


def _counts(view: AnswerView) -> list[str]:
    found = []
    if not isinstance(view.first_token, Unseen):
        found.append(f"first token after {view.first_token * 1000:.0f} ms")
        speed = view.tokens_per_second
        found.append(f"tokens/s unknown: {speed.why}" if isinstance(speed, Unseen) else f"{speed:.1f} tokens/s")
    usage = view.usage
    if isinstance(usage, Unseen):
        found.append(f"tokens unknown: {usage.why}")
    else:
        cached = f" ({usage.cached} cached)" if usage.cached else ""
        asked = "?" if usage.prompt is None else str(usage.prompt)
        answered = "?" if usage.completion is None else str(usage.completion)
        found.append(f"{asked} tokens in{cached}, {answered} out")
    found.append(f"{view.seconds:.2f} s in all")
    if view.finish not in ("", "stop"):
        found.append(f"ended by {view.finish}")
    return found
