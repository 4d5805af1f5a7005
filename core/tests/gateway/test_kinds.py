"""The kinds of the Gateway API come and go while the part runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from core.tests.gateway.ground import ASKED, Ground, Part, running_part

from airunway.configs.path_template import PathTemplateError, render_path
from airunway.gateway.caches import GATEWAY, HTTP_ROUTE
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import ObjectKey, Resource
from airunway.routing.backends import Backend, BackendKind
from airunway.routing.gateways import Target
from airunway.routing.routes import RouteRules, route
from airunway_testing.gatewayapi.controller import GatewayController
from airunway_testing.gatewayapi.kinds import CLASS_NAME, GATEWAY_CLASS, definitions, gateway_class
from airunway_testing.gatewayapi.releases import API, gateway_releases
from airunway_testing.operator import install_definitions, remove_definition

pytestmark = pytest.mark.apiserver

GATEWAY_API = [f"{plural}.gateway.networking.k8s.io" for plural in ("httproutes", "gateways", "gatewayclasses")]


async def _install(client: Client) -> None:
    await install_definitions(client, definitions())
    if await client.find(GATEWAY_CLASS, ObjectKey("", CLASS_NAME)) is None:
        await client.create(GATEWAY_CLASS, gateway_class())


async def _remove(client: Client) -> None:
    for name in GATEWAY_API:
        await remove_definition(client, name)


@pytest.fixture
async def restored(ground: Ground) -> AsyncIterator[None]:
    """Whatever a test does to the CRDs, ours are there afterwards."""
    yield
    await _install(ground.client)


async def test_r12_without_the_gateway_api_only_those_that_asked_hear_of_it(
    ground: Ground, restored: None, caplog: pytest.LogCaptureFixture
) -> None:
    """Installed later, it is noticed without a restart (by itself within 30 s, the longest backoff of a cache)."""
    await _remove(ground.client)
    await ground.service("asked")
    await ground.service("plain")
    async with running_part(ground.client, namespace=ground.namespace) as part:
        await ground.deploy("plain", gateway={}, model="a/plain")
        await ground.deploy("asked", gateway=ASKED, model="a/asked")
        await ground.until("GatewayAPINotInstalled", "asked")
        assert "gateway.networking.k8s.io/v1" in await ground.message("asked")
        assert await ground.condition("plain") == {}
        await _install(ground.client)
        await ground.open_gateway()
        part.look_again()
        await ground.until("RouteAccepted", "asked")
        await ground.until("RouteAccepted", "plain")
    assert "Traceback" not in caplog.text
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert not any("DestinationRule" in each for each in warnings)  # a kind that no part of the test reads but ours


async def test_r13_the_crds_go_under_routed_deployments_and_come_again(
    ground: Ground, restored: None, caplog: pytest.LogCaptureFixture
) -> None:
    await ground.open_gateway()
    named = [f"d{number}" for number in range(5)]
    async with running_part(ground.client, namespace=ground.namespace) as part:
        for name in named:
            await ground.service(name)
            await ground.deploy(name, gateway=ASKED, model=f"a/{name}")
        for name in named:
            await ground.until("RouteAccepted", name)
        await _remove(ground.client)
        for name in named:
            live = await ground.until("GatewayAPINotInstalled", name)
            assert live["status"]["phase"] == "Running"
        # It rests: nothing is tried again for a kind that is not there.
        await ground.eventually(lambda: part.at_rest)
        before = await ground.versions(MODEL_DEPLOYMENT)
        passes = sum(part.passes.values())
        part.look_again()
        await ground.deploy("late", gateway={}, model="a/late")
        assert {
            key: found for key, found in (await ground.versions(MODEL_DEPLOYMENT)).items() if key in before
        } == before
        assert sum(part.passes.values()) == passes
        await _install(ground.client)
        await ground.open_gateway()
        part.look_again()
        for name in named:
            await ground.until("RouteAccepted", name)
    assert "Traceback" not in caplog.text


async def test_r13_a_kind_that_is_away_is_asked_for_at_most_twice_a_minute() -> None:
    """In the long run: the delays of a cache grow to 30 seconds."""
    from airunway.kube import Backoff

    backoff = Backoff()
    assert [backoff.next() for _ in range(20)][-5:] == [30.0] * 5


async def _settled(ground: Ground, part: Part) -> dict[tuple[str, str], str]:
    """The versions of the routes once part and gateway have written all that they have to."""
    seen: list[dict[tuple[str, str], str]] = [{}]

    async def unchanged() -> bool:
        seen.append(await ground.versions(HTTP_ROUTE) if part.at_rest else {})
        return len(seen) > 3 and bool(seen[-1]) and seen[-1] == seen[-2] == seen[-3]

    await ground.eventually(unchanged)
    return seen[-1]


@pytest.mark.slow
async def test_r13_newer_releases_of_the_crds_under_routes_change_nothing(ground: Ground, recordings: Path) -> None:
    releases = gateway_releases(recordings, API)
    assert len(releases) >= 2
    try:
        await install_definitions(ground.client, releases[0].definitions())
        await ground.open_gateway()
        await ground.service()
        async with running_part(ground.client, namespace=ground.namespace) as part:
            await ground.deploy(gateway={**ASKED, "pathTemplate": "/talk"})
            await ground.until("RouteAccepted")
            for release in releases[1:]:
                before = await _settled(ground, part)
                await install_definitions(ground.client, release.definitions())
                await ground.eventually(lambda: part.at_rest)
                assert await ground.versions(HTTP_ROUTE) == before, release.label
                # And routes are still made and read.
                path = f"/{release.label.replace(' ', '-').replace(',', '').lower()}"
                await ground.edit(gateway={"pathTemplate": path})
                await ground.until_paths(path, "/")
                await ground.until("RouteAccepted")
    finally:
        await install_definitions(ground.client, definitions())


OBJECT: Resource = {
    "apiVersion": "airunway.ai/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {
        "namespace": "ml-team",
        "name": "llama-chat",
        "uid": "12345678-90ab",
        "labels": {"project": "conversational-ai", "team": "Platform_ML", "example.com/tier": "Gold.1"},
        "annotations": {"route.suffix": "Team-A/B", "blank": ""},
        "finalizers": ["x.io/a", "x.io/b"],
    },
    "spec": {
        "replicas": 3,
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "runtimeConfigName": "gpu",
        "gateway": {"enabled": True},
        "image": "registry.example/a/b:1@sha256:c",
    },
}
"""The object of the examples of path templates."""

TEMPLATES = (
    "/ml/{.metadata.namespace}/{.metadata.labels['project']}",
    "/custom/{.metadata.name}",
    "/{.metadata.namespace}/{.metadata.labels['team']}/",
    "/{.metadata.namespace}/{.metadata.uid}",
    "models/{.metadata.name}",
    "//a///{.metadata.name}//",
    "/{.metadata.labels.example\\.com/tier}",
    "/{.metadata.annotations['route.suffix']}",
    "/{.spec.model.id}",
    "/{.metadata.finalizers[0]}",
    "/{.metadata.name}-{.metadata.namespace}",
    "/r/{.spec.replicas}",
    "/" + "x" * 199,
    "/a b/c",
    "/v1.2/x",
    "/50%25",
    "/{.metadata.name}?x=1",
    "/a#b",
    "/a/---/b",
    "/ÜNÏ/x",
    "/{.spec.image}",
)
"""Every template there that can be rendered."""


def rendered() -> list[str]:
    found = []
    for template in TEMPLATES:
        try:
            found.append(render_path(template, OBJECT))
        except PathTemplateError as error:
            raise AssertionError(template) from error
    return found


@pytest.mark.slow
async def test_r1_every_path_is_taken_by_the_crds_of_every_stored_release(
    ground: Ground, controller: GatewayController, recordings: Path
) -> None:
    releases = gateway_releases(recordings, API)
    assert len(releases) >= 2
    pool = Backend(kind=BackendKind.POOL, name="llama", port=8000, selector={"app": "llama"})
    service = Backend(kind=BackendKind.SERVICE, name="llama", port=8000, service="llama", service_port=8000)
    try:
        for release in releases:
            await install_definitions(ground.client, release.definitions())
            for number, path in enumerate(rendered()):
                for backend in (pool, service):
                    made = _route(f"p{number}", ground.namespace, path=path, backend=backend)
                    answer = await ground.client.create(HTTP_ROUTE, made, dry_run=True, field_validation="Strict")
                    # Nothing is added by the API server: it would look like drift.
                    assert answer["spec"] == made["spec"], (release.label, path)
    finally:
        await install_definitions(ground.client, definitions())


def _route(name: str, namespace: str, *, path: str, backend: Backend) -> dict[str, Any]:
    made = route(
        name,
        target=Target(gateway=ObjectKey(namespace, "inference")),
        rules=RouteRules(path=path, model_name="llama"),
        backend=backend,
        timeout="",
        annotations={},
        labels={},
        path_to_service=False,
    )
    made["metadata"]["namespace"] = namespace
    assert made["kind"] == HTTP_ROUTE.kind
    assert GATEWAY.group == HTTP_ROUTE.group
    return made
