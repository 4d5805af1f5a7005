"""The plugin as the core sees it: contract, honest capabilities, selection, settings, determinism, statuses."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.determinism import outputs_of_processes, reordered

from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import Observed, SelectionMode
from airunway.plugins.errors import SettingsError
from airunway.plugins.host import ProviderHost
from airunway.plugins.provider_config import config_object
from airunway.plugins.registry import load
from airunway.resource import Resource, canonical_json
from airunway.selection.facts import provider_facts, request_of
from airunway.selection.provider import choose_provider
from airunway.status.evidence import EventFacts

NOW = datetime(2026, 9, 1, tzinfo=UTC)


def test_it_holds_the_contract_and_asks_for_nothing_beyond_its_kinds(host: ProviderHost) -> None:
    host.check()
    assert host.primary_kind.kind == "Deployment"
    assert [kind.plural for kind in host.manifest.upstream] == [
        "deployments",
        "leaderworkersets",
        "services",
        "resourceclaimtemplates",
        "scaledobjects",
    ]
    assert [kind.plural for kind in host.manifest.upstream if not kind.builtin and kind.required] == []
    assert host.manifest.rbac_rules == ()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_capabilities_are_what_it_can_handle(host: ProviderHost, deployment: Any, context: Any, engine: str) -> None:
    said = {entry.name: entry for entry in host.manifest.engines}[engine]
    ctx = context(engine, gpus_per_node=8, **{f"{engine}_image": "registry.example/i:1"})
    model = {"id": "o/m/m.gguf" if engine == "llamacpp" else "o/m"}

    def runs(**fields: Any) -> bool:
        return host.can_handle(deployment(model=model, **fields), ctx).ok

    assert runs() is said.gpu_support
    assert runs(resources={}) is said.cpu_support
    assert runs(resources={"gpu": {"count": 16}}) is said.multi_node
    assert runs(scaling={"replicas": 0}) is said.scale_to_zero
    assert runs(serving={"mode": "disaggregated"}) is ("disaggregated" in said.serving_modes)


@pytest.mark.parametrize("gpus", [0, 1])
def test_it_is_the_floor_whatever_knows_a_deployment_better_is_preferred(host: ProviderHost, gpus: int) -> None:
    configs = []
    for plugin in (host, load("kaito")):
        config = config_object(plugin.manifest)
        config["status"] = {"ready": True, "lastHeartbeat": NOW.isoformat()}
        configs.append(config)
    spec = {"model": {"id": "o/m"}, "resources": {"gpu": {"count": gpus}}, "scaling": {"replicas": 1}}
    facts = [provider_facts(config) for config in configs]
    engine = "vllm" if gpus else "llamacpp"
    found = choose_provider(request_of(spec), facts, engine=engine, now=NOW + timedelta(seconds=1))
    assert {candidate.name for candidate in found.candidates if candidate.eligible} == {"kaito", "vllm"}
    assert found.provider == "kaito"
    other = {**spec, "engine": {"type": "sglang"}}
    found = choose_provider(request_of(other), facts, engine="sglang", now=NOW + timedelta(seconds=1))
    assert found.provider == ("vllm" if gpus else None)
    assert host.manifest.selection is SelectionMode.AUTO


@pytest.mark.parametrize(
    "values", [{"maxSurge": -1}, {"maxSurge": 33}, {"gpusPerNode": 0}, {"gpusPerNode": 65}, {"gpuPerNode": 8}], ids=str
)
def test_a_setting_that_makes_no_sense_is_refused_at_the_start(host: ProviderHost, values: Resource) -> None:
    with pytest.raises(SettingsError, match=next(iter(values))):
        host.settings(values)


# -------------------------------------------------------------------------------------------------------- determinism

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
MAPS = st.dictionaries(NAMES, st.text(max_size=8), max_size=5)
SPEC = st.fixed_dictionaries(
    {"model": st.just({"id": "o/m"})},
    optional={
        "engine": st.fixed_dictionaries(
            {}, optional={"args": MAPS, "extraArgs": st.lists(st.text(max_size=8), max_size=3)}
        ),
        "resources": st.sampled_from([{"gpu": {"count": 2}, "memory": "1Gi"}, {"gpu": {"count": 16}, "memory": "7Gi"}]),
        "env": st.lists(st.fixed_dictionaries({"name": NAMES, "value": st.text(max_size=8)}), max_size=3),
        "nodeSelector": MAPS,
        "podTemplate": st.fixed_dictionaries(
            {"metadata": st.fixed_dictionaries({"labels": MAPS, "annotations": MAPS})}
        ),
    },
)


@given(spec=SPEC, engine=st.sampled_from(["vllm", "sglang", "trtllm", "llamacpp"]))
def test_the_order_of_keys_does_not_matter(host: ProviderHost, context: Any, spec: dict[str, Any], engine: str) -> None:
    written = [
        canonical_json(
            list(host.translate_spec(parse_deployment({"metadata": META, "spec": form}), context(engine)).objects)
        )
        for form in (spec, reordered(spec), spec)
    ]
    assert written[0] == written[1] == written[2]


META = {"name": "m", "namespace": "n"}
PROGRAM = """
import sys
from datetime import datetime, timezone
import orjson
from airunway.sdk import Context, Upstream, parse_deployment
from airunway_vllm import provider
from airunway_vllm.manifest import TRANSFORMERS
from airunway_vllm.settings import Settings

upstream = Upstream(api_version="apps/v1", transformer=TRANSFORMERS[0])
for spec in orjson.loads(sys.stdin.buffer.read()):
    deployment = parse_deployment({"metadata": {"name": "m", "namespace": "n"}, "spec": spec})
    now = datetime(2026, 9, 1, tzinfo=timezone.utc)
    context = Context(engine="vllm", upstream=upstream, settings=Settings(), now=now)
    sys.stdout.buffer.write(orjson.dumps(provider.translate_spec(deployment, context)))
    sys.stdout.buffer.write(repr(provider.can_handle(deployment, context)).encode())
"""


def test_another_process_writes_the_same_bytes() -> None:
    specs = [
        {
            "model": {"id": "o/m"},
            "engine": {"args": {"seed": "1", "b": "", "a": "2"}},
            "resources": {"gpu": {"count": n}},
        }
        for n in (2, 16)
    ]
    outputs = outputs_of_processes(PROGRAM, specs)
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1000


# ----------------------------------------------------------------------------------------------------------- statuses


def workload(kind: str, *, wanted: int = 1, **status: Any) -> Resource:
    return {"kind": kind, "metadata": {"generation": 2}, "spec": {"replicas": wanted}, "status": status}


def truth(type_: str, status: str, reason: str = "", message: str = "") -> Resource:
    return {"type": type_, "status": status, "reason": reason, "message": message}


FULL = {"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1}
STALE = truth("Available", "True", "AllGroupsReady", "All replicas are ready")


@pytest.mark.parametrize(
    ("primary", "ready", "up_to_date"),
    [
        (None, False, False),
        (workload("Deployment"), False, False),
        (workload("Deployment", **FULL), True, True),
        (workload("Deployment", **FULL | {"observedGeneration": 1}), False, False),
        # the old pod is still on its way out
        (workload("Deployment", **FULL | {"replicas": 2}), False, False),
        (workload("Deployment", **FULL | {"readyReplicas": 0}), False, True),
        (workload("Deployment", wanted=0, observedGeneration=2), True, True),
        (workload("LeaderWorkerSet", **FULL, conditions=[STALE]), True, True),
        # recorded: available says so of groups that are not there (facts 9 to 11)
        (workload("LeaderWorkerSet", observedGeneration=2, readyReplicas=1, conditions=[STALE]), False, False),
        (workload("LeaderWorkerSet", **FULL | {"observedGeneration": 1}, conditions=[STALE]), False, False),
        (workload("LeaderWorkerSet", wanted=0, observedGeneration=2, conditions=[STALE]), True, True),
    ],
)
def test_ready_and_current_are_judged_by_what_was_observed(
    host: ProviderHost, deployment: Any, context: Any, primary: Any, ready: bool, up_to_date: bool
) -> None:
    objects = (primary,) if primary else ()
    found = host.translate_status(deployment(), Observed(primary=primary, objects=objects), context())
    (component,) = found.components
    assert (component.ready, found.up_to_date) == (ready, up_to_date)
    assert component.pending is (primary is None)


def test_the_address_is_told_once_its_service_is_there_and_stays(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    service = host.translate_spec(deployment(), context()).objects[1]
    down = workload("Deployment", **FULL | {"readyReplicas": 0})
    found = host.translate_status(deployment(), Observed(primary=down, objects=(down, service)), context()).endpoint
    assert found is not None
    assert (found.service, found.port, found.port) == ("llama-8b", 8000, service["spec"]["ports"][0]["port"])
    other = {**service, "metadata": {"name": "other"}}
    assert host.translate_status(deployment(), Observed(primary=down, objects=(other,)), context()).endpoint is None


def test_a_deadline_that_was_exceeded_is_not_the_end(host: ProviderHost, deployment: Any, context: Any) -> None:
    late = truth("Progressing", "False", "ProgressDeadlineExceeded", "ReplicaSet has timed out progressing")
    primary = workload("Deployment", observedGeneration=2, replicas=1, updatedReplicas=1, conditions=[late])
    (component,) = host.translate_status(deployment(), Observed(primary=primary), context()).components
    assert (component.ready, component.reason) == (False, "Progressing")
    assert component.message == "ReplicaSet has timed out progressing"


KEYS = st.sampled_from(
    (
        *("replicas", "readyReplicas", "updatedReplicas", "availableReplicas", "observedGeneration", "generation"),
        *("conditions", "type", "status", "reason", "message"),
    )
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(KEYS, below, max_size=4),
    max_leaves=12,
)


@example(status={"readyReplicas": -1, "availableReplicas": -1}, spec={"replicas": -1}, kind="Deployment")
@given(status=JSON, spec=JSON, kind=st.sampled_from(["Deployment", "LeaderWorkerSet", "", None]))
def test_any_json_gives_an_observation(
    host: ProviderHost, deployment: Any, context: Any, status: Any, spec: Any, kind: Any
) -> None:
    primary = {"kind": kind, "metadata": spec, "spec": spec, "status": status}
    assert host.translate_status(deployment(), Observed(primary=primary, objects=(primary,)), context()).components


def test_a_group_that_is_made_anew_is_told_while_it_is_not_ready(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    """LeaderWorkerSet's status has no reason for a failure; its event has (recorded)."""
    status: Resource = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1}
    group: Resource = {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "llama-8b-lws", "generation": 1},
        "spec": {"replicas": 1},
        "status": status,
    }
    note = "Worker pod llama-8b-lws-0-1 failed, deleted leader pod llama-8b-lws-0 to recreate group 0"
    event = EventFacts(kind="LeaderWorkerSet", namespace="ml", name="llama-8b-lws", reason="RecreateGroup", note=note)
    observed = Observed(primary=group, objects=(group,), events=(event,))
    (component,) = host.translate_status(deployment(), observed, context()).components
    assert component.message == f"0 of 1 replicas are ready; LeaderWorkerSet made a group anew: {note}"
    status["readyReplicas"] = 1
    (component,) = host.translate_status(deployment(), observed, context()).components
    assert (component.ready, component.message.count("anew")) == (True, 0)
