"""The charts on a real cluster: pods are accepted, the rights are enough and all used, and helm's whole life works.

For all namespaces, and by helm 3: tests/install/test_pages.py and test_upgrade.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from tests.install.helm import NAMESPACE, Helm, Major
from tests.install.installation import CHARTS_OF, Installation, account, component, installation, simulated
from tests.install.node import Node, processes
from tests.support.audit import AuditReader, Request

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Forbidden, load_config
from airunway.resource import ObjectKey
from airunway_testing.controlplane.ports import reserved_ports

pytestmark = [pytest.mark.chart, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = {
    "kaito": ROOT / "providers/kaito/src/airunway_kaito/samples/gemma-cpu.yaml",
    "vllm": ROOT / "providers/vllm/src/airunway_vllm/samples/plain-8b.yaml",
}
TEAM = "team-a"


@dataclass(frozen=True, kw_only=True)
class Running:
    """An installation whose programs run; `seen` are the requests of the time until both samples were Running."""

    made: Installation
    seen: list[Request]


@pytest.fixture(scope="module")
def running(helms: dict[Major, Helm], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Installed by helm 4 for one namespace, on a cluster of its own; one sample of each provider runs."""
    values = {process: [f"--set=watchNamespaces={{{TEAM}}}"] for process in CHARTS_OF}
    folder = tmp_path_factory.mktemp("programs")
    with ExitStack() as stack:
        ports = stack.enter_context(reserved_ports(3 * len(CHARTS_OF)))
        # Roles for namespaces that are watched can only be made where these are.
        made = stack.enter_context(installation(helms[4], ports, values, namespaces=[TEAM]))
        audit = AuditReader(made.plane.audit_log or Path())
        stack.enter_context(simulated(made, folder, "kaito"))
        node = stack.enter_context(Node(made, folder, processes))
        made.kubectl("rollout", "status", "deployment", "-n", NAMESPACE, "--timeout=180s")
        for sample in SAMPLES.values():
            made.kubectl("apply", "-n", TEAM, "-f", str(sample))
        for sample in SAMPLES.values():
            made.kubectl(
                *("wait", "-n", TEAM, "--for=jsonpath={.status.phase}=Running", f"md/{sample.stem}", "--timeout=90s")
            )
        yield Running(made=made, seen=audit.read(watches=True))
        for process in CHARTS_OF:
            assert "Traceback" not in node.log(component(process)).read_text(), process


def test_a_namespace_for_restricted_pods_takes_them(running: Running) -> None:
    made = running.made
    for process, chart in CHARTS_OF.items():
        pods = made.objects("pods", "-n", NAMESPACE, "-l", f"app.kubernetes.io/instance={chart}")
        assert len(pods) == 2, process


def test_no_right_is_missing(running: Running) -> None:
    accounts = {account(process) for process in CHARTS_OF}
    assert {request.user for request in running.seen} >= accounts
    refused = [request for request in running.seen if request.user in accounts and request.code == 403]
    assert [f"{r.user} {r.verb} {r.resource} {r.namespace}/{r.name}" for r in refused] == []


def test_with_namespaces_nobody_looks_beyond_them(running: Running) -> None:
    accounts = {account(process) for process in CHARTS_OF}
    namespaced = {"modeldeployments", "pods", "workspaces", "deployments", "events", "persistentvolumeclaims", "jobs"}
    seen = {r.namespace for r in running.seen if r.user in accounts and r.resource in namespaced}
    assert seen == {TEAM}


def test_the_webhook_judges_by_what_the_cluster_has(running: Running) -> None:
    wrong = yaml.load(SAMPLES["vllm"].read_text(), Loader=yaml.CSafeLoader)
    wrong["metadata"]["name"] = "wrong"
    wrong["spec"]["provider"]["name"] = "kiato"
    said = running.made.kubectl("apply", "-n", TEAM, "-f", "-", stdin=yaml.safe_dump(wrong), check=False)
    assert "provider 'kiato' is not registered (registered: kaito, vllm)" in said


async def test_the_guard_keeps_accounts_to_what_is_theirs(running: Running) -> None:
    """A provider's account may patch deployments, for its finalizer; the policy lets it patch nothing else."""
    made, key = running.made, ObjectKey(TEAM, "plain-8b")
    for user, patch, subresource, said in (
        (account("vllm"), {"spec": {"suspend": True}}, "", "a controller must not change the spec of a deployment"),
        ("admin", {"status": {"phase": "Failed"}}, "status", "only AI Runway's controllers write the status"),
    ):
        path = made.plane.kubeconfig if user == "admin" else made.plane.kubeconfig_for(user)
        async with Client(load_config(kubeconfig=path), user_agent="airunway-tests") as client:
            with pytest.raises(Forbidden, match=said):
                await client.merge_patch(MODEL_DEPLOYMENT, key, patch, subresource=subresource)


def test_users_get_our_kinds_with_view_and_edit(running: Running) -> None:
    made = running.made
    for user, role in (("vera", "view"), ("ed", "edit")):
        made.kubectl("create", "rolebinding", user, "-n", TEAM, f"--clusterrole={role}", f"--user={user}")
    for user, verb, allowed in (
        ("vera", "get", "yes"),
        ("vera", "create", "no"),
        ("ed", "create", "yes"),
        ("ed", "get", "yes"),
    ):
        assert made.kubectl("auth", "can-i", verb, "md", "-n", TEAM, f"--as={user}", check=False).strip() == allowed


def identities(made: Installation) -> dict[str, tuple[str, int]]:
    """What the samples came to: uid and generation of each object, and of their pods."""
    found = made.objects("workspaces,deployments,statefulsets,pods", "-n", TEAM)
    return {
        f"{obj['kind']}/{obj['metadata']['name']}": (obj["metadata"]["uid"], obj["metadata"].get("generation", 0))
        for obj in found
    }


def test_upgrades_and_rollbacks_take_nothing_from_the_operator_and_nothing_from_what_runs(running: Running) -> None:
    made = running.made
    before, authority = identities(made), made.authority()
    assert len(before) >= 4
    assert authority
    for process, chart in CHARTS_OF.items():
        made.install("upgrade", process, "--set=replicas=3", "--set=log.level=debug")
        made.helm("rollback", chart, "1", "-n", NAMESPACE)
        made.install("upgrade", process)
    made.helm("upgrade", "airunway-crds", "airunway-crds", "-n", NAMESPACE, "--set=labels.team=platform")
    made.helm("rollback", "airunway-crds", "1", "-n", NAMESPACE)
    assert made.authority() == authority
    made.kubectl("rollout", "status", "deployment", "-n", NAMESPACE, "--timeout=180s")
    assert identities(made) == before
    test_the_webhook_judges_by_what_the_cluster_has(running)


def test_uninstalling_leaves_crds_and_deployments_and_what_runs(running: Running) -> None:
    made = running.made
    before = identities(made)
    made.uninstall()
    assert made.left() == []
    assert identities(made) == before
    assert {md["metadata"]["name"] for md in made.objects("md", "-n", TEAM)} == {"gemma-cpu", "plain-8b"}
