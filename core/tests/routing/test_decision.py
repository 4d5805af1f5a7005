"""One pass, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.tests.routing.builders import (
    ENGINE,
    EPP,
    GW,
    NAME,
    PATH,
    PLAIN,
    SELECTOR,
    asked,
    at,
    config,
    deployment,
    facts,
    gateway,
    kinds_of,
    listener,
    live_route,
    matches_of,
    message,
    objects_of,
    owned,
    route_of,
    said,
    serving,
    with_pool,
)

from airunway.api import names
from airunway.configs.resolution import resolve
from airunway.resource import ObjectKey, Resource
from airunway.routing.claims import Claim, ClaimKind, Conflict
from airunway.routing.decision import decide
from airunway.routing.intent import Flags, claims_of

POOL_KINDS = ["ServiceAccount", "RoleBinding", "ConfigMap", "InferencePool", "Service", "Deployment"]


def conflict(kind: ClaimKind, value: str) -> Conflict:
    return Conflict(Claim(GW, "", kind, value), ObjectKey("other", "first"))


# -------------------------------------------------------------------------------------------------------- asked or not


def test_asked_makes_both_rules_and_says_where_the_model_is() -> None:
    base = facts()
    decision = decide(base)
    assert kinds_of(decision) == ["HTTPRoute"]
    assert matches_of(route_of(decision)) == [PATH, NAME]
    assert said(decision) == (False, "WaitingForGateway")
    ready = decide(serving(base))
    assert said(ready) == (True, "RouteAccepted")
    assert ready.objects == decision.objects
    assert ready.gateway == {
        "ready": True,
        "url": f"http://10.0.0.7{PATH}",
        "endpoint": "10.0.0.7",
        "path": PATH,
        "modelName": "Llama-8B",
        "gatewayName": "gw",
        "gatewayNamespace": "infra",
        "backend": "Service",
    }


def test_not_asked_makes_the_rule_for_the_model_name_where_both_apis_and_a_gateway_are_there() -> None:
    base = facts(deployment())
    assert matches_of(route_of(decide(base))) == [NAME]
    for less in (
        replace(base, pools_served=False),
        replace(base, routes_served=False),
        replace(base, gateways=[]),
    ):
        decision = decide(less)
        assert (decision.objects or (), decision.condition, decision.gateway) == ((), None, None)


def test_not_asked_is_no_reason_to_attach_to_a_gateway_that_admits_only_its_own_namespace() -> None:
    closed = gateway(listeners=[listener(allowedRoutes={})])
    decision = decide(facts(deployment(), gateways=[closed]))
    assert (decision.objects, decision.condition) == ((), None)
    assert said(decide(facts(gateways=[closed]))) == (False, "WaitingForGateway")


def test_not_asked_a_second_gateway_takes_no_route_away() -> None:
    base = serving(facts(deployment()))
    decision = decide(replace(base, gateways=[gateway(), gateway("second")]))
    assert decision.objects is None
    assert said(decision) == (True, "RouteAccepted")


def test_r5_no_template_gives_namespace_and_uid_and_one_made_anew_has_another_path() -> None:
    again = deployment(gateway=asked(), metadata={"uid": "other-uid"})
    decision = decide(facts(again))
    assert matches_of(route_of(decision))[0] == "/ml/other-uid"
    assert (decision.gateway or {})["path"] == "/ml/other-uid"


@pytest.mark.parametrize(
    ("cluster", "own", "named"),
    [
        (None, {"routing": {"pathTemplate": "/"}}, "RuntimeConfig ml/default"),
        ({"routing": {"pathTemplate": "/"}}, None, "ClusterRuntimeConfig default"),
        ({"routing": {"pathTemplate": "/"}}, {"inherit": "Cluster"}, "ClusterRuntimeConfig default"),
        (
            {"routing": {"pathTemplate": "/a"}},
            {"inherit": "Cluster", "routing": {"pathTemplate": "/"}},
            "RuntimeConfig ml/default",
        ),
    ],
    ids=["of the namespace", "of the cluster", "inherited", "its own over an inherited one"],
)
def test_a_path_template_that_cannot_be_rendered_is_named_with_the_object_that_has_it(
    cluster: Resource | None, own: Resource | None, named: str
) -> None:
    followed = resolve(
        "default",
        namespaced=None if own is None else {"metadata": {"name": "default", "namespace": "ml"}, "spec": own},
        cluster=None if cluster is None else {"metadata": {"name": "default"}, "spec": cluster},
    ).config
    decision = decide(facts(deployment(gateway=asked()), config=followed))
    assert message(decision).startswith(f"spec.routing.pathTemplate of {named}: the path template cannot be used")


def test_r6_off_with_a_bad_template_is_healthy_and_has_no_condition() -> None:
    decision = decide(facts(deployment(), config=config(routing={"enabled": False, "pathTemplate": "/x/{.metadata[}"})))
    assert (decision.objects, decision.condition, decision.gateway) == ((), None, None)


def test_r23_enabled_false_removes_everything() -> None:
    base = serving(with_pool())
    decision = decide(at(base, deployment(gateway={"enabled": False})))
    assert (decision.objects, decision.condition, decision.gateway) == ((), None, None)
    assert claims_of(at(base, deployment(gateway={"enabled": False}))) == ()


# --------------------------------------------------------------------------------------------------------------- path


@pytest.mark.parametrize(
    "template", ["/x/{.metadata[}", "/", "/a/../b", "/a/{..name}", "/{.metadata.labels['gone']}", "/" + "x" * 200]
)
def test_r2_r4_an_invalid_template_takes_the_route_away_and_nothing_else(template: str) -> None:
    base = serving(with_pool())
    broken = at(base, deployment(gateway=asked(pathTemplate=template)))
    decision = decide(broken)
    assert kinds_of(decision) == POOL_KINDS
    assert said(decision) == (False, "PathTemplateInvalid")
    assert message(decision).startswith("spec.gateway.pathTemplate: the path template cannot be used")
    assert [claim.kind for claim in claims_of(broken)] == [ClaimKind.MODEL_NAME]
    mended = decide(at(base, deployment(gateway=asked(pathTemplate="/x/{.metadata.name}"))))
    assert matches_of(route_of(mended)) == ["/x/llama", NAME]


def test_r29_an_engine_without_paths_gets_the_model_name_and_a_word_about_the_template() -> None:
    engine = {"name": "other"}
    decision = decide(serving(facts(deployment(gateway=asked(pathTemplate="/x")), engine=engine)))
    assert matches_of(route_of(decision)) == [NAME]
    assert said(decision) == (False, "PathRoutingNotSupported")
    assert "path" not in (decision.gateway or {})


def test_a_path_rule_goes_to_the_service_where_the_picker_does_not_read_paths_by_suffix() -> None:
    def backends(image: str) -> list[str]:
        made = route_of(decide(with_pool(flags=Flags(epp_image=image))))
        return [rule["backendRefs"][0]["kind"] for rule in made["spec"]["rules"]]

    assert backends(EPP) == ["InferencePool", "InferencePool"]
    assert backends("ghcr.io/x/epp:v1.5.0") == ["Service", "InferencePool"]


# ----------------------------------------------------------------------------------------------------------- conflict


def test_r10_not_asked_and_the_model_name_is_taken() -> None:
    decision = decide(facts(deployment(), conflicts=[conflict(ClaimKind.MODEL_NAME, "Llama-8B")]))
    assert decision.objects == ()
    assert said(decision) == (False, "RouteConflict")
    assert "other/first" in message(decision)


@pytest.mark.parametrize(
    ("kind", "value", "left"), [(ClaimKind.PATH, PATH, [NAME]), (ClaimKind.MODEL_NAME, "Llama-8B", [PATH])]
)
def test_r7_r11_only_the_lost_rule_is_left_out_and_named(kind: ClaimKind, value: str, left: list[str]) -> None:
    decision = decide(serving(facts(conflicts=[conflict(kind, value)])))
    assert matches_of(route_of(decision)) == left
    assert said(decision) == (False, "RouteConflict")
    assert f"{kind} {value} (held by ModelDeployment other/first)" in message(decision)


def test_r7_both_lost_means_no_route_and_no_new_pool() -> None:
    lost = [conflict(ClaimKind.PATH, PATH), conflict(ClaimKind.MODEL_NAME, "Llama-8B")]
    assert decide(with_pool(conflicts=lost)).objects == ()
    assert kinds_of(decide(replace(serving(with_pool()), conflicts=lost))) == POOL_KINDS


# ------------------------------------------------------------------------------------------------------- what is there


def test_r12_without_the_gateway_api() -> None:
    decision = decide(facts(routes_served=False))
    assert said(decision) == (False, "GatewayAPINotInstalled")
    assert decision.objects is None
    silent = decide(facts(deployment(), routes_served=False))
    assert (silent.objects, silent.condition) == (None, None)


def test_r13_crds_removed_under_running_ones_change_only_the_condition() -> None:
    base = serving(facts())
    decision = decide(replace(base, routes_served=False, route=None, gateways=[]))
    assert decision.objects is None
    assert said(decision) == (False, "GatewayAPINotInstalled")


def test_r14_the_inference_extension_comes_later_and_the_backend_changes_in_place() -> None:
    before = decide(with_pool(pools_served=False))
    assert (before.gateway or {})["backend"] == "Service"
    later = decide(replace(serving(with_pool(pools_served=False)), pools_served=True))
    assert kinds_of(later) == [*POOL_KINDS, "HTTPRoute"]
    assert (later.gateway or {})["backend"] == "Pool"
    assert route_of(later)["metadata"] == route_of(before)["metadata"]


def test_r14_llmd_makes_its_pool_by_itself_and_the_route_follows() -> None:
    engine = {"name": "vllm", "pathRouting": True, "gateway": {"managesInferencePool": True}}
    first = decide(facts(engine=engine))
    assert (first.gateway or {})["backend"] == "Service"
    endpoint = {"service": "llama", "port": 80, "pool": {"name": "llama"}}
    then = decide(facts(deployment(gateway=asked(), status={"endpoint": endpoint}), engine=engine))
    assert kinds_of(then) == ["HTTPRoute"]
    assert (then.gateway or {})["backend"] == "Pool"


def test_r15_no_gateway_is_said_and_the_route_stays_for_the_gateway_to_come_back() -> None:
    base = serving(facts())
    decision = decide(replace(base, gateways=[]))
    assert said(decision) == (False, "NoGateway")
    assert decision.objects is None


def test_r15_a_reference_to_nothing_takes_the_route_off_the_gateway_of_before() -> None:
    base = serving(with_pool())
    other = deployment(gateway=asked(gatewayRef={"name": "nothing", "namespace": "infra"}))
    decision = decide(at(base, other))
    assert said(decision) == (False, "NoGateway")
    assert kinds_of(decision) == POOL_KINDS


def test_r15_not_asked_the_routes_of_a_named_gateway_wait_for_it_and_others_go() -> None:
    base = serving(facts(deployment(), flags=Flags(epp_image=EPP, gateway_name="infra/gw")))
    away = decide(replace(base, gateways=[]))
    assert (away.objects, away.condition) == (None, None)
    other = replace(base, flags=Flags(epp_image=EPP, gateway_name="infra/other"))
    assert decide(other).objects == ()


def test_r16_no_controller_for_the_class_is_said_in_the_gateways_words() -> None:
    waiting = gateway(
        status={
            "conditions": [
                {"type": "Accepted", "status": "Unknown", "reason": "Pending", "message": "Waiting for controller"}
            ]
        }
    )
    base = facts(gateways=[waiting])
    decision = decide(replace(base, route=owned(route_of(decide(base)))))
    assert said(decision) == (False, "WaitingForGateway")
    assert "Waiting for controller" in message(decision)
    assert "envoy" in message(decision)


def test_r20_a_route_of_another_owner_is_left_alone_and_looked_at_again() -> None:
    foreign = owned(route_of(decide(facts())), uid="of-another")
    decision = decide(facts(route=foreign))
    assert decision.objects == ()
    assert said(decision) == (False, "ResourceConflict")
    assert decision.requeue_after


def test_r21_an_edited_or_deleted_route_is_wanted_as_before() -> None:
    base = serving(facts())
    assert base.route is not None
    edited = {**base.route, "spec": {**base.route["spec"], "hostnames": ["x.example.com"]}}
    for live in (edited, None):
        assert decide(replace(base, route=live)).objects == decide(base).objects


def test_r22_a_route_of_the_users_own() -> None:
    base = serving(with_pool())
    obj = deployment(gateway=asked(httpRouteRef="mine"))
    missing = decide(at(base, obj))
    assert kinds_of(missing) == POOL_KINDS
    assert said(missing) == (False, "ReferenceNotFound")
    assert base.route is not None
    theirs = {**base.route, "metadata": {**base.route["metadata"], "name": "mine", "ownerReferences": []}}
    there = decide(replace(at(base, obj), user_route=theirs))
    assert kinds_of(there) == POOL_KINDS
    assert said(there) == (True, "RouteAccepted")
    assert (there.gateway or {})["gatewayName"] == "gw"


def test_r24_suspended_releases_route_and_claim_and_resumed_takes_them_again() -> None:
    base = serving(with_pool())
    asleep = at(base, deployment(gateway=asked(), suspend=True))
    decision = decide(asleep)
    assert decision.objects == ()
    assert said(decision) == (False, "Suspended")
    assert claims_of(asleep) == ()
    assert kinds_of(decide(base)) == [*POOL_KINDS, "HTTPRoute"]
    quiet = decide(at(base, deployment(suspend=True)))
    assert (quiet.objects, quiet.condition) == ((), None)


@pytest.mark.parametrize("engine", [PLAIN, ENGINE], ids=["Service", "Pool"])
@pytest.mark.parametrize("status", [{"endpoint": {}, "selector": ""}, {"endpoint": {}, "selector": SELECTOR}])
def test_r25_an_endpoint_that_is_gone_for_a_moment_changes_nothing(engine: Resource, status: Resource) -> None:
    base = serving(facts(engine=engine))
    gone = decide(at(base, deployment(gateway=asked(), status=status)))
    assert gone.objects == decide(base).objects
    assert gone.condition == decide(base).condition


def test_r25_an_endpoint_that_was_never_there_is_waited_for() -> None:
    decision = decide(facts(deployment(gateway=asked(), status={"endpoint": {}})))
    assert (decision.objects, decision.transient) == ((), True)
    assert said(decision) == (False, "WaitingForEndpoint")


def test_r26_the_providers_pool_is_waited_for_and_the_status_says_where() -> None:
    engine = {"name": "vllm", "pathRouting": True, "gateway": {"managesInferencePool": True}}
    decision = decide(facts(deployment(gateway=asked(), status={"endpoint": {}}), engine=engine))
    assert said(decision) == (False, "WaitingForPool")
    assert (decision.gateway or {})["gatewayName"] == "gw"
    assert (decision.gateway or {})["backend"] == "Pool"
    assert not decision.transient


def test_r14_dynamo_without_the_inference_extension_keeps_its_frontend_when_it_comes() -> None:
    engine = {"name": "vllm", "pathRouting": True, "gateway": {"managesInferencePool": True}}
    base = facts(deployment(gateway=asked(), status={"endpoint": {}}), engine=engine, pools_served=False)
    first = decide(base)
    assert said(first) == (False, "WaitingForEndpoint")
    assert (first.gateway or {})["backend"] == "Service"
    written = deployment(gateway=asked(), status={"endpoint": {}, "gateway": first.gateway})
    later = decide(replace(at(base, written), pools_served=True))
    assert said(later) == (False, "WaitingForEndpoint")
    assert (later.gateway or {})["backend"] == "Service"


def test_the_backend_is_announced_without_a_gateway_too() -> None:
    engine = {"name": "vllm", "pathRouting": True, "gateway": {"managesInferencePool": True}}
    decision = decide(facts(deployment(gateway=asked(), status={"endpoint": {}}), engine=engine, gateways=[]))
    assert said(decision) == (False, "NoGateway")
    assert (decision.gateway or {})["backend"] == "Pool"


# -------------------------------------------------------------------------------------------------------- annotations


def test_r30_hostile_annotations_are_left_out_and_said() -> None:
    annotations = {"a b": "x", "airunway.ai/spec-hash": "x", "ok.io/x": "1", "b": 3, "x" * 300: "y"}
    decision = decide(serving(facts(deployment(gateway=asked(annotations=annotations)))))
    assert route_of(decision)["metadata"]["annotations"] == {"ok.io/x": "1"}
    assert said(decision) == (True, "RouteAccepted")
    assert "4 annotations of the route are left out" in message(decision)


# ----------------------------------------------------------------------------------------------------- pool and picker


def test_our_pool_and_picker() -> None:
    settings = config(imagePullSecrets=[{"name": "pull"}])
    obj = deployment(gateway=asked(), metadata={"labels": {"airunway.ai/team": "x"}})
    made = {
        item["kind"]: item
        for item in objects_of(decide(with_pool(obj, config=settings, destination_rule="networking.istio.io/v1")))
    }
    assert list(made) == [*POOL_KINDS, "DestinationRule", "HTTPRoute"]
    pool = made["InferencePool"]["spec"]
    assert pool["selector"]["matchLabels"] == {
        "airunway.ai/model-deployment": "llama",
        "airunway.ai/component": "server",
    }
    assert pool["targetPorts"] == [{"number": 8000}]
    assert pool["endpointPickerRef"]["failureMode"] == "FailOpen"
    assert pool["endpointPickerRef"]["name"] == made["Service"]["metadata"]["name"]
    assert made["RoleBinding"]["roleRef"]["kind"] == "ClusterRole"
    assert made["RoleBinding"]["roleRef"]["name"] == "airunway-endpoint-picker"
    pod = made["Deployment"]["spec"]["template"]
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["metadata"]["labels"]["airunway.ai/team"] == "x"
    assert all(item["metadata"]["labels"]["airunway.ai/team"] == "x" for item in made.values())
    assert made["DestinationRule"]["spec"]["host"] == made["Service"]["metadata"]["name"]


def test_a_propagated_label_by_which_the_pool_selects_is_not_on_its_picker() -> None:
    labels = {"upstream.example/workspace": "llama", "example.com/team": "x"}
    status = {"selector": "upstream.example/workspace=llama"}
    settings = config(labelPropagation={"enabled": True, "match": ["*/*"]})
    obj = deployment(gateway=asked(), metadata={"labels": labels}, status=status)
    made = {item["kind"]: item for item in objects_of(decide(with_pool(obj, config=settings)))}
    pod = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    selector = made["InferencePool"]["spec"]["selector"]["matchLabels"]
    assert selector == {"upstream.example/workspace": "llama"}
    assert not selector.items() <= pod.items(), "the picker would be an endpoint of its own pool"
    assert pod["example.com/team"] == "x"


def test_an_unknown_release_of_the_picker_means_no_pool_of_ours() -> None:
    decision = decide(with_pool(flags=Flags(epp_image="x/epp:latest")))
    assert kinds_of(decision) == ["HTTPRoute"]
    assert (
        kinds_of(decide(with_pool(flags=Flags(epp_image="x/epp:latest", epp_version="v0.10.0"))))[:1] == POOL_KINDS[:1]
    )


def test_r28_the_clusterrole_of_the_picker_is_missing() -> None:
    decision = decide(replace(serving(with_pool()), picker_role=False))
    assert said(decision) == (False, "Forbidden")
    assert Flags().role_command in message(decision)
    # No watch tells that the ClusterRole is there: it is noticed within a minute.
    assert decision.requeue_after is not None
    assert decision.requeue_after < 60
    assert said(decide(replace(serving(facts()), picker_role=False))) == (True, "RouteAccepted")


def test_r31_a_picker_that_does_not_get_ready_is_said_in_gateway_ready() -> None:
    base = serving(with_pool())
    assert said(decide(base)) == (True, "RouteAccepted")
    assert base.picker is not None
    stuck = {
        **base.picker,
        "status": {
            "observedGeneration": 1,
            "replicas": 1,
            "updatedReplicas": 1,
            "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}],
        },
    }
    decision = decide(replace(base, picker=stuck))
    assert said(decision) == (False, "UpstreamFailed")
    assert "picker" in message(decision)
    assert decision.objects == decide(base).objects


@pytest.mark.parametrize(
    ("progressing", "reason"),
    [
        pytest.param("ReplicaSetUpdated", "WaitingForPool", id="it starts"),
        pytest.param("NewReplicaSetAvailable", "PodsNotReady", id="it has crashed"),
    ],
)
def test_a_picker_without_a_ready_pod_is_named_with_what_requests_get(progressing: str, reason: str) -> None:
    base = serving(with_pool())
    assert base.picker is not None
    status = {
        "observedGeneration": 1,
        "replicas": 1,
        "updatedReplicas": 1,
        "conditions": [{"type": "Progressing", "status": "True", "reason": progressing}],
    }
    decision = decide(replace(base, picker={**base.picker, "status": status}))
    assert said(decision) == (False, reason)
    assert "FailOpen" in message(decision)
    assert "500" in message(decision)
    assert decision.objects == decide(base).objects  # pods and route stay as they are


def test_a_pool_that_the_api_server_refuses_is_tried_again_and_the_service_answers() -> None:
    base = with_pool()
    first = decide(base)
    assert first.needs_pool  # nothing else must be written after a refusal
    refused = decide(replace(base, pool_refused=True))
    assert kinds_of(refused) == [*POOL_KINDS, "HTTPRoute"]
    assert {rule["backendRefs"][0]["kind"] for rule in route_of(refused)["spec"]["rules"]} == {"Service"}
    assert ((refused.gateway or {})["backend"], refused.needs_pool) == ("Service", False)
    # A pool that exists stays the backend, whatever was refused of its picker.
    there = decide(replace(serving(base), pool_refused=True))
    assert {rule["backendRefs"][0]["kind"] for rule in route_of(there)["spec"]["rules"]} == {"InferencePool"}


def test_a_pool_of_another_owner_leaves_the_service_and_is_said() -> None:
    pool = owned({"kind": "InferencePool", "metadata": {"name": "llama"}, "spec": {}}, uid="of-another")
    decision = decide(serving(with_pool(pool=pool)))
    assert kinds_of(decision) == ["HTTPRoute"]
    assert said(decision) == (False, "ResourceConflict")
    assert (decision.gateway or {})["backend"] == "Service"


# ---------------------------------------------------------------------------------------------------- pause and others


def test_x5_paused_or_in_deletion_changes_nothing_at_all() -> None:
    for metadata in ({"annotations": {names.PAUSED: "true"}}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}):
        decision = decide(facts(deployment(gateway=asked(), metadata=metadata)))
        assert decision.objects is None
        assert not decision.write_status


def test_x5_a_dry_run_says_what_would_be_made() -> None:
    decision = decide(with_pool(deployment(gateway=asked(), metadata={"annotations": {names.DRY_RUN: "true"}})))
    assert decision.objects is None
    assert said(decision) == (False, "DryRun")
    for expected in ("HTTPRoute llama", "InferencePool llama", "Deployment llama-epp"):
        assert expected in message(decision)


@pytest.mark.parametrize(
    ("spec", "would"),
    [
        ({}, "would change nothing"),
        ({"pathTemplate": "/new"}, "would update HTTPRoute llama"),
        ({"pathTemplate": "/"}, "would delete HTTPRoute llama: PathTemplateInvalid"),
        ({"enabled": False}, "would delete HTTPRoute llama, InferencePool llama, Deployment llama-epp"),
    ],
    ids=["as it is", "another path", "no path", "switched off"],
)
def test_x5_a_dry_run_of_a_route_that_serves_reports_it_and_says_what_would_become_of_it(
    spec: Resource, would: str
) -> None:
    base = with_pool(deployment(gateway=asked()))
    there = serving(base)
    before = decide(there)
    annotated = deployment(gateway=asked(**spec), metadata={"annotations": {names.DRY_RUN: "true"}})
    decision = decide(at(there, annotated))
    assert (decision.objects, said(decision)) == (None, (True, "RouteAccepted"))
    assert decision.gateway == before.gateway
    assert message(decision).split("; dry run: ")[1].startswith(would)


def test_a_dry_run_of_what_cannot_be_made_says_why() -> None:
    annotated = deployment(gateway=asked(pathTemplate="/"), metadata={"annotations": {names.DRY_RUN: "true"}})
    decision = decide(facts(annotated))
    assert said(decision) == (False, "DryRun")
    assert "PathTemplateInvalid" in message(decision)


def test_nothing_is_made_before_the_generation_is_validated_or_with_the_config_gone() -> None:
    unknown = deployment(gateway=asked(), status={"conditions": []})
    assert said(decide(facts(unknown))) == (False, "WaitingForValidation")
    assert decide(facts(unknown)).objects is None
    gone = decide(facts(config_unusable=True))
    assert gone.objects is None
    assert said(gone) == (False, "WaitingForConfig")
    quiet = decide(facts(deployment(), config_unusable=True))
    assert (quiet.objects, quiet.condition) == (None, None)
    off = config(routing={"enabled": False})
    refused = decide(facts(deployment(), config=off, config_unusable=True))
    assert (refused.objects, refused.write_status) == (None, False), "a refused config switches no route off"
    assert decide(facts(deployment(gateway={"enabled": False}), config=off, config_unusable=True)).objects == ()


def test_with_the_config_gone_a_route_that_serves_stays_and_is_reported() -> None:
    base = serving(facts())
    decision = decide(replace(base, config_unusable=True))
    assert decision.objects is None
    assert said(decision) == (True, "RouteAccepted")
    assert decision.gateway == decide(base).gateway


def test_the_configs_settings_reach_the_route_and_the_deployments_win() -> None:
    settings = config(
        routing={
            "enabled": True,
            "gatewayRef": {"name": "gw", "namespace": "infra", "sectionName": "http"},
            "pathTemplate": "/team/{.metadata.name}",
            "requestTimeout": "5m",
            "annotations": {"a.io/x": "config", "a.io/y": "config"},
        }
    )
    own = deployment(gateway={"requestTimeout": "30s", "annotations": {"a.io/x": "own"}})
    made = route_of(decide(facts(own, config=settings)))
    assert matches_of(made) == ["/team/llama", NAME]
    assert made["spec"]["parentRefs"][0]["sectionName"] == "http"
    assert made["metadata"]["annotations"] == {"a.io/x": "own", "a.io/y": "config"}
    assert {rule["timeouts"]["request"] for rule in made["spec"]["rules"]} == {"30s"}
    assert {
        rule["timeouts"]["request"] for rule in route_of(decide(facts(deployment(), config=settings)))["spec"]["rules"]
    } == {"5m"}


def test_a_decision_is_the_same_twice_and_leaves_its_facts_alone() -> None:
    base = serving(with_pool())
    before = repr(base)
    assert decide(base) == decide(base)
    assert repr(base) == before
    assert live_route(facts())["status"]["parents"]
