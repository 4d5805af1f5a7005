"""Decides which upstream kinds are installed, in which version each is written, and by which transformer.

Pure: CustomResourceDefinitions in, facts out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.plugins.contract import Transformer, Upstream, UpstreamKind, api_version
from airunway.plugins.host import newest_of, unwritten
from airunway.resource import Resource, annotations_of, dig, digest, is_true

SHORT_HASH = 12
"""Digits of a published schema hash, usually; a registry may hold short or full ones."""


@dataclass(frozen=True, kw_only=True)
class CrdFacts:
    """The facts about a CRD that the cache keeps."""

    established: bool
    """Whether it is established and not being deleted."""
    served: tuple[tuple[str, str], ...]
    """Name and schema hash of each served version."""
    namespaced: bool = True
    """Whether its scope is Namespaced."""


@dataclass(frozen=True, kw_only=True)
class Installed:
    """What the cluster serves of one upstream kind."""

    upstream: Upstream | None
    """The version to write and its transformer; None if nothing can be written."""
    reason: str
    """Reason of the conditions that report it."""
    message: str
    """Message of these conditions."""
    served: tuple[Upstream, ...] = ()
    """All served versions that the provider knows and a transformer of the provider can write."""


def schema_hash(schema: object) -> str:
    """sha256 of the canonical JSON of an ``openAPIV3Schema`` without its descriptions (../upstream-crds/INDEX.md).

    A property that is *named* ``description`` stays. An empty ``required`` is left out, as the API server does, so that
    an upstream's CRD file and the CRD in a cluster have the same hash.
    """
    return digest(comparable(schema))


def comparable(node: object, *, named: bool = False) -> object:
    """A schema in the form that `schema_hash` hashes: without descriptions, and without an empty ``required``."""
    # `named` is true where the keys of a map are property names rather than schema keywords.
    if isinstance(node, dict):
        return {
            key: comparable(value, named=not named and key in ("properties", "patternProperties", "definitions"))
            for key, value in node.items()
            if named or not ((key == "description" and isinstance(value, str)) or (key == "required" and value == []))
        }
    if isinstance(node, list):
        return [comparable(value) for value in node]
    return node


def crd_facts(crd: Resource) -> CrdFacts:
    """The facts about a CRD; the cache keeps only these, because schemas are large."""
    versions = [version for version in dig(crd, "spec", "versions", default=[]) if version.get("served")]
    served = [
        (str(version.get("name")), schema_hash(dig(version, "schema", "openAPIV3Schema", default={})))
        for version in versions
    ]
    namespaced = dig(crd, "spec", "scope", default="Namespaced") == "Namespaced"
    leaving = bool(dig(crd, "metadata", "deletionTimestamp"))
    return CrdFacts(
        established=is_true(crd, "Established") and not leaving, served=tuple(served), namespaced=namespaced
    )


def detect(
    kind: UpstreamKind,
    transformers: Sequence[Transformer],
    facts: CrdFacts | None,
    *,
    verify: bool = True,
    kubernetes: tuple[int, int] | None = None,
) -> Installed:
    """The newest supported version that is served, with the transformer that fits its schema.

    `transformers` are those of the kind; for a kind without any, it is the first of its versions that is served.
    `kind.versions` are in order of preference. For an unknown schema hash, `verify` selects the newest transformer of
    that version, marked as unverified; without `verify` nothing can be written. Built-in kinds are served
    from `UpstreamKind.since` on; `kubernetes` is the cluster's version, or None for a new one.
    """
    name = f"{kind.plural}.{kind.group}"
    if kind.builtin and kubernetes is not None and kubernetes < kind.since:
        first, ours = (".".join(map(str, each)) for each in (kind.since, kubernetes))
        text = f"{kind.kind} is part of Kubernetes {first}; this is {ours}"
        return Installed(upstream=None, reason="UpstreamNotInstalled", message=text)
    if kind.builtin:
        known = (newest_of(kind, v, transformers) if transformers else unwritten(kind, v) for v in kind.versions)
        upstreams = tuple(Upstream(api_version=t.api_version, transformer=t) for t in known if t is not None)
        text = f"{kind.kind} is part of Kubernetes"
        return Installed(upstream=upstreams[0], reason="SchemaSupported", message=text, served=upstreams)
    if facts is None or not facts.established:
        return Installed(
            upstream=None, reason="UpstreamNotInstalled", message=f"CustomResourceDefinition {name} is not installed"
        )
    if not facts.namespaced:
        text = f"CustomResourceDefinition {name} is cluster-scoped: a provider's objects live beside their deployment"
        return Installed(upstream=None, reason="UnsupportedSchema", message=text)
    hashes = dict(facts.served)
    found = (_served(kind, v, hashes[v], transformers) for v in kind.versions if v in hashes)
    served = tuple(upstream for upstream in found if upstream is not None)
    if not served:
        text = f"{name} serves the versions {', '.join(sorted(hashes)) or 'none'}"
        text = f"{text}; this provider writes {', '.join(kind.versions)}"
        return Installed(upstream=None, reason="UnsupportedSchema", message=text)
    newest = served[0]
    version, short = newest.api_version.rpartition("/")[2], newest.schema_hash[:SHORT_HASH]
    if newest.verified:
        text = f"schema {short} of {name} {version}"
        return Installed(upstream=newest, reason="SchemaSupported", message=text, served=served)
    text = f"{name} {version} has a schema ({short}) that this release of the provider does not know"
    if not verify:
        text = f"{text}; with --unknown-schema Fail nothing is written for it"
        return Installed(upstream=None, reason="UnsupportedSchema", message=text, served=served)
    text = f"{text}; new objects are checked by server-side dry-run first"
    return Installed(upstream=newest, reason="UnverifiedSchema", message=text, served=served)


def _served(kind: UpstreamKind, version: str, found: str, transformers: Sequence[Transformer]) -> Upstream | None:
    if not transformers:
        return Upstream(api_version=api_version(kind, version), transformer=unwritten(kind, version), schema_hash=found)
    fitting = [t for t in transformers if any(found.startswith(h) for h in t.schema_hashes if len(h) >= SHORT_HASH)]
    fits = newest_of(kind, version, fitting)
    writer = fits or newest_of(kind, version, transformers)
    if writer is None:
        return None
    return Upstream(api_version=writer.api_version, transformer=writer, schema_hash=found, verified=fits is not None)


def writer_of(primary: Resource, transformers: Sequence[Transformer]) -> Transformer | None:
    """The transformer that wrote the object; if its annotation names none that we have, the newest of its version."""
    return _named(primary, transformers) or next(
        (t for t in reversed(transformers) if t.api_version == primary.get("apiVersion")), None
    )


def pinned(installed: Installed, transformers: Sequence[Transformer], name: object) -> Upstream | None:
    """The version and the transformer with which a kind is written under a revision that names the transformer `name`;
    None if nothing can be written.

    It counts as long as the cluster serves its version and we still have it. Otherwise the newest is taken.
    """
    newest = installed.upstream
    writer = next((each for each in transformers if each.name == name), None)
    if newest is None or writer is None:
        return newest
    kept = next((upstream for upstream in installed.served if upstream.api_version == writer.api_version), None)
    return replace(kept, transformer=writer) if kept is not None else newest


def translation_status(
    installed: Mapping[str, Installed], *, settings: Mapping[str, object]
) -> dict[str, dict[str, object]]:
    """``status.translation`` of a provider: the transformer of each kind (by `UpstreamKind.key`) that it would use for
    a new object, and the `settings` that running deployments keep.
    """
    found = {key: each.upstream.transformer.name for key, each in installed.items() if each.upstream is not None}
    return {"transformers": {key: name for key, name in found.items() if name}, "settings": dict(settings)}


def _named(primary: Resource | None, transformers: Sequence[Transformer]) -> Transformer | None:
    """The transformer that the object's annotation names, if we have it."""
    written_by = annotations_of(primary or {}).get(names.TRANSFORMER)
    return next((t for t in transformers if t.name == written_by), None)


def newest_waits(used: Upstream | None, installed: Installed) -> bool:
    """Whether an object keeps an older transformer or version while a newer one is available."""
    newest = installed.upstream
    return used is not None and newest is not None and used.transformer.name != newest.transformer.name
