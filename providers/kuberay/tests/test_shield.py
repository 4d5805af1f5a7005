"""Ray is no open shell: who may reach a Ray cluster, and what must not undo that (CVE-2023-48022)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airunway.plugins.contract import RuntimeSettings
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, dig
from airunway.runtime.translate import check_overrides, merged

OLD_RAY = {"image": "r/ray-llm:2.51.1"}


def policy_of(host: ProviderHost, wanted: Any, ctx: Any) -> Resource | None:
    _, *others = host.translate_spec(wanted, ctx).objects
    assert len(others) <= 1
    return others[0] if others else None


@pytest.mark.parametrize("release", ["1.5.1", "1.7"])
def test_ray_is_no_open_shell_it_asks_for_a_token_where_kuberay_and_the_image_can(
    host: ProviderHost, deployment: Any, context: Any, service: Any, release: str
) -> None:
    made = service(deployment(), context(release=release))
    assert made["spec"]["rayClusterConfig"]["authOptions"] == {"mode": "token"}
    assert made["spec"]["rayClusterConfig"]["rayVersion"] == "2.56.0", "KubeRay asks for it with a token"
    assert policy_of(host, deployment(), context(release=release)) is None
    assert host.can_handle(deployment(), context(release=release)).warnings == ()


@pytest.mark.parametrize(
    ("fields", "release", "says"),
    [
        (OLD_RAY, "1.7", "Ray 2.51.1 cannot ask for a token"),
        ({"image": "r/ray-llm:latest"}, "1.7", "of an unknown version cannot"),
        ({}, "1.1", "older than 1.5.1"),
    ],
)
def test_ray_is_no_open_shell_else_a_networkpolicy_keeps_others_away(
    host: ProviderHost, deployment: Any, context: Any, service: Any, fields: Any, release: str, says: str
) -> None:
    wanted, ctx = deployment(**fields), context(release=release, operatorNamespace="ray-operators")
    assert "authOptions" not in service(wanted, ctx)["spec"]["rayClusterConfig"], "KubeRay or Ray would refuse it"
    policy = policy_of(host, wanted, ctx)
    assert policy is not None
    spec = policy["spec"]
    assert (policy["metadata"]["name"], spec["policyTypes"]) == ("llama-8b-ray", ["Ingress"])
    assert spec["podSelector"]["matchLabels"] == {
        "airunway.ai/model-deployment": "llama-8b",
        "ray.io/is-ray-node": "yes",
    }
    own, anybody = spec["ingress"]
    assert own == {
        "from": [
            {"podSelector": {"matchLabels": {"airunway.ai/model-deployment": "llama-8b"}}},
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ray-operators"}}},
        ]
    }
    assert anybody == {"ports": [{"protocol": "TCP", "port": 8000}]}, "requests come in from everywhere"
    warned = {w.reason: w.message for w in host.can_handle(wanted, ctx).warnings}
    assert says in warned["ShieldedByNetworkPolicy"]


def test_ray_is_no_open_shell_unless_a_setting_allows_it_by_name(
    host: ProviderHost, deployment: Any, context: Any
) -> None:
    refused = host.can_handle(deployment(**OLD_RAY), context(networkPolicy="Never"))
    assert [(f.path, f.reason) for f in refused.blockers] == [("spec.provider.name", "RayIsOpen")]
    assert "CVE-2023-48022" in refused.blockers[0].message
    allowed = host.can_handle(deployment(**OLD_RAY), context(networkPolicy="Never", openClusters="Allow"))
    assert allowed.ok
    assert [w.reason for w in allowed.warnings] == ["RayIsOpen"], "and it is still said"
    assert host.can_handle(deployment(), context(networkPolicy="Never")).ok, "a token is enough"
    assert policy_of(host, deployment(), context(networkPolicy="Always")) is not None


VARIABLES = ["RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ENABLE_K8S_TOKEN_AUTH"]


@pytest.mark.parametrize("name", VARIABLES)
def test_ray_is_no_open_shell_by_a_variable(host: ProviderHost, deployment: Any, context: Any, name: str) -> None:
    wanted = deployment(env=[{"name": "A", "value": "1"}, {"name": name, "value": "disabled"}])
    (found,) = host.can_handle(wanted, context()).blockers
    assert found.path == "spec.env[1]"


@pytest.mark.parametrize("release", ["1.1", "1.5.1", "1.7"])
@pytest.mark.parametrize("name", VARIABLES)
def test_ray_is_no_open_shell_by_a_variable_of_the_runtime_config(
    host: ProviderHost, deployment: Any, context: Any, name: str, release: str
) -> None:
    """The config's env reaches head and workers beside ``authOptions``: who edits it would open every Ray cluster of
    its namespace. The variable in the deployment, empty or not, does not let it through."""
    config = RuntimeSettings(env=({"name": "A", "value": "1"}, {"name": name, "value": "disabled"}))
    (found,) = host.can_handle(deployment(), context(runtime=config, release=release)).blockers
    assert (found.path, found.reason) == ("spec.env", "IncompatibleConfiguration")
    assert found.message.startswith(f"{name}, which the runtime config has, ")
    over = deployment(env=[{"name": name, "value": ""}])
    assert {f.path for f in host.can_handle(over, context(runtime=config)).blockers} == {"spec.env", "spec.env[0]"}
    harmless = RuntimeSettings(env=({"name": "RAY_AUTH", "value": "disabled"},))
    assert host.can_handle(deployment(), context(runtime=harmless)).ok
    assert host.can_handle(deployment(), context(runtime=config, first=True)).ok, "no upgrade refuses what runs open"


def test_a_variable_of_the_config_that_what_runs_has_already_is_a_warning_that_says_how_to_end_it(
    host: ProviderHost, deployment: Any, context: Any, service: Any
) -> None:
    """A release of before let it through: no upgrade stops what runs, nor its autoscaler."""
    config = RuntimeSettings(env=({"name": "RAY_AUTH_MODE", "value": "disabled"},))
    live = service(deployment(env=[{"name": "A", "value": "1"}]), context())
    live["metadata"]["annotations"] = {"note": '"RAY_AUTH_MODE"'}
    ctx = replace(context(runtime=config), live=live)
    assert not host.can_handle(deployment(), ctx).ok, "a word of the user's is no variable"
    (worker,) = live["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    worker["template"]["spec"]["containers"][0].setdefault("env", []).append(dict(config.env[0]))
    found = host.can_handle(deployment(), ctx)
    assert found.ok
    (warning,) = (each for each in found.warnings if each.reason == "RayIsOpen")
    assert "airunway.ai/adopt" in warning.message


@pytest.mark.parametrize(
    ("parameters", "refused"),
    [
        ({"dashboard-port": "8000"}, True),
        ({"port": "8000"}, True),
        ({"ray-client-server-port": "8000"}, True),
        ({"worker-port-list": "9000,8000"}, True),
        ({"dashboard-port": "8266"}, False),
        ({"object-store-memory": "8000"}, False),
    ],
)
def test_ray_is_no_open_shell_on_the_port_that_is_open(
    host: ProviderHost, deployment: Any, context: Any, parameters: Any, refused: bool
) -> None:
    wanted = deployment(provider={"overrides": {"head": {"rayStartParams": parameters}}}, **OLD_RAY)
    assert bool(host.can_handle(wanted, context()).blockers) == refused


@pytest.mark.parametrize(
    "given",
    [
        {"authOptions": {"mode": "disabled"}},
        {"authOptions": None},
        {"headGroupSpec": {"template": {"spec": {"hostNetwork": True}}}},
        {"enableInTreeAutoscaling": False},
    ],
)
def test_ray_is_no_open_shell_by_an_override(
    host: ProviderHost, deployment: Any, context: Any, service: Any, given: Any
) -> None:
    found = check_overrides({"spec": {"rayClusterConfig": given}}, host.manifest.override_schema)
    made = service(deployment(), context())
    assert merged(made, found.merge) == made
    assert len(found.unknown) >= 1, "and it is said"


def test_what_runs_open_is_said_with_the_way_to_close_it(host: ProviderHost, deployment: Any, context: Any) -> None:
    """The first transformers write what they wrote."""
    found = host.can_handle(deployment(), context(first=True))
    assert found.ok
    (warned,) = [w for w in found.warnings if w.reason == "RayIsOpen"]
    assert "airunway.ai/adopt" in warned.message


def test_workers_have_no_token_of_kubernetes_and_the_head_has_one_for_rays_autoscaler(
    deployment: Any, context: Any, service: Any
) -> None:
    config = service(deployment(), context())["spec"]["rayClusterConfig"]
    head, (worker,) = config["headGroupSpec"]["template"]["spec"], [g["template"] for g in config["workerGroupSpecs"]]
    assert "automountServiceAccountToken" not in head, "KubeRay's container autoscaler changes the RayCluster by it"
    assert worker["spec"]["automountServiceAccountToken"] is False
    for pod in (head, worker["spec"]):
        assert dig(pod, "securityContext", "seccompProfile", "type") == "RuntimeDefault"
        assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize(
    "given",
    [
        {"head": {"rayStartParams": {"num-cpus": "1\n"}}},
        {"head": {"rayStartParams": {"num-cpus\n": "1"}}},
        {"rayVersion": "2.56.0\n"},
    ],
)
def test_l1_a_newline_at_the_end_is_not_let_through(host: ProviderHost, given: Any) -> None:
    """The parameters go into a line for a shell of KubeRay's; ``$`` matches before a last newline."""
    assert check_overrides(given, host.manifest.override_schema).errors
