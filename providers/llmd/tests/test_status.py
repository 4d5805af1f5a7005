"""What is told of servers, roles and picker, from whatever exists; and that any JSON gives an answer."""

import random
from datetime import timedelta
from typing import Any

import pytest

from airunway.plugins.contract import Observed
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource
from airunway.runtime.report import is_ready
from airunway.status.evidence import EventFacts
from airunway.status.reasons import REASONS


def condition(type_: str, status: str, reason: str = "", message: str = "") -> Resource:
    return {"type": type_, "status": status, "reason": reason, "message": message}


STARTING = condition("Progressing", "True", "ReplicaSetUpdated", "is progressing")
COMPLETE = condition("Progressing", "True", "NewReplicaSetAvailable", "has successfully progressed")
LATE = condition("Progressing", "False", "ProgressDeadlineExceeded", 'ReplicaSet "x" has timed out progressing.')
NO_QUOTA = condition("ReplicaFailure", "True", "FailedCreate", "forbidden: exceeded quota: small")


def workload(name: str, *conditions: Resource, kind: str = "Deployment", wanted: int = 1, ready: int = 0) -> Resource:
    status: Resource = {"observedGeneration": 2, "replicas": wanted, "updatedReplicas": wanted}
    if ready:
        status["readyReplicas"] = ready
    metadata = {"name": name, "generation": 2}
    return {
        "kind": kind,
        "metadata": metadata,
        "spec": {"replicas": wanted},
        "status": {**status, "conditions": conditions},
    }


POOL: Resource = {"kind": "InferencePool", "metadata": {"name": "llama"}}
SERVER = workload("llama", COMPLETE, ready=1)
PICKER = workload("llama-epp", COMPLETE, ready=1)


def seen(*objects: Resource, primary: Resource | None, events: tuple[EventFacts, ...] = ()) -> Observed:
    return Observed(primary=primary, objects=tuple(obj for obj in (primary, *objects) if obj), events=events)


POOL_LABEL = "airunway.ai/inference-pool"


def pool(**labels: str) -> Resource:
    return {**POOL, "spec": {"selector": {"matchLabels": {POOL_LABEL: "llama", **labels}}}}


PICKERS: list[tuple[str, list[Resource], tuple[bool, str, str]]] = [
    ("ready", [POOL, PICKER], (True, "Ready", "1 of 1")),
    ("ready, with its own label", [pool(), PICKER], (True, "Ready", "1 of 1")),
    (
        "ready, and a label that somebody added to the pool",
        [pool(team="a", tier="b"), PICKER],
        (False, "ResourceConflict", "spec.selector.matchLabels[team], spec.selector.matchLabels[tier]"),
    ),
    ("not made yet", [POOL], (False, "Starting", "does not exist yet")),
    ("starts", [POOL, workload("llama-epp", STARTING)], (False, "Progressing", "picker: 0 of 1")),
    (
        "the pool is gone",
        [workload("llama-epp", COMPLETE)],
        (False, "Progressing", "waits for its InferencePool llama"),
    ),
    (
        "never ready: the pool is there, so rights",
        [POOL, workload("llama-epp", LATE)],
        (False, "UpstreamFailed", "ServiceAccount llama-epp may read pods, pools and objectives"),
    ),
    (
        "was ready",
        [POOL, workload("llama-epp", COMPLETE)],
        (False, "PodsNotReady", "not ready any more"),
    ),
    ("no quota for it", [POOL, workload("llama-epp", NO_QUOTA)], (False, "QuotaExceeded", "exceeded quota: small")),
]


@pytest.mark.parametrize(("what", "objects", "told"), PICKERS, ids=[what for what, *_ in PICKERS])
def test_a_picker_says_what_it_waits_for_and_never_fails_what_serves(
    host: ProviderHost, deployment: Any, context: Any, what: str, objects: list[Resource], told: tuple[bool, str, str]
) -> None:
    found = host.translate_status(deployment(), seen(*objects, primary=SERVER), context())
    server, picker = found.components
    assert (server.name, server.ready, server.only_degrades) == ("ProviderResource", True, False)
    assert (picker.name, picker.ready, picker.reason) == ("Picker", told[0], told[1])
    assert told[2] in picker.message
    assert (picker.only_degrades, picker.role) == (True, "picker")
    assert picker.reason in REASONS or picker.ready
    assert found.up_to_date, "a picker's roll-out is none of the model's"


def test_without_the_inference_extension_nothing_is_said_of_a_picker(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    found = host.translate_status(deployment(), seen(primary=SERVER), context(pool=False))
    assert ([component.name for component in found.components], found.pool) == (["ProviderResource"], None)
    pooled = host.translate_status(deployment(), seen(POOL, PICKER, primary=SERVER), context())
    assert pooled.pool is not None
    assert (pooled.pool.name, pooled.pool.port) == ("llama", 8000)


DECODE, PREFILL = workload("llama-decode", COMPLETE, wanted=2, ready=2), workload("llama-prefill", COMPLETE, ready=1)
ROLES: list[tuple[str, list[Resource | None], tuple[bool, bool], str]] = [
    ("both", [DECODE, PREFILL], (True, True), ""),
    (
        "decode is down",
        [workload("llama-decode", COMPLETE, wanted=2), PREFILL],
        (False, True),
        "decode: 0 of 2 replicas are ready; no request is answered until a decode worker is ready",
    ),
    (
        "decode is short",
        [workload("llama-decode", COMPLETE, wanted=2, ready=1), PREFILL],
        (False, True),
        "decode: 1 of 2",
    ),
    (
        "prefill is down",
        [DECODE, workload("llama-prefill", COMPLETE)],
        (True, False),
        "prefill: 0 of 1 replicas are ready; decode workers prefill by themselves until a prefill worker is ready",
    ),
    ("prefill is gone", [DECODE], (True, False), "prefill: it does not exist yet"),
    ("prefill is late", [DECODE, workload("llama-prefill", LATE)], (True, False), "prefill: ReplicaSet"),
    ("nothing", [None], (False, False), "decode: it does not exist yet"),
]


@pytest.mark.parametrize(("what", "objects", "ready", "says"), ROLES, ids=[what for what, *_ in ROLES])
def test_roles_are_told_apart(
    host: ProviderHost, apart: Any, context: Any, what: str, objects: Any, ready: tuple[bool, bool], says: str
) -> None:
    primary, *others = objects
    found = host.translate_status(apart(), seen(*others, POOL, PICKER, primary=primary), context())
    decode, prefill, _ = found.components
    assert ([decode.name, prefill.name], (decode.ready, prefill.ready)) == (["Decode", "Prefill"], ready)
    assert says in f"{decode.message}\n{prefill.message}"
    assert (decode.only_degrades, prefill.only_degrades) == (False, True)
    assert (decode.role, prefill.role) == ("decode", "prefill")
    if what == "both":
        assert found.replicas is not None
        assert (found.replicas.desired, found.replicas.ready) == (3, 3), "workers of both roles, never the picker"
        assert is_ready(found)


def test_a_group_that_is_made_anew_again_and_again_is_told_as_that(
    host: ProviderHost, apart: Any, context: Any
) -> None:
    ctx = context()
    group = workload("llama-decode-lws", kind="LeaderWorkerSet")
    note = "Worker pod llama-decode-lws-0-1 failed, deleted leader pod llama-decode-lws-0 to recreate group 0"

    def told(*ages: int, name: str = "llama-decode-lws") -> Any:
        events = tuple(
            EventFacts(
                kind="LeaderWorkerSet",
                namespace="default",
                name=name,
                reason="RecreateGroup",
                note=note,
                first=ctx.now - timedelta(seconds=age),
                last=ctx.now - timedelta(seconds=age),
            )
            for age in ages
        )
        wanted = apart(prefill=8, decode=16)
        observed = seen(PREFILL, POOL, PICKER, primary=group, events=events)
        return host.translate_status(wanted, observed, ctx).components[0]

    assert (told().reason, told(30).reason, told(60, 30).reason) == ("Progressing", "Progressing", "RestartLoop")
    assert note in told(60, 30).message
    assert told(6000, 30).reason == "Progressing", "that was long ago"
    assert told(60, 30, name="llama-prefill-lws").reason == "Progressing", "another role's"


def test_real_llmd_3_prefill_of_another_kind_is_not_what_the_newest_spec_asked_for(
    host: ProviderHost, apart: Any, context: Any
) -> None:
    """Its pods are ready for as long as they are there: Running would be said of a spec that nothing serves yet."""
    old = workload("llama-prefill-lws", kind="LeaderWorkerSet", ready=1)
    old["metadata"]["labels"] = {"airunway.ai/component": "prefill"}
    decode = workload("llama-decode-lws", kind="LeaderWorkerSet", ready=1)
    observed = seen(old, POOL, PICKER, primary=decode)
    found = host.translate_status(apart(prefill=8, decode=16), observed, context())
    told = found.components[1]
    assert (told.ready, told.reason, told.only_degrades, told.pending, found.up_to_date) == (
        False,
        "Progressing",
        True,
        False,
        False,
    )
    assert told.message == "prefill: LeaderWorkerSet llama-prefill-lws gives way to Deployment llama-prefill"
    same = host.translate_status(apart(prefill=16, decode=16), observed, context())
    assert (same.components[1].ready, same.up_to_date) == (True, True)


@pytest.mark.parametrize("changed", ["rolls out", "was changed", "was changed while it never was ready"])
def test_real_llmd_5_crashes_of_before_it_was_whole_again_or_of_another_revision_are_history(
    host: ProviderHost, deployment: Any, context: Any, changed: str
) -> None:
    """Two crashes, repaired; minutes later another image: for as long as it loads the old events are there."""
    ctx = context()

    def ago(seconds: int) -> str:
        return f"{ctx.now - timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"

    def told(*ages: int) -> Any:
        group = workload("llama-lws", kind="LeaderWorkerSet")
        gone, held = ({"reason": "x", "lastTransitionTime": ago(s)} for s in (120, 400))
        conditions = {
            "rolls out": [{"type": "Available", "status": "False", **gone}],
            "was changed": [{"type": "UpdateInProgress", "status": "True", **gone}],
        }.get(changed, [])
        group["status"]["conditions"] = [*conditions, {"type": "Progressing", "status": "True", **held}]
        if changed == "was changed while it never was ready":
            entry = {"manager": "airunway-provider-llmd", "operation": "Apply", "time": ago(120)}
            theirs = {"manager": "leaderworkerset", "operation": "Update", "time": ago(0), "subresource": "status"}
            group["metadata"]["managedFields"] = [theirs, entry]
        note = "Worker pod llama-lws-0-1 failed, deleted leader pod llama-lws-0 to recreate group 0"
        events = tuple(
            EventFacts(
                kind="LeaderWorkerSet",
                namespace="default",
                name="llama-lws",
                reason="RecreateGroup",
                note=note,
                first=ctx.now - timedelta(seconds=age),
                last=ctx.now - timedelta(seconds=age),
            )
            for age in ages
        )
        wanted = deployment(resources={"gpu": {"count": 16}})
        return host.translate_status(wanted, seen(POOL, PICKER, primary=group, events=events), ctx).components[0]

    before = told(300, 240)
    assert (before.reason, before.message) == ("Progressing", "0 of 1 replicas are ready")
    assert told(300, 240, 30).reason == "Progressing", "one of the new revision is no loop"
    assert "made a group anew" in told(300, 240, 30).message
    assert told(60, 30).reason == "RestartLoop"


# ------------------------------------------------------------------------------------------------------------- any JSON

NAMES = ("llama", "llama-epp", "llama-decode", "llama-prefill", "llama-lws", "other", "", None, 7)
VALUES: tuple[Any, ...] = (None, True, False, 0, -1, 3, 2**63, 1.5, "", "True", "x" * 300, [], {}, [None], {"a": []})
KINDS = ("Deployment", "LeaderWorkerSet", "InferencePool", "Service", "Role", "", None, 3)


def mutated(node: Any, chance: random.Random) -> Any:
    """The JSON with some of its values replaced, left out or doubled."""
    if chance.random() < 0.08:
        return chance.choice(VALUES)
    if isinstance(node, dict):
        return {key: mutated(value, chance) for key, value in node.items() if chance.random() > 0.05}
    if isinstance(node, (list, tuple)):
        return [mutated(value, chance) for value in node for _ in range(chance.choice((0, 1, 1, 1, 2)))]
    return node


def strange(chance: random.Random) -> Resource:
    conditions = chance.sample([STARTING, COMPLETE, LATE, NO_QUOTA], k=chance.randrange(5))
    obj = workload(str(chance.choice(NAMES)), *conditions, wanted=chance.randrange(4), ready=chance.randrange(4))
    obj["kind"] = chance.choice(KINDS)
    found: Resource = mutated(obj, chance)
    return found if isinstance(found, dict) else {"kind": found}


def hold(host: ProviderHost, deployment: Any, apart: Any, context: Any, *, times: int, seed: int) -> None:
    chance = random.Random(seed)
    shapes = [(make(), context(pool=pool)) for make in (deployment, apart) for pool in (True, False)]
    for _ in range(times):
        wanted, ctx = chance.choice(shapes)
        objects = tuple(strange(chance) for _ in range(chance.randrange(6)))
        primary = chance.choice((None, *objects)) if objects else None
        events = tuple(
            EventFacts(kind="LeaderWorkerSet", namespace="n", name="llama-lws", reason="RecreateGroup", note=note)
            for note in chance.choices(["", "x", "to recreate group 0"], k=chance.randrange(3))
        )
        found = host.translate_status(wanted, Observed(primary=primary, objects=objects, events=events), ctx)
        assert {component.ready for component in found.components} <= {True, False}
        assert found.replicas is not None
        assert 0 <= found.replicas.ready <= found.replicas.desired
        if primary is None:
            assert not is_ready(found)


def test_any_json_gives_a_state(host: ProviderHost, deployment: Any, apart: Any, context: Any) -> None:
    hold(host, deployment, apart, context, times=1500, seed=11)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_statuses_give_a_state(
    host: ProviderHost, deployment: Any, apart: Any, context: Any
) -> None:
    hold(host, deployment, apart, context, times=100_000, seed=12)
