"""What a policy lets a deployment use reaches its pods through the provider's guard, and nothing else does."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.rights import applied, granted

from airunway.api import names
from airunway.controller.application import CoreSettings
from airunway.controller.policies import PolicyFile
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import Client, Forbidden, Kind, load_config
from airunway.plugins.registry import load
from airunway.rbac.admission_policies import provider_guard
from airunway.rbac.rights import provider_rights
from airunway.resource import ObjectKey, Resource, dig
from airunway.runtime.application import ProviderSettings
from airunway_testing.controlplane import Cluster
from airunway_testing.operator import running_core, running_provider, until

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
POLICY = """
rules:
- podAnnotations: ["mesh.example.org/*", "prometheus.io/*"]
  tolerations: ["*"]
  priorityClasses: ["system-cluster-critical"]
  affinityNamespaces: ["team-b"]
  capabilities: ["IPC_LOCK"]
  workloadAnnotations: ["queue.example.org/*"]
"""
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaces": ["team-b"]}
ALONE = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
PLAIN: Resource = {
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "nodeSelector": {"pool": "gpu"},
    "podTemplate": {"metadata": {"annotations": {"prometheus.io/scrape": "true"}}},
}
"""What every user may set."""
LISTED: Resource = {
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "system-cluster-critical",
    "affinity": ALONE,
    "podTemplate": {"metadata": {"annotations": {"mesh.example.org/inject": "true"}}},
    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    "workload": {"metadata": {"annotations": {"queue.example.org/name": "gpu"}}},
}
"""What only this policy lets them set."""


@pytest.mark.parametrize("uses", [PLAIN, LISTED], ids=["plain", "by policy"])
async def test_m1_what_a_user_may_set_passes_the_guard_and_a_thief_may_not_set_more(
    client: Client,
    control_plane: Cluster,
    installed: None,
    namespace: str,
    tmp_path: Path,
    uses: Resource,
) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY)
    host, home = load("vllm"), namespace.replace("test-", "home-")
    user = f"system:serviceaccount:{home}:{names.provider_manager('vllm')}"
    key = ObjectKey(namespace, "llama")
    settings = CoreSettings(guard_parameters=home, policy=PolicyFile(tmp_path / "policy.yaml"), namespaces=(namespace,))
    spec = {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1}}, "provider": {"name": "vllm"}, **uses}
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(granted(client, provider_rights(host.manifest), user=user, namespace=namespace))
        await enter(applied(client, provider_guard(host.manifest, user, own=home, name=f"guard-{namespace}")))
        await enter(running_core(control_plane.kubeconfig, settings=settings))
        account = control_plane.kubeconfig_for(user)
        await enter(running_provider(account, host, settings=ProviderSettings(namespaces=(namespace,))))
        thief = await enter(Client(load_config(kubeconfig=account)))
        metadata = {"name": key.name, "namespace": namespace}
        body = {"apiVersion": names.API_VERSION, "kind": MODEL_DEPLOYMENT.kind, "metadata": metadata, "spec": spec}
        await client.create(MODEL_DEPLOYMENT, body)

        await until(client, key, lambda live: dig(live, "status", "provider", "resourceName") == key.name)
        made = await client.get(DEPLOYMENT, key)
        template = made["spec"]["template"]
        assert template["metadata"]["annotations"].items() >= uses["podTemplate"]["metadata"]["annotations"].items()
        assert [dig(each, "key") for each in template["spec"]["tolerations"]] == [
            dig(each, "key") for each in uses["tolerations"]
        ]
        given = dig(uses, "securityContext", "capabilities", "add", default=[])
        assert dig(template["spec"]["containers"][0], "securityContext", "capabilities", "add", default=[]) == given
        queue = dig(uses, "workload", "metadata", "annotations", default={})
        assert made["metadata"]["annotations"].items() >= queue.items()
        capable = {**template["spec"]["containers"][0], "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}
        patch: Resource = {"spec": {"template": {"spec": {"containers": [capable]}}}}
        with pytest.raises(Forbidden, match="must not have capabilities added"):
            await thief.merge_patch(DEPLOYMENT, key, patch, dry_run=True)
        held: Resource = {"metadata": {"annotations": {"kueue.x-k8s.io/pod-suspending-parent": "deployment"}}}
        await thief.merge_patch(DEPLOYMENT, key, {"spec": {"template": held}}, dry_run=True)  # as Kueue's webhook
        more: Resource = {"metadata": {"annotations": {"sidecar.istio.io/userVolume": "[]"}}}
        with pytest.raises(Forbidden, match="act on annotations with their domain"):
            await thief.merge_patch(DEPLOYMENT, key, {"spec": {"template": more}}, dry_run=True)
        patch = {"spec": {"template": {"spec": {"priorityClassName": "system-node-critical"}}}}
        with pytest.raises(Forbidden, match="a priority class of the system"):
            await thief.merge_patch(DEPLOYMENT, key, patch, dry_run=True)
        # What somebody else has put there stays, and stops no write of the provider.
        others = {"spec": {"template": {"metadata": {"annotations": {"kubectl.example.com/by-hand": "1"}}}}}
        await client.merge_patch(DEPLOYMENT, key, others, manager="kubectl-edit")
        await thief.merge_patch(DEPLOYMENT, key, {"metadata": {"labels": {"a": "b"}}}, dry_run=True)
    config = ObjectKey("", "vllm")
    if await client.find(INFERENCE_PROVIDER_CONFIG, config) is not None:
        await client.delete(INFERENCE_PROVIDER_CONFIG, config)
