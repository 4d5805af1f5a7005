"""The ScaledObject of a deployment, what is made of its bounds, and the condition AutoscalerReady."""

from __future__ import annotations

from typing import Any

import pytest
from core.tests.conftest import MakeDeployment, MakeHost
from core.tests.runtime.views import decided, made, state, stored, there

from airunway.engines.metrics import ENGINE_METRICS, pods_matcher, requests_query
from airunway.owned.plan import Action
from airunway.plugins.contract import EngineCapability
from airunway.plugins.host import SCALED_OBJECT, ProviderHost
from airunway.resource import Resource, copy_of, dig
from airunway.revisions.same_spec import taken_for
from airunway.runtime.autoscaling import autoscaler_result, outlined, parted, same_content
from airunway.runtime.crd_versions import Installed
from airunway.runtime.plan import Decision, Do
from airunway.runtime.report import StepResult
from airunway.runtime.state import ClusterState
from airunway.runtime.translate import parsed
from airunway.status.reasons import Category, category_of

PROMETHEUS = {"serverAddress": "http://prometheus.monitoring.svc:9090"}
SERVED = {"type": "Served", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z", "observedGeneration": 1}


def scaled(plain: MakeDeployment, replicas: int = 1, prometheus: Any = PROMETHEUS, **fields: Any) -> Resource:
    """A deployment that is autoscaled, with a Prometheus in its config, and that has served."""
    found = plain(scaling={"replicas": replicas, "autoscaling": {"maxReplicas": 4, "target": 16, **fields}})
    found["status"]["conditions"].append(SERVED)
    if prometheus:
        found["status"]["effectiveRuntimeConfig"] = {
            "scope": "Cluster",
            "clusterRef": {"kind": "ClusterRuntimeConfig", "name": "default"},
            "prometheus": prometheus,
        }
    return found


def scaler(decision: Decision) -> Resource | None:
    return next((obj for obj in decision.objects if obj["kind"] == "ScaledObject"), None)


def running(host: ProviderHost, deployment: Resource, *more: Resource, **changes: Any) -> ClusterState:
    """The state in which the deployment's model serves; `more` are further objects."""
    bare = copy_of(deployment)
    bare["spec"].pop("scaling")
    bare["spec"].pop("suspend", None)
    return state(host, deployment, *made(host, bare), *more, **changes)


def of_keda(obj: Resource, **conditions: str) -> Resource:
    """The ScaledObject as KEDA has answered for it."""
    found = stored(obj, says="")
    entries = [
        {"type": type_, "status": status, "reason": "Why", "message": f"{type_} is {status}"}
        for type_, status in conditions.items()
    ]
    return outlined({**found, "status": {"conditions": entries, "lastActiveTime": "2026-11-21T12:00:00Z"}})


def condition(host: ProviderHost, view: ClusterState) -> StepResult:
    found = autoscaler_result(view, host)
    assert found is not None
    return found


# ----------------------------------------------------------------------------------------------------------- the object


def test_a_deployment_that_serves_gets_one_scaled_object_of_its_own_scale(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy()
    found = scaler(decided(host, running(host, scaled(plain, scaleDownStabilization="90s"))))
    assert found is not None
    spec, metadata = found["spec"], found["metadata"]
    assert spec["scaleTargetRef"] == {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "name": "llama",
    }
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (1, 4)
    assert dig(spec, "advanced", "horizontalPodAutoscalerConfig", "behavior", "scaleDown") == {
        "stabilizationWindowSeconds": 90
    }
    assert spec["fallback"]["replicas"] == 1
    (trigger,) = spec["triggers"]
    assert trigger["metadata"]["serverAddress"] == PROMETHEUS["serverAddress"]
    assert 'airunway_ai_model_deployment="llama"' in trigger["metadata"]["query"]
    assert (trigger["metadata"]["threshold"], "authenticationRef" in trigger) == ("16", False)
    assert metadata["labels"]["airunway.ai/provider"] == "toy"
    assert [(ref["kind"], ref["uid"]) for ref in metadata["ownerReferences"]] == [("ModelDeployment", "u-1")]


def test_credentials_are_named_by_kind_and_name_alone(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy()
    with_credentials = {**PROMETHEUS, "authentication": {"kind": "ClusterTriggerAuthentication", "name": "prom"}}
    found = scaler(decided(host, running(host, scaled(plain, prometheus=with_credentials))))
    assert found is not None
    assert found["spec"]["triggers"][0]["authenticationRef"] == {"kind": "ClusterTriggerAuthentication", "name": "prom"}


def test_the_first_weights_are_no_idle_time(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), scaled(plain)
    deployment["status"]["conditions"].remove(SERVED)
    assert scaler(decided(host, state(host, deployment))) is None
    starting = made(host, plain(), state="Starting")
    assert scaler(decided(host, state(host, deployment, *starting))) is None
    # One that is ready counts in the pass that sees it, before the status says so.
    assert scaler(decided(host, running(host, deployment))) is not None


def test_what_is_there_stays_while_the_model_is_away(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), scaled(plain)
    own = scaler(decided(host, running(host, deployment)))
    assert own is not None
    deployment["status"]["conditions"].remove(SERVED)
    view = state(host, deployment, *made(host, plain(), state="Starting"), of_keda(own, Ready="True"))
    assert scaler(decided(host, view)) is not None


@pytest.mark.parametrize("case", ["field", "suspend", "prometheus", "keda", "own"])
def test_no_object_where_nothing_is_to_scale_by_it(toy: MakeHost, plain: MakeDeployment, case: str) -> None:
    engine = EngineCapability(name="vllm", gpu_support=True, autoscaling="Own" if case == "own" else "Scale")
    host = toy(engines=(engine, EngineCapability(name="llamacpp", cpu_support=True)))
    deployment, installed = scaled(plain, prometheus=None if case == "prometheus" else PROMETHEUS), there(host)
    if case == "field":
        del deployment["spec"]["scaling"]["autoscaling"]
    if case == "suspend":
        deployment["spec"]["suspend"] = True
    if case == "keda":
        installed["keda.sh", "ScaledObject"] = Installed(upstream=None, reason="UpstreamNotInstalled", message="")
    decision = decided(host, running(host, deployment, installed=installed))
    assert decision.do is (Do.SUSPEND if case == "suspend" else Do.APPLY)
    assert scaler(decision) is None


def test_adding_and_removing_the_field_changes_the_scaled_object_alone(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), scaled(plain)
    with_field = decided(host, running(host, deployment))
    own = scaler(with_field)
    assert own is not None
    del deployment["spec"]["scaling"]["autoscaling"]
    without = decided(host, running(host, deployment, of_keda(own, Ready="True")))
    assert [obj for obj in with_field.objects if obj is not own] == list(without.objects)
    assert without.plan is not None
    main, of_scaler = parted(without.plan)
    assert Action.DELETE not in {step.action for step in main.steps}
    assert [step.action for step in of_scaler.steps] == [Action.DELETE]


def test_the_field_is_in_no_digest_of_the_same_spec(plain: MakeDeployment) -> None:
    without = plain(scaling={"replicas": 3})["spec"]
    assert taken_for(scaled(plain)["spec"], "") == taken_for(without, "")


def test_an_engine_without_known_metrics_is_refused_and_runs_without_the_field(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    host, deployment = toy(engines=(EngineCapability(name="brandnew", gpu_support=True),)), scaled(plain)
    deployment["status"]["engine"]["type"] = "brandnew"
    decision = decided(host, state(host, deployment))
    assert decision.do is Do.OBSERVE_ONLY
    assert decision.results[0].reason == "MetricsNotAvailable"
    del deployment["spec"]["scaling"]["autoscaling"]
    assert decided(host, state(host, deployment)).do is Do.APPLY


def test_the_field_is_not_said_to_be_ignored(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy()
    named = [each.path for each in decided(host, running(host, scaled(plain))).warnings]
    assert not [path for path in named if "autoscaling" in path]


# --------------------------------------------------------------------------------------------------------- the replicas


@pytest.mark.parametrize(
    ("fields", "asked", "given"),
    [({}, 0, 1), ({}, 3, 3), ({}, 9, 4), ({"minReplicas": 2}, 1, 2), ({"minReplicas": 0}, 0, 1)],
)
def test_a_provider_is_given_the_replicas_within_the_bounds(
    plain: MakeDeployment, fields: Resource, asked: int, given: int
) -> None:
    assert parsed(scaled(plain, asked, **fields)).spec.scaling.replicas == given


def test_replicas_of_others_are_as_they_are_written(plain: MakeDeployment) -> None:
    assert parsed(plain(scaling={"replicas": 0})).spec.scaling.replicas == 0


# -------------------------------------------------------------------------------------------------------- the condition


@pytest.mark.parametrize(
    ("conditions", "status", "reason"),
    [
        ({}, False, "AutoscalerPending"),
        ({"Ready": "Unknown"}, False, "AutoscalerPending"),
        ({"Ready": "True", "Fallback": "False"}, True, "Scaling"),
        ({"Ready": "True", "Fallback": "True"}, False, "MetricsUnavailable"),
        ({"Ready": "False"}, False, "MetricsUnavailable"),
    ],
)
def test_the_condition_is_what_keda_says(
    toy: MakeHost, plain: MakeDeployment, conditions: dict[str, str], status: bool, reason: str
) -> None:
    host, deployment = toy(), scaled(plain)
    own = scaler(decided(host, running(host, deployment)))
    assert own is not None
    found = condition(host, running(host, deployment, of_keda(own, **conditions)))
    assert (found.ok, found.reason) == (status, reason)
    assert found.blocks_ready is (reason == "MetricsUnavailable")
    if status:
        assert found.message == "1 to 4 replicas by requests, 16 each"
    if reason == "MetricsUnavailable":
        assert "Why: " in found.message


def test_a_floor_of_zero_stays_at_one_while_nothing_holds_requests(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), scaled(plain, minReplicas=0, idleAfter="10m")
    own = scaler(decided(host, running(host, deployment)))
    assert own is not None
    assert (own["spec"]["minReplicaCount"], own["spec"]["cooldownPeriod"]) == (1, 600)
    found = condition(host, running(host, deployment, of_keda(own, Ready="True")))
    assert (found.ok, found.reason) == (True, "StaysAtOne")
    assert "no gateway routes to the model" in found.message


@pytest.mark.parametrize("metric", ["Requests", "KVCache"])
def test_the_last_replica_goes_where_the_picker_holds_requests(
    toy: MakeHost, plain: MakeDeployment, metric: str
) -> None:
    host, deployment = toy(), scaled(plain, minReplicas=0, metric=metric)
    deployment["status"]["gateway"] = {"holdsRequests": True, "gatewayName": "gw"}
    own = scaler(decided(host, running(host, deployment)))
    assert own is not None
    assert (own["spec"]["minReplicaCount"], own["spec"]["fallback"]["replicas"]) == (0, 1)
    queries = [trigger["metadata"]["query"] for trigger in own["spec"]["triggers"]]
    # While nothing runs, no engine reports; that counts as no load only if the picker says that nothing runs.
    assert queries[0].startswith("((")
    assert 'llm_d_epp_ready_endpoints{namespace="ml",name="llama"}) == 0' in queries[0]
    assert 'llm_d_epp_flow_control_queue_size{namespace="ml",inference_pool="llama"}' in queries[-1]
    assert len(queries) == (1 if metric == "Requests" else 2)
    found = condition(host, running(host, deployment, of_keda(own, Ready="True")))
    assert (found.ok, found.reason) == (True, "Scaling")


@pytest.mark.parametrize("missing", ["keda", "prometheus", "replicas"])
def test_what_is_missing_is_said_and_degrades_what_serves(toy: MakeHost, plain: MakeDeployment, missing: str) -> None:
    host = toy()
    deployment, installed = scaled(plain, prometheus=None if missing == "prometheus" else PROMETHEUS), there(host)
    if missing == "keda":
        installed["keda.sh", "ScaledObject"] = Installed(upstream=None, reason="UpstreamNotInstalled", message="")
    if missing == "prometheus":
        deployment["status"]["effectiveRuntimeConfig"] = {"clusterRef": {"kind": "ClusterRuntimeConfig", "name": "x"}}
    found = condition(host, running(host, deployment, installed=installed))
    assert (
        found.reason
        == {
            "keda": "AutoscalerNotInstalled",
            "prometheus": "AutoscalerNotConfigured",
            "replicas": "WaitingForReplicas",
        }[missing]
    )
    fault = found.as_fault()
    if missing == "replicas":
        assert (found.ok, fault) == (None, None)
    else:
        assert fault is not None
        assert (fault.only_degrades, category_of(found.reason)) == (True, Category.SCOPED_CONFIG)
        assert missing != "prometheus" or "in ClusterRuntimeConfig x" in found.message


def test_what_starts_is_not_degraded_by_its_autoscaler(toy: MakeHost, plain: MakeDeployment) -> None:
    host, deployment = toy(), scaled(plain, prometheus=None)
    deployment["status"]["conditions"].remove(SERVED)
    assert condition(host, state(host, deployment, *made(host, plain(), state="Starting"))).as_fault() is None


def test_an_upstream_that_scales_by_itself_is_ready_without_keda(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(engines=(EngineCapability(name="vllm", gpu_support=True, autoscaling="Own"),))
    assert SCALED_OBJECT not in host.manifest.upstream
    found = condition(host, running(host, scaled(plain)))
    assert (found.ok, found.reason) == (True, "ProviderScales")


def test_a_look_of_keda_is_no_news_and_an_answer_is(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy()
    own = scaler(decided(host, running(host, scaled(plain))))
    assert own is not None
    before = of_keda(own, Ready="True", Active="False")
    looked = of_keda(own, Ready="True", Active="True")
    looked["metadata"]["resourceVersion"] = "2"
    assert same_content(before, looked)
    assert not same_content(before, of_keda(own, Ready="False"))
    assert not same_content(before, {**copy_of(before), "spec": {**before["spec"], "maxReplicaCount": 9}})


# --------------------------------------------------------------------------------------------------- the query


def test_a_query_is_about_the_pods_of_the_deployment() -> None:
    pods = pods_matcher("ml", "airunway.ai/model-deployment=llama,role=decode")
    assert pods == 'namespace="ml",airunway_ai_model_deployment="llama",role="decode"'


def test_a_hostile_value_ends_no_text() -> None:
    assert pods_matcher("ml", 'a=x"y') == 'namespace="ml",a="x\\"y"'


@pytest.mark.parametrize("selector", ["", "a!=b", "!a", "a notin (b)", "a=b)", 'a=b"} or vector(1)#'])
def test_a_selector_that_is_no_list_of_labels_gives_no_query(selector: str) -> None:
    with pytest.raises(ValueError, match=r"selector|terms"):
        pods_matcher("ml", selector)


def test_values_of_a_list_are_no_patterns() -> None:
    assert pods_matcher("ml", "role in (a.b, c)") == 'namespace="ml",role=~"a\\\\.b|c"'


@pytest.mark.parametrize("engine", sorted(ENGINE_METRICS))
def test_a_query_without_any_engine_has_no_result(engine: str) -> None:
    query = requests_query(ENGINE_METRICS[engine], pods_matcher("ml", "a=b"))
    running, _, waiting = query.partition(" + ")
    assert "vector(0)" not in running
    assert waiting.endswith("or vector(0))")
