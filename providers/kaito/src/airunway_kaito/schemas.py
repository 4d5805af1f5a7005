"""The schema registry: which KAITO releases can express what (recorded CRDs of every release since v0.4.5)."""

from __future__ import annotations

from airunway.plugins.contract import Context, Transformer

__all__ = [
    "API_VERSION",
    "EXISTING_NODES",
    "HUGGINGFACE_IDS",
    "MODEL_ACCESS_SECRET",
    "PARTITION",
    "SANDBOX_SCHEMA",
    "TRANSFORMERS",
    "api_version_of",
    "features_of",
]

API_VERSION = "kaito.sh/v1beta1"
"""The only version used: KAITO serves v1alpha1 beside it without conversion, so that v1alpha1 writes lose fields."""

EXISTING_NODES = "existing-nodes"
"""Existing nodes are used as they are; before, KAITO counted only nodes of `resource.instanceType`, and made others."""
MODEL_ACCESS_SECRET = "model-access-secret"
HUGGINGFACE_IDS = "huggingface-ids"
"""Presets take any `org/model`; before, only names of a list that changed with every release."""
PARTITION = "partition"
"""A preset can be given a number of a node's GPUs; before, it always took all of them."""

SANDBOX_SCHEMA = "29c141b0f63a"
"""The minimal Workspace CRD that AI Runway's sandbox installs in place of KAITO's own."""


def _transformer(name: str, releases: str, hashes: tuple[str, ...], *features: str) -> Transformer:
    return Transformer(
        name=f"v1beta1-{name}",
        api_version=API_VERSION,
        schema_hashes=hashes,
        features=frozenset(features),
        releases=releases,
    )


TRANSFORMERS = (
    _transformer("0.4.5", "0.4.5", ("5f54adf907c1",)),
    _transformer("0.4.6", "0.4.6 to 0.6", ("2873b09d0822",), MODEL_ACCESS_SECRET),
    _transformer("0.7", "0.7 to 0.8", ("ae10c81308ee", "ba53226150c2"), MODEL_ACCESS_SECRET, EXISTING_NODES),
    _transformer(
        "0.9",
        "0.9 to 0.11",
        ("a149328e58fa", "c601e394ea4e"),
        MODEL_ACCESS_SECRET,
        EXISTING_NODES,
        HUGGINGFACE_IDS,
    ),
    _transformer(
        "0.12",
        "0.12",
        ("ffa99f984a72", SANDBOX_SCHEMA),
        MODEL_ACCESS_SECRET,
        EXISTING_NODES,
        HUGGINGFACE_IDS,
        PARTITION,
    ),
)
"""Oldest first. What a schema cannot show (HUGGINGFACE_IDS, EXISTING_NODES) came with the release that has the hash."""


def features_of(context: Context) -> frozenset[str]:
    """What the upstream at hand can express; the newest known one where none is given."""
    return context.upstream.transformer.features if context.upstream else TRANSFORMERS[-1].features


def api_version_of(context: Context) -> str:
    return context.upstream.api_version if context.upstream else API_VERSION
