"""The webhook's Secret, which the chart brings without data, so that the core needs no right to create any (L4)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.rights import account_of, applied

from airunway.kube import Client, Forbidden, load_config
from airunway.rbac.rights import Rights, roles, webhook_rights
from airunway.resource import ObjectKey, Resource, dig
from airunway.webhook import webhook_settings
from airunway.webhook.cert_rotator import SECRET, CertificateSecret, material_of
from airunway.webhook.certificates import Material, new_authority
from airunway_testing.controlplane import Cluster
from airunway_testing.fixtures import Kubectl

pytestmark = pytest.mark.apiserver


@pytest.fixture
async def core(client: Client, control_plane: Cluster, namespace: str) -> AsyncIterator[Client]:
    """An account with the rights of a webhook that neither writes its configuration nor makes its Secret."""
    settings = webhook_settings(bind_address=":9443", service="webhook", namespace=namespace)
    assert settings is not None
    user = f"webhook-{namespace}"
    rights = Rights(own=webhook_rights(settings).own)
    assert not any("create" in rule["verbs"] for rule in rights.own)
    made = roles(rights, name=user, namespace=namespace, subject=account_of(user))
    async with (
        applied(client, made),
        Client(load_config(kubeconfig=control_plane.kubeconfig_for(user))) as account,
    ):
        yield account


def material() -> Material:
    return new_authority(now=datetime.now(UTC), hosts=["webhook.svc"], previous=b"")


async def test_an_empty_secret_is_filled_and_tells_the_time(
    client: Client, core: Client, namespace: str, kubectl: Kubectl
) -> None:
    key = ObjectKey(namespace, "airunway-webhook-tls")
    chart_s: Resource = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": key.name, "namespace": namespace, "labels": {"app": "airunway"}},
        "type": "Opaque",
    }
    await client.apply(SECRET, chart_s, manager="helm")
    secret = CertificateSecret(core, key)
    live = await secret.read()
    assert live is not None
    told = await secret.server_time(live)
    assert told is not None
    assert abs(told - datetime.now(UTC)) < timedelta(minutes=5)
    assert await secret.read() == live  # it was asked, and nothing was kept
    wanted = material()
    assert await secret.write(wanted, live=live)

    # An upgrade of the chart, and kubectl apply of what it renders to, leave the data alone.
    await client.apply(SECRET, chart_s, manager="helm", force=True)
    text = f"apiVersion: v1\nkind: Secret\ntype: Opaque\nmetadata: {{name: {key.name}, labels: {{app: airunway}}}}\n"
    for _ in range(2):
        kubectl("apply", "-n", namespace, "-f", "-", stdin=text)
    kept = await client.get(SECRET, key)
    assert material_of(kept).serving == wanted.serving
    assert dig(kept, "metadata", "labels", "app") == "airunway"
    assert (await secret.server_time(kept)) is not None


async def test_what_to_do_about_a_secret_that_is_not_there(
    core: Client, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret = CertificateSecret(core, ObjectKey(namespace, "airunway-webhook-tls"))
    assert await secret.server_time(None) is None
    with caplog.at_level(logging.ERROR), pytest.raises(Forbidden):
        await secret.write(material(), live=None)
    assert f"kubectl create secret generic airunway-webhook-tls --namespace {namespace}" in caplog.text
