"""Pool or Service."""

from __future__ import annotations

from typing import Any

import pytest
from core.tests.routing.builders import ENGINE, PLAIN, SELECTOR, deployment

from airunway.resource import Resource
from airunway.routing.backends import Backend, BackendKind, NoBackendYet, announced, backend_of, equalities

MANAGED: Resource = {"name": "vllm", "gateway": {"managesInferencePool": True}}
POOL = {"service": "llama", "port": 80, "pool": {"name": "llama-pool", "port": 9002}}


def found(
    engine: Resource | None = ENGINE,
    *,
    spec: Any = None,
    await_pool: bool = False,
    served: bool = True,
    picker: bool = True,
    **status: Any,
) -> str:
    backend = backend_of(
        deployment(status=status, **(spec or {})),
        engine=engine,
        pools_served=served,
        picker=picker,
        await_pool=await_pool,
    )
    if isinstance(backend, NoBackendYet):
        return backend.reason
    return f"{'our ' if backend.ours else ''}{backend.kind} {backend.name} {backend.port}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "our Pool llama 8000"),
        ({"engine": PLAIN}, "Service llama 80"),
        ({"engine": None}, "Service llama 80"),
        ({"served": False}, "Service llama 80"),
        ({"picker": False}, "Service llama 80"),
        ({"spec": {"serving": {"mode": "disaggregated"}}}, "Service llama 80"),
        ({"endpoint": {"service": "llama", "port": 80}}, "Service llama 80"),
        ({"selector": ""}, "Service llama 80"),
        ({"endpoint": {"service": "kaito", "port": 80, "targetPort": 5000}}, "our Pool llama 5000"),
        ({"engine": MANAGED, "endpoint": POOL}, "Pool llama-pool 0"),
        ({"engine": PLAIN, "endpoint": POOL}, "Pool llama-pool 0"),
        ({"engine": MANAGED, "endpoint": POOL, "served": False}, "Service llama 80"),
        ({"engine": MANAGED}, "Service llama 80"),
        ({"endpoint": {}}, "WaitingForEndpoint"),
        ({"engine": PLAIN, "endpoint": {"service": "a/b", "port": 80}}, "WaitingForEndpoint"),
    ],
)
def test_the_table_of_backends(given: dict[str, Any], expected: str) -> None:
    assert found(**given) == expected


def test_r26_a_pool_that_the_provider_was_told_to_make_is_waited_for() -> None:
    assert found(MANAGED, endpoint={}, await_pool=True) == "WaitingForPool"
    assert found(MANAGED, endpoint={}) == "WaitingForEndpoint"
    assert found(MANAGED, endpoint={}, await_pool=True, served=False) == "WaitingForEndpoint"


@pytest.mark.parametrize(
    ("engine", "served", "before", "expected"),
    [
        (MANAGED, True, "", "Pool"),
        (MANAGED, False, "", "Service"),
        (MANAGED, True, "Service", "Service"),
        (MANAGED, False, "Pool", "Pool"),
        (MANAGED, True, "Other", "Pool"),
        (ENGINE, True, "", None),
        (None, True, "Pool", None),
    ],
)
def test_r14_the_backend_that_a_provider_makes_its_graph_for_is_decided_once(
    engine: Resource | None, served: bool, before: str, expected: str | None
) -> None:
    obj = deployment(status={"gateway": {"backend": before}})
    assert announced(obj, engine=engine, pools_served=served) == expected


def test_r32_a_selector_with_a_set_gets_the_service() -> None:
    assert found(selector="airunway.ai/component in (server,leader),app=x") == "Service llama 80"


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (SELECTOR, {"airunway.ai/model-deployment": "llama", "airunway.ai/component": "server"}),
        ("a=b, c==d", {"a": "b", "c": "d"}),
        ("a=", {"a": ""}),
        ("a=b,a=b", {"a": "b"}),
        ("a=b,a=c", None),
        ("a!=b", None),
        ("a", None),
        ("!a", None),
        ("a in (b)", None),
        ("a notin (b,c)", None),
        ("a=b,c in (d,e)", None),
        ("", None),
        ("=b", None),
        ("a=b=c", None),
        ("a=b,", None),
        ("a=" + "b" * 64, None),
        (",".join(f"k{number}=v" for number in range(65)), None),
    ],
)
def test_r32_equalities(selector: str, expected: dict[str, str] | None) -> None:
    assert equalities(selector) == expected


def test_a_backend_of_ours_has_labels() -> None:
    assert not Backend(kind=BackendKind.SERVICE, name="a").ours
    assert Backend(kind=BackendKind.POOL, name="a", selector={"a": "b"}).ours


def test_a_selector_that_matches_the_pickers_own_pod_gets_the_service() -> None:
    """Else the pool would send requests to the picker."""
    assert found(selector="airunway.ai/model-deployment=llama") == "Service llama 80"
    assert found(selector="airunway.ai/model-deployment=llama,airunway.ai/component=picker") == "Service llama 80"
    assert found(selector="airunway.ai/model-deployment=llama,airunway.ai/component=server") == "our Pool llama 8000"
