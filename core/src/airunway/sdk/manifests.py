"""Parts of a provider's static data that look alike everywhere: generations of a schema, releases of Helm."""

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
    """The transformer for the releases of an upstream from `since` to `until` (empty: to the newest).

    It is called by what it writes and since when: ``v1-1.7``, or with a `kind` ``inferenceset-v1beta1-0.12``.
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
    """The same generations of an upstream, written anew with more `features`: ``v1-1.7`` becomes ``v1-1.7-r2``.

    They stand after the released ones, which keep what they wrote (spec ruling 27), and know the same schemas: what is
    made from now on is written by the newest that fits.
    """
    return tuple(
        replace(old, name=f"{old.name}-r{revision}", features=old.features | frozenset(features))
        for old in transformers
    )


def with_defaults(transformers: Iterable[Transformer], **defaults: object) -> tuple[Transformer, ...]:
    """The same transformers with `defaults` for settings, by the names of their fields.

    A default image reaches what runs, so a released transformer keeps its own. To raise one, write the new image into
    the settings class and add a transformer with it; the older ones stay as they are.
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
    """How an upstream is installed that is one release of a Helm chart, called `name`, in a namespace of its own.

    `chart` is an address that has the `version` in it, or ``<repository>/<chart>`` with the address of the `repository`
    of a `publisher`, which a step before adds. `title` and `note` are those of the step that installs the release.
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
