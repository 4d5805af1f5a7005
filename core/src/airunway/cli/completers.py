"""Names that a shell completes: of deployments, templates and namespaces in the cluster, of what is installed here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from airunway.cli.cluster import DEPLOYMENT_WORDS

PATIENCE = 1.0
"""Seconds for names from the cluster: the user waits for them with a key pressed."""

_MOST_NAMES = 500
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which names are wanted of the cluster: the options before the word that is being typed."""

    what: Literal["deployments", "namespaces", "templates"]
    """Kind of the names."""
    prefix: str = ""
    """How the names begin."""
    namespace: str = ""
    """Namespace of deployments; empty: the context's."""
    kubeconfig: str = ""
    """Kubeconfig file; empty: as kubectl."""
    context: str = ""
    """Context of it; empty: the current one."""


Names = Callable[[Asked], Sequence[str]]
"""Gives names of the cluster; completers find it as the object of click's context."""


def deployments(ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """Deployments as ``md/NAME``, or as names after ``md``, if none is given before."""
    given: Sequence[str] = ctx.params.get("target") or ()
    after_word = len(given) == 1 and given[0].lower() in DEPLOYMENT_WORDS
    if given and not after_word:
        return []
    word, slash, begun = typed.rpartition("/")
    if not slash and not after_word and "md/".startswith(typed):
        word, slash, begun = "md", "/", ""
    if slash and (after_word or word.lower() not in DEPLOYMENT_WORDS):
        return []
    return [f"{word}{slash}{each}" for each in _in_cluster(ctx, "deployments", begun)]


def templates(ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """Templates of the namespace and of the cluster."""
    return _in_cluster(ctx, "templates", typed)


def namespaces(ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """Namespaces of the cluster."""
    return _in_cluster(ctx, "namespaces", typed)


def providers(ctx: click.Context, param: click.Parameter, typed: str) -> list[str]:
    """The providers that are installed here and not given already."""
    from airunway.plugins.registry import discover

    given = (ctx.params.get(param.name) or ()) if param.nargs == -1 else ()
    return [
        each for each in _beginning(typed, (found.name for found in discover(on_request=True))) if each not in given
    ]


def several_providers(ctx: click.Context, param: click.Parameter, typed: str) -> list[str]:
    """The same after a comma."""
    before, comma, begun = typed.rpartition(",")
    return [f"{before}{comma}{each}" for each in providers(ctx, param, begun) if each not in before.split(",")]


def models(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """The models of the catalogue of sizes."""
    from airunway.sizing.catalogue import catalogue

    return _beginning(typed, catalogue())


def gpus(_ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """The GPUs whose memory is known."""
    from airunway.sizing.nodes import known_gpus

    return _beginning(typed, known_gpus())


def _beginning(typed: str, names: Iterable[str]) -> list[str]:
    return [each for each in dict.fromkeys(names) if each.startswith(typed)]


def _in_cluster(ctx: click.Context, what: Literal["deployments", "namespaces", "templates"], typed: str) -> list[str]:
    names: Names = ctx.obj
    options = {name: str(ctx.params.get(name) or "") for name in ("namespace", "kubeconfig", "context")}
    return _beginning(typed, names(Asked(what=what, prefix=typed, **options)))


def names_in_cluster(asked: Asked) -> list[str]:
    """Returns names of the user's cluster; none if it refuses, or does not answer in time: a shell shows no errors."""
    import asyncio

    from airunway.kube import KubeError

    try:
        return asyncio.run(asyncio.wait_for(_read(asked), PATIENCE))
    except (KubeError, TimeoutError, OSError, ValueError):
        return []


async def _read(asked: Asked) -> list[str]:
    from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_DEPLOYMENT, MODEL_TEMPLATE
    from airunway.kube import NAMESPACE, Client, load_config, user_agent_of

    kubeconfig = Path(asked.kubeconfig).expanduser() if asked.kubeconfig else None
    config = load_config(kubeconfig=kubeconfig, context=asked.context or None)
    async with Client(config, user_agent=user_agent_of("completion"), timeout=PATIENCE) as client:
        if asked.what == "namespaces":
            listed = await client.list_metadata(NAMESPACE)
        elif asked.what == "templates":
            where = asked.namespace or client.config.namespace
            listed = await client.list_metadata(MODEL_TEMPLATE, namespace=where)
            listed = [*listed, *await client.list_metadata(CLUSTER_MODEL_TEMPLATE)]
        else:
            listed = await client.list_metadata(MODEL_DEPLOYMENT, namespace=asked.namespace or client.config.namespace)
    found = (str(each["metadata"]["name"]) for each in listed)
    return sorted(name for name in found if name.startswith(asked.prefix) and _NAME.fullmatch(name))[:_MOST_NAMES]
