"""`airunway controller` with a webhook, and deployments that name a template: what kubectl says to their users."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml
from tests.admission.test_rights import cleaned_up, judged, registered, replica, settings_of

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT, MODEL_TEMPLATE
from airunway.kube import Client
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import until

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

Apply = Callable[..., CompletedProcess[str]]


@pytest.fixture
async def webhook(
    client: Client, kubeconfig: Path, installed: None, namespace: str, tmp_path: Path
) -> AsyncIterator[str]:
    """The core with its webhook for the namespace, and a provider for llama.cpp without GPUs; gives its name."""
    provider = f"acme-{namespace}"
    policy = tmp_path / "policy.yaml"
    policy.write_text(yaml.safe_dump({"rules": [{"images": ["good.example/*"]}]}))
    with reserved_ports(1) as (port,):
        settings = settings_of(port, namespace=namespace)
        options = ["--kubeconfig", str(kubeconfig), "--watch-namespaces", namespace, "--policy", str(policy)]
        options += ["--gateway=off", "--model-cache=off", "--webhook-url", settings.url]
        options += ["--webhook-bind-address", f"127.0.0.1:{port}"]
        options += ["--webhook-configuration", settings.configuration, "--webhook-manage-configuration"]
        try:
            with replica(options, name="core", namespace=namespace, folder=tmp_path) as process:
                await process.is_ready()
                await registered(client, provider)
                await judged(client, namespace)
                yield provider
                assert "Traceback" not in process.log.read_text()
        finally:
            await cleaned_up(client, settings, provider)


@pytest.fixture
def apply(kubectl: Kubectl, namespace: str) -> Apply:
    """Applies a deployment of this spec, as a user does."""

    def applied(name: str, **spec: Any) -> CompletedProcess[str]:
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }
        return kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body), check=False)

    return applied


async def template(client: Client, namespace: str, name: str, **spec: Any) -> None:
    body = {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_TEMPLATE.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"modelName": "org/model", **spec},
    }
    await client.apply(MODEL_TEMPLATE, body, manager="platform", force=True)


async def seen(apply: Apply, holds: Callable[[CompletedProcess[str]], bool], name: str, **spec: Any) -> str:
    """What kubectl prints once the webhook's cache has the templates as they are."""
    found = await asyncio.to_thread(apply, name, **spec)
    for _ in range(100):
        if holds(found):
            break
        await asyncio.sleep(0.1)
        found = await asyncio.to_thread(apply, name, **spec)
    assert holds(found), (found.stdout, found.stderr)
    return found.stderr


def refused(found: CompletedProcess[str]) -> bool:
    return found.returncode != 0


async def test_a_template_that_is_not_there_is_a_warning_and_the_deployment_waits(
    webhook: str, apply: Apply, client: Client, namespace: str
) -> None:
    found = apply("early", templateRef={"name": "fast"})
    assert found.returncode == 0, found.stderr
    assert found.stderr.startswith("Warning: spec.templateRef: there is no ModelTemplate fast in this namespace")
    assert "The deployment is stored all the same" in found.stderr
    key = ObjectKey(namespace, "early")
    await until(client, key, lambda md: dig(md, "status", "reason") == "TemplateNotFound")
    await template(client, namespace, "fast", defaults={"engine": {"type": "llamacpp"}})
    ready = await until(client, key, lambda md: dig(md, "status", "provider", "name") == webhook)
    assert dig(ready, "status", "effectiveTemplate", "ref", "name") == "fast"
    assert "Warning" not in await seen(
        apply, lambda each: not each.stderr, "early", templateRef={"name": "fast"}, env=[{"name": "A", "value": "1"}]
    )


async def test_a_template_and_a_model_exclude_each_other_before_the_webhook_is_asked(
    webhook: str, apply: Apply
) -> None:
    message = "templateRef and model.id exclude each other"
    found = apply("both", templateRef={"name": "fast"}, model={"id": "org/model"}, engine={"type": "llamacpp"})
    assert refused(found)
    assert message in found.stderr
    assert "spec.templateRef: Forbidden:" in found.stderr, (
        "the CRD's words; the webhook's messages have no reason in them"
    )
    assert refused(apply("neither", engine={"type": "llamacpp"}))
    assert refused(apply("two", templateRef={"name": "fast", "modelName": "org/model"}))


async def test_a_fault_of_the_effective_spec_names_the_template(
    webhook: str, apply: Apply, client: Client, namespace: str
) -> None:
    origin = f"(with ModelTemplate {namespace}/greedy)"
    await template(client, namespace, "greedy", defaults={"engine": {"type": "vllm"}})
    ask: Resource = {"templateRef": {"name": "greedy"}}
    said = await seen(apply, refused, "new", **ask)
    assert (
        f'"new" is invalid: spec.resources.gpu.count: vLLM engine requires GPU (set resources.gpu.count > 0) {origin}'
        in said
    )
    assert await client.find(MODEL_DEPLOYMENT, ObjectKey(namespace, "new")) is None

    await template(
        client, namespace, "greedy", defaults={"engine": {"type": "sglang"}, "resources": {"gpu": {"count": 1}}}
    )
    said = await seen(apply, lambda each: "sglang" in each.stderr, "new", **ask, provider={"name": webhook})
    assert origin in said, "the provider does not offer the template's engine"

    await template(client, namespace, "greedy", defaults={"engine": {"type": "llamacpp"}, "image": "bad.example/x:1"})
    said = await seen(apply, lambda each: "bad.example" in each.stderr, "new", **ask)
    assert "forbidden" in said
    assert origin in said
    found = apply("new", **ask, image="good.example/x:1")
    assert found.returncode == 0, "the deployment's own image counts"


async def test_an_edit_is_judged_with_the_template_as_a_creation_is(
    webhook: str, apply: Apply, client: Client, namespace: str
) -> None:
    await template(client, namespace, "small", defaults={"engine": {"type": "llamacpp"}})
    await template(client, namespace, "large", defaults={"engine": {"type": "vllm"}})
    await seen(apply, lambda each: not each.stderr, "edited", templateRef={"name": "small"})
    said = await seen(apply, refused, "edited", templateRef={"name": "large"})
    assert f"(with ModelTemplate {namespace}/large)" in said
    found = apply("edited", templateRef={"name": "small"}, engine={"type": "vllm"})
    assert refused(found), "the deployment's own engine needs a GPU, which the template does not give"
    assert "vLLM engine requires GPU" in found.stderr
    live = await client.get(MODEL_DEPLOYMENT, ObjectKey(namespace, "edited"))
    assert live["spec"]["templateRef"] == {"name": "small"}
