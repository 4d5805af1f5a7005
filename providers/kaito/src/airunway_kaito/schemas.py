"""The schema registry: which KAITO releases can express what (recorded CRDs of every release since v0.4.5)."""

from __future__ import annotations

from airunway.sdk import Transformer

__all__ = [
    "EXISTING_NODES",
    "HUGGINGFACE_IDS",
    "MODEL_ACCESS_SECRET",
    "PARTITION",
    "SANDBOX_SCHEMA",
    "TRANSFORMERS",
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


IMMUTABLE = (
    "resource.count",
    "resource.instanceType",
    "resource.labelSelector.*",
    "resource.partition.*",
    "inference.preset.*",
    "inference.template.*",
)
"""KAITO refuses a change of the first five; an edit of the template it accepts and never applies."""


def _transformer(since: str, until: str, hashes: tuple[str, ...], *features: str) -> Transformer:
    return Transformer(
        name=f"v1beta1-{since}",
        api_version=API_VERSION,
        schema_hashes=hashes,
        features=frozenset(features),
        immutable=IMMUTABLE,
        since=since,
        until=until,
    )


_SINCE_0_7 = (MODEL_ACCESS_SECRET, EXISTING_NODES)

TRANSFORMERS = (
    _transformer("0.4.5", "0.4.5", ("5f54adf907c1",)),
    _transformer("0.4.6", "0.6", ("2873b09d0822",), MODEL_ACCESS_SECRET),
    _transformer("0.7", "0.8", ("ae10c81308ee", "ba53226150c2"), *_SINCE_0_7),
    _transformer("0.9", "0.11", ("a149328e58fa", "c601e394ea4e"), *_SINCE_0_7, HUGGINGFACE_IDS),
    _transformer("0.12", "0.12", ("ffa99f984a72", SANDBOX_SCHEMA), *_SINCE_0_7, HUGGINGFACE_IDS, PARTITION),
)
"""Oldest first. What a schema cannot show (HUGGINGFACE_IDS, EXISTING_NODES) came with the release that has the hash."""
