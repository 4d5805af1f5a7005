"""Deployments for the tests of a provider's translation, which need no cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from airunway.api.modeldeployment import ModelDeployment, parse_deployment

MakeDeployment: TypeAlias = Callable[..., ModelDeployment]

LLAMA: Mapping[str, Any] = {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}, "resources": {"gpu": {"count": 1}}}
"""A spec: a Llama on one GPU."""


def deployments_like(base: Mapping[str, Any] = LLAMA, *, name: str = "llama-8b") -> MakeDeployment:
    """``make(name, namespace=…, **fields)`` gives a deployment of the spec `base`, with top-level fields replaced.

    A field that is None is left out. Names and namespace may be left out too: `name`, and ``default``.
    """
    usual = name

    def make(name: str = usual, *, namespace: str = "default", **fields: Any) -> ModelDeployment:
        spec = {field: value for field, value in {**base, **fields}.items() if value is not None}
        return parse_deployment({"metadata": {"name": name, "namespace": namespace}, "spec": spec})

    return make
