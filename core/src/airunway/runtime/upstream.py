"""Which upstream is installed, which version of it we write, and which transformer fits (spec rulings 12 and 13).

Pure: CustomResourceDefinitions in, facts out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.plugins.contract import Transformer, Upstream, UpstreamKind
from airunway.resource import Resource, annotations_of, dig, digest, is_true

__all__ = ["CrdFacts", "Installed", "as_written", "crd_facts", "detect", "schema_hash", "upstream_of"]

SHORT_HASH = 12
"""Digits by which published schema hashes are usually quoted; a registry may hold short or full ones."""


@dataclass(frozen=True, kw_only=True)
class CrdFacts:
    """What we keep of a CRD: whether it is established, and the schema hash of each served version."""

    established: bool
    served: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Installed:
    """The verdict on one upstream kind: `upstream` is None where nothing can be written, and the rest says why."""

    upstream: Upstream | None
    reason: str
    message: str


def schema_hash(schema: object) -> str:
    """sha256 of the canonical JSON of an ``openAPIV3Schema`` without its descriptions (../upstream-crds/INDEX.md).

    A property that is *named* ``description`` stays.
    """
    return digest(_without_descriptions(schema))


def _without_descriptions(node: object, *, named: bool = False) -> object:
    # `named` is true where the keys of a map are property names rather than schema keywords.
    if isinstance(node, dict):
        return {
            key: _without_descriptions(
                value, named=not named and key in ("properties", "patternProperties", "definitions")
            )
            for key, value in node.items()
            if named or key != "description" or not isinstance(value, str)
        }
    if isinstance(node, list):
        return [_without_descriptions(value) for value in node]
    return node


def crd_facts(crd: Resource) -> CrdFacts:
    """Read a CRD. This is also what the cache keeps of it: schemas are large."""
    versions = [version for version in dig(crd, "spec", "versions", default=[]) if version.get("served")]
    served = [
        (str(version.get("name")), schema_hash(dig(version, "schema", "openAPIV3Schema", default={})))
        for version in versions
    ]
    return CrdFacts(established=is_true(crd, "Established"), served=tuple(served))


def detect(
    kind: UpstreamKind, transformers: Sequence[Transformer], facts: CrdFacts | None, *, verify: bool = True
) -> Installed:
    """The newest supported version that is served, with the transformer that fits its schema.

    `kind.versions` are in order of preference. An unknown hash gets the newest transformer of that version, marked
    unverified, under the policy ``Verify``; under ``Fail`` it gets none.
    """
    name = f"{kind.plural}.{kind.group}"
    if facts is None or not facts.established:
        return Installed(
            upstream=None, reason="UpstreamNotInstalled", message=f"CustomResourceDefinition {name} is not installed"
        )
    served = dict(facts.served)
    for version in kind.versions:
        if version not in served:
            continue
        known = [t for t in transformers if t.api_version == f"{kind.group}/{version}"]
        if not known:
            continue
        found = served[version]
        fitting = [t for t in known if any(found.startswith(h) for h in t.schema_hashes if len(h) >= SHORT_HASH)]
        if fitting:
            upstream = Upstream(api_version=f"{kind.group}/{version}", transformer=fitting[-1], schema_hash=found)
            return Installed(
                upstream=upstream, reason="SchemaSupported", message=f"schema {found[:SHORT_HASH]} of {name} {version}"
            )
        text = f"{name} {version} has a schema ({found[:SHORT_HASH]}) that this release of the provider does not know"
        if not verify:
            why = f"{text}; with --unknown-schema Fail nothing is written for it"
            return Installed(upstream=None, reason="UnsupportedSchema", message=why)
        upstream = Upstream(
            api_version=f"{kind.group}/{version}", transformer=known[-1], schema_hash=found, verified=False
        )
        return Installed(
            upstream=upstream,
            reason="UnverifiedSchema",
            message=f"{text}; new objects are checked by server-side dry-run first",
        )
    has = ", ".join(sorted(served)) or "none"
    text = f"{name} serves the versions {has}; this provider writes {', '.join(kind.versions)}"
    return Installed(upstream=None, reason="UnsupportedSchema", message=text)


def as_written(upstream: Upstream, primary: Resource | None, transformers: Sequence[Transformer]) -> Upstream:
    """The upstream with the transformer that wrote the primary object which exists.

    An upgrade of the upstream brings a newer transformer, which may write the same deployment in another way. That
    alone must not touch what runs: the newer one is used for objects that are made from then on.
    """
    written_by = annotations_of(primary).get(names.TRANSFORMER) if primary is not None else None
    for transformer in transformers:
        if transformer.name == written_by and transformer.api_version == upstream.api_version:
            return replace(upstream, transformer=transformer)
    return upstream


def upstream_of(primary: Resource | None, transformers: Sequence[Transformer]) -> Upstream | None:
    """The upstream as it was when an object was written, where nothing may be written for its present schema."""
    if primary is None:
        return None
    api_version = str(primary.get("apiVersion"))
    known = [t for t in transformers if t.api_version == api_version]
    written_by = annotations_of(primary).get(names.TRANSFORMER)
    transformer = next((t for t in known if t.name == written_by), known[-1] if known else None)
    return Upstream(api_version=api_version, transformer=transformer, verified=False) if transformer else None
