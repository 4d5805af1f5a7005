"""Builds the context of a plugin call without a cluster, for previews, documentation and tests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from airunway.plugins.contract import Context, ModelCache, RuntimeSettings, Transformer, Upstream, UpstreamKind
from airunway.plugins.errors import PluginFault
from airunway.plugins.host import ProviderHost
from airunway.plugins.manifest import api_version

__all__ = ["assumed_context"]


def assumed_context(
    host: ProviderHost,
    *,
    engine: str,
    now: datetime,
    settings: Mapping[str, Any] | None = None,
    upstream_version: str = "",
    absent: tuple[str, ...] = (),
    runtime: RuntimeSettings | None = None,
    cache: ModelCache | None = None,
) -> Context[Any]:
    """The context for a preview without a cluster: every kind in its preferred version, with its newest transformer.

    `upstream_version` selects the transformers of that upstream release. `absent` are optional kinds (by
    `UpstreamKind.key`) that are treated as not installed. `runtime` are the pod settings of a runtime config
    (`runtime_settings`; None: none), `cache` is the model cache that is mounted. Raises PluginFault if the provider has
    no transformer for any of its versions, or for that release; SettingsError for invalid settings.
    """
    served = {}
    for kind in host.manifest.upstream:
        if kind.key in absent:
            continue
        known = host.transformers_of(kind)
        if known and upstream_version and kind.primary:
            known = tuple(t for t in known if _covers(t, upstream_version))
        if not known and kind.primary:
            raise PluginFault(
                f"provider {host.name!r} has no transformer for {kind.kind} in {', '.join(kind.versions)}"
                + (f" of release {upstream_version}" if upstream_version else "")
            )
        served[kind.key] = _assumed(kind, known)
    return Context(
        contract_version=host.contract_version,
        engine=engine,
        upstream=served[host.primary_kind.key],
        served=served,
        runtime=runtime or RuntimeSettings(),
        cache=cache,
        settings=host.settings(settings or {}),
        now=now,
    )


def _assumed(kind: UpstreamKind, known: Sequence[Transformer]) -> Upstream:
    """The first version that has a transformer, with the newest transformer for it."""
    for version in kind.versions:
        where = api_version(kind, version)
        writing = [transformer for transformer in known if transformer.api_version == where]
        if writing:
            return Upstream(api_version=where, transformer=writing[-1])
    where = api_version(kind, kind.versions[0])
    return Upstream(api_version=where, transformer=Transformer(name="", api_version=where, kind=kind.kind))


def _covers(transformer: Transformer, release: str) -> bool:
    """Whether a transformer supports a release; a shorter number covers all releases that start with it."""
    wanted = _numbers(release)
    since, until = _numbers(transformer.since), _numbers(transformer.until)
    return (not since or wanted[: len(since)] >= since) and (not until or wanted[: len(until)] <= until)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))
