"""The schema registry: which KAITO releases can express what (recorded CRDs of every release since v0.4.5)."""

from __future__ import annotations

from airunway.sdk import Transformer, UpstreamKind

__all__ = [
    "CREATED_BY",
    "EXISTING_NODES",
    "HUGGINGFACE_IDS",
    "INFERENCE_SET",
    "MODEL_ACCESS_SECRET",
    "PARTITION",
    "SANDBOX_SCHEMAS",
    "TRANSFORMERS",
    "WORKSPACE",
]

CREATED_BY = "inferenceset.kaito.sh/created-by"
"""Label with an InferenceSet's name on the Workspaces that KAITO makes of it, and on their pods."""

API_VERSION = "kaito.sh/v1beta1"
"""The only version used: KAITO serves v1alpha1 beside it without conversion, so that v1alpha1 writes lose fields."""

EXISTING_NODES = "existing-nodes"
"""Existing nodes are used as they are; before, KAITO counted only nodes of `resource.instanceType`, and made others."""
MODEL_ACCESS_SECRET = "model-access-secret"
HUGGINGFACE_IDS = "huggingface-ids"
"""Presets take any `org/model`; before, only names of a list that changed with every release."""
PARTITION = "partition"
"""A preset can be given a number of a node's GPUs; before, it always took all of them."""

SANDBOX_SCHEMAS = ("29c141b0f63a", "ef138e556bd6")
"""The minimal CRDs of Workspace and InferenceSet that AI Runway's sandbox installs in place of KAITO's own."""

WORKSPACE = UpstreamKind(
    group="kaito.sh",
    kind="Workspace",
    plural="workspaces",
    versions=("v1beta1",),
    primary=True,
    select=CREATED_BY,
    deletion="Foreground",
)
INFERENCE_SET = UpstreamKind(
    group="kaito.sh",
    kind="InferenceSet",
    plural="inferencesets",
    versions=("v1beta1",),
    required=False,
    deletion="Foreground",
)
"""Several Workspaces, all alike. Its v1alpha1 (0.8 to 0.10) cannot be left without replicas, nor without a machine."""

IMMUTABLE = (
    "resource.count",
    "resource.instanceType",
    "resource.labelSelector.*",
    "resource.partition.*",
    "inference.preset.*",
    "inference.template.*",
)
"""KAITO refuses a change of the first five; an edit of the template it accepts and never applies."""


IMMUTABLE_SET = ("spec.labelSelector.*", "spec.template.*")
"""KAITO gives a change to Workspaces that it makes later; those that run keep what they were made with."""


def _transformer(since: str, until: str, hashes: tuple[str, ...], *features: str, several: bool = False) -> Transformer:
    return Transformer(
        name=f"{'inferenceset-' if several else ''}v1beta1-{since}",
        api_version=API_VERSION,
        kind=INFERENCE_SET.kind if several else "",
        schema_hashes=hashes,
        features=frozenset(features),
        immutable=IMMUTABLE_SET if several else IMMUTABLE,
        since=since,
        until=until,
    )


_SINCE_0_7 = (MODEL_ACCESS_SECRET, EXISTING_NODES)
_SINCE_0_12 = (*_SINCE_0_7, HUGGINGFACE_IDS, PARTITION)

TRANSFORMERS = (
    _transformer("0.4.5", "0.4.5", ("5f54adf907c1",)),
    _transformer("0.4.6", "0.6", ("2873b09d0822",), MODEL_ACCESS_SECRET),
    _transformer("0.7", "0.8", ("ae10c81308ee", "ba53226150c2"), *_SINCE_0_7),
    _transformer("0.9", "0.11", ("a149328e58fa", "c601e394ea4e"), *_SINCE_0_7, HUGGINGFACE_IDS),
    _transformer("0.12", "0.12", ("ffa99f984a72", SANDBOX_SCHEMAS[0]), *_SINCE_0_12),
    # Its chart has another copy of this CRD than its source.
    _transformer("0.11", "0.11", ("3a1392a40f78", "2482f42c5604"), MODEL_ACCESS_SECRET, HUGGINGFACE_IDS, several=True),
    _transformer("0.12", "0.12", ("1203c3123e9b", SANDBOX_SCHEMAS[1]), *_SINCE_0_12, several=True),
)
"""Oldest first. What a schema cannot show (HUGGINGFACE_IDS, EXISTING_NODES) came with the release that has the hash."""
