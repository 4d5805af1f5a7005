"""What every chart makes of every set of values, with both majors of helm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import kubernetes_validate
import pytest
from tests.install.helm import APPLICATIONS, MONITORING, NAMESPACE, Helm, Major

from airunway.api.names import ENDPOINT_PICKER_ROLE
from airunway.resource import Resource, dig
from airunway_catalogue.discovery import Entrypoint, Request, job_of

pytestmark = pytest.mark.chart

Rendered = Callable[[Major, str, str], list[Resource]]
Case = tuple[str, str]

CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ValidatingWebhookConfiguration",
}


@pytest.fixture
def objects(rendered: Rendered, case: Case) -> list[Resource]:
    """By helm 4: helm 3 makes the same, as a test below says."""
    return rendered(4, *case)


@pytest.fixture(scope="module", autouse=True)
def schemas() -> Iterator[None]:
    """Schemas are read once: `kubernetes_validate` reads a megabyte for each object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubernetes_validate.utils, "schema_contents", cache(kubernetes_validate.utils.schema_contents))
        yield


def ours(objects: list[Resource]) -> list[Resource]:
    """Without `extraObjects`, which are somebody else's."""
    return [obj for obj in objects if "labels" in obj["metadata"]]


def pod_specs(objects: list[Resource]) -> Iterator[Resource]:
    return (obj["spec"]["template"]["spec"] for obj in objects if obj["kind"] == "Deployment")


def name_of(obj: Resource) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def test_lint_finds_nothing(helms: dict[Major, Helm], case: Case) -> None:
    chart, values = case
    helms[4]("lint", "--strict", chart, "-f", values)


def test_lint_of_helm_3_finds_nothing(helms: dict[Major, Helm]) -> None:
    """By the values of the charts: the templates are the same for all, and helm 3 renders each as helm 4 does."""
    helms[3]("lint", "--strict", *APPLICATIONS)


def test_both_majors_make_the_same(rendered: Rendered, case: Case) -> None:
    three, four = ({name_of(obj): obj for obj in rendered(major, *case)} for major in (3, 4))
    assert three == four


@pytest.mark.parametrize("version", ["1.30", "1.34", "1.37"])
def test_objects_fit_the_schemas_of_each_kubernetes(rendered: Rendered, case: Case, version: str) -> None:
    for obj in rendered(4, *case):
        if obj["apiVersion"] != MONITORING:
            kubernetes_validate.validate(obj, version, strict=True)


def test_a_misspelt_field_does_not_fit(rendered: Rendered) -> None:
    """The check above sees what it is there to see."""
    deployment = next(
        obj for obj in rendered(4, "airunway", "airunway/ci/default-values.yaml") if obj["kind"] == "Deployment"
    )
    wrong = {**deployment, "spec": {**deployment["spec"], "replicaz": 1}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replicaz"):
        kubernetes_validate.validate(wrong, "1.34", strict=True)


def test_charts_render_for_each_kubernetes_and_for_vendors_versions_and_for_none_older(
    helms: dict[Major, Helm],
) -> None:
    for helm in helms.values():
        for version in ("1.30.0", "1.34.2-gke.1", "1.37.0-eks-1"):
            assert helm.render("airunway", "--kube-version", version)
        refused = helm("template", "airunway", "--kube-version", "1.29.9", check=False)
        assert "kubeVersion: >=1.30.0-0" in refused.stderr


def test_every_object_says_whose_it_is_and_where(objects: list[Resource]) -> None:
    for obj in ours(objects):
        labels = obj["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "airunway", name_of(obj)
        assert labels["app.kubernetes.io/managed-by"] == "Helm", name_of(obj)
        if obj["kind"] in CLUSTER_SCOPED:
            assert "namespace" not in obj["metadata"], name_of(obj)
            shared = obj["kind"] == "CustomResourceDefinition" or obj["metadata"]["name"] == ENDPOINT_PICKER_ROLE
            assert NAMESPACE in obj["metadata"]["name"] or shared, name_of(obj)
        else:
            assert obj["metadata"]["namespace"], name_of(obj)


def test_no_two_objects_have_one_name(objects: list[Resource]) -> None:
    assert len({name_of(obj) for obj in objects}) == len(objects)


def test_selectors_find_the_pods_and_say_no_version(objects: list[Resource]) -> None:
    labels = [obj["spec"]["template"]["metadata"]["labels"] for obj in objects if obj["kind"] == "Deployment"]
    for obj in ours(objects):
        if obj["kind"] in ("Deployment", "PodDisruptionBudget"):
            selector = obj["spec"]["selector"]["matchLabels"]
        elif obj["kind"] == "Service":
            selector = obj["spec"]["selector"]
        elif obj["kind"] == "NetworkPolicy" and not obj["metadata"]["name"].endswith("-discovery"):
            selector = obj["spec"]["podSelector"]["matchLabels"]
        else:
            continue
        assert set(selector) == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
        assert sum(selector.items() <= each.items() for each in labels) == 1, name_of(obj)


def test_m5_discovery_has_no_network_but_what_the_values_open(helms: dict[Major, Helm]) -> None:
    template = {"metadata": {"name": "tiny"}}
    job = job_of(template, Request(image="a/b:1"), name="discover-tiny", config=None, entrypoint=Entrypoint(words=()))
    labels = job["spec"]["template"]["metadata"]["labels"]

    def policies(*options: str) -> list[Resource]:
        found = [obj for obj in helms[4].render("airunway-catalogue", *options) if obj["kind"] == "NetworkPolicy"]
        return [obj for obj in found if obj["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]

    (closed,) = policies()
    assert closed["metadata"]["namespace"] == NAMESPACE
    assert closed["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert not {"ingress", "egress"} & closed["spec"].keys()
    (opened,) = policies("--set-json", 'discovery.extraEgress=[{"ports":[{"port":53,"protocol":"UDP"}]}]')
    assert opened["spec"]["egress"] == [{"ports": [{"port": 53, "protocol": "UDP"}]}]
    assert policies("--set", "discovery.networkPolicy=false") == []


def test_service_monitors_find_their_service(objects: list[Resource]) -> None:
    services = [obj for obj in objects if obj["kind"] == "Service"]
    for obj in objects:
        if obj["kind"] == "ServiceMonitor":
            wanted = obj["spec"]["selector"]["matchLabels"].items()
            found = [service for service in services if wanted <= service["metadata"]["labels"].items()]
            assert [port["name"] for service in found for port in service["spec"]["ports"]] == ["metrics"]
            assert all(endpoint["honorLabels"] for endpoint in obj["spec"]["endpoints"])


def test_pods_are_restricted(objects: list[Resource]) -> None:
    """What a namespace with the restricted standard asks for; a test on an API server asks the API server itself."""
    for spec in pod_specs(objects):
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert {key for volume in spec["volumes"] for key in volume} <= {"name", "emptyDir", "configMap"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not [port for port in container["ports"] if "hostPort" in port]


def test_pods_have_a_memory_limit_no_cpu_limit_and_probes(objects: list[Resource]) -> None:
    for spec in pod_specs(objects):
        (container,) = spec["containers"]
        assert set(container["resources"]["limits"]) == {"memory"}
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] in ports
        assert len({variable["name"] for variable in container["env"]}) == len(container["env"])


def test_pods_have_their_token_and_nobody_else_of_the_account(objects: list[Resource]) -> None:
    for spec in pod_specs(objects):
        assert spec["automountServiceAccountToken"] is True
        assert spec["enableServiceLinks"] is False
    for obj in objects:
        if obj["kind"] == "ServiceAccount":
            assert obj["automountServiceAccountToken"] is False


def test_disruption_is_bounded_where_there_are_several_replicas(objects: list[Resource]) -> None:
    for deployment in (obj for obj in objects if obj["kind"] == "Deployment"):
        budgets = [
            obj
            for obj in objects
            if obj["kind"] == "PodDisruptionBudget" and obj["spec"]["selector"] == deployment["spec"]["selector"]
        ]
        assert len(budgets) == (1 if deployment["spec"]["replicas"] > 1 else 0)
        assert "--leader-elect" in dig(deployment, "spec", "template", "spec", "containers")[0]["args"]


def test_roles_grant_no_wildcards_no_escalation_and_no_secrets_of_others(objects: list[Resource]) -> None:
    for obj in objects:
        if obj["kind"] not in ("Role", "ClusterRole"):
            continue
        for rule in obj["rules"]:
            texts = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert not texts & {"*", "escalate", "impersonate", "serviceaccounts/token", "pods/exec"}
            if "nodes" in texts:
                chart = obj["metadata"]["labels"]["helm.sh/chart"]
                assert chart.startswith("airunway-catalogue-"), "the hardware is the catalogue's"
                assert rule["verbs"] == ["list", "watch"]
            if "bind" in texts:
                assert rule["resourceNames"] == [ENDPOINT_PICKER_ROLE]
            if "secrets" in rule["resources"]:
                assert obj["kind"] == "Role"
                named = (["airunway-webhook-tls"], ["team-registry"])
                assert rule["verbs"] == ["create"] or rule["resourceNames"] in named


def test_nothing_that_the_operator_writes_is_rendered(objects: list[Resource]) -> None:
    """Helm 4 applies server-side: a field with two owners would have the next upgrade refused."""
    assert not [name_of(obj) for obj in objects if obj["kind"] in ("Lease", "InferenceProviderConfig")]
    for obj in objects:
        if obj["kind"] == "Secret":  # made empty, so that the core needs no right to create one; it fills it in
            assert name_of(obj)[-1] == "airunway-webhook-tls"
            assert not {"data", "stringData"} & set(obj)
        if obj["kind"] == "ValidatingWebhookConfiguration":
            assert all("caBundle" not in webhook["clientConfig"] for webhook in obj["webhooks"])


def test_watched_namespaces_give_roles_and_leave_to_the_cluster_what_has_no_namespace(rendered: Rendered) -> None:
    for chart in sorted(set(APPLICATIONS) - {"airunway-crds", "airunway-stack"}):
        objects = rendered(4, chart, f"{chart}/ci/namespaces-values.yaml")
        roles = {obj["metadata"]["namespace"] for obj in objects if obj["kind"] == "Role"}
        assert roles == {"team-a", "team-b", NAMESPACE}
        wide = {
            resource
            for obj in objects
            if obj["kind"] == "ClusterRole" and not obj["metadata"]["name"].endswith(("-view", "-edit", "-tenant"))
            if obj["metadata"]["name"] != ENDPOINT_PICKER_ROLE
            for rule in obj["rules"]
            for resource in rule["resources"]
        }
        of_catalogue = {
            "nodes",
            "modelsources",
            "modelsources/status",
            "clustermodeltemplates/status",
            "clustermodeltemplates/finalizers",
        }
        assert wide <= (of_catalogue if chart == "airunway-catalogue" else set()) | {
            "inferenceproviderconfigs",
            "inferenceproviderconfigs/status",
            "clusterruntimeconfigs",
            "clusterruntimeconfigs/status",
            "clustermodeltemplates",
            "storageclasses",
            "namespaces",
            "gateways",
            "clusterroles",
            "customresourcedefinitions",
            "validatingwebhookconfigurations",
            "subjectaccessreviews",
        }
        assert "namespace" not in [obj["metadata"].get("namespace") for obj in objects if obj["kind"] == "ClusterRole"]
        (args,) = [spec["containers"][0]["args"] for spec in pod_specs(objects)]
        assert "--watch-namespaces=team-a,team-b" in args


def test_notes_name_three_commands_and_the_risks(helms: dict[Major, Helm]) -> None:
    helm = helms[4]  # helm 3 asks a cluster before it shows notes
    options = ["--dry-run=client", "-n", NAMESPACE]
    for chart in ("airunway", "airunway-crds", "airunway-provider-kaito", "airunway-stack"):
        known = helm("install", "runway", chart, *options, "--set=global.imageRegistry=mirror.example").stdout
        notes = known.partition("NOTES:")[2]
        assert len([line for line in notes.splitlines() if line.startswith("  kubectl ")]) == 3, notes
        assert "WARNING" not in notes
        checkout = helm("install", "runway", chart, *options).stdout
        parts = {"airunway-crds": 0, "airunway-stack": 2}.get(chart, 1)
        assert checkout.count("registry.example has no image. Say where the images are") == parts, checkout
    options.append("--set=global.imageRegistry=mirror.example")
    risky = helm(
        "install", "runway", "airunway", *options, "-f", "airunway/ci/least-core-values.yaml", "--set=replicas=1"
    )
    assert risky.stdout.count("WARNING") == 2
    gone = helm("install", "runway", "airunway-crds", *options, "--set=keep=false")
    assert "deletes every ModelDeployment" in gone.stdout
