"""`ProviderHost`: the only interface through which the rest of the project calls a plugin.

It types the hooks, checks their results against the contract (`rules`), protects shared data from changes by the
plugin, and converts every fault into one exception that names the hook. `assumed_context` is the context of a call
without a cluster, for previews, documentation and tests.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from time import monotonic, thread_time
from traceback import StackSummary, extract_tb
from typing import Any, TypeVar

import pluggy

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins import rules
from airunway.plugins.contract import (
    CONTRACT_VERSIONS,
    Compatibility,
    Context,
    EngineCapability,
    ModelCache,
    Observation,
    Observed,
    ProviderManifest,
    RuntimeSettings,
    Transformer,
    Translation,
    Upstream,
    UpstreamKind,
    api_version,
)
from airunway.plugins.errors import ContractMismatch, PluginBroken, PluginFault
from airunway.plugins.settings import read_settings, with_defaults
from airunway.plugins.watchdog import Watchdog
from airunway.resource import copy_of

SCALED_OBJECT = UpstreamKind(
    group="keda.sh",
    kind="ScaledObject",
    plural="scaledobjects",
    versions=("v1alpha1",),
    required=False,
    replicas=("spec.minReplicaCount", "spec.maxReplicaCount"),
)
"""KEDA's autoscaler, which the runtime makes for the deployments of every provider (docs/autoscaling.md)."""


def with_autoscaler(manifest: ProviderManifest) -> ProviderManifest:
    """A manifest with the autoscaler that the runtime makes where an engine leaves scaling to it, once."""
    kinds = manifest.upstream
    scales = any(isinstance(each, EngineCapability) and each.autoscaling == "Scale" for each in manifest.engines)
    if not (scales and kinds and all(isinstance(kind, UpstreamKind) for kind in kinds)):
        return manifest  # `ProviderHost.check` says what is wrong with it
    return manifest if SCALED_OBJECT in kinds else replace(manifest, upstream=(*kinds, SCALED_OBJECT))


SLOW_HOOK = 1.0
"""Seconds of processor time after which a hook call counts as a fault: it blocks the event loop of the process. Time
that other processes take, or a limit of the container, is no fault of the plugin.
"""

LONG_WAIT = 5.0
"""Seconds by the clock after which a hook call counts as a fault, whatever it did: it may have waited for a server."""

_WATCHDOG = Watchdog()

_NOT_THE_PLUGIN = (Path(__file__).parents[1], Path(pluggy.__file__).parent)
_LIBRARY = tuple(Path(path) for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})

T = TypeVar("T")


class ProviderHost:
    """Typed access to one provider plugin.

    Every method raises PluginFault (a bug of the plugin) if the hook raises, takes too long or returns something that
    the contract does not allow.
    """

    def __init__(self, manager: pluggy.PluginManager, *, name: str, origin: str) -> None:
        self._hook = manager.hook
        self.name = name
        self.origin = origin
        self.faults: dict[str, str] = {}
        """The fault of the last call, by hook; hooks without a fault are missing."""
        self.metadata_reads: set[str] = set()
        """``labels`` and ``annotations``, if a hook has ever read them from a deployment: a change of them may then
        change its result."""

    def check(self) -> None:
        """Check manifest and registry against the contract. Raises PluginBroken, ContractMismatch or PluginFault."""
        manifest = self.manifest
        if manifest.name != self.name:
            raise PluginBroken(
                f"the entry point {self.name!r} ({self.origin}) gives a provider that calls itself {manifest.name!r}",
                rule=rules.ENTRY_POINT,
            )
        if not set(manifest.contract_versions) & set(CONTRACT_VERSIONS):
            raise ContractMismatch(
                f"provider {self.name!r} ({self.origin}) speaks contract {', '.join(manifest.contract_versions)}, "
                f"this core speaks {', '.join(CONTRACT_VERSIONS)}; install versions of both that share one",
                rule=rules.CONTRACT,
            )
        problem = next(rules.manifest_problems(manifest), None) or next(
            rules.registry_problems(manifest, self.transformers), None
        )
        if problem is not None:
            raise PluginBroken(
                f"provider {self.name!r} ({self.origin}) breaks the contract: {problem.text}; see {problem.rule} "
                "in docs/providers/contract.md",
                rule=problem.rule,
            )

    @cached_property
    def manifest(self) -> ProviderManifest:
        """The plugin's manifest, with the autoscaler that the runtime makes where an engine leaves scaling to it."""
        return with_autoscaler(self._call("provider_manifest", ProviderManifest, self._hook.provider_manifest))

    @cached_property
    def contract_version(self) -> str:
        """The newest contract version that both sides support."""
        return next(version for version in CONTRACT_VERSIONS if version in self.manifest.contract_versions)

    @cached_property
    def transformers(self) -> tuple[Transformer, ...]:
        """The schema registry, oldest first."""
        found = self._call("transformers", object, self._hook.transformers)
        if not isinstance(found, (list, tuple)):
            raise self._fault("transformers", f"returned {type(found).__name__}, no list", rule=rules.TRANSFORMERS)
        return tuple(found)

    @cached_property
    def kinds(self) -> Mapping[tuple[str, str], UpstreamKind]:
        """The manifest's kinds, by group and kind."""
        return {(kind.group, kind.kind): kind for kind in self.manifest.upstream}

    @cached_property
    def primary_kind(self) -> UpstreamKind:
        """The kind without which the provider cannot work."""
        return next(kind for kind in self.manifest.upstream if kind.primary)

    def transformers_of(self, kind: UpstreamKind) -> tuple[Transformer, ...]:
        """The transformers that write `kind`, oldest first; none for a kind that the manifest only names."""
        wanted = ("", kind.kind) if kind.primary else (kind.kind,)
        return tuple(transformer for transformer in self.transformers if transformer.kind in wanted)

    def settings(self, values: Mapping[str, Any]) -> Any:
        """The provider's settings from its configuration. Raises SettingsError."""
        return read_settings(self.manifest.settings, values, provider=self.name)

    def can_handle(self, deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
        context = _own_copy(context)
        found = self._call(
            "can_handle", Compatibility, lambda: self._hook.can_handle(deployment=deployment, context=context)
        )
        self._hold("can_handle", rules.compatibility_problems(found))
        return found

    def translate_spec(self, deployment: ModelDeployment, context: Context[Any]) -> Translation:
        context = _own_copy(context)
        found = self._call(
            "translate_spec", object, lambda: self._hook.translate_spec(deployment=deployment, context=context)
        )
        if isinstance(found, (list, tuple)):
            found = Translation(objects=tuple(found))
        if not isinstance(found, Translation):
            raise self._fault(
                "translate_spec", f"returned {type(found).__name__}, no Translation and no list", rule=rules.HOOKS
            )
        self._hold("translate_spec", rules.translation_problems(found, self.manifest, self.transformers))
        return found

    def translate_status(self, deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
        context = _own_copy(context)
        # Cached objects are shared by the whole process, so a plugin gets its own copies.
        objects = tuple(copy_of(obj) for obj in observed.objects)
        position = next((i for i, obj in enumerate(observed.objects) if obj is observed.primary), None)
        own = copy_of(observed.primary) if observed.primary is not None and position is None else None
        seen = replace(observed, objects=objects, primary=objects[position] if position is not None else own)
        found = self._call(
            "translate_status",
            Observation,
            lambda: self._hook.translate_status(deployment=deployment, observed=seen, context=context),
        )
        self._hold("translate_status", rules.observation_problems(found))
        return found

    def _call(self, hook: str, expected: type[T], call: Callable[[], object]) -> T:
        self.faults.pop(hook, None)
        begun, worked = monotonic(), thread_time()
        try:
            with _WATCHDOG.watching(f"provider {self.name!r} ({self.origin}): {hook}", _place):
                result = call()
        except (Exception, SystemExit) as error:
            # Foreign code: an exception, or `argparse` in it, must fail the pass of one deployment, not the process.
            raise self._fault(
                hook, f"raised {error!r}"[:512] + _place(extract_tb(error.__traceback__)), rule=rules.HOOKS
            ) from error
        taken, worked = monotonic() - begun, thread_time() - worked
        if worked > SLOW_HOOK or taken > LONG_WAIT:
            raise self._fault(
                hook,
                f"took {taken:.1f} s ({worked:.1f} s of processor time); a hook has {LONG_WAIT:g} s "
                f"({SLOW_HOOK:g} s of processor time), and nothing else runs meanwhile",
                rule=rules.TIME,
            )
        if not isinstance(result, expected):
            raise self._fault(hook, f"returned {type(result).__name__}, not {expected.__name__}", rule=rules.HOOKS)
        return result

    def _hold(self, hook: str, problems: Iterable[rules.Broken]) -> None:
        """Raise for the first rule that a result breaks."""
        problem = next(iter(problems), None)
        if problem is not None:
            raise self._fault(hook, f"broke the contract: {problem.text} ({problem.rule})", rule=problem.rule)

    def _fault(self, hook: str, what: str, *, rule: str) -> PluginFault:
        self.faults[hook] = f"{hook} {what}"
        return PluginFault(f"provider {self.name!r} ({self.origin}): {hook} {what}", rule=rule)


def _place(stack: StackSummary) -> str:
    """The innermost line outside of AI Runway and the standard library, as ``, at provider.py:12``."""
    for frame in reversed(stack):
        path = Path(frame.filename)
        if frame.filename.startswith("<"):  # made by a library, such as the methods of a dataclass
            continue
        if not any(path.is_relative_to(known) for known in _NOT_THE_PLUGIN):
            within = any(path.is_relative_to(library) for library in _LIBRARY)
            if not within or "site-packages" in path.parts:
                return f", at {path.name}:{frame.lineno}"
    return ""


def _own_copy(context: Context[Any]) -> Context[Any]:
    """The context with the default settings of the transformer that writes the primary object (of its live kind).

    The live object is copied: it is shared by the whole process.
    """
    transformer = context.served.get(context.live_kind, context.upstream).transformer
    settings = with_defaults(context.settings, transformer.defaults)
    if context.live is not None:
        return replace(context, settings=settings, live=copy_of(context.live))
    return context if settings is context.settings else replace(context, settings=settings)


# ------------------------------------------------------------------------------------------ a context without a cluster


NEWEST_KUBERNETES = (1, 36)
"""The version that a preview without a cluster assumes."""


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
        # A kind that the provider only names, or writes in no version that it names, has no transformer.
        found = (newest_of(kind, version, known) for version in kind.versions)
        newest = next(filter(None, found), None) or unwritten(kind, kind.versions[0])
        served[kind.key] = Upstream(api_version=newest.api_version, transformer=newest)
    return Context(
        contract_version=host.contract_version,
        engine=engine,
        upstream=served[host.primary_kind.key],
        served=served,
        runtime=runtime or RuntimeSettings(),
        cache=cache,
        kubernetes=NEWEST_KUBERNETES,
        settings=host.settings(settings or {}),
        now=now,
    )


def newest_of(kind: UpstreamKind, version: str, known: Sequence[Transformer]) -> Transformer | None:
    """The newest of the `known` transformers that writes a version; None if none of them does."""
    where = api_version(kind, version)
    return next((transformer for transformer in reversed(known) if transformer.api_version == where), None)


def unwritten(kind: UpstreamKind, version: str) -> Transformer:
    """A placeholder for the transformer of a kind that a provider only names."""
    return Transformer(name="", api_version=api_version(kind, version), kind=kind.kind)


def _covers(transformer: Transformer, release: str) -> bool:
    """Whether a transformer supports a release; a shorter number covers all releases that start with it."""
    wanted = _numbers(release)
    since, until = _numbers(transformer.since), _numbers(transformer.until)
    return (not since or wanted[: len(since)] >= since) and (not until or wanted[: len(until)] <= until)


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))
