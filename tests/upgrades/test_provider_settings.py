"""How a provider runs is read from its Lease; what is not there is assumed, and said."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from tests.console import ran_now
from tests.install.helm import NAMESPACE

from airunway.kube import Client, load_config
from airunway.process.effective_settings import PART_OF, EffectiveSettings
from airunway.resource import Resource
from airunway.snapshots.reader import Listed
from airunway.upgrades.preflight import ProviderRun, provider_run_in
from airunway_testing.fixtures import Kubectl
from airunway_testing.operator import install_definitions, remove_leftovers
from airunway_testing.simulators import load_simulator

KAITO = "airunway-provider-kaito"


def lease(manager: str = KAITO, *, namespace: str = NAMESPACE, unknown_schema: str = "Verify") -> Resource:
    """As the provider's leader writes it."""
    effective = EffectiveSettings(
        manager=manager,
        pod=f"{manager}-1",
        options={"unknown-schema": unknown_schema},
        settings={"instanceType": "big"},
    )
    metadata = {"name": manager, "namespace": namespace, "labels": dict([PART_OF])}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {**metadata, "annotations": effective.annotations()},
        "spec": {"holderIdentity": effective.pod},
    }


def test_settings_are_those_of_the_provider() -> None:
    found = provider_run_in(Listed(items=(lease(unknown_schema="Fail"), lease("airunway-provider-vllm"))), "kaito")
    assert found == ProviderRun(settings={"instanceType": "big"}, verify=False, source=f"Lease/{NAMESPACE}/{KAITO}")


def test_what_is_not_known_is_assumed_and_said() -> None:
    assert f"no Lease {KAITO} says how it runs" in provider_run_in(Listed(), "kaito").assumed
    several = provider_run_in(Listed(items=(lease(), lease(namespace="another"))), "kaito")
    assert several.assumed.endswith(f"several processes run it: Lease/{NAMESPACE}/{KAITO}, Lease/another/{KAITO}")


async def prepare(kubeconfig: Path) -> None:
    """Our CRDs, and no deployment or Lease of other tests: a preflight looks at the whole cluster."""
    async with Client(load_config(kubeconfig=kubeconfig), user_agent="airunway-tests") as client:
        await install_definitions(client)
        await remove_leftovers(client)


@pytest.mark.apiserver
def test_a_preflight_takes_what_the_cluster_says(kubeconfig: Path, kubectl: Kubectl, tmp_path: Path) -> None:
    """An unknown schema is tried under Verify, and stops the provider under Fail."""
    (crd,) = [
        crd
        for crd in load_simulator("kaito").custom_resource_definitions()
        if crd["metadata"]["name"] == "workspaces.kaito.sh"
    ]
    for version in crd["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["novel"] = {"type": "string"}
    (tmp_path / "crd.yaml").write_text(yaml.safe_dump(crd))
    asyncio.run(prepare(kubeconfig))

    def asked(*more: str) -> Resource:
        crd = f"--upstream=kaito={tmp_path / 'crd.yaml'}"
        done = ran_now("preflight", crd, f"--kubeconfig={kubeconfig}", *more)
        assert done.code == 0, done
        found: Resource = json.loads(done.out) if "json" in more else {"table": done.out}
        return found

    assert asked()["table"].startswith(f"Assumed: default settings and --unknown-schema Verify: no Lease {KAITO}")
    kubectl("create", "namespace", NAMESPACE)
    try:
        kubectl("apply", "-f", "-", stdin=yaml.safe_dump(lease(unknown_schema="Fail")))
        told = asked("-o", "json")
        assert told["running"] == {
            "source": f"Lease/{NAMESPACE}/{KAITO}",
            "settings": {"instanceType": "big"},
            "unknownSchema": "Fail",
            "assumed": "",
        }
        assert "with --unknown-schema Fail nothing is written for it" in told["changes"][0]["message"]
        read = f"Settings of Lease/{NAMESPACE}/{KAITO}: instanceType=small"
        assert asked("--set", "instanceType=small")["table"].startswith(read)
    finally:
        kubectl("delete", "namespace", NAMESPACE)
