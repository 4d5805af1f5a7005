"""What a provider registers: the plugin object, its settings, its transformers, and how its upstream is installed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import (
    Compatibility,
    Context,
    Installation,
    Observation,
    Observed,
    ProviderManifest,
    Transformer,
    Translation,
)
from airunway.plugins.hookspecs import hookimpl
from airunway.resource import Resource

CanHandle = Callable[[ModelDeployment, Context[Any]], Compatibility]
TranslateSpec = Callable[[ModelDeployment, Context[Any]], Translation | Sequence[Resource]]
TranslateStatus = Callable[[ModelDeployment, Observed, Context[Any]], Observation]


class Provider:
    """A plugin made of data and three functions, which are called with positional arguments.

    Without `can_handle` every deployment is accepted. The runtime then reports the fields that the translation did not
    read.
    """

    def __init__(
        self,
        manifest: ProviderManifest,
        transformers: Sequence[Transformer],
        *,
        can_handle: CanHandle | None = None,
        translate_spec: TranslateSpec,
        translate_status: TranslateStatus,
    ) -> None:
        self.manifest = manifest
        self._transformers = tuple(transformers)
        self._can_handle = can_handle
        self._translate_spec = translate_spec
        self._translate_status = translate_status

    @hookimpl
    def provider_manifest(self) -> ProviderManifest:
        return self.manifest

    @hookimpl
    def transformers(self) -> Sequence[Transformer]:
        return self._transformers

    @hookimpl
    def can_handle(self, deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
        return self._can_handle(deployment, context) if self._can_handle is not None else Compatibility()

    @hookimpl
    def translate_spec(self, deployment: ModelDeployment, context: Context[Any]) -> Translation | Sequence[Resource]:
        return self._translate_spec(deployment, context)

    @hookimpl
    def translate_status(self, deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
        return self._translate_status(deployment, observed, context)


def setting(default: Any, doc: str, *, kept: bool = False) -> Any:
    """A field of a settings dataclass, with its default and its meaning for charts and reference pages.

    A mutable default (a dict) is copied for each instance. Mark a setting as `kept` if it changes serving pods, as an
    image does: running deployments keep the value they were created with. They take the new value when their spec
    changes in more than replica counts, or when they adopt the new version.
    """
    metadata = {"doc": doc, "kept": kept}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


IPV4 = "IPv4"
"""A family of addresses, as Kubernetes writes it."""
IPV6 = "IPv6"
"""The other family of addresses."""


@dataclass(frozen=True, kw_only=True)
class NetworkSettings:
    """Base class for the settings of a provider whose servers listen where probes and Service arrive.

    A wildcard that suits every node does not exist: ``::`` fails where the kernel has no IPv6, servers on Python's
    asyncio (SGLang's) take IPv6 alone there, and trtllm-serve cannot open it. So the family of the cluster decides. A
    process in a cluster fills the setting in by itself. Raises ValueError for another family.
    """

    ip_family: str = setting(
        IPV4,
        "Family of the pods' first address, IPv4 or IPv6: servers listen on all addresses of it. A provider in a "
        "cluster reads it from KUBERNETES_SERVICE_HOST unless it is set.",
        kept=True,
    )

    def __post_init__(self) -> None:
        if self.ip_family not in (IPV4, IPV6):
            raise ValueError(f"setting 'ipFamily' must be IPv4 or IPv6, not {self.ip_family!r}")

    @property
    def everywhere(self) -> str:
        """The address that stands for all addresses of the family."""
        return "::" if self.ip_family == IPV6 else "0.0.0.0"


def generation(
    api_version: str,
    since: str,
    until: str = "",
    *,
    hashes: Collection[str],
    features: Collection[str] = (),
    immutable: Collection[str] = (),
    kind: str = "",
) -> Transformer:
    """The transformer for the upstream releases from `since` to `until` (empty: no upper limit).

    Its name consists of version and first release: ``v1-1.7``, or with a `kind` ``inferenceset-v1beta1-0.12``.
    """
    name = f"{api_version.rpartition('/')[2]}-{since}"
    return Transformer(
        name=f"{kind.lower()}-{name}" if kind else name,
        api_version=api_version,
        kind=kind,
        schema_hashes=tuple(hashes),
        features=frozenset(features),
        immutable=tuple(immutable),
        since=since,
        until=until,
    )


def revised(
    transformers: Iterable[Transformer], revision: int, *, features: Collection[str]
) -> tuple[Transformer, ...]:
    """Copies of `transformers` with more `features`: ``v1-1.7`` becomes ``v1-1.7-r2``.

    Put them after the released ones, which keep their output unchanged. They support the same schemas.
    New objects are written by the newest transformer that fits.
    """
    return tuple(
        replace(old, name=f"{old.name}-r{revision}", features=old.features | frozenset(features))
        for old in transformers
    )


def with_defaults(transformers: Iterable[Transformer], **defaults: object) -> tuple[Transformer, ...]:
    """Copies of `transformers` with `defaults` for settings, keyed by field name.

    A default image changes what runs, so a released transformer keeps its own. To raise a default image, write the new
    image into the settings class and add a transformer with it; leave the older transformers as they are.
    """
    return tuple(replace(old, defaults={**defaults, **old.defaults}) for old in transformers)


def helm_installation(
    description: str,
    *,
    name: str,
    chart: str,
    version: str,
    namespace: str,
    values: Mapping[str, bool | int | str] | None = None,
    repository: str = "",
    publisher: str = "",
    title: str,
    note: str,
) -> Installation:
    """How to install an upstream that is one Helm release, called `name`, in its own namespace.

    `chart` is an address that contains the `version`, or ``<repository>/<chart>``. In the second form, `repository` is
    the address of the repository of a `publisher`, and an earlier step adds it. `title` and `note` belong to the step
    that installs the release.
    """
    known, given = chart.partition("/")[0], dict(values or {})
    words = [
        f"helm upgrade --install {name} {chart}",
        *([f"--version {version}"] if repository else []),
        f"--namespace {namespace} --create-namespace",
        *(f"--set {key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in given.items()),
    ]
    steps = [{"title": title, "command": " ".join(words), "description": note}]
    if repository:
        command, why = f"helm repo add {known} {repository}", f"{publisher} publishes its charts there."
        steps.insert(0, {"title": "Add the chart repository", "command": command, "description": why})
    entry = {"name": name, "chart": chart, "version": version, "namespace": namespace, "createNamespace": True}
    return Installation(
        description=description,
        default_namespace=namespace,
        helm_repos=({"name": known, "url": repository},) if repository else (),
        helm_charts=({**entry, "values": given} if given else entry,),
        steps=tuple(steps),
    )
