"""What is read below a deployment, and where an object stands whose owner was not read."""

from __future__ import annotations

from core.tests.view.test_views import deployment, every, owned, snapshot

from airunway.kube import Kind
from airunway.snapshots.reading import sources_of
from airunway.view import deployment_view

WORKSPACE = Kind("kaito.sh", "v1beta1", "Workspace", "workspaces")
ROUTE = Kind("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes")
SERVED = {("kaito.sh", "Workspace"): [WORKSPACE], ("gateway.networking.k8s.io", "HTTPRoute"): [ROUTE]}
CONFIG = {"spec": {"upstream": [{"group": "kaito.sh", "kind": "Workspace"}, {"group": "", "kind": "Service"}]}}


def test_the_primary_object_is_read_first_and_the_downloads_of_complete_weights_are_not() -> None:
    made = {"name": "kaito", "resourceAPIVersion": "kaito.sh/v1beta1", "resourceKind": "Workspace"}
    cache = {"artifactName": "weights", "claimName": "weights-cache", "ready": False}
    status = {"provider": {**made, "resourceName": "llama"}, "modelCache": cache, "gateway": {"ready": True}}
    read = [str(each.kind) for each in sources_of(deployment(**status), CONFIG, SERVED)]
    assert read == [
        "workspaces.kaito.sh",
        "modelartifacts.airunway.ai",
        "pods",
        "jobs.batch",
        "persistentvolumeclaims",
        "services",
        "httproutes.gateway.networking.k8s.io",
    ]
    cache["ready"] = True
    read = [str(each.kind) for each in sources_of(deployment(**status), CONFIG, SERVED)]
    assert read == [
        "workspaces.kaito.sh",
        "services",
        "httproutes.gateway.networking.k8s.io",
        "modelartifacts.airunway.ai",
    ]


def test_the_gateway_of_a_route_stands_below_it_with_its_address_or_why_it_serves_nothing() -> None:
    published = {"gatewayNamespace": "infra", "gatewayName": "gw"}
    gateway_kind = Kind("gateway.networking.k8s.io", "v1", "Gateway", "gateways")
    served = {**SERVED, ("gateway.networking.k8s.io", "Gateway"): [gateway_kind]}
    read = sources_of(deployment(gateway=published), CONFIG, served)
    assert [str(each.key) for each in read if each.kind == gateway_kind] == ["infra/gw"]

    route = owned("HTTPRoute", "llama", "h", deployment())
    gateway = owned("Gateway", "gw", "g", None)
    gateway["metadata"]["namespace"] = "infra"
    programmed = {"type": "Programmed", "status": "True", "reason": "Programmed"}
    waits = {**programmed, "status": "False", "reason": "AddressNotAssigned", "message": "no address yet"}
    for status, state, message in (
        ({"conditions": [programmed], "addresses": [{"value": "10.0.0.7"}]}, "Programmed at 10.0.0.7", ""),
        ({"conditions": [programmed]}, "no address", "it has no address: no request reaches it"),
        ({"conditions": [waits]}, "AddressNotAssigned", "no address yet"),
    ):
        objects = (route, {**gateway, "status": status})
        view = deployment_view(snapshot(deployment=deployment(gateway=published), objects=objects))
        (below,) = (node for node in every(view.tree) if node.kind == "HTTPRoute")
        (node,) = below.children
        assert (node.name, node.state, node.message) == ("infra/gw", state, message)


def test_the_route_of_a_member_says_what_it_gets_of_its_group() -> None:
    route = owned("HTTPRoute", "llama", "h", deployment())
    shared = deployment(gateway={"group": {"name": "chat", "holder": "other", "share": 10}})
    for given, says in ((shared, "10 % of group chat, by the route of other"), (deployment(), "")):
        view = deployment_view(snapshot(deployment=given, objects=(route,)))
        (node,) = (node for node in every(view.tree) if node.kind == "HTTPRoute")
        assert node.message == says


def test_an_owner_that_was_not_read_stands_below_what_is_known_to_own_it() -> None:
    workspace = owned("Workspace", "llama", "w", deployment())
    artifact = owned("ModelArtifact", "weights", "a", None, status={"phase": "Ready"})
    download = owned("Pod", "weights-download-x", "p1", owned("Job", "weights-download", "j", None))
    download["metadata"]["labels"] = {"airunway.ai/artifact": "weights"}
    picker = owned("Pod", "llama-epp-5d-x", "p2", owned("ReplicaSet", "llama-epp-5d", "r", None))
    picker["metadata"]["labels"] = {
        "airunway.ai/model-deployment": "llama",
        "airunway.ai/component": "picker",
        "pod-template-hash": "5d",
    }
    made = {"provider": {"name": "kaito", "resourceKind": "Workspace", "resourceName": "llama"}}
    view = deployment_view(
        snapshot(deployment=deployment(**made), objects=(workspace, artifact), pods=(download, picker))
    )
    below = {node.name: [child.name for child in node.children] for node in every(view.tree)}
    assert below["weights"] == ["weights-download"]
    assert below["llama-epp"] == ["llama-epp-5d"]
    assert {node.name for node in view.tree.children} == {"llama", "llama-epp", "weights"}
