"""Discovery, line by line of the table in issue 23: the Job, its tries, what they come to, and how they are counted."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from catalogue.tests.world import (
    MISSING,
    PRESENT,
    START,
    Killed,
    World,
    cause_of,
    refused,
    template_of,
)
from hypothesis import given
from hypothesis import strategies as st

from airunway.configs.resolution import resolve
from airunway.resource import Resource, format_time
from airunway_catalogue.discovery import (
    PACKED,
    PARTS,
    PROBLEM,
    SCRIPT,
    Entrypoint,
    job_name,
    job_of,
    next_attempt,
    request_of,
    spec_hash,
)
from airunway_catalogue.names import WHY_NO_ENTRYPOINT

IMAGE = "registry.example/vllm:1"


def world(**spec: Any) -> World:
    return World(template=template_of(**{"discovery": {"image": IMAGE}, **spec}))


# ----------------------------------------------------------------------------------------------------------- the Job


KNOWN = Entrypoint(words=("python3", "$HOME/serve.py"))


def job(template: Resource, config: Resource | None = None, *, entrypoint: Entrypoint = KNOWN) -> Resource:
    request = request_of(template)
    assert request is not None
    found = resolve("default", namespaced=config, cluster=None).config
    return job_of(template, request, name="discover-tiny-1", config=found, entrypoint=entrypoint)


def test_the_labels_of_a_template_that_its_config_propagates_are_on_job_and_pod() -> None:
    template = template_of(discovery={"image": IMAGE})
    template["metadata"]["labels"] = {"org.example/team": "t1", "other": "x"}
    match = {"spec": {"labelPropagation": {"enabled": True, "match": ["org.example/*"]}}}
    made = job(template, {"metadata": {"name": "default", "namespace": "ml"}, **match})
    for metadata in (made["metadata"], made["spec"]["template"]["metadata"]):
        assert metadata["labels"]["org.example/team"] == "t1"
        assert "other" not in metadata["labels"]
    assert "org.example/team" not in job(template)["metadata"]["labels"]


def containers_of(made: Resource) -> list[Resource]:
    """All containers in the order in which they run."""
    pod = made["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def test_the_job_is_as_the_table_says() -> None:
    made = job(template_of(discovery={"image": IMAGE, "args": ["--model=$(X)"]}, serviceAccountName="puller"))
    labels = {
        "airunway.ai/managed-by": "airunway",
        "airunway.ai/template": "tiny",
        "app.kubernetes.io/component": "discovery",
    }
    assert made["metadata"]["labels"] == made["spec"]["template"]["metadata"]["labels"] == labels
    assert (made["spec"]["backoffLimit"], made["spec"]["ttlSecondsAfterFinished"]) == (0, 60)
    pod = made["spec"]["template"]["spec"]
    assert [each["name"] for each in containers_of(made)] == ["discovery", "part-2", "part-3"]
    assert len(pod["containers"]) == 1
    for each in containers_of(made):
        assert each["image"] == IMAGE
        assert each["command"] == ["/bin/sh", "-c", SCRIPT, each["name"]]
        assert each["terminationMessagePath"] == "/dev/termination-log"
    first, *others = containers_of(made)
    assert first["args"] == ["python3", "$$HOME/serve.py", "dry-run", "--format=json", "--model=$$(X)"]
    assert all("args" not in each and each["resources"]["requests"]["cpu"] == "10m" for each in others)
    assert pod["serviceAccountName"] == "puller"
    assert pod["volumes"] == [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}]


def test_nothing_in_the_script_is_what_the_kubelet_replaces() -> None:
    assert "$(" not in SCRIPT
    assert "$$" not in SCRIPT


def test_an_image_without_an_entrypoint_has_its_program_in_the_arguments() -> None:
    made = job(template_of(discovery={"image": IMAGE}), entrypoint=Entrypoint(words=()))
    assert containers_of(made)[0]["args"] == ["dry-run", "--format=json"]
    assert len(containers_of(made)) == 3


def test_an_image_whose_entrypoint_is_not_known_runs_by_itself_and_the_job_says_why() -> None:
    made = job(template_of(discovery={"image": IMAGE}), entrypoint=Entrypoint(why="Unauthorized: a 401"))
    (container,) = containers_of(made)
    assert container["name"] == "discovery"
    assert "command" not in container
    assert container["args"] == ["dry-run", "--format=json"]
    assert made["metadata"]["annotations"] == {WHY_NO_ENTRYPOINT: "Unauthorized: a 401"}


def test_the_pod_keeps_the_restricted_standard_and_has_no_token() -> None:
    pod = job(template_of(discovery={"image": IMAGE}))["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["restartPolicy"] == "Never"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in [*pod["initContainers"], *pod["containers"]]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }
        assert set(container["resources"]["limits"]) == {"memory"}


def test_config_and_template_give_variables_and_pull_secrets_and_no_token_of_a_hub() -> None:
    config = {
        "metadata": {"name": "default", "namespace": "team"},
        "spec": {
            "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}, {"name": "A", "value": "config"}],
            "imagePullSecrets": [{"name": "shared"}],
            "secrets": {"huggingFaceToken": "hub"},
        },
    }
    env = [{"name": "A", "value": "own"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    made = job(
        template_of(discovery={}, defaults={"image": IMAGE, "env": env}, imagePullSecrets=[{"name": "own"}]), config
    )
    pod = made["spec"]["template"]["spec"]
    variables = {each["name"]: each.get("value") for each in containers_of(made)[0]["env"]}
    assert pod["containers"][0]["image"] == IMAGE
    assert pod["imagePullSecrets"] == [{"name": "own"}, {"name": "shared"}]
    assert variables == {
        "HTTPS_PROXY": "http://proxy",
        "A": "own",
        "B": None,
        "HOME": "/tmp",
        "AIRUNWAY_TERMINATION_LOG": "/dev/termination-log",
    }


def test_the_job_of_a_cluster_template_has_nothing_of_a_namespace() -> None:
    env = [{"name": "B", "valueFrom": {"configMapKeyRef": {"name": "s", "key": "k"}}}, {"name": "A", "value": "1"}]
    template = template_of(
        namespace="",
        discovery={"image": IMAGE},
        defaults={"env": env},
        serviceAccountName="x",
        imagePullSecrets=[{"name": "s"}],
    )
    config = {
        "metadata": {"name": "default", "namespace": "home"},
        "spec": {"env": [{"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    }
    made = job(template, config)
    pod = made["spec"]["template"]["spec"]
    assert "serviceAccountName" not in pod
    assert "imagePullSecrets" not in pod
    assert [each["name"] for each in containers_of(made)[0]["env"]] == ["A", "HOME", "AIRUNWAY_TERMINATION_LOG"]


@pytest.mark.parametrize("name", ["tiny", "a" * 253, "a.b.c", "x" * 44 + ".", "UPPER_case", "-"])
def test_names_are_valid_short_and_different_for_each_try(name: str) -> None:
    made = {job_name(name, uid=uid, hash_=hash_, attempt=n) for uid in "ab" for hash_ in "cd" for n in (1, 2)}
    assert len(made) == 8
    for each in made:
        assert len(each) <= 63
        assert each.startswith("discover-")
        assert each.replace("-", "").isalnum()
        assert each == each.lower()


def test_a_long_name_is_a_valid_label() -> None:
    label = job(template_of(name="a" * 253, discovery={"image": IMAGE}))["metadata"]["labels"]["airunway.ai/template"]
    assert len(label) == 63


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 60), (2, 120), (3, 240), (6, 1920), (7, 3600), (10**6, 3600)])
def test_tries_are_60_seconds_times_two_to_the_n_apart_and_at_most_an_hour(attempts: int, seconds: int) -> None:
    assert next_attempt(attempts=attempts, ended=START) == START + timedelta(seconds=seconds)


# ------------------------------------------------------------------------------------------------------ when it runs


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"discovery": None}, "NotRequested"),
        ({"modelSources": [{"uri": "hf://acme/tiny"}]}, "InlineModelSources"),
    ],
)
def test_a_template_with_nothing_to_discover_is_ready_at_once_and_makes_no_job(spec: Resource, reason: str) -> None:
    found = world(**spec)
    found.step()
    assert (found.phase, found.condition("DiscoveryReady")) == ("Ready", ("True", reason))
    assert found.created == []
    assert "discovery" not in found.status


def test_discovery_without_an_image_names_the_field() -> None:
    found = world(discovery={"args": []})
    found.step()
    assert (found.phase, found.condition("ConfigValid")) == ("Pending", ("False", "InvalidSpec"))
    assert "spec.discovery.image" in found.status["message"]


def test_discovery_waits_for_hardware_and_config() -> None:
    found = world()
    found.facts["hardware"] = MISSING
    found.step()
    assert (found.phase, found.created) == ("NotAvailable", [])
    found.facts["hardware"] = PRESENT
    found.step()
    assert len(found.created) == 1
    other = world(runtimeConfigName="absent")
    other.facts["resolution"] = resolve("absent", namespaced=None, cluster=None)
    other.step()
    assert (other.phase, other.status["reason"], other.created) == ("Pending", "ConfigNotFound", [])


def test_one_that_finds_no_slot_waits_in_the_queue() -> None:
    found = world()
    found.facts["slot"] = False
    decision = found.step()
    assert (found.phase, found.condition("DiscoveryReady")) == ("Pending", ("False", "Queued"))
    assert decision.wants_slot
    assert found.created == []
    found.facts["slot"] = True
    found.step()
    assert len(found.created) == 1


# ------------------------------------------------------------------------------------------------- what it comes to


def test_a_success_fills_profile_and_sources_and_stays_when_the_job_is_gone() -> None:
    found = world()
    found.step()
    assert (found.phase, found.condition("DiscoveryReady")) == ("Progressing", ("False", "JobRunning"))
    assert found.record["attempts"] == 1
    assert found.record["job"] == found.created[0]
    found.pass_time(seconds=30)
    found.end()
    found.step()
    assert (found.phase, found.condition("DiscoveryReady")) == ("Ready", ("True", "Discovered"))
    assert found.status["profile"] == {"precision": "fp8"}
    assert found.status["modelSources"] == [{"uri": "hf://acme/tiny", "modelId": "acme/tiny"}]
    before = found.status
    found.pass_time(hours=2)
    assert found.step().requeue_after is None
    assert found.status == before
    assert len(found.created) == 1


def test_a_failure_is_counted_once_recorded_with_its_time_and_tried_again_then() -> None:
    found = world()
    found.step()
    found.end(code=1, output="ModuleNotFoundError: no module named 'torch'")
    decision = found.step()
    assert found.phase == "Failed"
    assert "exit code 1: ModuleNotFoundError" in found.message("DiscoveryReady")
    assert found.record["attempts"] == 1
    assert found.record["nextAttemptTime"] == format_time(found.now + timedelta(seconds=60))
    assert decision.requeue_after == 60
    for _ in range(5):  # the failed Job is still there, and counts no more
        found.pass_time(seconds=10)
        found.step()
    assert found.record["attempts"] == 1
    found.pass_time(seconds=10)
    found.step()
    assert (len(found.created), found.record["attempts"]) == (2, 2)
    assert "nextAttemptTime" not in found.record
    found.end(code=1)
    found.step()
    assert found.record["nextAttemptTime"] == format_time(found.now + timedelta(seconds=120))
    found.pass_time(seconds=120)
    found.step()
    found.end()
    found.step()
    assert (found.phase, found.record["attempts"]) == ("Ready", 3)


def test_a_failure_that_was_recorded_by_a_clock_that_was_ahead_delays_no_try() -> None:
    found = world()
    found.step()
    found.end(code=1)
    found.step()
    found.pass_time(days=-1)
    found.step()
    assert (len(found.created), found.record["attempts"]) == (2, 2)
    assert found.record["lastAttemptTime"] == format_time(found.now)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "INFO loading\n{}",
        PROBLEM + "endless 1",
        PACKED + "AA",
        '{"profile": NaN}',
        "[" * 1000,
        "{" * 4096,
        "x" * 10_000_000,
        '{"profile": 1}',
        None,
    ],
)
def test_an_output_that_cannot_be_read_is_a_failed_try(output: str | None) -> None:
    found = world()
    found.step()
    found.end(output=output)
    found.step()
    assert found.phase == "Failed"
    assert found.condition("DiscoveryReady") == ("False", "JobFailed")
    assert "profile" not in found.status
    assert found.record["nextAttemptTime"]
    assert len(found.message("DiscoveryReady")) <= 1024


def test_another_spec_counts_anew_and_the_old_job_goes() -> None:
    found = world()
    found.step()
    found.end(code=1)
    found.step()
    found.pass_time(seconds=60)
    found.step()
    assert found.record["attempts"] == 2
    found.template["spec"]["discovery"]["args"] = ["--verbose"]
    found.template["metadata"]["generation"] = 2
    found.step()
    found.step()
    assert found.record["attempts"] == 1
    assert [each for each in found.jobs if "status" not in found.jobs[each]] == [found.created[-1]]
    found.end()
    found.step()
    assert found.phase == "Ready"
    assert found.status["observedGeneration"] == 2


def test_what_an_earlier_spec_discovered_stays_until_the_next_success() -> None:
    found = world()
    found.step()
    found.end()
    found.step()
    found.template["spec"]["discovery"]["image"] = "registry.example/vllm:2"
    found.step()
    assert found.status["profile"] == {"precision": "fp8"}
    assert found.phase == "Progressing"
    found.end(code=1)
    found.step()
    assert found.phase == "Degraded"
    found.step()
    assert found.phase == "Degraded"


@pytest.mark.parametrize("reason", ["ImageNotFound", "ImagePullAuthFailure", "SecretNotFound"])
def test_an_image_that_cannot_be_pulled_ends_the_try_and_frees_its_slot(reason: str) -> None:
    found = world()
    found.step()
    found.facts["cause"] = cause_of(reason)
    decision = found.step()
    assert not decision.wants_slot
    assert found.condition("DiscoveryReady") == ("False", reason)
    assert found.jobs == {}
    assert found.record["attempts"] == 1
    assert found.record["nextAttemptTime"]
    assert found.phase == "Failed"
    assert found.status["rootCause"]["field"] == "spec.discovery.image"
    auth = ("False", reason) if reason != "ImageNotFound" else ("True", "AuthenticationValid")
    assert found.condition("AuthValid") == auth
    cause = found.status["rootCause"]
    found.facts["cause"] = None
    found.step()
    assert found.status["rootCause"] == cause, "the pod is gone with its Job, and the failure stands"
    found.pass_time(seconds=7200)
    found.step()
    assert (found.phase, found.status.get("rootCause")) == ("Progressing", None)


def test_an_image_that_is_still_pulled_goes_on() -> None:
    found = world()
    found.step()
    found.facts["cause"] = cause_of("ImagePullBackOff")
    decision = found.step()
    assert decision.wants_slot
    assert len(found.jobs) == 1
    assert found.condition("DependenciesReachable") == ("False", "ImagePullBackOff")


def test_a_job_that_cannot_be_made_says_why_and_counts_no_further_try() -> None:
    found = world()
    found.facts["slot"] = True
    found.template["status"] = found.decide().status  # begun, and the API server refuses the Job
    found.facts["refused"] = refused()
    for _ in range(5):
        decision = found.decide()
        found.template["status"] = decision.status
        assert decision.create is not None
        found.pass_time(minutes=5)
    assert found.record["attempts"] == 1
    assert found.condition("DiscoveryReady") == ("False", "QuotaExceeded")


def test_a_job_that_was_deleted_while_it_ran_is_a_failed_try() -> None:
    found = world()
    found.step()
    found.jobs.clear()
    found.step()
    assert found.record["attempts"] == 1
    assert "is gone" in found.message("DiscoveryReady")
    assert found.record["nextAttemptTime"]


def test_a_pod_without_a_result_is_waited_for_a_moment() -> None:
    found = world()
    found.step()
    found.end()
    pods, found.pods = found.pods, {}
    decision = found.step()
    assert decision.requeue_after == 5
    assert found.record["attempts"] == 1
    assert "nextAttemptTime" not in found.record
    found.pods = pods
    found.step()
    assert found.phase == "Ready"


# ------------------------------------------------------------------------------------------------------ what it prints


def test_a_large_report_is_put_together_from_the_messages_of_all_containers() -> None:
    found = world()
    profile = {str(number): digest_of(number) for number in range(150)}
    text = PACKED + base64.b64encode(gzip.compress(json.dumps({"profile": profile}).encode())).decode()
    assert len(PARTS) * 4096 > len(text) > 2 * 4096
    found.step()
    others = {"part-2": text[4096:8192], "part-3": text[8192:]}
    found.end(output=text[:4096], parts={name: {"exitCode": 0, "message": each} for name, each in others.items()})
    found.step()
    assert found.phase == "Ready"
    assert found.status["profile"] == profile


def digest_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def test_a_container_that_cannot_report_its_part_fails_the_try() -> None:
    found = world()
    found.step()
    ends: dict[str, Resource] = {"part-2": {"exitCode": 137, "reason": "OOMKilled"}}
    found.end(output=PACKED, parts=ends)
    found.step()
    assert "the container part-2, which reports a part of the output, ended with exit code 137" in found.message(
        "DiscoveryReady"
    )


def test_a_part_that_the_watch_has_not_delivered_is_waited_for_a_moment() -> None:
    found = world()
    found.step()
    found.end(output=PACKED)
    (pod,) = found.pods.values()
    last = pod["status"].pop("containerStatuses")
    assert found.step().requeue_after == 5
    assert found.condition("DiscoveryReady") == ("False", "JobRunning")
    pod["status"]["containerStatuses"] = last
    found.step()
    assert "was cut" in found.message("DiscoveryReady")


def test_of_a_long_log_the_end_is_shown() -> None:
    found = world()
    found.step()
    found.end(code=1, output="Traceback (most recent call last):\n" + "  File x\n" * 200 + "ValueError: no GPU")
    found.step()
    assert "ValueError: no GPU; the next one is at" in found.message("DiscoveryReady")


def test_the_entrypoint_is_read_before_a_try_is_recorded() -> None:
    found = world()
    found.facts["entrypoint"] = None
    decision = found.step()
    assert decision.wants_entrypoint
    assert decision.wants_slot
    assert found.created == []
    assert "attempts" not in found.record
    assert found.condition("DiscoveryReady") == ("False", "Starting")
    del found.facts["entrypoint"]
    found.step()
    assert (len(found.created), found.record["attempts"]) == (1, 1)


def test_a_template_that_names_the_program_needs_no_registry() -> None:
    found = world(discovery={"image": IMAGE, "command": ["/opt/serve", "$X"]})
    found.facts["entrypoint"] = None
    assert not found.step().wants_entrypoint
    (made,) = found.jobs.values()
    assert containers_of(made)[0]["args"] == ["/opt/serve", "$$X", "dry-run", "--format=json"]


def test_a_process_that_ended_before_the_job_was_made_reads_the_entrypoint_again() -> None:
    found = world()
    found.template["status"] = found.decide().status  # begun
    found.facts["entrypoint"] = None
    decision = found.step()
    assert (decision.wants_entrypoint, found.created, found.record["attempts"]) == (True, [], 1)
    del found.facts["entrypoint"]
    found.step()
    assert (len(found.created), found.record["attempts"]) == (1, 1)


@pytest.mark.parametrize(("code", "output"), [(0, None), (0, "INFO started"), (1, "usage: model [serve|dry-run]")])
def test_a_failed_try_without_a_known_entrypoint_names_the_reason_and_the_remedy(code: int, output: str | None) -> None:
    found = world()
    found.facts["entrypoint"] = Entrypoint(why="Unauthorized: registry.example asks for credentials (401)")
    found.step()
    found.end(code=code, output=output, parts={})
    found.step()
    message = found.message("DiscoveryReady")
    assert "its entrypoint is not known (Unauthorized: registry.example asks for credentials (401))" in message
    assert "name it in spec.discovery.command" in message
    assert "the next one is at" in message


def test_an_image_without_a_known_entrypoint_may_write_its_report_itself() -> None:
    found = world()
    found.facts["entrypoint"] = Entrypoint(why="Timeout")
    found.step()
    found.end(parts={})
    found.step()
    assert found.phase == "Ready"


def test_an_image_without_a_shell_is_asked_without_one_from_the_next_try_on() -> None:
    found = world()
    found.step()
    said = 'failed to create containerd task: exec: "/bin/sh": stat /bin/sh: no such file or directory: unknown'
    found.end(code=128, reason="StartError", output=said)
    found.step()
    assert "the image has no /bin/sh" in found.message("DiscoveryReady")
    assert found.record["shell"] is False
    found.pass_time(seconds=60)
    found.step()
    (container,) = containers_of(found.jobs[found.created[-1]])
    assert "command" not in container
    found.end(code=1, output="no", parts={})
    found.step()
    message = found.message("DiscoveryReady")
    assert "; the image has no /bin/sh: it must write its report to the file of AIRUNWAY_TERMINATION_LOG" in message
    assert "spec.discovery.command" not in message
    found.template["spec"]["discovery"]["image"] = "registry.example/vllm:2"
    found.step()
    assert "shell" not in found.record
    assert len(containers_of(found.jobs[found.created[-1]])) == 3


# ------------------------------------------------------------------------------------------------------------ counting


def settle(found: World) -> None:
    """The process runs until nothing is left to do; it is started again where it ends."""
    while True:
        try:
            found.step()
        except Killed:
            continue
        return


@pytest.mark.parametrize("kill", range(1, 13))
@pytest.mark.parametrize("down", [0, 30, 59])
def test_a_process_that_ends_after_any_write_makes_no_second_job_and_counts_each_once(kill: int, down: int) -> None:
    """Two failures and a success, with a kill after the n-th write and so many seconds without a process."""
    found = world()
    found.kill_at = kill
    for outcome in (1, 1, 0):
        try:
            found.step()
        except Killed:
            found.pass_time(seconds=down)
        settle(found)
        if any("status" not in each for each in found.jobs.values()):
            found.end(code=outcome)
        try:
            found.step()
        except Killed:
            found.pass_time(seconds=down)
        settle(found)
        if outcome:
            found.pass_time(seconds=3600)
    assert found.phase == "Ready"
    assert len(set(found.created)) == len(found.created) == found.record["attempts"] == 3


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("kill"), st.integers(1, 3)),
        st.tuples(st.just("time"), st.sampled_from([0, 1, 10, 59, 60, 61, 300, 4000])),
        st.tuples(st.just("end"), st.integers(0, 1)),
        st.tuples(st.just("delete"), st.just(0)),
        st.tuples(st.just("hardware"), st.integers(0, 1)),
        st.tuples(st.just("slot"), st.integers(0, 1)),
    ),
    max_size=30,
)


@given(EVENTS)
def test_whatever_happens_no_try_has_two_jobs_and_no_job_is_counted_twice(events: list[tuple[str, int]]) -> None:
    found = world()
    for event, value in events:
        running = [name for name, each in found.jobs.items() if "status" not in each]
        match event:
            case "kill":
                found.kill_at = found.writes + value
            case "time":
                found.pass_time(seconds=value)
            case "end" if running:
                found.end(code=value)
            case "delete" if all(name == found.record.get("job") for name in running):  # else a user asks for it anew
                found.jobs.clear()
                found.pods.clear()
            case "hardware":
                found.facts["hardware"] = PRESENT if value else MISSING
            case "slot":
                found.facts["slot"] = bool(value)
        with suppress(Killed):
            found.step()
        running = [name for name, each in found.jobs.items() if "status" not in each]
        assert len(running) <= 1
        assert len(set(found.created)) == len(found.created), "a Job was made twice"
        attempts = found.record.get("attempts", 0)
        names = [
            job_name("tiny", uid="uid-tiny", hash_=found.record.get("specHash", ""), attempt=n + 1)
            for n in range(attempts)
        ]
        assert [name for name in names if name in found.created] == found.created, "each Job is that of one counted try"


def test_the_hash_is_about_what_the_job_depends_on() -> None:
    def hash_of(**spec: Any) -> str:
        request = request_of(template_of(**{"discovery": {"image": IMAGE}, **spec}))
        assert request is not None
        return spec_hash(request)

    changed: list[Resource] = [
        {"discovery": {"image": "other"}},
        {"discovery": {"image": IMAGE, "args": ["-v"]}},
        {"discovery": {"image": IMAGE, "command": ["-v"]}},
        {"defaults": {"env": [{"name": "A", "value": "1"}]}},
        {"imagePullSecrets": [{"name": "s"}]},
        {"serviceAccountName": "s"},
    ]
    assert len({hash_of(), *(hash_of(**each) for each in changed)}) == 7
    assert hash_of() == hash_of(caching={"enabled": True}, optimized=True, defaults={"engine": {"type": "vllm"}})


def test_a_record_of_any_shape_is_none() -> None:
    record: object
    for record in (
        1,
        [],
        {"attempts": "x"},
        {"attempts": -1},
        {"attempts": 10**30},
        {"nextAttemptTime": 5},
        {"job": {}},
    ):
        found = world()
        found.template["status"] = {
            "discovery": record,
            "conditions": "x",
            "phase": [],
            "profile": 1,
            "modelSources": {},
        }
        found.step()
        assert found.phase == "Progressing", record
        assert json.dumps(found.status)
