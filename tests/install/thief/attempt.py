"""What a thief with a stolen token tries: one request, what it is about, and what the API server says.

Every object that the thief writes says that it belongs to a ModelDeployment, as an honest one does: what is refused is
refused in spite of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from airunway.api import names
from airunway.kube import Kind
from airunway.plugins.contract import UpstreamKind
from airunway.resource import Resource, copy_of

CUSTOMER, EMPTY, OPERATOR = "customer", "no-models", "airunway-system"
"""Namespaces: with ModelDeployments (each account has one of its own, `customer_of`), without any, the operator's."""
MINE = "mine"
"""The deployment that was given to the provider; ``foreign`` is one that was given to another."""
NO_RIGHT = "cannot"
"""How RBAC refuses: User … cannot …"""

OWNER: Resource = {
    "apiVersion": names.API_VERSION,
    "kind": "ModelDeployment",
    "name": MINE,
    "uid": "11111111-1111-1111-1111-111111111111",
    "controller": True,
}

RBAC = "rbac.authorization.k8s.io"
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SECRET = Kind("", "v1", "Secret", "secrets")
POD = Kind("", "v1", "Pod", "pods")
SERVICE = Kind("", "v1", "Service", "services")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
ROLE = Kind(RBAC, "v1", "Role", "roles")
ROLE_BINDING = Kind(RBAC, "v1", "RoleBinding", "rolebindings")
CLUSTER_ROLE = Kind(RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = Kind(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
EVENT = Kind("events.k8s.io", "v1", "Event", "events")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
MODEL_DEPLOYMENT = Kind(names.GROUP, names.VERSION, "ModelDeployment", "modeldeployments")
RUNTIME_CONFIG = Kind(names.GROUP, names.VERSION, "RuntimeConfig", "runtimeconfigs")
CLUSTER_RUNTIME_CONFIG = Kind(
    names.GROUP, names.VERSION, "ClusterRuntimeConfig", "clusterruntimeconfigs", namespaced=False
)
_GATEWAYS = "gateway.networking.k8s.io"
GATEWAY = Kind(_GATEWAYS, "v1", "Gateway", "gateways")
HTTP_ROUTE = Kind(_GATEWAYS, "v1", "HTTPRoute", "httproutes")
REFERENCE_GRANT = Kind(_GATEWAYS, "v1", "ReferenceGrant", "referencegrants")
INFERENCE_POOL = Kind("inference.networking.k8s.io", "v1", "InferencePool", "inferencepools")
DESTINATION_RULE = Kind("networking.istio.io", "v1", "DestinationRule", "destinationrules")
CONFIG = Kind(names.GROUP, names.VERSION, "InferenceProviderConfig", "inferenceproviderconfigs", namespaced=False)
_ADMISSION = "admissionregistration.k8s.io"
POLICY = Kind(_ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False)
BINDING = Kind(
    _ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", namespaced=False
)
WEBHOOK = Kind(_ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False)
DEFINITION = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One request; for ``patch`` the `body` is a merge patch of the object `name` in `namespace`."""

    family: str
    what: str
    verb: Literal["create", "patch", "delete"]
    kind: Kind
    words: str
    namespace: str = CUSTOMER
    name: str = "thief"
    body: Resource | None = None
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.family}: {self.what}"


# ----------------------------------------------------------------------------------------------------------- pods

_NODE = "must not share the network, processes or memory of their node"
PRIVILEGED = "must not be privileged or gain privileges"
CAPABLE = "must not have capabilities added"
_MOUNTS = "must not mount the file system of their node"
IDENTITY = "only run as a service account that a ModelDeployment of the namespace names"

PROFILES = "must not choose SELinux labels, or a seccomp or AppArmor profile"
TAINTS = "must not tolerate every taint"
OTHERS = "must not look at other namespaces"
FIELDS_OF_PODS = "pods have only fields that translations write"
ANNOTATIONS = "act on annotations with their domain"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
REQUIRED, _PREFERRED = (f"{how}DuringSchedulingIgnoredDuringExecution" for how in ("required", "preferred"))
_ON_CONTROL_PLANE = {"matchExpressions": [{"key": _CONTROL_PLANE, "operator": "Exists"}]}
EVERYBODY = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}
_BESIDE_THE_SYSTEM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaces": ["kube-system"]}
ORDERS: dict[str, str] = {
    "sidecar.istio.io/userVolume": '[{"name":"x","hostPath":{"path":"/"}}]',
    "sidecar.istio.io/inject": "true",
    "io.kubernetes.cri-o.Devices": "/dev/mem:/dev/mem:rwm",
    "vault.hashicorp.com/agent-inject": "true",
    "kaito.sh/enablelb": "True",
    "service.beta.kubernetes.io/aws-load-balancer-type": "external",
    "gpu-fraction": "0.5",
}
"""Annotations by which injectors, runtimes, operators and schedulers act."""

LOADERS = (
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "GCONV_PATH",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "BASH_ENV",
    "NODE_OPTIONS",
    "PATH",
    "SSLKEYLOGFILE",
    "pythonpath",
)
"""Variables by which programs, interpreters and libraries load code, or say their secrets."""

_IN_A_POD: dict[str, tuple[Resource, str]] = {
    "the node's network": ({"hostNetwork": True}, _NODE),
    "the node's processes": ({"hostPID": True}, _NODE),
    "the node's memory": ({"hostIPC": True}, _NODE),
    "a setting of the kernel": ({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}, _NODE),
    "a process of the Windows host": (
        {"hostNetwork": True, "securityContext": {"windowsOptions": {"hostProcess": True}}},
        _NODE,
    ),
    "a node by name": ({"nodeName": "control-plane"}, "must not name the node that they run on"),
    "the root of the node": ({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}, _MOUNTS),
    "an NFS export": ({"volumes": [{"name": "x", "nfs": {"server": "a", "path": "/"}}]}, _MOUNTS),
    "a service account": ({"serviceAccountName": "cluster-admin"}, IDENTITY),
    "a service account by its old name": ({"serviceAccount": "cluster-admin"}, IDENTITY),
    "the picker of another": ({"serviceAccountName": "another-epp"}, IDENTITY),
    "an SELinux type": ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, PROFILES),
    "an SELinux role": ({"securityContext": {"seLinuxOptions": {"role": "sysadm_r"}}}, PROFILES),
    "no seccomp": ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, PROFILES),
    "a seccomp profile of the node": (
        {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "open.json"}}},
        PROFILES,
    ),
    "no AppArmor": ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, PROFILES),
    "the highest priority": ({"priorityClassName": "system-node-critical"}, "a priority class of the system"),
    "the cluster's priority": ({"priorityClassName": "system-cluster-critical"}, "a priority class of the system"),
    "every taint": ({"tolerations": [{"operator": "Exists"}]}, TAINTS),
    "every taint, one effect": ({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}, TAINTS),
    "the control plane's taint": ({"tolerations": [{"key": _CONTROL_PLANE, "operator": "Exists"}]}, TAINTS),
    "the taint of add-ons": ({"tolerations": [{"key": "CriticalAddonsOnly", "operator": "Exists"}]}, TAINTS),
    "the control plane's nodes": ({"nodeSelector": {_CONTROL_PLANE: ""}}, "must not select nodes of the control plane"),
    "another deployment's nodes": (
        {"nodeSelector": {"airunway.ai/nodes-of": "b"}},
        "must not select nodes of the control plane",
    ),
    "the control plane by affinity": (
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [_ON_CONTROL_PLANE]}}}},
        "must not prefer nodes of the control plane",
    ),
    "rather the control plane": (
        {"affinity": {"nodeAffinity": {_PREFERRED: [{"weight": 1, "preference": _ON_CONTROL_PLANE}]}}},
        "must not prefer nodes of the control plane",
    ),
    "nobody beside it": ({"affinity": {"podAntiAffinity": {REQUIRED: [EVERYBODY]}}}, OTHERS),
    "rather nobody beside it": (
        {"affinity": {"podAntiAffinity": {_PREFERRED: [{"weight": 1, "podAffinityTerm": EVERYBODY}]}}},
        OTHERS,
    ),
    "beside a namespace's pods": (
        {
            "affinity": {
                "podAffinity": {REQUIRED: [{**EVERYBODY, "namespaceSelector": None, "namespaces": ["kube-system"]}]}
            }
        },
        OTHERS,
    ),
    "a scheduler of its own": ({"schedulerName": "evil"}, "must not choose another scheduler"),
    "a field that nobody writes": ({"shareProcessNamespace": True}, FIELDS_OF_PODS),
    "a name of a host": ({"hostname": "registry"}, FIELDS_OF_PODS),
    "a domain of hosts": ({"subdomain": "registry"}, FIELDS_OF_PODS),
    "a host's whole name": ({"setHostnameAsFQDN": True}, FIELDS_OF_PODS),
    "a priority by number": ({"priority": 2_000_001_000}, FIELDS_OF_PODS),
    "no preemption": ({"preemptionPolicy": "Never"}, FIELDS_OF_PODS),
    "a gate of scheduling": ({"schedulingGates": [{"name": "evil.example/hold"}]}, FIELDS_OF_PODS),
    "a gate of readiness": ({"readinessGates": [{"conditionType": "evil.example/never"}]}, FIELDS_OF_PODS),
    "another operating system": ({"os": {"name": "linux"}}, FIELDS_OF_PODS),
    "a driver's volume in the pod": ({"volumes": [{"name": "x", "csi": {"driver": "evil.example"}}]}, _MOUNTS),
    "a driver of the node": ({"volumes": [{"name": "x", "flexVolume": {"driver": "evil.example/x"}}]}, _MOUNTS),
    "a disk of the network": (
        {"volumes": [{"name": "x", "iscsi": {"targetPortal": "a", "iqn": "iqn.2000-01.example:a", "lun": 0}}]},
        _MOUNTS,
    ),
}
IN_A_CONTAINER: dict[str, tuple[Resource, str]] = {
    "privileged": ({"securityContext": {"privileged": True}}, PRIVILEGED),
    "more privileges": ({"securityContext": {"allowPrivilegeEscalation": True}}, PRIVILEGED),
    "capabilities": ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, CAPABLE),
    "a lock on memory": ({"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}, CAPABLE),
    "a port of the node": ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "must not take ports of their node"),
    "a probe of the node": ({"livenessProbe": {"httpGet": {"port": 10250, "host": "127.0.0.1"}}}, "probes must not"),
    "a probe of the cloud": (
        {"readinessProbe": {"httpGet": {"port": 80, "host": "169.254.169.254"}}},
        "probes must not",
    ),
    "a connection of the node": ({"startupProbe": {"tcpSocket": {"port": 22, "host": "10.0.0.1"}}}, "probes must not"),
    "a request of the node": (
        {"lifecycle": {"preStop": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}},
        "probes must not",
    ),
    "a request of the node at the start": (
        {"lifecycle": {"postStart": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}},
        "probes must not",
    ),
    "a connection of the node at the start": (
        {"lifecycle": {"postStart": {"tcpSocket": {"port": 22, "host": "10.0.0.1"}}}},
        "probes must not",
    ),
    "an SELinux type of a container": ({"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}, PROFILES),
    "a container without seccomp": ({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}, PROFILES),
    "a container without AppArmor": ({"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}, PROFILES),
}
CONTAINER: Resource = {"name": "model", "image": "registry.example/evil"}
FIELDS = ("containers", "initContainers")


def pods() -> Iterator[tuple[str, Resource, str]]:
    for what, (fields, words) in _IN_A_POD.items():
        yield what, {"containers": [CONTAINER], **fields}, words
    for what, (fields, words) in IN_A_CONTAINER.items():
        yield what, {"containers": [{**CONTAINER, **fields}]}, words
    unmasked = {**CONTAINER, "securityContext": {"procMount": "Unmasked"}}
    yield "all of /proc", {"containers": [unmasked], "hostUsers": False}, PRIVILEGED
    evil = {**CONTAINER, "name": "init", **IN_A_CONTAINER["privileged"][0]}
    yield "privileged at the start", {"containers": [CONTAINER], "initContainers": [evil]}, PRIVILEGED


def put(obj: Resource, path: str, value: object) -> Resource:
    """The object with `value` at a place, in a list or map of one where there are several."""
    node: Any = obj
    *steps, last = path.split(".")
    for position, step in enumerate(steps):
        if step == "*":
            node = node.setdefault("one", {})
        elif step.endswith("[*]"):
            node = node.setdefault(step.removesuffix("[*]"), [{}])[0]
        else:
            node = node.setdefault(step, {})
        assert isinstance(node, dict), (path, position)
    node[last] = value
    return obj


def annotations_of(kind: UpstreamKind) -> list[str]:
    """Paths of annotations in objects of the kind, of which the upstream gives some to pods and to other objects."""
    beside = (path.removesuffix(".spec") for path in kind.pods if path.endswith(".spec"))
    return sorted({*(f"{path}.metadata.annotations" for path in beside), *kind.annotations})


def to_kind(kind: UpstreamKind) -> Kind:
    return Kind(kind.group, kind.versions[0], kind.kind, kind.plural)


def customer_of(account: str) -> str:
    """The namespace of the deployments that a thief with this account's token goes for."""
    return f"{CUSTOMER}-{account}"


def moved(attempt: Attempt, namespace: str) -> Attempt:
    """The attempt in that namespace, if it is in the customer's."""
    name = namespace if (attempt.kind, attempt.name) == (NAMESPACE, CUSTOMER) else attempt.name
    if attempt.namespace != CUSTOMER:
        return replace(attempt, name=name)
    body = copy_of(attempt.body) if attempt.body is not None else None
    if body is not None and "namespace" in (body.get("metadata") or {}):
        body["metadata"]["namespace"] = namespace
    return replace(attempt, namespace=namespace, body=body)


def may_read(group: str, plural: str) -> list[Resource]:
    """Rules of a Role that lets its holder read this kind."""
    return [{"apiGroups": [group], "resources": [plural], "verbs": ["get"]}]
