"""``airunway status`` on a cluster; what it says of each fault is tested in tests/rootcause/test_every_provider.py."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.rootcause.worked import FAULTS
from tests.support.faults import has_cause, is_clear, pod_of, write_pod
from tests.view.conftest import Grant, Run

from airunway.kube import POD, Client, Kind, load_config
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway.snapshots.following import follow_snapshots
from airunway.snapshots.reading import MOST_REQUESTS, read_snapshot
from airunway.view import DeploymentSnapshot
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")


async def test_a_snapshot_takes_few_requests_and_following_takes_none(
    deploy: Deploy, client: Client, kubeconfig: Path
) -> None:
    key = await deploy("calm", by_hand=False)
    await until(client, key, is_clear)
    requests: list[tuple[str, str]] = []
    told = asyncio.Event()
    async with Client(load_config(kubeconfig=kubeconfig)) as counted:
        counted.session.on_request = lambda verb, resource, *_: requests.append((verb, resource))
        snapshot = await read_snapshot(counted, key)
        assert len(requests) <= MOST_REQUESTS
        assert {obj["kind"] for obj in snapshot.objects} >= {"Workspace"}
        seen: list[DeploymentSnapshot | None] = []

        async def follow() -> None:
            async with aclosing(follow_snapshots(counted, key)) as snapshots:
                async for each in snapshots:
                    seen.append(each)
                    told.set()

        following = asyncio.create_task(follow())
        async with asyncio.timeout(PATIENCE):
            await told.wait()
        assert seen[0] is not None
        assert {key_of(pod) for pod in pods_in(seen[0])} == {key_of(pod) for pod in pods_in(snapshot)}
        await asyncio.sleep(1.0)  # what is still being read at the start
        requests.clear()
        await asyncio.sleep(3.0)
        assert [each for each in requests if each[0] != "watch"] == []
        told.clear()
        pod = ObjectKey(key.namespace, f"{key.name}-0")
        await client.merge_patch(POD, pod, {"metadata": {"annotations": {"touched": "yes"}}})
        async with asyncio.timeout(PATIENCE):
            await told.wait()
        assert [each for each in requests if each[0] != "watch"] == []
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


def pods_in(snapshot: DeploymentSnapshot) -> tuple[Resource, ...]:
    assert isinstance(snapshot.pods, tuple)
    return snapshot.pods


async def test_a_user_with_view_in_one_namespace_sees_what_it_may(
    deploy: Deploy, client: Client, cluster: Cluster, namespace: str, run: Run
) -> None:
    user = f"viewer-of-{namespace}"
    viewer = cluster.kubeconfig_for(user)
    # What the chart's ClusterRole airunway-view adds to Kubernetes' own `view`.
    rule = {"apiGroups": ["airunway.ai"], "resources": ["modeldeployments"], "verbs": ["get", "list", "watch"]}
    await client.create(ROLE, {"metadata": {"name": "models", "namespace": namespace}, "rules": [rule]})
    for kind, name in (("ClusterRole", "view"), ("Role", "models")):
        body = {
            "metadata": {"name": f"{user}-{name}", "namespace": namespace},
            "roleRef": {"apiGroup": ROLE.group, "kind": kind, "name": name},
            "subjects": [{"apiGroup": ROLE.group, "kind": "User", "name": user}],
        }
        await client.create(ROLE_BINDING, body)
    key = await deploy("calm", by_hand=False)
    await until(client, key, is_clear)

    shown = await run("status", "md/calm", "-n", namespace, kubeconfig=viewer)
    assert shown.code == 0, shown
    assert "Running" in shown.out.splitlines()[0]
    assert "Pod calm-0" in shown.out
    assert "get inferenceproviderconfigs.airunway.ai" in shown.out
    assert f"workspaces.kaito.sh in namespace {namespace}" in shown.out
    elsewhere = await run("status", "md/calm", "-n", "default", kubeconfig=viewer)
    assert elsewhere.code == 1
    assert elsewhere.err.count("\n") == 1
    assert "no right to get modeldeployments.airunway.ai in namespace default" in elsewhere.err
    assert "or for a role that allows it where view does not" in elsewhere.err, "A5: he may have view"


async def test_in_a_pipe_watching_appends_what_changes_until_the_outcome(
    deploy: Deploy, client: Client, kubeconfig: Path, namespace: str, run: Run
) -> None:
    nowhere = await run("status", "md/crash-loop", "--context", "nowhere")
    assert (nowhere.code, "nowhere" in nowhere.err) == (1, True)
    key = await deploy("crash-loop")
    pod = await pod_of(client, key)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "airunway", "status", "md/crash-loop", "-w", "--wait", "-n", namespace),
        *("--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert (await process.stdout.readline()).startswith(b"md/crash-loop ")
        await write_pod(client, pod, state=FAULTS["crash-loop"].state, last=FAULTS["crash-loop"].last)
        rest, _ = await process.communicate()
    assert process.returncode == 5
    lines = rest.decode().splitlines()
    assert any(line.startswith("pod/crash-loop-0 CrashLoopBackOff ") and "exit code 1" in line for line in lines)
    assert f"md/crash-loop Failed CrashLoopBackOff 0/1 Engine.CrashLoop Pod/{namespace}/crash-loop-0" in lines
    await write_pod(client, pod, state=FAULTS["gated-model"].state, last=FAULTS["gated-model"].last)
    await until(client, key, has_cause(FAULTS["gated-model"].code), what="what may heal")
    waited = await run("status", "md/crash-loop", "-n", namespace, "--wait=1s")
    assert waited.code == 4, waited
    every = await run("status", "-A")
    assert every.code == 0, every
    lines = every.out.splitlines()
    at = next(place for place, line in enumerate(lines) if f"{namespace}/crash-loop is " in line)
    assert FAULTS["gated-model"].code in lines[at]
    assert lines[at + 2].startswith("  Remedy: ")
    assert (await run("status", "-A", "--wait")).code == 2, "that is about one deployment"


async def test_the_line_that_killed_a_container_is_printed_after_its_pod_is_gone(
    deploy: Deploy, client: Client, namespace: str, run: Run, grant: Grant
) -> None:
    key = await deploy("crash-loop")
    pod = await pod_of(client, key)
    fault = FAULTS["crash-loop"]
    await write_pod(client, pod, state=fault.state, last=fault.last)
    await until(client, key, has_cause(fault.code), what=fault.code)
    await client.delete(POD, key_of(pod), grace_seconds=0)
    async with asyncio.timeout(PATIENCE):
        # The StatefulSet makes a new pod with the name of the one that is gone.
        while (await pod_of(client, key))["metadata"]["uid"] == pod["metadata"]["uid"]:
            await asyncio.sleep(0.05)
    # Only what was reported knows its end: in the status, or, once that is about the new pod, in an event.
    found = await run("logs", "md/crash-loop", "-n", namespace)
    assert found.code == 0, found
    (line,) = [each for each in found.out.splitlines() if "KeyError: 'layers.0'" in each]
    container = dig(pod, "spec", "containers")[0]["name"]
    assert line.startswith(f"[crash-loop-0 {container}] "), line
    assert "pod crash-loop-0 is gone, and its log with it" in found.err
    reader = await grant(rules=[("", "pods", "get list"), ("", "pods/log", "get")])
    less = await run("logs", "md/crash-loop", "-n", namespace, kubeconfig=reader)
    assert less.code == 0, less
    assert f"ends of pods that are gone are not shown: you have no right to list events in namespace {namespace}" in (
        less.err
    )
