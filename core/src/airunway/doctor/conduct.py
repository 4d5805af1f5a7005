"""How a provider runs in a cluster: the settings and the policy that its Deployment gives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airunway.api import names
from airunway.doctor.components import OURS, Component, components_in
from airunway.kube import DEPLOYMENT, Client, Forbidden
from airunway.resource import Resource

__all__ = ["Conduct", "conduct_in", "read_conduct"]


@dataclass(frozen=True, kw_only=True)
class Conduct:
    """`settings` are ``KEY=VALUE`` texts, `verify` whether unknown schemas are tried (``--unknown-schema Verify``).

    `source` is the Deployment that says so, empty where none does; `assumed` is what could not be read, and why.
    """

    settings: tuple[str, ...] = ()
    verify: bool = True
    source: str = ""
    assumed: str = ""


async def read_conduct(client: Client, provider: str) -> Conduct:
    """How a provider runs, by the Deployments that our charts label. Raises KubeError."""
    try:
        return conduct_in(await client.list_all(DEPLOYMENT, label_selector=OURS), provider)
    except Forbidden:
        return _assumed("you may not list Deployments in all namespaces")


def conduct_in(deployments: Sequence[Resource], provider: str) -> Conduct:
    """How these Deployments run a provider."""
    found = [component for component in components_in(deployments) if component.runs(provider)]
    if not found:
        return _assumed(f"no Deployment with the label {OURS} runs {names.provider_manager(provider)}")
    if len(found) > 1:
        return _assumed(f"several Deployments run it: {', '.join(component.name for component in found)}")
    return _conduct(found[0], provider)


def _conduct(component: Component, provider: str) -> Conduct:
    alone = component.providers == (provider,)
    texts = [
        text.removeprefix(f"{provider}.")
        for text in component.settings
        if text.startswith(f"{provider}.") or (alone and "." not in text.partition("=")[0])
    ]
    # What comes out of a ConfigMap or a field of the pod is known to the kubelet alone.
    unknown = [text.partition("=")[0] for text in texts if "$(" in text]
    return Conduct(
        settings=tuple(text for text in texts if "$(" not in text),
        verify=component.options.get("unknown-schema", "Verify") != "Fail",
        source=component.name,
        assumed=f"defaults for {', '.join(unknown)}, whose value is not in the Deployment" if unknown else "",
    )


def _assumed(why: str) -> Conduct:
    return Conduct(assumed=f"default settings and --unknown-schema Verify: {why}")
