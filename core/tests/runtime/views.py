"""What a pass of a provider sees, with the revision that the core records before it, and what it decides about it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airunway.api import names
from airunway.api.crds import schema_of
from airunway.configs.resolution import Resolution
from airunway.controller.decision import NO_CONFIG
from airunway.controller.decision import decide as decide_core
from airunway.owned.objects import Identity, identity_in
from airunway.plugins.contract import Upstream
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.plugins.provider_config import config_object
from airunway.plugins.settings import kept_settings, with_defaults
from airunway.resource import Resource, annotations_of, condition_of, copy_of, dig, filled, format_time
from airunway.revisions.revision import hash_of
from airunway.runtime.crd_versions import Installed, translation_status
from airunway.runtime.plan import Decision, decide
from airunway.runtime.state import ClusterState
from airunway.schema import compile_schema
from airunway.sdk import NoSettings
from airunway.selection.facts import provider_facts
from airunway.status.conditions import SERVED, parts_of

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
CHECK = compile_schema(schema_of("ModelDeployment")["properties"]["status"])
TAKEN: dict[str, Resource] = {}
"""The revisions that `core_pass` has recorded, by hash: that of an object is found by its annotation."""


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


# ----------------------------------------------------------------------------------------------------------- the core


def core_pass(
    host: ProviderHost,
    deployment: Resource,
    *live: Resource,
    resolution: Resolution = NO_CONFIG,
    granted: Collection[str] = (),
    installed: Mapping[tuple[str, str], Installed] | None = None,
    settings: object = None,
) -> Resource:
    """The status of a pass of the core, for a provider of these kinds and settings. Its current revision is the one in
    the status, else the one of the `live` objects: these serve if they say so.
    """
    installed = installed or there(host)
    verdicts = {kind.key: installed[kind.group, kind.kind] for kind in host.manifest.upstream}
    newest, settings = verdicts[host.primary_kind.key].upstream, settings or host.settings({})
    usual = with_defaults(settings, newest.transformer.defaults) if newest is not None else settings
    translation = translation_status(verdicts, settings=kept_settings(usual))
    config = {**config_object(host.manifest), "status": {"ready": True, "translation": translation}}
    status = dict(deployment["status"])
    if (current := revision_of(*live)) and "revision" not in status:
        status["revision"] = current
    if live:
        status["provider"] = {"resourceName": "made", **status["provider"]}
        if dig(live[0], "status", "state") == "Ready":
            served = [] if condition_of(deployment, SERVED) else [{"type": SERVED, "status": "True"}]
            status = {"replicas": {"ready": 1}, **status, "conditions": [*status["conditions"], *served]}
    found = decide_core(
        {**deployment, "status": status},
        violations=(),
        providers=[provider_facts(config)],
        selector=True,
        now=NOW,
        resolution=resolution,
        granted=granted,
        parts=parts_of(deployment),
    ).status
    problems: list[Any] = []
    CHECK(found, "status", problems)
    assert not problems, "the API server would refuse the status"
    remember(found.get("revision", {}))
    return found


def remember(revision: Resource) -> Resource:
    """The revision, with its hash; objects that are made from it are of it."""
    revision = revision if not revision or "hash" in revision or "pending" in revision else hashed(revision)
    if revision.get("hash"):
        TAKEN[revision["hash"]] = {key: value for key, value in revision.items() if key != "pending"}
    return revision


def hashed(revision: Resource) -> Resource:
    return {**revision, "hash": hash_of(revision)}


def revision_of(*live: Resource) -> Resource:
    """The revision that objects were made from; empty if there is none."""
    found = (TAKEN.get(annotations_of(obj).get(names.REVISION, "")) for obj in live)
    return next(filter(None, found), {})


def with_parts(deployment: Resource, **parts: Resource) -> Resource:
    """The deployment with parts of its revision replaced."""
    revision = {key: value for key, value in deployment["status"]["revision"].items() if key not in ("hash", "pending")}
    for name, value in parts.items():
        revision[name] = {**revision.get(name, {}), **value}
    return {**deployment, "status": {**deployment["status"], "revision": remember(hashed(revision))}}


# ------------------------------------------------------------------------------------------------------- the provider


def state(
    host: ProviderHost,
    deployment: Resource,
    *objects: Resource,
    granted: Collection[str] = (),
    resolution: Resolution = NO_CONFIG,
    settings: object = None,
    **changes: Any,
) -> ClusterState:
    """What a pass sees after the core has recorded the revision, if the status has none yet."""
    live = {identity_in(obj): obj for obj in objects}
    installed = changes.pop("installed", None) or there(host)
    if "revision" not in deployment["status"]:
        found = core_pass(
            host,
            deployment,
            *objects,
            granted=granted,
            resolution=resolution,
            installed=installed,
            settings=settings,
        )
        status = {**deployment["status"], **filled(revision=found.get("revision"))}
        deployment = {**deployment, "status": status}

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


def stored(obj: Resource, *, says: str) -> Resource:
    """A written object as the API server has it."""
    found = copy_of(obj)
    found["metadata"] |= {"uid": f"uid-{obj['kind']}", "creationTimestamp": format_time(NOW)}
    return {**found, "status": {"state": says}} if says else found


def made(host: ProviderHost, deployment: Resource, *, writer: str = "", state: str = "Ready") -> list[Resource]:
    """What an earlier pass made of the deployment, by the transformer of that name."""
    alive = {key: value for key, value in deployment["metadata"].items() if key != "deletionTimestamp"}
    view = _state(host, {**deployment, "metadata": alive})
    if writer:
        provider = {**view.revision["provider"], "transformers": {host.primary_kind.key: writer}}
        view = replace(view, deployment=with_parts(view.deployment, provider=provider))
    first, *others = decide(view, host, settings=host.settings({})).objects
    return [stored(first, says=state), *(stored(obj, says="") for obj in others)]


_state = state


def decided(host: ProviderHost, view: ClusterState) -> Decision:
    before = copy_of(view.deployment), [copy_of(obj) for obj in view.live.values()]
    decision = decide(view, host, settings=NoSettings())
    assert (view.deployment, list(view.live.values())) == before, "a decision changes nothing"
    return decision


def reasons(decision: Decision) -> list[str]:
    return [result.reason for result in decision.results]
