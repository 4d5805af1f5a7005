"""What a deployment uses of its namespace: every field that leads there is seen, and what is dangerous is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.validation.policy import NAMESPACE_NAME, Grants, Policy, parse_policy, violations
from airunway.validation.uses import DIMENSIONS, notes_of

AT = "spec.provider.overrides"


def judged(spec: Any, policy: Policy | None = None) -> dict[str, str]:
    """The message of each refusal by its path."""
    labels = {NAMESPACE_NAME: "team"}
    found = violations(policy or Policy(), spec, engine=None, provider=None, namespace_labels=labels)
    return {violation.path: violation.message for violation in found}


def each_judged(spec: dict[str, Any], policy: Policy) -> set[str]:
    """The paths that are refused, field by field: of a whole spec no more are said than a message can hold."""
    return {path for field, value in spec.items() for path in judged({field: value}, policy)}


def only(**lists: list[str]) -> Policy:
    return parse_policy(str({"rules": [lists]}))


def overridden(**fields: Any) -> dict[str, Any]:
    return {"provider": {"overrides": fields}}


EVERYTHING = {
    "serviceAccountName": "a",
    "priorityClassName": "a",
    "secrets": {"huggingFaceToken": "a"},
    "imagePullSecrets": [{"name": "a"}],
    "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "a", "key": "k"}}}],
    "model": {
        "storage": {
            "volumes": [
                {"name": "v", "claimName": "a"},
                {"name": "own", "size": "1Gi"},
                {"name": "files", "secret": {"name": "a"}},
                {"name": "template", "configMap": {"name": "a"}},
            ]
        }
    },
    "runtimeClassName": "a",
    "resources": {"extended": {"rdma/ib": "1"}},
    "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "nodeSelector": {"node.kubernetes.io/instance-type": "a"},
    "podTemplate": {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}},
    "gateway": {"annotations": {"a": "b"}},
    "workload": {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}},
    "provider": {
        "overrides": {"schedulerName": "default-scheduler", "dnsConfig": {"nameservers": ["10.0.0.10"]}},
    },
}
_TERM = {"topologyKey": "kubernetes.io/hostname"}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
BESIDE = {"podAntiAffinity": {_REQUIRED: [{**_TERM, "namespaces": ["a"]}]}}
ANYWHERE = {"podAffinity": {_REQUIRED: [{**_TERM, "namespaceSelector": {}}]}}
EVERY_PATH = {
    "spec.serviceAccountName",
    "spec.priorityClassName",
    "spec.secrets.huggingFaceToken",
    "spec.imagePullSecrets[0].name",
    "spec.env[0].name",
    "spec.env[0].valueFrom.secretKeyRef.name",
    "spec.model.storage.volumes[0].claimName",
    "spec.model.storage.volumes[2].secret.name",
    "spec.runtimeClassName",
    "spec.resources.extended[rdma/ib]",
    "spec.securityContext.capabilities.add[0]",
    "spec.tolerations[0].key",
    "spec.nodeSelector[node.kubernetes.io/instance-type]",
    "spec.podTemplate.metadata.labels[a]",
    "spec.workload.metadata.labels[a]",
    "spec.workload.metadata.annotations[a]",
    "spec.podTemplate.metadata.annotations[a]",
    "spec.gateway.annotations[a]",
    f"{AT}.schedulerName",
    f"{AT}.dnsConfig.nameservers[0]",
}


def test_h6_every_field_that_leads_into_the_namespace_is_judged() -> None:
    nothing = only(**{key: [] for key in DIMENSIONS})
    assert each_judged(EVERYTHING, nothing) == EVERY_PATH
    assert judged(EVERYTHING, only(**{key: ["*"] for key in DIMENSIONS})) == {}
    assert judged(EVERYTHING) == {
        "spec.securityContext.capabilities.add[0]": "capability 'IPC_LOCK' is not allowed in namespace 'team' "
        "(only where the policy lists it under capabilities)"
    }


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_a_key_with_a_domain_is_put_on_a_workload_only_if_the_policy_lists_it(part: str) -> None:
    key, spec = "kueue.x-k8s.io/queue-name", {"workload": {"metadata": {part: {"kueue.x-k8s.io/queue-name": "team"}}}}
    assert set(judged(spec)) == {f"spec.workload.metadata.{part}[{key}]"}
    assert judged(spec, only(**{f"workload{part.title()}": [key]})) == {}


@pytest.mark.parametrize(
    "name", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "aws.amazon.com/neuron"]
)
def test_an_accelerator_is_no_extended_resource_unless_the_policy_lists_it(name: str) -> None:
    path = f"spec.resources.extended[{name}]"
    assert set(judged({"resources": {"extended": {name: "1"}}})) == {path}
    assert judged({"resources": {"extended": {name: "1"}}}, only(extendedResources=["*"])) == {}


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_h6_each_list_stands_for_itself(dimension: str) -> None:
    spec = {**EVERYTHING, "affinity": BESIDE} if dimension == "affinityNamespaces" else EVERYTHING
    refused = judged(spec, only(**{"capabilities": ["*"], dimension: ["other"]}))
    assert refused
    noun = DIMENSIONS[dimension].noun
    assert all(
        text.startswith(f"{noun} '") and text.endswith("(allowed by policy: other)") for text in refused.values()
    )


@pytest.mark.parametrize(
    ("spec", "path", "listed"),
    [
        (
            {"priorityClassName": "system-node-critical"},
            "spec.priorityClassName",
            {"priorityClasses": ["system-node-*"]},
        ),
        ({"tolerations": [{"operator": "Exists"}]}, "spec.tolerations[0]", {"tolerations": ["*"]}),
        ({"tolerations": [{"effect": "NoSchedule"}]}, "spec.tolerations[0]", {"tolerations": ["*"]}),
        (
            {"tolerations": [{"key": "node-role.kubernetes.io/control-plane"}]},
            "spec.tolerations[0].key",
            {"tolerations": ["node-role.kubernetes.io/*"]},
        ),
        (
            {"nodeSelector": {"node-role.kubernetes.io/control-plane": ""}},
            "spec.nodeSelector[node-role.kubernetes.io/control-plane]",
            {"nodeSelectorKeys": ["node-role.kubernetes.io/*"]},
        ),
        (
            {"nodeSelector": {"airunway.ai/nodes-of": "b-12345678"}},
            "spec.nodeSelector[airunway.ai/nodes-of]",
            {"nodeSelectorKeys": ["airunway.ai/nodes-of"]},
        ),
        (
            {"affinity": ANYWHERE},
            f"spec.affinity.podAffinity.{_REQUIRED}[0].namespaceSelector",
            {"affinityNamespaces": ["*"]},
        ),
        (
            {"affinity": BESIDE},
            f"spec.affinity.podAntiAffinity.{_REQUIRED}[0].namespaces[0]",
            {"affinityNamespaces": ["a"]},
        ),
        (
            overridden(template={"affinity": BESIDE}),
            f"{AT}.template.affinity.podAntiAffinity.{_REQUIRED}[0].namespaces[0]",
            {"affinityNamespaces": ["a"]},
        ),
    ],
)
def test_h6_what_is_dangerous_is_refused_unless_it_is_listed(
    spec: dict[str, Any], path: str, listed: dict[str, list[str]]
) -> None:
    (key,) = listed
    assert list(judged(spec)) == [path]
    assert judged(spec)[path].endswith(f"in namespace 'team' (only where the policy lists it under {key})")
    assert list(judged(spec, only(images=["x/*"]))) == [path]
    assert judged(spec, only(**listed)) == {}


def test_h6_a_toleration_of_everything_is_no_toleration_of_what_is_listed() -> None:
    spec = {"tolerations": [{"operator": "Exists"}, {"key": "", "operator": "Exists"}, {"key": "nvidia.com/gpu"}]}
    assert list(judged(spec, only(tolerations=["nvidia.com/*"]))) == ["spec.tolerations[0]", "spec.tolerations[1]"]


def test_h6_nodes_by_affinity() -> None:
    required = {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"},
                    {"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"},
                ],
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["cp-1"]}],
            }
        ]
    }
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": "airunway.ai/nodes-of", "operator": "In"}]}}]
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": required,
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
    }
    at = "spec.affinity.nodeAffinity"
    first = f"{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]"
    second = f"{at}.preferredDuringSchedulingIgnoredDuringExecution[0].preference"
    spec = {"affinity": {"nodeAffinity": affinity}}
    assert set(judged(spec)) == {f"{first}.matchExpressions[0].key", f"{second}.matchExpressions[0].key"}
    listed = judged(spec, only(nodeSelectorKeys=["node-role.kubernetes.io/*", "airunway.ai/*"]))
    assert list(listed) == [f"{first}.matchFields[0].key"]
    assert "'kubernetes.io/hostname'" in listed[f"{first}.matchFields[0].key"]


def test_m1_labels_and_annotations_of_pods() -> None:
    metadata = {
        "labels": {"app": "payments", "azure.workload.identity/use": "true"},
        "annotations": {
            "iam.amazonaws.com/role": "a",
            "sidecar.istio.io/inject": "false",
            "container.apparmor.security.beta.kubernetes.io/model": "unconfined",
            "cdi.k8s.io/x": "nvidia.com/gpu=all",
            "prometheus.io/scrape": "true",
        },
    }
    spec = {"podTemplate": {"metadata": metadata}}
    at = "spec.podTemplate.metadata"
    privileged = {f"{at}.annotations[{key}]" for key in list(metadata["annotations"])[:4]}
    assert set(judged(spec)) == {f"{at}.labels[azure.workload.identity/use]", *privileged}
    assert f"{at}.labels[app]" in judged(spec, only(podLabels=["team"]))
    assert judged(spec, only(podLabels=["app", "azure.*"], podAnnotations=["*"])) == {}


ANNOTATIONS = (
    "gpu-fraction",
    "gpu-memory",
    "runai-job-id",
    "dev.gvisor.spec.mount.data.source",
    "cpu-quota.crio.io",
    "io.katacontainers.config.hypervisor.path",
    "kuma.io/sidecar-injection",
    "consul.hashicorp.com/connect-inject",
    "vault.security.banzaicloud.io/vault-role",
    "ovn.kubernetes.io/ip_address",
    "k8s.ovn.org/pod-networks",
    "openshift.io/required-scc",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "iam.amazonaws.com/role",
    "cdi.k8s.io/x",
    "of-tomorrow.example/x",
)
LABELS = (
    "security.istio.io/tlsMode",
    "ambient.istio.io/redirection",
    "topology.istio.io/network",
    "service.istio.io/canonical-name",
    "kueue.x-k8s.io/queue-name",
    "runai/queue",
    "queue",
    "aadpodidbinding",
    "priorityClassName",
    "gpu-fraction",
    "airunway.ai/model-deployment",
)
FREE_LABELS = ("app", "team", "cost-center", "app.kubernetes.io/part-of", "helm.sh/chart")
FREE_ANNOTATIONS = ("note", "prometheus.io/scrape", "checksum/config", "kubectl.kubernetes.io/restartedAt")


@pytest.mark.parametrize(("where", "keys"), [("labels", LABELS), ("annotations", ANNOTATIONS)])
def test_m4_keys_with_a_domain_are_refused_unless_they_are_listed(where: str, keys: tuple[str, ...]) -> None:
    """Second security review, M4: none of these was refused."""
    spec = {"podTemplate": {"metadata": {where: dict.fromkeys(keys, "x")}}}
    paths = {f"spec.podTemplate.metadata.{where}[{key}]" for key in keys}
    assert set(judged(spec)) == paths
    assert set(judged(spec, only(images=["x/*"]))) == paths
    dimension = "podLabels" if where == "labels" else "podAnnotations"
    assert all(text.endswith(f"(only where the policy lists it under {dimension})") for text in judged(spec).values())
    assert judged(spec, only(**{dimension: [*keys]})) == {}
    assert judged(overridden(spec={where: {keys[0]: "x"}})) != {}


@pytest.mark.parametrize(("where", "keys"), [("labels", FREE_LABELS), ("annotations", FREE_ANNOTATIONS)])
def test_m4_what_people_label_their_own_things_with_stays_free(where: str, keys: tuple[str, ...]) -> None:
    assert judged({"podTemplate": {"metadata": {where: dict.fromkeys(keys, "x")}}}) == {}


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("ASCEND_VISIBLE_DEVICES", True),
        ("MTHREADS_VISIBLE_DEVICES", True),
        ("NVIDIA_VISIBLE_DEVICES", True),
        ("HABANA_VISIBLE_MODULES", True),
        ("SOMEBODYS_VISIBLE_DEVICES", True),
        ("NVIDIA_MOFED", True),
        ("NVIDIA_GDS", True),
        ("NVIDIA_GDRCOPY", True),
        ("NVIDIA_NVSWITCH", True),
        ("NVIDIA_IMEX_CHANNELS", True),
        ("CUDA_DISABLE_CONTROL", True),
        ("CUDA_VISIBLE_DEVICES", False),
        ("ROCR_VISIBLE_DEVICES", False),
        ("NVIDIA_TF32_OVERRIDE", False),
        ("VLLM_LOGGING_LEVEL", False),
    ],
)
def test_m4_variables_that_container_runtimes_give_devices_by_are_refused(name: str, *, refused: bool) -> None:
    spec = {"env": [{"name": name, "value": "all"}]}
    assert bool(judged(spec)) is refused
    assert judged(spec, only(environment=["*"])) == {}


def test_m6_another_scheduler_takes_a_rule() -> None:
    spec = overridden(spec={"template": {"spec": {"schedulerName": "mine"}}})
    assert list(judged(spec).values()) == [
        "scheduler 'mine' is not allowed in namespace 'team' (only where the policy lists it under schedulers)"
    ]
    assert judged(spec, only(schedulers=["mine"])) == {}
    assert judged(overridden(schedulerName="default-scheduler")) == {}


def test_m6_where_names_lead_can_be_listed() -> None:
    addresses = {"dnsConfig": {"nameservers": ["192.0.2.1"]}, "hostAliases": [{"ip": "192.0.2.2", "hostnames": ["a"]}]}
    assert judged(overridden(spec=addresses)) == {}
    assert len(judged(overridden(spec=addresses), only(nameResolution=["10.*"]))) == 2


@pytest.mark.parametrize(
    ("fields", "path", "key"),
    [
        ({"resource": {"labelSelector": {"matchLabels": {"airunway.ai/nodes-of": None}}}}, None, "nodeSelectorKeys"),
        ({"resource": {"labelSelector": {"matchLabels": {"airunway.ai/nodes-of": "b"}}}}, None, "nodeSelectorKeys"),
        ({"pod": {"nodeSelector": {"node-role.kubernetes.io/x": ""}}}, "pod.nodeSelector", "nodeSelectorKeys"),
        ({"x": {"matchExpressions": [{"key": "airunway.ai/nodes-of", "operator": "In"}]}}, "x", "nodeSelectorKeys"),
        ({"resource": {"preferredNodes": ["cp-1"]}}, "resource.preferredNodes", "nodeSelectorKeys"),
        ({"resource": {"instanceType": "H100"}}, "resource.instanceType", "instanceTypes"),
        ({"a": {"nodeSelector": {"node.kubernetes.io/instance-type": "H100"}}}, "a.nodeSelector", "instanceTypes"),
        ({"pods": [{"tolerations": [{"operator": "Exists"}]}]}, "pods[0].tolerations[0]", "tolerations"),
        ({"pods": [{"priorityClassName": "system-x"}]}, "pods[0].priorityClassName", "priorityClasses"),
        ({"v": [{"persistentVolumeClaim": {"claimName": "c"}}]}, "v[0].persistentVolumeClaim.claimName", "claims"),
        ({"v": [{"secret": {"secretName": "s"}}]}, "v[0].secret.secretName", "secrets"),
        ({"presetOptions": {"modelAccessSecret": "s"}}, "presetOptions.modelAccessSecret", "secrets"),
        ({"source": {"imagePullSecrets": ["s"]}}, "source.imagePullSecrets[0]", "secrets"),
        ({"env": [{"valueFrom": {"secretKeyRef": {"name": "s"}}}]}, "env[0].valueFrom.secretKeyRef", "secrets"),
        ({"c": {"env": [{"name": "NVIDIA_VISIBLE_DEVICES"}]}}, "c.env[0].name", "environment"),
        ({"extraPodMetadata": {"annotations": {"eks.amazonaws.com/x": ""}}}, "extraPodMetadata", "podAnnotations"),
        ({"pod": {"labels": {"istio.io/rev": ""}}}, "pod.labels", "podLabels"),
        ({"spec": {"template": {"spec": {"schedulerName": "s"}}}}, "spec.template.spec.schedulerName", "schedulers"),
        ({"dnsConfig": {"nameservers": ["192.0.2.1"]}}, "dnsConfig.nameservers[0]", "nameResolution"),
        ({"spec": {"hostAliases": [{"ip": "192.0.2.1"}]}}, "spec.hostAliases[0].ip", "nameResolution"),
    ],
)
def test_m2_overrides_are_no_way_around(fields: dict[str, Any], path: str | None, key: str) -> None:
    refused = judged(overridden(**fields), only(**{key: ["nothing"]}))
    assert len(refused) == 1
    assert next(iter(refused)).startswith(f"{AT}.{path or 'resource.labelSelector.matchLabels'}")
    assert judged(overridden(**fields), only(**{key: ["*"]})) == {}


def test_m2_instance_types_by_node_labels() -> None:
    listed = only(instanceTypes=["Standard_NC*"], nodeSelectorKeys=["*"])
    for label in ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"):
        assert judged({"nodeSelector": {label: "Standard_NC24"}}, listed) == {}
        assert len(judged({"nodeSelector": {label: "Standard_ND96"}}, listed)) == 1
        for operator, allowed in (("In", True), ("NotIn", False), ("Exists", False)):
            expression = {"key": label, "operator": operator, "values": ["Standard_NC24"]}
            refused = judged(overridden(a={"matchExpressions": [expression]}), listed)
            assert (refused == {}) is allowed, operator


@pytest.mark.parametrize(
    ("pattern", "image", "allowed"),
    [
        ("docker.io/*", "EVIL/x", False),
        ("docker.io/*", "Evil/x:1", False),
        ("EVIL/*", "EVIL/x", True),
        ("docker.io/*", "evil/X:1", False),
        ("docker.io/*", "evil/x:1", True),
        ("docker.io/library/*", "docker.io/busybox", True),
        ("docker.io/acme/*", "index.docker.io/acme/x", True),
        ("docker.io/library/*", "index.docker.io/busybox", True),
    ],
)
def test_m6_a_first_part_in_upper_case_is_a_registry(pattern: str, image: str, allowed: bool) -> None:
    """As container runtimes take it (distribution/reference, normalize.go)."""
    assert Grants(images=(pattern,)).allows_image(image) is allowed


def test_s4_devices_are_not_handed_out_by_variables() -> None:
    spec = {"resources": {"gpu": {"count": 0}}, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}
    told = judged(spec)["spec.env[0].name"]
    assert told == (
        "environment variable 'NVIDIA_VISIBLE_DEVICES' is not allowed in namespace 'team' "
        "(only where the policy lists it under environment)"
    )
    assert judged({"env": [{"name": "CUDA_VISIBLE_DEVICES", "value": "0"}]}) == {}


def test_a_namespace_without_a_rule_may_use_nothing_where_that_is_the_default() -> None:
    assert each_judged(EVERYTHING, parse_policy("default: Deny")) == EVERY_PATH


WORDS = st.sampled_from(
    ["env", "name", "tolerations", "key", "nodeSelector", "affinity", "nodeAffinity", "matchExpressions", "secret"]
) | st.sampled_from(["podTemplate", "metadata", "labels", "provider", "overrides", "model", "storage", "volumes"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_whatever_a_spec_is_it_gets_a_verdict(spec: Any) -> None:
    for policy in (Policy(), only(**{key: [] for key in DIMENSIONS})):
        assert all(path.startswith("spec.") for path in judged(spec, policy))


def test_what_needs_a_policy_is_noted_for_the_guards_and_nothing_else() -> None:
    assert notes_of(EVERYTHING) == {"capabilities=IPC_LOCK"}
    spec = {
        "tolerations": [{"operator": "Exists"}, {"key": "nvidia.com/gpu"}],
        "priorityClassName": "system-cluster-critical",
        "nodeSelector": {"node-role.kubernetes.io/infra": "", "pool": "a"},
        "affinity": {**BESIDE, **ANYWHERE},
        "podTemplate": {"metadata": {"annotations": {"example.org/a": "1", "plain": "1", "two words.x": "1"}}},
        **overridden(schedulerName="kai"),
    }
    assert notes_of(spec) == {
        "tolerations=*",
        "priorityClasses=system-cluster-critical",
        "nodeSelectorKeys=node-role.kubernetes.io/infra",
        "affinityNamespaces=a",
        "affinityNamespaces=*",
        "podAnnotations=example.org/a",
        "schedulers=kai",
    }
