"""`airunway diff` on an API server: exit codes, formats, refusals, credentials, rights, providers without a plugin."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.diff.conftest import Run
from tests.support.rights import account_of, applied

from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT, MODEL_TEMPLATE
from airunway.kube import Client
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource
from airunway_testing.conformance.cases import merged_spec
from airunway_testing.controlplane import Cluster
from airunway_testing.expectations import running_at
from airunway_testing.operator import deployments, playing, until
from airunway_testing.toy.names import TOY

pytestmark = pytest.mark.apiserver

SECRET = "s3cr3t-of-the-team"


def manifest(name: str = "llama", **changes: Any) -> Resource:
    spec: Resource = {
        "model": {"id": "org/model"},
        "engine": {"type": "vllm"},
        "provider": {"name": "toy"},
        "resources": {"gpu": {"count": 1}, "memory": "8Gi"},
        "env": [{"name": "API_TOKEN", "value": f"{SECRET}-1"}],
    }
    return {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": name},
        "spec": merged_spec(spec, changes),
    }


def text_of(*documents: Resource) -> str:
    return yaml.safe_dump_all(documents)


@pytest.fixture
async def key(client: Client, kubeconfig: Path, namespace: str) -> AsyncIterator[ObjectKey]:
    """A deployment that runs, applied on the client's side."""
    async with playing(kubeconfig, client, load("toy")), deployments(client, namespace, {}):
        body = manifest()
        last = json.dumps({**body, "metadata": {**body["metadata"], "annotations": {}}})  # as kubectl writes it
        annotations = {"kubectl.kubernetes.io/last-applied-configuration": last}
        metadata = {"name": "llama", "namespace": namespace, "annotations": annotations}
        await client.create(MODEL_DEPLOYMENT, {**body, "metadata": metadata}, manager="kubectl-client-side-apply")
        key = ObjectKey(namespace, "llama")
        await until(client, key, running_at(1))
        yield key


WITHOUT_OUTAGE = "without an outage: airunway new --beside md/llama prints a second version"


async def routed(client: Client, key: ObjectKey) -> None:
    """What the gateway part writes for a route."""
    status = {"gateway": {"url": "http://192.0.2.1/ml/llama"}}
    await client.merge_patch(MODEL_DEPLOYMENT, key, {"status": status}, subresource="status")


async def test_it_exits_as_kubectl_diff_and_prints_what_happens(
    key: ObjectKey, client: Client, run: Run, kubeconfig: Path, tmp_path: Path
) -> None:
    context = yaml.safe_load(kubeconfig.read_text())["current-context"]
    file = tmp_path / "edit.yaml"
    file.write_text(text_of(manifest()))
    same = await run("-f", str(file), "-n", key.namespace, "--context", context)
    assert (same.code, same.err) == (0, ""), same
    assert "no difference" in same.out

    edited = manifest(env=[{"name": "API_TOKEN", "value": f"{SECRET}-2"}], scaling={"replicas": 2})
    del edited["spec"]["resources"]["memory"]
    found = await run("-f", "-", "-n", key.namespace, text=text_of(edited))
    assert found.code == 1, found
    assert "~ Toy/llama: is updated in place" in found.out
    assert "+  replicas: 2" in found.out
    assert "-    memory: 8Gi" in found.out, "what left the file is removed, as by kubectl apply"
    assert SECRET not in found.out
    assert "*** (before)" in found.out, "a credential that changes is a change"

    both = text_of(manifest("new"), manifest(model={"id": "org/other"}))
    listed = await run("-f", "-", "-n", key.namespace, "-o", "name", text=both)
    assert listed.code == 1, listed
    assert {"modeldeployment.airunway.ai/new", "modeldeployment.airunway.ai/llama"} <= set(listed.out.split())
    one = await run("md/llama", "-f", "-", "-n", key.namespace, "-o", "json", text=both)
    plan = json.loads(one.out)
    assert (plan["name"], plan["provider"]) == ("llama", "toy")
    primary = next(step for step in plan["steps"] if step["primary"])
    assert (primary["action"], primary["causes"], primary["restarts"]) == ("recreate", ["spec.model.id"], True)
    assert not any("docs/side-by-side.md" in note for note in plan["notes"]), "it has no route"
    assert await client.find(MODEL_DEPLOYMENT, ObjectKey(key.namespace, "new")) is None
    await routed(client, key)
    again = await run("md/llama", "-f", "-", "-n", key.namespace, text=both)
    assert f"  Note: {WITHOUT_OUTAGE}" in again.out
    scaled = await run("-f", "-", "-n", key.namespace, text=text_of(manifest(scaling={"replicas": 2})))
    assert WITHOUT_OUTAGE not in scaled.out


async def test_a_refusal_is_shown_and_is_no_difference(key: ObjectKey, run: Run) -> None:
    wrong = manifest(scaling={"replicas": -1})
    found = await run("-f", "-", "-n", key.namespace, text=text_of(wrong, manifest("other")))
    assert found.code == 2, found
    assert "spec.scaling.replicas" in found.err
    assert "ModelDeployment" in found.out, "the other document has its plan"
    unknown = manifest()
    unknown["spec"]["replica"] = 1
    found = await run("-f", "-", "-n", key.namespace, text=text_of(unknown))
    assert found.code == 2, found
    assert "replica" in found.err


async def test_a_change_of_provider_deletes_first_and_one_without_a_plugin_is_named(
    key: ObjectKey, client: Client, run: Run
) -> None:
    live = await client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "toy"))
    other = {
        "apiVersion": INFERENCE_PROVIDER_CONFIG.api_version,
        "kind": INFERENCE_PROVIDER_CONFIG.kind,
        "metadata": {"name": "elsewhere"},
        "spec": live["spec"],
    }
    await client.create(INFERENCE_PROVIDER_CONFIG, other)
    status = {"ready": True, "lastHeartbeat": live["status"]["lastHeartbeat"]}
    where = ObjectKey("", "elsewhere")
    await client.merge_patch(INFERENCE_PROVIDER_CONFIG, where, {"status": status}, subresource="status")
    await routed(client, key)
    found = await run("-f", "-", "-n", key.namespace, text=text_of(manifest(provider={"name": "elsewhere"})))
    assert found.code == 1, found
    assert WITHOUT_OUTAGE in found.out
    assert "- Toy/llama: is deleted" in found.out
    assert "the plugin of provider elsewhere is not installed here" in found.out
    assert "airunway.ai/dry-run=true" in found.out
    assert await client.find(TOY, key) is not None


async def test_a_missing_right_is_one_sentence_with_its_name(
    key: ObjectKey, client: Client, run: Run, cluster: Cluster
) -> None:
    user = f"editor-of-{key.namespace}"
    editor = cluster.kubeconfig_for(user)
    first = await run("-f", "-", "-n", key.namespace, text=text_of(manifest()), kubeconfig=editor)
    assert (first.code, first.out) == (2, ""), first
    assert "no right to get modeldeployments.airunway.ai" in first.err
    assert len(first.err.splitlines()) == 1

    group = "rbac.authorization.k8s.io"

    def role(kind: str, *rules: Resource) -> list[Resource]:
        where = {"namespace": key.namespace} if kind == "Role" else {}
        metadata = {"name": f"diff-{key.namespace}", **where}
        reference = {"apiGroup": group, "kind": kind, "name": metadata["name"]}
        return [
            {"apiVersion": f"{group}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)},
            {
                "apiVersion": f"{group}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": reference,
                "subjects": [account_of(user)],
            },
        ]

    read = ["get", "list", "watch"]
    shared = {"apiGroups": ["airunway.ai"], "resources": ["inferenceproviderconfigs"], "verbs": read}
    configs = {
        "apiGroups": ["airunway.ai"],
        "resources": ["clusterruntimeconfigs", "runtimeconfigs"],
        "verbs": read,
    }
    models = {"apiGroups": ["airunway.ai"], "resources": ["modeldeployments"], "verbs": [*read, "patch"]}
    upstream = {"apiGroups": [TOY.group, ""], "resources": ["*"], "verbs": read}
    roles = [*role("ClusterRole", shared, configs), *role("Role", models)]
    async with applied(client, roles):
        found = await run("-f", "-", "-n", key.namespace, text=text_of(manifest()), kubeconfig=editor)
        assert found.code == 2, found
        assert re.search(rf"no right to list [\w.]+ in namespace {key.namespace}", found.err)
    async with applied(client, [*role("ClusterRole", shared, configs), *role("Role", models, upstream)]):
        found = await run(
            "-f", "-", "-n", key.namespace, text=text_of(manifest(scaling={"replicas": 2})), kubeconfig=editor
        )
        assert found.code == 1, found
        assert "~ Toy/llama: is updated in place" in found.out
        assert "get customresourcedefinitions" in found.out, "what was not read is named, with its right"
        assert "Leases" in found.out


async def test_an_edit_of_a_deployment_with_a_template_is_planned_by_what_that_gives(
    client: Client, kubeconfig: Path, namespace: str, run: Run
) -> None:
    def template(name: str, model: str, gpus: int = 1) -> Resource:
        spec = {"modelName": model, "hardware": {"gpu": {"count": gpus}}, "defaults": {"engine": {"type": "vllm"}}}
        kind = MODEL_TEMPLATE
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}

    def asking(name: str) -> Resource:
        spec = {"templateRef": {"name": name}, "provider": {"name": "toy"}}
        kind = MODEL_DEPLOYMENT
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "llama"}, "spec": spec}

    async with playing(kubeconfig, client, load("toy")), deployments(client, namespace, {}):
        for each in (template("fast", "org/model"), template("large", "org/large")):
            metadata = {**each["metadata"], "namespace": namespace}
            await client.create(MODEL_TEMPLATE, {**each, "metadata": metadata})
        new = await run("-f", "-", "-n", namespace, text=text_of(asking("fast")))
        assert new.code == 1, new.err
        assert "+ Toy/llama: is created" in new.out
        assert "org/model" in new.out
        key = ObjectKey(namespace, "llama")
        body = asking("fast")
        await client.apply(
            MODEL_DEPLOYMENT, {**body, "metadata": {**body["metadata"], "namespace": namespace}}, manager="kubectl"
        )
        await until(client, key, running_at(1))
        same = await run("-f", "-", "-n", namespace, text=text_of(asking("fast")))
        assert (same.code, "= Toy/llama" in same.out) == (0, True), same.out
        edited = await run(
            "-f", "-", "-n", namespace, text=text_of(asking("fast"), template("fast", "org/model", gpus=2))
        )
        assert edited.code == 0, "an edit of the template alone changes nothing that serves"
        other = await run("-f", "-", "-n", namespace, text=text_of(asking("large")))
        assert other.code == 1
        assert "org/large" in other.out
        given = await run("-f", "-", "-n", namespace, text=text_of(asking("mine"), template("mine", "org/mine")))
        assert "org/mine" in given.out, "a template of the file counts as applied"
        missing = await run("-f", "-", "-n", namespace, text=text_of(asking("nosuch")))
        assert "it is known what its template gives" in missing.out
        assert "= Toy/llama" in missing.out
