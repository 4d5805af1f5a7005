"""The policy and the RuntimeConfig of a namespace: what is refused, and what stays accepted, whatever comes first."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from core.tests.controller.test_judgement import Team
from core.tests.controller.test_reconciler import KEY, NOW, provider

from airunway.api import names
from airunway.configs.resolution import awaits_verdict, is_published, is_refused, resolve
from airunway.controller.decision import decide, rolled_out_by
from airunway.controller.waves import Rollouts
from airunway.resource import Resource, condition_of, copy_of, dig
from airunway.validation.policy import Policy, parse_policy

STRICT = parse_policy("rules: [{secrets: ['hf-*'], environment: ['VLLM_*', HF_TOKEN]}]")
LAX = Policy()
GOOD: Resource = {"env": [{"name": "VLLM_LOG", "value": "1"}], "secrets": {"huggingFaceToken": "hf-team"}}
EVIL: Resource = {
    "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "prod-db", "key": "password"}}}],
    "imagePullSecrets": [{"name": "hf-registry"}],
}
FOUND, REFUSED = ("True", "ConfigFound"), ("False", "NotAllowed")


def config(spec: Resource, name: str = "default") -> Resource:
    return {"kind": "RuntimeConfig", "metadata": {"name": name, "namespace": KEY.namespace}, "spec": spec}


def cluster_config(spec: Resource, name: str = "default") -> Resource:
    return {"kind": "ClusterRuntimeConfig", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def team() -> Team:
    found = Team()
    found.obj["spec"] = {"model": {"id": "org/model"}, "engine": {"type": "llamacpp"}}
    found.policy = STRICT
    return found


async def verdict(team: Team, **changes: Any) -> tuple[str, str]:
    """The condition after these changes of policy and configs have been handled."""
    for name, value in changes.items():
        setattr(team, name, value)
    await team.passes(at_most=5)
    found = condition_of(team.obj, "RuntimeConfigReady") or {}
    return found["status"], found["reason"]


async def test_a_config_that_the_policy_does_not_allow_is_refused_in_words(team: Team) -> None:
    assert await verdict(team, config=config(EVIL)) == REFUSED
    assert (condition_of(team.obj, "RuntimeConfigReady") or {})["message"] == (
        "RuntimeConfig 'default' of namespace 'team' is not allowed: spec.env[0].valueFrom.secretKeyRef.name: secret "
        "'prod-db' is not allowed in namespace 'team' (secrets allowed by policy: hf-*). Remove this from the config, "
        "follow another one (spec.runtimeConfigName), or have the policy list it"
    )
    status = team.obj["status"]
    assert (status["phase"], status["reason"]) == ("Pending", "NotAllowed")
    assert "prod-db" in status["message"]
    assert (condition_of(team.obj, "ConfigValid") or {})["reason"] == "NotAllowed"
    assert team.verdict()[0] == "True", "the deployment itself is valid, and has its provider"
    assert dig(status, "provider", "name") == "a"


async def test_the_policy_the_config_or_another_config_heals_it(team: Team) -> None:
    assert await verdict(team, config=config(EVIL)) == REFUSED
    assert await verdict(team, policy=LAX) == FOUND
    assert await verdict(team, policy=STRICT) == FOUND, "what was accepted stays so"
    assert await verdict(team, config=config({**EVIL, "rollout": "Immediately"})) == REFUSED, "it is another one now"
    assert await verdict(team, config=config(GOOD)) == FOUND
    assert await verdict(team, config=config(EVIL)) == REFUSED
    assert await verdict(team, config=None) == ("True", "UsingDefaults")
    assert await verdict(team, config=config(EVIL)) == REFUSED


async def test_a_default_refusal_needs_no_policy(team: Team) -> None:
    evil = config({"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]})
    assert await verdict(team, policy=LAX, config=evil) == REFUSED
    message = (condition_of(team.obj, "RuntimeConfigReady") or {})["message"]
    assert "'NVIDIA_VISIBLE_DEVICES'" in message
    assert "only where the policy lists it under environment" in message
    assert await verdict(team, policy=parse_policy("rules: [{environment: ['*']}]")) == FOUND


async def test_a_cluster_config_is_not_judged_and_of_a_merged_one_only_the_part_of_the_namespace(team: Team) -> None:
    loud = cluster_config({"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]})
    assert await verdict(team, cluster_config=loud) == FOUND
    assert await verdict(team, config=config({**GOOD, "inherit": "Cluster"})) == FOUND
    assert dig(team.obj, "status", "effectiveRuntimeConfig", "scope") == "Merged"
    assert await verdict(team, config=config({**EVIL, "inherit": "Cluster"})) == REFUSED


async def test_a_copy_of_a_cluster_config_is_the_namespaces_own(team: Team) -> None:
    """The hashes are equal: a hash alone does not say whose config it was."""
    spec = {"env": [{"name": "CUDA_DISABLE_CONTROL", "value": "1"}]}
    assert await verdict(team, cluster_config=cluster_config(spec)) == FOUND
    before = dig(team.obj, "status", "effectiveRuntimeConfig", "hash")
    assert await verdict(team, config=config(spec)) == REFUSED
    assert dig(team.obj, "status", "effectiveRuntimeConfig", "hash") == before


async def test_thief_a_deployment_without_a_config_or_with_another_one_is_accepted_first(team: Team) -> None:
    assert await verdict(team) == ("True", "UsingDefaults")
    assert await verdict(team, config=config(EVIL)) == REFUSED
    assert await verdict(team, config=config(GOOD)) == FOUND
    team.obj["spec"]["runtimeConfigName"] = "other"
    team.obj["metadata"]["generation"] += 1
    assert await verdict(team, config=config(EVIL, "other")) == REFUSED
    assert await verdict(team, config=None) == ("False", "ConfigNotFound")
    assert await verdict(team, config=config(EVIL, "other")) == REFUSED


async def test_thief_the_same_content_under_another_name_is_judged_anew(team: Team) -> None:
    assert await verdict(team, policy=LAX, config=config(EVIL)) == FOUND
    team.obj["spec"]["runtimeConfigName"] = "other"
    team.obj["metadata"]["generation"] += 1
    assert await verdict(team, policy=STRICT, config=config(EVIL, "other")) == REFUSED


async def test_thief_a_deployment_made_anew_is_judged_anew(team: Team) -> None:
    assert await verdict(team, policy=LAX, config=config(EVIL)) == FOUND
    del team.obj["status"]
    team.obj["metadata"]["uid"] = "another"
    assert await verdict(team, policy=STRICT) == REFUSED


async def test_thief_an_edit_while_the_core_is_down_or_the_deployment_paused_is_judged(team: Team) -> None:
    assert await verdict(team, config=config(GOOD)) == FOUND
    team._core = None  # another process
    assert await verdict(team, config=config(EVIL)) == REFUSED
    assert await verdict(team, config=config(GOOD)) == FOUND
    team.obj["metadata"]["annotations"] = {names.PAUSED: "true"}
    assert await verdict(team, config=config(EVIL)) == REFUSED
    del team.obj["metadata"]["annotations"]
    assert await verdict(team) == REFUSED


async def test_what_was_accepted_stays_so_in_another_process_and_for_another_generation(team: Team) -> None:
    assert await verdict(team, policy=LAX, config=config(EVIL)) == FOUND
    team._core = None
    team.obj["spec"]["engine"] = {"type": "llamacpp", "args": {"seed": "1"}}
    team.obj["metadata"]["generation"] += 1
    assert await verdict(team, policy=STRICT) == FOUND


async def test_what_a_policy_refuses_keeps_its_settings_and_holds_no_place_in_a_wave(team: Team) -> None:
    found = []
    for policy in (LAX, STRICT):
        team.obj["status"] = {}
        await verdict(team, policy=policy, config=config({**GOOD, "rollout": "Immediately"}))
        before = dig(team.obj, "status", "revision", "settings")
        team.serves()
        evil = config({**EVIL, "rollout": "Immediately"})
        await verdict(team, config=evil)
        assert dig(team.obj, "status", "revision", "settings") == before
        effective = resolve("default", namespaced=evil, cluster=None).config
        wave = Rollouts().next(
            {KEY: team.obj}, parts=rolled_out_by(effective), limit=1, patience=timedelta(minutes=1), now=NOW
        )
        found.append((wave.granted, is_refused(team.obj)))
    assert found == [({KEY}, False), (frozenset(), True)]


async def test_the_parts_of_the_core_wait_for_the_verdict_on_a_config_of_the_namespace(team: Team) -> None:
    await verdict(team, config=config(GOOD))
    good, evil = (resolve("default", namespaced=config(each), cluster=None).config for each in (GOOD, EVIL))
    assert good is not None
    assert evil is not None
    assert not awaits_verdict(team.obj, good)
    assert awaits_verdict(team.obj, evil)
    await verdict(team, config=config(EVIL))
    assert not awaits_verdict(team.obj, evil)
    assert is_refused(team.obj)
    assert not awaits_verdict(team.obj, None)
    assert not awaits_verdict({"status": {}}, evil), "a core that writes no verdicts"
    shared = resolve("default", namespaced=None, cluster=cluster_config(GOOD)).config
    assert not awaits_verdict(team.obj, shared)


async def test_where_the_policy_is_not_known_a_refused_config_stays_refused(team: Team) -> None:
    """As in `airunway diff`, which has no policy."""
    await verdict(team, config=config(EVIL))

    def without_policy(obj: Resource, spec: Resource) -> str:
        resolution = resolve("default", namespaced=config(spec), cluster=None)
        found = decide(
            copy_of(obj), violations=[], providers=[provider("a")], selector=True, now=NOW, resolution=resolution
        )
        return str((condition_of({"status": found.status}, "RuntimeConfigReady") or {})["reason"])

    assert without_policy(team.obj, EVIL) == "NotAllowed"
    assert without_policy(team.obj, {**EVIL, "rollout": "Immediately"}) == "ConfigFound"
    assert without_policy({**team.obj, "status": {}}, EVIL) == "ConfigFound"


def test_published_is_the_reference_and_the_hash() -> None:
    found = resolve("default", namespaced=config(GOOD), cluster=None).config
    assert found is not None
    published = found.status()
    for effective, same in [
        (published, True),
        ({**published, "hash": "0"}, False),
        ({**published, "scope": "Merged"}, False),
        (None, False),
        ("text", False),
    ]:
        assert is_published({"status": {"effectiveRuntimeConfig": effective}}, found) is same
