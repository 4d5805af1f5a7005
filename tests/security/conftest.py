"""What the tests about hostile tenants share: a webhook that refuses in words of the test's own choice."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest
from aiohttp import web
from tests.support.clocks import TimeOfDay

from airunway.kube import ApiError, Client, Kind
from airunway.resource import ObjectKey, Resource
from airunway_testing.controlplane.certificates import new_authority
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.eventually import PATIENCE

CONFIGURATION = Kind(
    "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False
)

Refuse: TypeAlias = Callable[[Resource], str]
"""The admission request in, why it is refused out; an empty text allows it."""


@pytest.fixture
def clock() -> TimeOfDay:
    return TimeOfDay()


@pytest.fixture
def refusing(client: Client, namespace: str, tmp_path: Path) -> Callable[..., object]:
    """``async with refusing(why):`` a webhook asks `why` about writes to Workspaces of the test's namespace."""

    @asynccontextmanager
    async def refusing_(why: Refuse, *, operations: tuple[str, ...] = ("CREATE", "UPDATE")) -> AsyncIterator[None]:
        authority = new_authority(tmp_path / "ca", name="tests")
        pair = authority.server(tmp_path / "webhook", name="webhook", hosts=["127.0.0.1"])
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)
        app = web.Application(client_max_size=8 * 2**20)

        async def answer(request: web.Request) -> web.Response:
            return await _answer(request, why)

        app.router.add_post("/", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        with reserved_ports(1) as (port,):
            await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
            bundle = base64.b64encode(authority.files.certificate.read_bytes()).decode()
            where = {"url": f"https://127.0.0.1:{port}/", "caBundle": bundle}
            await client.create(CONFIGURATION, configuration(namespace, where, operations))
            try:
                await _in_force(client, namespace)
                yield
            finally:
                await client.delete(CONFIGURATION, ObjectKey("", f"refusing-{namespace}"))
                await runner.cleanup()

    return refusing_


def configuration(namespace: str, where: Resource, operations: tuple[str, ...]) -> Resource:
    return {
        "apiVersion": CONFIGURATION.api_version,
        "kind": CONFIGURATION.kind,
        "metadata": {"name": f"refusing-{namespace}"},
        "webhooks": [
            {
                "name": "refusing.example.com",
                "clientConfig": where,
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "timeoutSeconds": 5,
                "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [
                    {
                        "apiGroups": ["kaito.sh"],
                        "apiVersions": ["*"],
                        "resources": ["workspaces"],
                        "operations": list(operations),
                    },
                    {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"], "operations": ["CREATE"]},
                ],
            }
        ],
    }


PROBE = "is-the-webhook-called"


async def _answer(request: web.Request, why: Refuse) -> web.Response:
    asked = (await request.json())["request"]
    message = "it is called" if asked.get("name") == PROBE else why(asked)
    status = {"code": 403, "message": message}
    response = {"uid": asked["uid"], "allowed": not message, **({"status": status} if message else {})}
    return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


async def _in_force(client: Client, namespace: str) -> None:
    """The API server learns of a configuration by a watch."""
    services = Kind("", "v1", "Service", "services")
    metadata = {"name": PROBE, "namespace": namespace}
    probe = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await client.create(services, probe, dry_run=True)
            except ApiError as error:
                if "it is called" in error.message:
                    return
            await asyncio.sleep(0.05)
