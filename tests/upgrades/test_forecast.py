"""What `airunway preflight` says of a deployment of which nothing may be written at present, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airunway.api import names
from airunway.cli.preflight import _reason
from airunway.configs.resolution import resolve
from airunway.controller.decision import NO_CONFIG
from airunway.plugins.registry import load
from airunway.resource import Resource
from airunway.runtime.plan import decide
from airunway.upgrades.forecast import Cluster, Effect, Forecast, forecast, state_in, with_revision

CLUSTER = Cluster(definitions={}, kubernetes=(1, 33))  # the provider's kinds are built in
VOLUME = {"name": "data", "size": "10Gi", "mountPath": "/data"}
CACHED: Resource = {"id": "org/model", "cache": {"mode": "Shared"}}


def asked(
    *conditions: tuple[str, str, str], parts: tuple[str, ...] = (names.MODEL_CACHE_PART,), **spec: Any
) -> Resource:
    found = [
        {"type": type_, "status": "False", "reason": reason, "message": message, "observedGeneration": 1}
        for type_, reason, message in conditions
    ]
    valid = {"type": "Validated", "status": "True", "reason": "Valid", "message": "", "observedGeneration": 1}
    status = {
        "engine": {"type": "vllm"},
        "provider": {"name": "vllm"},
        "conditions": [valid, *found],
        "parts": [*parts],
    }
    base = {"model": {"id": "org/model"}, "engine": {"type": "vllm"}, "resources": {"gpu": {"count": 1}}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "team", "uid": "1", "generation": 1},
        "spec": {**base, **spec},
        "status": status,
    }


def forecast_of(deployment: Resource, *, before: Cluster | None, configs: Sequence[Resource] = ()) -> Forecast:
    host, now = load("vllm"), datetime(2026, 11, 26, tzinfo=UTC)
    return forecast(
        host, deployment, (), before=before, after=CLUSTER, settings=host.settings({}), now=now, configs=configs
    )


@pytest.mark.parametrize(
    ("deployment", "text"),
    [
        (
            asked(("ModelCacheReady", "DownloadFailed", "no route to the hub"), model=CACHED),
            "DownloadFailed: no route to the hub",
        ),
        (
            asked(
                ("StorageReady", "ResourceConflict", "the claim is another owner's"),
                model={"id": "org/model", "storage": {"volumes": [VOLUME]}},
            ),
            "ResourceConflict: the claim is another owner's",
        ),
        (
            asked(
                ("TemplateReady", "TemplateNotFound", "there is no ModelTemplate small"), templateRef={"name": "small"}
            ),
            "TemplateNotFound: there is no ModelTemplate small",
        ),
        (
            asked(runtimeConfigName="gpu"),
            "ConfigNotFound: no runtime config 'gpu' exists",
        ),
    ],
    ids=["cache", "claim", "template", "config"],
)
def test_what_is_wrong_already_is_what_its_own_condition_says(deployment: Resource, text: str) -> None:
    found = forecast_of(deployment, before=CLUSTER)
    assert (found.at_once, found.already, found.harmed_later) == (Effect.LEAVE, text, False)


def test_a_config_that_the_policy_refuses_stays_refused_until_it_changes() -> None:
    metadata = {"name": "default", "namespace": "team"}
    config: Resource = {"kind": "RuntimeConfig", "metadata": metadata, "spec": {"env": [{"name": "A", "value": "1"}]}}
    effective = resolve("default", namespaced=config, cluster=None).config
    assert effective is not None
    refused = asked(("RuntimeConfigReady", "NotAllowed", "A is not allowed"))
    refused["status"]["effectiveRuntimeConfig"] = effective.status()
    found = forecast_of(refused, before=CLUSTER, configs=[config])
    assert (found.at_once, found.already) == (Effect.LEAVE, "NotAllowed: A is not allowed")
    edited = {**config, "spec": {"env": []}}
    assert forecast_of(refused, before=CLUSTER, configs=[edited]).at_once is Effect.CREATE


def test_what_is_about_to_be_deleted_is_not_called_broken() -> None:
    """A roll-out deletes what it takes the place of at its end; until then the deletion is in every plan."""
    host, deployment, now = load("vllm"), asked(), datetime(2026, 11, 26, tzinfo=UTC)
    settings = host.settings({})

    def with_objects(*objects: Resource) -> tuple[Resource, ...]:
        state = state_in(host, deployment, objects, CLUSTER, now=now, verify=True)
        recorded = with_revision(state, host, NO_CONFIG, settings=settings, changed=False, now=now)
        return decide(replace(state, deployment=recorded), host, settings=settings).objects

    running = with_objects()
    old = {**running[1], "metadata": {**running[1]["metadata"], "name": "llama-before"}}
    found = forecast(host, deployment, (*running, old), before=CLUSTER, after=CLUSTER, settings=settings, now=now)
    assert (found.at_once, found.already) == (Effect.LEAVE, "delete Service 'llama-before'")
    assert "without the upgrade, too: delete Service 'llama-before'" in _reason(found)
    assert "broken" not in _reason(found)


def test_a_planned_deployment_gets_the_model_cache_that_it_asks_for() -> None:
    planned = asked(parts=(), model=CACHED)
    assert forecast_of(planned, before=None).at_once is Effect.CREATE
    assert forecast_of(asked(parts=(), model=CACHED, runtimeConfigName="gpu"), before=None).at_once is Effect.BREAK
