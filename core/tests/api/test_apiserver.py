"""The CRDs on a real API server: they install, kubectl explains and scales, and mistakes are answered with advice."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
import yaml

from airunway.api.base import ApiModel, parse_model
from airunway.api.bounds import MAX_ENTRIES, MAX_ENV, MAX_TOLERATIONS
from airunway.api.crds import custom_resource_definitions, schema_of, to_yaml
from airunway.api.inferenceproviderconfig import InferenceProviderConfig
from airunway.api.modeldeployment import parse_deployment
from airunway.resource import Resource
from airunway_testing.fixtures import Kubectl

pytestmark = pytest.mark.apiserver


def wait_until_explained(kubectl: Kubectl, name: str) -> None:
    """Short names and documentation appear a moment after the CRD is established."""
    for _ in range(300):
        if kubectl("explain", f"{name}.spec", check=False).returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError(f"{name} did not appear in the API server's discovery within 30 s")


@pytest.fixture(scope="module")
def ready() -> set[str]:
    """The short names of kinds that are installed."""
    return set()


@pytest.fixture
def installed(kubectl: Kubectl, ready: set[str]) -> None:
    if ready:  # by a test before this one
        return
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=to_yaml(custom_resource_definitions()))
    for crd in custom_resource_definitions():
        kubectl("wait", "--for=condition=Established", "--timeout=60s", f"crd/{crd['metadata']['name']}")
    for name in ("md", "ipc"):
        wait_until_explained(kubectl, name)
        ready.add(name)


def deployment(spec: Resource, name: str = "llama") -> str:
    return yaml.safe_dump(
        {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment", "metadata": {"name": name}, "spec": spec}
    )


@pytest.mark.usefixtures("installed")
def test_installing_twice_changes_nothing(kubectl: Kubectl) -> None:
    def generations() -> list[int]:
        crds = json.loads(kubectl("get", "crd", "-o", "json").stdout)["items"]
        return [crd["metadata"]["generation"] for crd in crds if crd["spec"]["group"] == "airunway.ai"]

    before = generations()
    kubectl("apply", "--server-side", "-f", "-", stdin=to_yaml(custom_resource_definitions()))
    assert generations() == before
    assert len(before) == len(custom_resource_definitions())


@pytest.mark.usefixtures("installed")
def test_the_server_calls_the_schemas_structural(kubectl: Kubectl) -> None:
    for crd in custom_resource_definitions():
        live = json.loads(kubectl("get", "crd", crd["metadata"]["name"], "-o", "json").stdout)
        conditions = {c["type"]: c["status"] for c in live["status"]["conditions"]}
        assert conditions.get("NonStructuralSchema", "False") == "False"
        assert conditions["Established"] == "True"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("md.spec.engine", ["contextLength\t<integer>", "Longest context of a request, in tokens."]),
        ("md.spec.scaling.prefill", ["Memory of each worker, in bytes"]),
        ("md.spec.serving", ["enum: aggregated, disaggregated"]),
        ("md.status", ["phase\t<string>", "enum: Pending, Deploying, Running, Degraded"]),
        ("ipc.spec.selectionRules", ["CEL expression over spec"]),
    ],
)
def test_explain_reads_well(kubectl: Kubectl, path: str, texts: list[str]) -> None:
    told = " ".join(kubectl("explain", path).stdout.split(" ")).replace("\n    ", " ")
    for text in texts:
        assert text in told


@pytest.mark.usefixtures("installed")
def test_what_is_applied_comes_back_with_few_additions(kubectl: Kubectl, namespace: str) -> None:
    kubectl("apply", "-n", namespace, "-f", "-", stdin=deployment({"model": {"id": "org/model"}}))
    live = json.loads(kubectl("get", "md", "llama", "-n", namespace, "-o", "json").stdout)
    assert live["spec"] == {"model": {"id": "org/model", "source": "huggingface"}, "scaling": {"replicas": 1}}


@pytest.mark.usefixtures("installed")
def test_the_column_model_has_the_model_of_a_template_too(kubectl: Kubectl, namespace: str) -> None:
    specs: dict[str, Resource] = {
        "own": {"model": {"id": "org/own"}},
        "used": {"templateRef": {"name": "fast"}, "model": {"servedName": "short"}},
        "asked": {"templateRef": {"modelName": "org/asked"}},
        "chosen": {"templateRef": {"modelName": "org/asked"}},
        "absent": {"templateRef": {"name": "absent"}},
    }
    for name, spec in specs.items():
        kubectl("apply", "-n", namespace, "-f", "-", stdin=deployment(spec, name))
    for name, model in (("own", "org/other"), ("used", "org/given"), ("chosen", "org/mirror")):
        status = {"status": {"revision": {"template": {"spec": {"model": {"id": model}, "image": "x"}}}}}
        patch = ("--type=merge", "--subresource=status", "-p", json.dumps(status))
        kubectl("patch", "md", name, "-n", namespace, *patch)
    lines = kubectl("get", "md", "-n", namespace).stdout.splitlines()
    assert {line.split()[0]: line.split()[2] for line in lines[1:]} == {
        "own": "org/own",
        "used": "org/given",
        "chosen": "org/mirror",
        "asked": "org/asked",
        "absent": "WaitingForController",  # the next column that has a value
    }


@pytest.mark.usefixtures("installed")
def test_scale(kubectl: Kubectl, namespace: str) -> None:
    kubectl("apply", "-n", namespace, "-f", "-", stdin=deployment({"model": {"id": "org/model"}}))
    kubectl("scale", "md/llama", "-n", namespace, "--replicas=3")
    assert kubectl("get", "md", "llama", "-n", namespace, "-o", "jsonpath={.spec.scaling.replicas}").stdout == "3"
    kubectl("scale", "md/llama", "-n", namespace, "--replicas=0")
    status = {"status": {"replicas": {"desired": 2, "ready": 2, "summary": "2/2"}, "selector": "app=llama"}}
    patch = ("patch", "md", "llama", "-n", namespace, "--subresource=status", "--type=merge", "-p", json.dumps(status))
    kubectl(*patch)
    path = f"/apis/airunway.ai/v1alpha1/namespaces/{namespace}/modeldeployments/llama/scale"
    scale = json.loads(kubectl("get", "--raw", path).stdout)
    assert scale["spec"] == {}
    assert scale["status"] == {"replicas": 2, "selector": "app=llama"}
    refused = kubectl("scale", "md/llama", "-n", namespace, "--replicas=33", check=False)
    assert "spec.scaling.replicas: Invalid value: exceeds maximum allowed (32)" in refused.stderr


@pytest.mark.usefixtures("installed")
def test_tables_and_field_selectors(kubectl: Kubectl, namespace: str) -> None:
    kubectl("apply", "-n", namespace, "-f", "-", stdin=deployment({"model": {"id": "org/model"}}))
    status = {
        "phase": "Running",
        "reason": "DeploymentReady",
        "message": "all replicas serve",
        "engine": {"type": "vllm"},
        "provider": {"name": "kaito"},
        "replicas": {"desired": 2, "ready": 2, "available": 2, "summary": "2/2"},
        "endpoint": {"service": "llama", "port": 80, "url": "http://llama.ml.svc:80"},
    }
    arguments = ("-n", namespace, "--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    kubectl("patch", "md", "llama", *arguments)
    header, row = kubectl("get", "md", "-n", namespace).stdout.splitlines()
    assert header.split() == ["NAME", "PHASE", "MODEL", "ENGINE", "PROVIDER", "READY", "REASON", "AGE"]
    assert row.split()[:-1] == ["llama", "Running", "org/model", "vllm", "kaito", "2/2", "DeploymentReady"]
    wide = kubectl("get", "md", "-n", namespace, "-o", "wide").stdout
    assert "http://llama.ml.svc:80" in wide
    assert "all replicas serve" in wide
    for name in ("all", "airunway"):
        assert "modeldeployment.airunway.ai/llama" in kubectl("get", name, "-n", namespace).stdout
    chosen = ("--field-selector", "status.phase=Running,status.provider.name=kaito", "-o", "name")
    assert kubectl("get", "md", "-n", namespace, *chosen).stdout.strip() == "modeldeployment.airunway.ai/llama"
    other = ("--field-selector", "status.phase=Failed", "-o", "name")
    assert kubectl("get", "md", "-n", namespace, *other).stdout.strip() == ""


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "spec", "advice"),
    [
        ("llama", {"model": {"id": "a"}, "modle": {}}, 'unknown field "spec.modle"'),
        (
            "llama",
            {"model": {"id": "a"}, "engine": {"contextLength": "many"}},
            "spec.engine.contextLength in body must be of type integer",
        ),
        (
            "llama",
            {"model": {"id": "a"}, "engine": {"type": "vllm"}},
            "spec.resources.gpu.count: Invalid value: vLLM engine requires GPU (set resources.gpu.count > 0)",
        ),
        ("l" * 60, {"model": {"id": "a"}}, "the name is too long: choose one of at most 52 characters"),
        ("8b", {"model": {"id": "a"}}, "the name must start with a lower-case letter"),
        (
            "llama",
            {"model": {"id": "a"}, "resources": {"memory": "32GB"}},
            "spec.resources.memory: Invalid value: invalid resource quantity (write it like 32Gi)",
        ),
        (
            "llama",
            {"model": {"id": "a"}, "engine": {"args": {"x": "1"}, "extraArgs": ["--y", "--x=2"]}},
            "--x is set in engine.args and in engine.extraArgs: keep one of the two",
        ),
    ],
)
def test_mistakes_are_answered_with_advice(
    kubectl: Kubectl, namespace: str, name: str, spec: Resource, advice: str
) -> None:
    refused = kubectl("apply", "-n", namespace, "-f", "-", stdin=deployment(spec, name), check=False)
    assert refused.returncode == 1
    assert advice in refused.stderr


@pytest.mark.usefixtures("installed")
def test_identity_fields_may_change(kubectl: Kubectl, namespace: str) -> None:
    gpu = {"resources": {"gpu": {"count": 1}}}
    first = {"model": {"id": "a"}, "engine": {"type": "vllm"}, "provider": {"name": "a"}, **gpu}
    role = {"gpu": {"count": 1}, "memory": "1Gi"}
    second = {
        "model": {"id": "b", "source": "custom"},
        "engine": {"type": "sglang"},
        "provider": {"name": "b"},
        "serving": {"mode": "disaggregated"},
        "scaling": {"prefill": role, "decode": role},
    }
    for spec in (first, second):
        kubectl("apply", "-n", namespace, "-f", "-", stdin=deployment(spec))
    live = json.loads(kubectl("get", "md", "llama", "-n", namespace, "-o", "json").stdout)
    assert live["spec"]["provider"]["name"] == "b"


@pytest.mark.usefixtures("installed")
def test_rules_stay_cheap_on_a_very_large_object(kubectl: Kubectl, namespace: str) -> None:
    """The cost limit of the API server must not be what refuses a big, valid object: as many entries as may be."""
    spec = {
        "model": {
            "id": "a",
            "storage": {
                "volumes": [{"name": f"v{i}", "claimName": f"c{i}", "mountPath": f"/{'m' * 1000}{i}"} for i in range(8)]
            },
        },
        "engine": {
            "args": {f"flag-{i}": "x" * 2000 for i in range(256)},
            "extraArgs": [f"--{'y' * 500}-{i}" for i in range(512)],
        },
        "env": [{"name": f"N{i}", "value": "z" * 1000} for i in range(MAX_ENV)],
        "tolerations": [{"key": f"k{i}", "value": "v" * 60} for i in range(MAX_TOLERATIONS)],
        "nodeSelector": {f"n{i}": "v" * 60 for i in range(MAX_ENTRIES)},
        "provider": {"overrides": {f"k{i}": {"deep": ["v" * 50] * 10} for i in range(MAX_ENTRIES)}},
    }
    manifest = json.dumps(yaml.safe_load(deployment(spec)))
    assert len(manifest) > 1_000_000
    kubectl("create", "-n", namespace, "--dry-run=server", "-f", "-", stdin=manifest)


CONDITION = {
    "type": "Ready",
    "status": "False",
    "reason": "ImagePullAuthFailure",
    "message": "",
    "lastTransitionTime": "2026-01-31T12:00:00Z",
    "observedGeneration": 1,
}
DEPLOYMENT_STATUS: Resource = {
    "phase": "Degraded",
    "reason": "AuthFailed",
    "message": "m" * 1024,
    "observedGeneration": 1,
    "conditions": [CONDITION, {**CONDITION, "type": "example.com/Custom"}],
    "engine": {"type": "vllm", "selectedReason": "because"},
    "provider": {
        "name": "kaito",
        "selectedReason": "because",
        "resourceName": "llama",
        "resourceKind": "Workspace",
        "resourceAPIVersion": "kaito.sh/v1beta1",
        "schemaHash": "0" * 64,
        "revision": "0" * 16,
        "newer": {"transformers": ["v1beta1-0.12-r3"], "changes": ["vllmImage a:2"]},
    },
    "replicas": {"desired": 2, "ready": 1, "available": 0, "summary": "1/2"},
    "endpoint": {
        "service": "llama",
        "port": 80,
        "targetPort": 8000,
        "pool": {"name": "llama", "port": 8000},
        "scheme": "http",
        "url": "http://llama.ml.svc:80",
    },
    "gateway": {
        "ready": True,
        "url": "http://1.2.3.4/ml/llama",
        "gatewayName": "g",
        "backend": "Pool",
        "endpoint": "http://1.2.3.4",
        "path": "/ml/llama",
        "modelName": "llama",
        "gatewayNamespace": "gw",
    },
    "effectiveRuntimeConfig": {
        "namespaceRef": {"kind": "RuntimeConfig", "namespace": "ml", "name": "default"},
        "scope": "Namespace",
        "hash": "0" * 64,
    },
    "revision": {
        "hash": "0" * 16,
        "takenFor": "2" * 16,
        "adopted": "3" * 16,
        "template": {
            "ref": {"kind": "ModelTemplate", "namespace": "ml", "name": "fast"},
            "hash": "0" * 64,
            "asked": "1" * 64,
            "spec": {"model": {"id": "org/model"}},
        },
        "settings": {
            "config": "default",
            "configHash": "0" * 64,
            "env": [{"name": "A", "value": "1"}],
            "imagePullSecrets": ["s"],
            "token": {"name": "hf", "key": "HF_TOKEN"},
            "labels": {"team": "a"},
            "runtimeClassName": "kata",
        },
        "cache": {"artifact": "a", "claim": "c", "path": "/m", "mountPath": "/m", "accessMode": "ReadWriteMany"},
        "gateway": {"name": "g", "namespace": "gw", "usesPool": True},
        "provider": {"name": "kaito", "transformers": {"Workspace.kaito.sh": "r3"}, "settings": {"vllm_image": "a:1"}},
        "pending": {
            "hash": "1" * 16,
            "since": "2026-01-31T12:00:00Z",
            "parts": ["settings"],
            "changes": ["env A"],
            "waitsFor": "rollout",
        },
    },
    "effectiveTemplate": {
        "ref": {"kind": "ModelTemplate", "namespace": "ml", "name": "fast"},
        "scope": "Namespace",
        "hash": "0" * 64,
        "newerHash": "3" * 64,
    },
    "parts": ["gateway"],
    "modelCache": {"artifactName": "a", "claimName": "c", "mountPath": "/m", "ready": True},
    "selection": {
        "candidates": [{"name": "kaito", "eligible": True, "score": 100, "reasons": ["rule 1 is true"]}],
        "evaluatedAt": "2026-01-31T12:00:00Z",
    },
    "rootCause": {
        "code": "ImagePull.Auth",
        "object": "Pod/llama-0",
        "field": "spec.image",
        "message": "401",
        "since": "2026-01-31T12:00:00Z",
    },
    "warnings": ["something to know"],
    "selector": "app=llama",
    "image": {"requested": "a:1", "resolved": "a@sha256:0"},
}
CONFIG_STATUS: Resource = {
    "ready": True,
    "version": "0.1.0",
    "lastHeartbeat": "2026-01-31T12:00:00Z",
    "upstreamCRDVersion": "kaito.sh/v1beta1",
    "upstreamSchemaHash": "0" * 64,
    "namespaces": {"ml": "default runner"},
    "translation": {"transformers": {"Workspace.kaito.sh": "r3"}, "settings": {"vllm_image": "a:1"}},
    "conditions": [{**CONDITION, "type": "Healthy"}],
}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("kind", "status", "read"),
    [
        ("ModelDeployment", DEPLOYMENT_STATUS, lambda obj: parse_deployment(obj).status),
        ("InferenceProviderConfig", CONFIG_STATUS, lambda obj: parse_model(InferenceProviderConfig, obj).status),
    ],
)
def test_every_status_field_is_stored_and_read(
    kubectl: Kubectl, namespace: str, kind: str, status: Resource, read: Callable[[Resource], ApiModel]
) -> None:
    obj: Resource = {"apiVersion": "airunway.ai/v1alpha1", "kind": kind, "metadata": {"name": namespace}}
    obj["spec"] = {"model": {"id": "a"}} if kind == "ModelDeployment" else {}
    where = ("-n", namespace) if kind == "ModelDeployment" else ()
    kubectl("create", *where, "-f", "-", stdin=json.dumps(obj))
    apply = ("apply", "--server-side", "--subresource=status", "--validate=strict", "--field-manager=test")
    kubectl(*apply, *where, "-f", "-", stdin=json.dumps({**obj, "status": status}))
    live = json.loads(kubectl("get", kind, namespace, *where, "-o", "json").stdout)
    assert live["status"] == status
    assert read(live).to_resource() == status
    if not where:
        kubectl("delete", kind, namespace)


def test_the_examples_have_every_status_field() -> None:
    for kind, status in (("ModelDeployment", DEPLOYMENT_STATUS), ("InferenceProviderConfig", CONFIG_STATUS)):
        assert set(schema_of(kind)["properties"]["status"]["properties"]) == set(status)
