"""Finds the user's cluster and a deployment in it, and says in one sentence why either cannot be read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

import click

from airunway.redaction import bounded, printable
from airunway.resource import ObjectKey

if TYPE_CHECKING:
    from airunway.kube import Client, KubeError

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


class Access(NamedTuple):
    """Which cluster a command reads."""

    kubeconfig: Path | None
    """File of ``--kubeconfig``; None: as kubectl."""
    context: str | None
    """Context of it; None: the current one."""


DEPLOYMENT_WORDS = (
    "md",
    "modeldeployment",
    "modeldeployments",
    "modeldeployment.airunway.ai",
    "modeldeployments.airunway.ai",
)
"""The words for the kind, as kubectl has them."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


def fail(message: str) -> NoReturn:
    """Print an error on standard error and exit with 1."""
    click.echo("\n".join(map(printable, f"airunway: {message}".splitlines())), err=True)
    raise click.exceptions.Exit(1)


def remark(text: str) -> None:
    """Write a line to standard error."""
    click.echo(bounded(text), err=True)


def parse_target(words: Sequence[str]) -> str:
    """The name in ``md/NAME``, ``md NAME`` or ``NAME``. Raises click.BadParameter."""
    parts = words[0].split("/") if len(words) == 1 else words
    if len(parts) == 1 and parts[0]:
        return parts[0]
    if len(parts) != 2 or parts[0].lower() not in DEPLOYMENT_WORDS or not parts[1]:
        raise click.BadParameter(f"{' '.join(words)!r} is not a ModelDeployment: write md/NAME")
    return parts[1]


def duration(text: str) -> timedelta:
    """The time of ``90s``, ``30m`` or ``1h30m``. Raises click.BadParameter."""
    from airunway.configs.canonical import parse_duration

    found = parse_duration(text)
    if found is None:
        raise click.BadParameter(f"{bounded(text, 80)!r} is not a duration such as 90s, 30m or 1h30m")
    return found


def about_deployment(
    target: Sequence[str],
    work: Callable[[Client, ObjectKey], Awaitable[T]],
    *,
    namespace: str,
    access: Access,
) -> T:
    """The result of `work` on the named deployment.

    Exits with 1 and one sentence if there is none of that name (with the nearest name), or without the right to read
    it, and with 130 on Ctrl-C.
    """
    from airunway.kube import NotFound

    name = parse_target(target)
    if not _NAME.fullmatch(name):
        raise click.BadParameter(f"{bounded(name, 80)!r} is not a name that a ModelDeployment can have")

    async def named(client: Client) -> T:
        key = ObjectKey(namespace or client.config.namespace, name)
        try:
            return await work(client, key)
        except NotFound as error:
            if error.details.get("name") != name:
                raise
            fail(await _not_found(client, key))

    return on_cluster_reporting(named, namespace=namespace, access=access)


def on_cluster_reporting(work: Callable[[Client], Awaitable[T]], *, namespace: str, access: Access) -> T:
    """The result of `work`. Exits with 1 and one sentence without a right that it needs, and with 130 on Ctrl-C."""
    from airunway.kube import Forbidden, KubeError
    from airunway.snapshots.reader import denied

    async def main(client: Client) -> T:
        where = namespace or client.config.namespace
        try:
            return await work(client)
        except Forbidden as error:
            fail(denied(error, where))
        except ExceptionGroup as errors:
            # A task of several failed: its error is the user's.
            if (refused := _first(errors, Forbidden)) is not None:
                fail(denied(refused, where))
            bare = _first(errors, BrokenPipeError) or _first(errors, KubeError)
            if bare is None:
                raise
            raise bare from None

    try:
        return on_cluster(main, access)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


def _first(errors: BaseExceptionGroup[Exception], kind: type[E]) -> E | None:
    """The first error of a kind in a group; None if it has none."""
    for error in errors.exceptions:
        found = _first(error, kind) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, kind):
            return found
    return None


async def _not_found(client: Client, key: ObjectKey) -> str:
    from airunway.kinds import MODEL_DEPLOYMENT
    from airunway.kube import KubeError

    text = f"there is no ModelDeployment {key.name!r} in namespace {key.namespace}"
    try:
        listed = await client.list_metadata(MODEL_DEPLOYMENT, namespace=key.namespace)
    except KubeError:
        return f"{text} (those that there are cannot be listed)"
    names = [str(each["metadata"]["name"]) for each in listed]
    near = difflib.get_close_matches(key.name, names[:10_000], n=1, cutoff=0.5)
    if near:
        return f"{text}: did you mean md/{near[0]}?"
    return f"{text}: kubectl get modeldeployments -A lists all" if not names else f"{text}: it has {_some(names)}"


def _some(names: list[str]) -> str:
    shown = ", ".join(sorted(names)[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def on_cluster(work: Callable[[Client], Awaitable[T]], access: Access, *, timeout: float = 30.0) -> T:
    """The result of `work` with a client of the user's cluster; `timeout` is in seconds, for each request.

    Exits with 1 and one message on a KubeError.
    """
    import asyncio

    from airunway.kube import Client, KubeError, load_config, user_agent_of

    server = ""

    async def main() -> T:
        nonlocal server
        config = load_config(kubeconfig=access.kubeconfig, context=access.context)
        server = config.server
        async with Client(config, user_agent=user_agent_of("cli"), timeout=timeout) as client:
            return await work(client)

    try:
        return asyncio.run(main())
    except KubeError as error:
        fail(explained(error, server))


def explained(error: KubeError, server: str) -> str:
    """The error of a request, with what the user can do about it."""
    from airunway.kube import ApiError, ErrorKind, TransportError, Unauthorized

    if isinstance(error, TransportError):
        return (
            f"{error}. Check that {server} is the right cluster (--context, --kubeconfig) and that this machine can "
            "reach it"
        )
    if isinstance(error, Unauthorized):
        return f"{server} rejected the credentials (401): log in again, or use another --context"
    if isinstance(error, ApiError) and error.kind is ErrorKind.KIND_NOT_SERVED:
        return (
            f"{server} does not serve the kinds of AI Runway. Check that it is the right cluster, and that AI Runway "
            "is installed there: `airunway doctor` shows what is missing"
        )
    return str(error)
