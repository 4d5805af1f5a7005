"""What a pass of the toy provider sees, and what it decides about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airunway.owned.objects import Identity, identity_in
from airunway.plugins.contract import Upstream
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.resource import Resource, copy_of
from airunway.runtime.crd_versions import Installed
from airunway.runtime.plan import Decision, decide
from airunway.runtime.state import ClusterState
from airunway.runtime.translate import parsed, translate
from airunway.sdk import NoSettings

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def there(host: ProviderHost) -> dict[tuple[str, str], Installed]:
    """Everything installed, each kind in its preferred version; the Thing in both."""
    context = assumed_context(host, engine="vllm", now=NOW)
    found = {}
    for kind in host.manifest.upstream:
        upstream = context.served[kind.key]
        others = tuple(
            Upstream(api_version=f"{kind.group}/{version}", transformer=t)
            for version in kind.versions
            for t in host.transformers_of(kind)
            if t.api_version == f"{kind.group}/{version}" and t.api_version != upstream.api_version
        )
        found[kind.group, kind.kind] = Installed(
            upstream=upstream, reason="SchemaSupported", message="", served=(upstream, *others)
        )
    return found


def state(host: ProviderHost, deployment: Resource, *objects: Resource, **changes: Any) -> ClusterState:
    live = {identity_in(obj): obj for obj in objects}
    installed = changes.pop("installed", None) or there(host)

    def find(wanted: Sequence[Resource]) -> Mapping[Identity, Resource]:
        return live

    base = ClusterState(
        provider=host.name,
        deployment=deployment,
        live=live,
        selected=(),
        find=find,
        evidence=None,
        events=(),
        installed=installed,
        settled=True,
        rolled_out=True,
        kubernetes=(1, 33),
        now=NOW,
    )
    return replace(base, **changes)


def made(host: ProviderHost, deployment: Resource, *, writer: str = "", state: str = "Ready") -> list[Resource]:
    """What an earlier pass made of the deployment, by the transformer of that name."""
    context = assumed_context(host, engine="vllm", now=NOW)
    if writer:
        transformer = next(t for t in host.transformers if t.name == writer)
        context = replace(context, upstream=Upstream(api_version=transformer.api_version, transformer=transformer))
    objects = [copy_of(obj) for obj in translate(host, deployment, parsed(deployment), context).objects]
    for obj in objects:
        obj["metadata"]["uid"] = f"uid-{obj['kind']}"
    objects[0]["status"] = {"state": state}
    return objects


def decided(host: ProviderHost, view: ClusterState) -> Decision:
    before = copy_of(view.deployment), [copy_of(obj) for obj in view.live.values()]
    decision = decide(view, host, settings=NoSettings())
    assert (view.deployment, list(view.live.values())) == before, "a decision changes nothing"
    return decision


def reasons(decision: Decision) -> list[str]:
    return [result.reason for result in decision.results]
