"""Builders for the static parts of a provider: transformers and the Helm installation of an upstream."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from airunway.plugins.contract import Installation, Transformer

__all__ = ["generation", "helm_installation", "revised", "with_defaults"]


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

    Put them after the released ones, which keep their output unchanged (spec ruling 27). They support the same schemas.
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
        command, said = f"helm repo add {known} {repository}", f"{publisher} publishes its charts there."
        steps.insert(0, {"title": "Add the chart repository", "command": command, "description": said})
    entry = {"name": name, "chart": chart, "version": version, "namespace": namespace, "createNamespace": True}
    return Installation(
        description=description,
        default_namespace=namespace,
        helm_repos=({"name": known, "url": repository},) if repository else (),
        helm_charts=({**entry, "values": given} if given else entry,),
        steps=tuple(steps),
    )
