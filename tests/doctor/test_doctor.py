"""`airunway doctor` against a real API server: nothing on a healthy installation, and each of many faults."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.console import ran_now
from tests.doctor.conftest import processor_time
from tests.support.audit import AuditReader
from tests.support.clocks import TimeOfDay
from tests.support.webhook import local_settings, running_webhook

from airunway.doctor import CHECKS, run_checks
from airunway.doctor.gather import gather
from airunway.doctor.report import document
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import NODE, Client, NotFound
from airunway.plugins.provider_config import config_object
from airunway.plugins.registry import discover, load
from airunway.rbac.admission_policies import status_guard
from airunway.rbac.rights import roles, webhook_rights
from airunway.resource import ObjectKey, Resource, condition_of, dig, format_time, is_true
from airunway.selection.facts import AVAILABLE, STALE_AFTER
from airunway.webhook.certificates import new_authority
from airunway.webhook.configuration import CONFIGURATION, CONFIGURATION_KIND
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import running_core, running_provider

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

TABLE: list[Resource] = yaml.safe_load((Path(__file__).parent / "misconfigurations.yaml").read_text())


async def test_nothing_is_found_on_a_healthy_installation(installation: Any, doctor: Any) -> None:
    report = doctor("--failure-threshold", "warning")
    assert report.document["findings"] == []
    assert report.document["notLookedAt"] == []
    assert sorted(report.document["checks"]) == sorted(CHECKS), "every check was made"
    assert report.code == 0


REMOVED = {"CustomResourceDefinition", "Deployment", "InferenceProviderConfig", "Lease", "StorageClass"}
"""Kinds whose objects, once they are deleted, leave much that is not looked at any more, or that has no place."""
ADDED = {"CustomResourceDefinition", "Deployment"}
"""Kinds of which another object is an installation, or a part of one, more."""


def is_alone(case: Resource) -> bool:
    """Whether a fault hides others."""
    removed = {step["delete"]["kind"] for step in case["steps"] if "delete" in step}
    defined = any("definition" in step or dig(step, "apply", "kind") in ADDED for step in case["steps"])
    return defined or not REMOVED.isdisjoint(removed)


def touched(case: Resource) -> set[tuple[str, str]]:
    """Kind and name of what a fault changes."""
    found = set()
    for (verb, what), *_ in (list(step.items()) for step in case["steps"]):
        if verb in ("runs", "webhook"):
            found.add(
                ("Lease", what.get("process", "airunway-controller") if verb == "runs" else "airunway-controller")
            )
        else:
            found.add((what["kind"], what.get("name") or dig(what, "metadata", "name")))
    return found


CONCERNS = {"ARW0905": "ARW10"}
"""Codes whose fault another part meets with, too: without the class that a config names, artifacts have none."""


def families(case: Resource) -> set[str]:
    """The parts of an installation that its codes are about."""
    return {part for code in case["finds"] for part in (code[:5], CONCERNS.get(code, code[:5]))}


def together(table: Sequence[Resource]) -> list[list[Resource]]:
    """The faults in groups: those of a group are about other parts of an installation and other objects, so that each
    code that is found is one fault's.
    """
    groups: list[list[Resource]] = []
    for case in table:
        fitting = (
            group
            for group in groups
            if not is_alone(case)
            and all(
                not is_alone(other)
                and families(case).isdisjoint(families(other))
                and touched(case).isdisjoint(touched(other))
                for other in group
            )
        )
        found = next(fitting, None)
        if found is None:
            groups.append([case])
        else:
            found.append(case)
    for group in groups:  # a webhook that does not answer would refuse what others have yet to create
        group.sort(key=lambda case: "ARW03" in families(case))
    return groups


@pytest.mark.parametrize("cases", together(TABLE), ids=lambda cases: cases[0]["fault"])
async def test_each_misconfiguration_is_found_and_nothing_else(
    installation: Any, client: Client, namespace: str, cases: list[Resource]
) -> None:
    """In this process, which saves a start of the command each time: the others here are of the command."""
    for case in cases:
        for step in case["steps"]:
            await installation.do(step)
    found = run_checks(
        await gather(client, namespace=namespace, hosts=[load(each.name) for each in discover(on_request=True)])
    )
    reported = [
        (finding["code"], finding["object"], finding["what"], finding["do"]) for finding in document(found)["findings"]
    ]
    faults = [case["fault"] for case in cases]
    assert sorted({code for code, *_ in reported}) == sorted(code for case in cases for code in case["finds"]), (
        faults,
        reported,
    )
    says = [text for case in cases for text in case.get("says", ())]
    placeholder = re.compile(r"\b(NAME|NAMESPACE|NODE|KIND|KEY|RELEASE)\b")
    assert not [each for each in reported if placeholder.search(each[3])], "names in commands are filled in"
    for words in (text.replace("$NAMESPACE", namespace) for text in says):
        assert any(words in " ".join(each) for each in reported), (words, reported)


async def test_nothing_is_found_where_core_webhook_and_provider_really_run(
    installation: Any, doctor: Any, client: Client, kubeconfig: Path, namespace: str
) -> None:
    """And with a configuration that trusts another authority, the API server's own words are told."""
    host = load("toy")
    with local_settings(namespace=namespace) as webhook:
        options = {
            "webhook-bind-address": webhook.bind_address,
            "webhook-url": webhook.url,
            "webhook-configuration": webhook.configuration,
            "webhook-manage-configuration": "true",
        }
        await installation.publish("airunway-controller", options)
        rights = roles(
            webhook_rights(webhook),
            name=f"{namespace}-webhook",
            namespace=namespace,
            subject={"kind": "ServiceAccount", "namespace": namespace, "name": "airunway-controller"},
        )
        for role in rights:
            await installation.apply(role)
        with running_webhook(kubeconfig, webhook):
            async with running_provider(kubeconfig, host):
                report = doctor("--failure-threshold", "warning")
                assert report.document["findings"] == []
                assert report.document["notLookedAt"] == []
            live = await client.get(CONFIGURATION_KIND, ObjectKey("", webhook.configuration))
            (entry,) = live["webhooks"]
            stranger = new_authority(now=datetime.now(UTC), hosts=["127.0.0.1"]).authority
            entry["clientConfig"]["caBundle"] = b64encode(stranger).decode()
            entry["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
            left = {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": CONFIGURATION}, "webhooks": [entry]}
            await installation.apply(left)
            async with asyncio.timeout(PATIENCE):  # the API server hears of its configurations by watch
                while "ARW0306" not in (report := await asyncio.to_thread(doctor)).codes:
                    await asyncio.sleep(0.1)
    assert report.codes == ["ARW0306", "ARW0307", "ARW0504"], "the provider has said goodbye"
    assert report.code == 3
    assert "x509" in str(report.document["findings"])


async def test_two_installations_that_keep_to_their_namespaces_are_no_fault(
    installation: Any, doctor: Any, namespace: str
) -> None:
    """The other's guard of the status knows its own accounts alone, and holds in its own namespaces alone."""
    for process in ("airunway-controller", "airunway-provider-toy"):
        await installation.publish(process, {"watch-namespaces": namespace})
    await installation.guard_provider(watched=[namespace])
    for guard in status_guard([], accounts_of="default", namespaces=["default"], name="airunway-other-guard"):
        await installation.apply(guard)
    report = doctor("--failure-threshold", "warning")
    assert report.document["findings"] == []
    for guard in status_guard([], accounts_of="default", namespaces=[namespace], name="airunway-other-guard"):
        await installation.apply(guard)
    assert (await asyncio.to_thread(doctor)).codes == ["ARW0404"], "where the two meet it is one"


async def test_in_a_sandbox_the_core_is_not_missed(
    client: Client, doctor: Any, kubeconfig: Path, sandboxed: None
) -> None:
    """All runs as processes there, of which the cluster knows nothing but what they write."""
    async with running_core(kubeconfig), running_provider(kubeconfig, load("toy")):
        async with asyncio.timeout(PATIENCE):
            while not is_true(await client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "toy")), AVAILABLE):
                await asyncio.sleep(0.1)
        report = await asyncio.to_thread(doctor)
    assert "ARW0201" not in report.codes
    assert "the processes of core and providers" in {entry["what"] for entry in report.document["notLookedAt"]}
    await client.delete(INFERENCE_PROVIDER_CONFIG, ObjectKey("", "toy"))
    report = await asyncio.to_thread(doctor)
    assert "ARW0201" in report.codes, "where nothing is heard of any part, none runs"


async def test_ready_of_a_provider_follows_its_heartbeat(
    client: Client, kubeconfig: Path, namespace: str, sandboxed: None
) -> None:
    """The provider is cut off without a goodbye; 3 minutes later by the core's clock it is not ready any more, although
    its own word stands; when it beats again it is, at once.
    """
    clock = TimeOfDay()
    key = ObjectKey("", "toy")

    async def seen(status: str) -> Resource:
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(NotFound):
                    found = await client.get(INFERENCE_PROVIDER_CONFIG, key)
                    if (condition_of(found, AVAILABLE) or {}).get("status") == status:
                        return found
                await asyncio.sleep(0.05)

    config = config_object(load("toy").manifest)
    await client.apply(INFERENCE_PROVIDER_CONFIG, config, manager="airunway-provider-toy")

    async def beat() -> None:
        status = {"ready": True, "lastHeartbeat": format_time(clock())}
        body = {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {"name": "toy"}}
        await client.apply(
            INFERENCE_PROVIDER_CONFIG, {**body, "status": status}, manager="airunway-provider-toy", subresource="status"
        )

    async with running_core(kubeconfig, clock=clock):
        await beat()
        await seen("True")
        clock.ahead = STALE_AFTER
        await client.merge_patch(INFERENCE_PROVIDER_CONFIG, key, {"metadata": {"labels": {"seen": "again"}}})
        silent = await seen("False")
        assert silent["status"]["ready"] is True, "that field is the provider's"
        assert (condition_of(silent, AVAILABLE) or {})["reason"] == "HeartbeatMissing"
        await beat()
        await seen("True")
        version = (await client.get(INFERENCE_PROVIDER_CONFIG, key))["metadata"]["resourceVersion"]
        await asyncio.sleep(1)
        assert (await client.get(INFERENCE_PROVIDER_CONFIG, key))["metadata"]["resourceVersion"] == version
    await client.delete(INFERENCE_PROVIDER_CONFIG, key)


async def test_doctor_without_rights_has_an_exit_code_of_its_own_and_says_what_was_not_looked_at(
    installation: Any, doctor: Any, control_plane: Cluster
) -> None:
    report = doctor(kubeconfig=control_plane.kubeconfig_for("somebody"))
    assert report.code == 4
    unseen = {entry["what"]: entry["why"] for entry in report.document["notLookedAt"]}
    assert unseen["nodes"].startswith('you may not: nodes is forbidden: User "somebody" cannot list')
    assert len(unseen) >= 8
    assert set(report.document["skipped"]).isdisjoint(report.document["checks"])
    assert {"ARW0101", "ARW0108"} <= set(report.document["checks"])


async def test_it_is_fast_and_asks_little(
    installation: Any, doctor: Any, audit_log: Path, kubeconfig: Path, namespace: str
) -> None:
    """Its requests are counted, and its processor time is compared with that of its imports, as machines differ:
    `benchmarks/doctor.py` holds it against its budget of two seconds.
    """
    reader = AuditReader(audit_log)
    reader.read()
    report = doctor()
    asked = [request for request in reader.read() if request.agent == "cli"]
    reviews = [request for request in asked if request.resource == "subjectaccessreviews"]
    secrets = [request for request in asked if request.resource == "secrets"]
    assert {request.verb for request in secrets} == {"list"}, "of Secrets the metadata is listed, and no more"
    assert {request.resource for request in asked if request.writes} == {"subjectaccessreviews"}
    assert len(asked) - len(reviews) <= 60
    assert len(reviews) <= 180, "the gateway part alone has 50 rights, and the model cache part 20"
    assert report.code == 0
    command = ("doctor", "-n", namespace, "-o", "json", "--kubeconfig", str(kubeconfig))
    seconds = min(processor_time("-m", "airunway", *command) for _ in range(2))
    assert seconds <= 4 * min(processor_time("-c", "import airunway.doctor, airunway.kube") for _ in range(2))


async def test_what_it_does_not_look_at_for_its_number_is_told(client: Client, namespace: str) -> None:
    names = [f"{namespace}-{number}" for number in range(2)]
    for name in names:
        await client.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    try:
        snapshot = await gather(client, namespace=namespace, hosts=(), limit=1)
    finally:
        for name in names:
            await client.delete(NODE, ObjectKey("", name))
    assert [*map(str, snapshot.unseen["nodes"])] == ["nodes after the first 1: no more are looked at"]
    assert len(snapshot.nodes or ()) == 1


async def test_its_options_do_as_they_say(installation: Any, doctor: Any, kubeconfig: Path) -> None:
    await installation.do({"delete": {"kind": "StorageClass", "name": "doctor-standard"}})
    current = yaml.safe_load(kubeconfig.read_text())["current-context"]
    assert doctor("--context", current).code == 0
    assert doctor("--failure-threshold", "warning").code == 3
    ignoring = doctor("--failure-threshold", "warning", "--ignore", "ARW0705")
    assert (ignoring.code, ignoring.codes) == (0, [])


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--ignore", "ARW9999"], 2, "unknown check ARW9999"),
        (["--context", "nowhere"], 1, "has no context 'nowhere'"),
        (["--failure-threshold", "never"], 2, "--failure-threshold"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(kubeconfig: Path, options: list[str], code: int, says: str) -> None:
    done = ran_now("doctor", *options, "--kubeconfig", str(kubeconfig))
    assert (done.code, "Traceback" in done.err) == (code, False)
    assert says in " ".join(done.err.split())


def test_a_cluster_that_does_not_answer_is_one_sentence(tmp_path: Path, kubeconfig: Path) -> None:
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    path = tmp_path / "nowhere.yaml"
    path.write_text(yaml.safe_dump(config))
    done = ran_now("doctor", "--kubeconfig", str(path))
    assert done.code == 1
    assert len(done.err.splitlines()) == 1
    assert "cannot connect to 127.0.0.1:1: Connection refused. Check that https://127.0.0.1:1 is the right" in done.err
