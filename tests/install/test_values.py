"""Values: what is wrong is refused by name, and schema, defaults and README are made of one definition."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from tests.install.helm import APPLICATIONS, CHARTS, Helm, Major
from tools.charts.generate import manifests
from tools.charts.values import closed

import airunway
from airunway.plugins.registry import load
from airunway.plugins.settings import read_settings, settings_defaults
from airunway.resource import Resource
from airunway.sdk import setting
from airunway.validation.policy import parse_policy
from airunway_testing.conformance.settings import settings_property

pytestmark = pytest.mark.chart

PROVIDERS = [manifest.name for manifest in manifests()]


def test_generated_files_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.charts.generate", "--check"],
        cwd=CHARTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_provider_has_a_chart_and_no_chart_is_without_its_provider() -> None:
    assert [name for name in APPLICATIONS if name.startswith("airunway-provider-")] == [
        f"airunway-provider-{name}" for name in PROVIDERS
    ]


def test_all_charts_have_the_version_of_the_release() -> None:
    for path in CHARTS.glob("*/Chart.yaml"):
        chart = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
        assert (chart["version"], chart["appVersion"]) == (airunway.__version__, airunway.__version__), path
        for dependency in chart.get("dependencies", []):
            assert dependency["version"] == airunway.__version__


@pytest.mark.parametrize(
    ("chart", "value", "named"),
    [
        ("airunway", "replicaz=2", "replicaz"),
        ("airunway", "webhook.enable=true", "enable"),
        ("airunway", "replicas=-1", "replicas"),
        ("airunway", "replicas=many", "replicas"),
        ("airunway", "image.digest=sha256:12", "digest"),
        ("airunway", "log.level=loud", "level"),
        ("airunway", "watchNamespaces={Team_A}", "watchNamespaces"),
        ("airunway", "resources.limit.memory=1Gi", "limit"),
        ("airunway", "policy.rules[0].provider={kaito}", "provider"),
        ("airunway", "extraEnv.POD_NAME=mine", "POD_NAME"),
        ("airunway", "extraArgs={leader-elect}", "extraArgs"),
        # What rights and guards rest on is said by values of its own.
        ("airunway", "extraArgs={--no-webhook-access-review}", "extraArgs"),
        ("airunway", "extraArgs={--policy=/tmp/mine}", "extraArgs"),
        ("airunway-provider-kaito", "extraArgs={--watch-namespaces=a}", "extraArgs"),
        ("airunway", "tolerations[0].efect=NoSchedule", "efect"),
        ("airunway", "global.imagePullSecrets=mirror", "imagePullSecrets"),
        ("airunway", "global.imageRegistry=https://mirror.example", "imageRegistry"),
        ("airunway-provider-vllm", "image.registry=mirror.example/", "registry"),
        ("airunway-stack", "global.imagePullSecrets={mirror}", "imagePullSecrets"),
        ("airunway-crds", "kept=true", "kept"),
        ("airunway-provider-kaito", "settings.nodeProvisionner=karpenter", "nodeProvisionner"),
        ("airunway-provider-kaito", "settings.partition=perhaps", "partition"),
        ("airunway-provider-vllm", "settings.maxSurge=1.5", "maxSurge"),
        ("airunway-provider-vllm", "unknownSchema=Guess", "unknownSchema"),
        ("airunway-stack", "airunway-provider-vlm.enabled=true", "airunway-provider-vlm"),
        ("airunway-stack", "airunway.replicaz=2", "replicaz"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(helm: Helm, chart: str, value: str, named: str) -> None:
    refused = helm("template", "runway", chart, "--set", value, check=False)
    assert refused.returncode != 0
    assert "schema" in refused.stderr
    assert named in refused.stderr


def test_what_helm_hands_down_is_no_typo(helms: dict[Major, Helm]) -> None:
    """`global`, `enabled` and, for each dependency, its name: a closed schema must know them."""
    for helm in helms.values():
        for chart in APPLICATIONS:
            assert helm.render(chart, "--set=global.imageRegistry=mirror.example")
        assert helm.render("airunway", "--set=enabled=true", "--set-json=airunway-common={}")


def test_a_registry_and_secrets_for_all_are_handed_to_every_chart_of_the_stack(helms: dict[Major, Helm]) -> None:
    objects = helms[4].render(
        "airunway-stack",
        *("-f", "airunway-stack/ci/all-values.yaml", "--set=global.imageRegistry=mirror.example:5000"),
        '--set-json=global.imagePullSecrets=[{"name": "mirror"}]',
    )
    specs = [obj["spec"]["template"]["spec"] for obj in objects if obj["kind"] == "Deployment"]
    assert len(specs) == 2 + len(PROVIDERS), "core, catalogue, providers"
    for spec in specs:
        assert spec["containers"][0]["image"].startswith("mirror.example:5000/airunway/")
        assert spec["imagePullSecrets"] == [{"name": "mirror"}]


@pytest.mark.parametrize("value", ["serviceMonitor", "prometheusRule"])
def test_without_the_prometheus_operator_a_sentence_says_what_to_do(helm: Helm, value: str) -> None:
    refused = helm("template", "runway", "airunway", f"--set=metrics.{value}.enabled=true", check=False)
    assert f"metrics.{value}.enabled needs the Prometheus operator" in refused.stderr
    assert "install it first, or switch" in refused.stderr


@pytest.mark.parametrize("value", ["serviceMonitor", "prometheusRule"])
def test_m3_without_metrics_there_is_nothing_to_monitor_and_a_sentence_says_so(helm: Helm, value: str) -> None:
    there = "--api-versions=monitoring.coreos.com/v1"
    refused = helm("template", "runway", "airunway", there, f"--set=metrics.{value}.enabled=true", check=False)
    assert f"metrics.{value}.enabled needs metrics.enabled" in refused.stderr
    both = ("--set=metrics.enabled=true", f"--set=metrics.{value}.enabled=true")
    assert helm("template", "runway", "airunway", there, *both, check=False).returncode == 0


@pytest.mark.parametrize("chart", ["airunway", "airunway-provider-vllm"])
def test_m3_metrics_are_off_unless_asked_for(helm: Helm, chart: str) -> None:
    """They name the deployments of all tenants, to whoever reaches the port: decision 0012."""
    objects = helm.render(chart)
    (spec,) = (obj["spec"]["template"]["spec"] for obj in objects if obj["kind"] == "Deployment")
    (container,) = spec["containers"]
    assert not [argument for argument in container["args"] if argument.startswith("--metrics-bind-address")]
    assert "metrics" not in {port["name"] for port in container["ports"]}
    assert not [obj for obj in objects if obj["kind"] == "Service" and "metrics" in obj["metadata"]["name"]]
    asked_for = helm.render(chart, "--set=metrics.enabled=true")
    assert [obj["metadata"]["name"] for obj in asked_for if "metrics" in obj["metadata"]["name"]]


@pytest.mark.parametrize("ports", ["health=8080", "webhook=8081", "metrics=9443"])
def test_a_port_is_of_one_listener(helm: Helm, ports: str) -> None:
    refused = helm("template", "runway", "airunway", "--set=metrics.enabled=true", f"--set=ports.{ports}", check=False)
    assert "ports: two of health, metrics and webhook are the same (" in refused.stderr
    alone = helm.render("airunway", "--set=ports.health=8080")
    assert [obj["kind"] for obj in alone].count("Deployment") == 1


def test_an_annotation_is_there_once(helm: Helm) -> None:
    """What the chart itself annotates can be said otherwise: a key that is there twice is no YAML."""
    key = "kubectl.kubernetes.io/default-container"
    given = json.dumps({key: "mine", "team": "a"})
    said = helm("template", "runway", "airunway", f"--set-json=podAnnotations={given}").stdout
    assert [line.strip() for line in said.splitlines() if key in line] == [f"{key}: mine"]
    assert f"{key}: airunway" in helm("template", "runway", "airunway").stdout


def test_two_policies_are_one_too_many(helm: Helm) -> None:
    refused = helm(
        "template", "runway", "airunway", "--set=policy.default=Deny", "--set=policyConfigMap=mine", check=False
    )
    assert "policy and policyConfigMap are both set" in refused.stderr


@pytest.mark.parametrize("name", PROVIDERS)
def test_settings_reach_the_process_as_they_were_written(helms: dict[Major, Helm], name: str) -> None:
    chart, manifest = f"airunway-provider-{name}", next(each for each in manifests() if each.name == name)
    given = settings_defaults(manifest.settings)
    for helm in helms.values():
        objects = helm.render(chart, "-f", f"{chart}/ci/settings-values.yaml")
        (args,) = [
            obj["spec"]["template"]["spec"]["containers"][0]["args"] for obj in objects if obj["kind"] == "Deployment"
        ]
        texts = [arg.removeprefix("--set=") for arg in args if arg.startswith("--set=")]
        values = {key: json.loads(value) for key, _, value in (text.partition("=") for text in texts)}
        assert values == given
        assert read_settings(manifest.settings, values, provider=name) == manifest.settings()


def test_settings_that_nobody_gave_are_left_to_the_process(helms: dict[Major, Helm]) -> None:
    """`helm upgrade --reuse-values` would hold on to the defaults of the old release otherwise."""
    objects = helms[4].render("airunway-provider-kaito")
    (args,) = [
        obj["spec"]["template"]["spec"]["containers"][0]["args"] for obj in objects if obj["kind"] == "Deployment"
    ]
    assert not [arg for arg in args if arg.startswith("--set")]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool:
    node_class: str = setting("small", "Class of the nodes.")


_SMALL = Pool()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    title: str = setting("", "A setting that is called like a keyword of JSON Schema.")
    pool: Pool = setting(_SMALL, "Of a type of its own.")  # noqa: RUF009


def test_settings_of_types_of_their_own_become_a_schema_without_references() -> None:
    schema = closed(settings_property(Settings))
    assert "$ref" not in json.dumps(schema)
    assert schema["properties"]["title"]["type"] == "string"
    pool = schema["properties"]["pool"]
    assert pool["properties"]["node_class"]["type"] == "string"
    assert pool["default"] == {"node_class": "small"}
    assert (schema["additionalProperties"], pool["additionalProperties"]) == (False, False)


def test_the_policy_of_the_values_is_one_that_the_process_reads(helms: dict[Major, Helm]) -> None:
    objects = helms[4].render("airunway", "-f", "airunway/ci/everything-core-values.yaml")
    (text,) = [obj["data"]["policy.yaml"] for obj in objects if "policy.yaml" in obj.get("data", {})]
    policy = parse_policy(text)
    assert policy.deny
    assert policy.rules[0].uses["tolerations"] == ("nvidia.com/gpu",)


def leaves(schema: Mapping[str, Any], path: str = "") -> list[str]:
    return [
        leaf
        for name, each in schema.get("properties", {}).items()
        for leaf in ([f"{path}{name}"] if "default" in each else leaves(each, f"{path}{name}."))
    ]


@pytest.mark.parametrize("chart", APPLICATIONS)
def test_every_value_is_in_the_readme(chart: str) -> None:
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())
    rows = re.findall(r"^\| `([^`]+)` \|", (CHARTS / chart / "README.md").read_text(), re.M)
    assert leaves(schema)
    assert set(leaves(schema)) <= set(rows)


def test_b4_tenants_have_a_role_for_the_kind_that_the_webhook_asks_about(helms: dict[Major, Helm]) -> None:
    """A user with the role edit alone was refused: user 'ada' cannot create workspaces.kaito.sh."""

    def roles(chart: str, *options: str) -> list[Resource]:
        objects = helms[4].render(chart, *options)
        return [obj for obj in objects if obj["kind"] == "ClusterRole" and obj["metadata"]["name"].endswith("-tenant")]

    for name in ("dynamo", "kaito", "kuberay", "llmd", "vllm"):
        first = load(name).manifest.upstream[0]
        found = roles(f"airunway-provider-{name}")
        assert len(found) == (0 if first.builtin else 1), "edit may create built-in kinds"
        for role in found:
            assert role["rules"] == [{"apiGroups": [first.group], "resources": [first.plural], "verbs": ["create"]}]
            assert not any("aggregate-to" in label for label in role["metadata"]["labels"])
    (aggregated,) = roles("airunway-provider-kaito", "--set=tenantRole.aggregateToEdit=true")
    assert aggregated["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-edit"] == "true"
    assert not roles("airunway-provider-kaito", "--set=tenantRole.create=false")
    # The same question about routes is the core's.
    (routes,) = roles("airunway")
    (rule,) = routes["rules"]
    assert (rule["apiGroups"], rule["resources"]) == (["gateway.networking.k8s.io"], ["httproutes"])
    assert {"create", "update"} <= set(rule["verbs"])
    assert not any("aggregate-to" in label for label in routes["metadata"]["labels"])
    for option in ("gateway.mode=off", "webhook.accessReviewRoutes=false", "webhook.accessReview=false"):
        assert not roles("airunway", f"--set={option}"), "nobody is asked for the right"
