"""What a thief with a stolen token tries: one table, by family, for the account of each provider and of the core.

Every object that the thief writes says that it belongs to a ModelDeployment, as an honest one does: what is refused is
refused in spite of that. `words` is what the API server says: of the guard that is meant to stop it, or of RBAC.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from airunway.api import names
from airunway.api.modeldeployment import volume_claim_name
from airunway.artifacts.claims import Wish, artifact_labels, claim_name, claim_of, job_name
from airunway.artifacts.deployments import request_of
from airunway.artifacts.jobs import Step, job_of
from airunway.gateway.application import DEFAULT_PICKER_IMAGE
from airunway.gateway.caches import PICKER_KINDS
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_ARTIFACT, MODEL_TEMPLATE
from airunway.kube import JOB, PERSISTENT_VOLUME_CLAIM, Kind
from airunway.modelcache.application import DEFAULT_DOWNLOADER_IMAGE
from airunway.modelcache.caches import MARK
from airunway.owned.objects import complete, our_labels
from airunway.plugins.contract import ProviderManifest, UpstreamKind
from airunway.rbac.policy_rules import repository_of
from airunway.resource import ObjectKey, Resource, copy_of
from airunway.routing.backends import Backend, BackendKind, Picker, picker_for, pool_objects
from airunway.routing.gateways import Target
from airunway.routing.routes import MODEL_HEADER, Rules, route
from airunway.templates.contribution import contribution_of, warm_requests

__all__ = [
    "CONFIG_MAP",
    "DEPLOYMENT",
    "EMPTY",
    "HTTP_ROUTE",
    "MINE",
    "RBAC",
    "Attempt",
    "customer_of",
    "honest_of_the_cache",
    "honest_of_the_core",
    "made_for_a_template",
    "made_of_the_cache",
    "of_a_provider",
    "of_the_core",
    "to_kind",
]

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
_PRIVILEGED = "must not be privileged, gain privileges, or have capabilities added"
_MOUNTS = "must not mount the file system of their node"
_IDENTITY = "only run as a service account that a ModelDeployment of the namespace names"

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
    "somebody's NFS": ({"volumes": [{"name": "x", "nfs": {"server": "a", "path": "/"}}]}, _MOUNTS),
    "a service account": ({"serviceAccountName": "cluster-admin"}, _IDENTITY),
    "a service account by its old name": ({"serviceAccount": "cluster-admin"}, _IDENTITY),
    "the picker of another": ({"serviceAccountName": "another-epp"}, _IDENTITY),
}
_IN_A_CONTAINER: dict[str, tuple[Resource, str]] = {
    "privileged": ({"securityContext": {"privileged": True}}, _PRIVILEGED),
    "more privileges": ({"securityContext": {"allowPrivilegeEscalation": True}}, _PRIVILEGED),
    "capabilities": ({"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}, _PRIVILEGED),
    "a port of the node": ({"ports": [{"containerPort": 80, "hostPort": 80}]}, "must not take ports of their node"),
    "a probe of the node": ({"livenessProbe": {"httpGet": {"port": 10250, "host": "127.0.0.1"}}}, "probes must not"),
}
_CONTAINER: Resource = {"name": "model", "image": "registry.example/evil"}
_FIELDS = ("containers", "initContainers")


def _pods() -> Iterator[tuple[str, Resource, str]]:
    for what, (fields, words) in _IN_A_POD.items():
        yield what, {"containers": [_CONTAINER], **fields}, words
    for what, (fields, words) in _IN_A_CONTAINER.items():
        yield what, {"containers": [{**_CONTAINER, **fields}]}, words
    unmasked = {**_CONTAINER, "securityContext": {"procMount": "Unmasked"}}
    yield "all of /proc", {"containers": [unmasked], "hostUsers": False}, _PRIVILEGED
    evil = {**_CONTAINER, "name": "init", **_IN_A_CONTAINER["privileged"][0]}
    yield "privileged at the start", {"containers": [_CONTAINER], "initContainers": [evil]}, _PRIVILEGED


def _put(obj: Resource, path: str, value: object) -> Resource:
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


def to_kind(kind: UpstreamKind) -> Kind:
    return Kind(kind.group, kind.versions[0], kind.kind, kind.plural)


# ------------------------------------------------------------------------------------------------------- of a provider


def of_a_provider(manifest: ProviderManifest) -> list[Attempt]:
    """All attempts of one provider's account."""
    provider = manifest.name
    written = [kind for kind in manifest.upstream if kind.write]
    kinds = {(kind.group, kind.plural) for kind in written}
    running = [kind for kind in written if kind.pods or kind.containers]
    primary = next(kind for kind in written if kind.primary)
    other = "kaito" if provider != "kaito" else "vllm"
    found: list[Attempt] = []

    def of(kind: Kind, *, name: str = "thief", namespace: str = CUSTOMER, labels: Resource | None = None) -> Resource:
        metadata: Resource = {"name": name, "namespace": namespace, "ownerReferences": [OWNER]}
        metadata["labels"] = {names.PROVIDER: provider} if labels is None else labels
        content: Resource = {}
        if kind.kind == "Deployment":
            selector = {"a": "b"}
            template = {"metadata": {"labels": selector}, "spec": {"containers": [_CONTAINER]}}
            content = {"spec": {"selector": {"matchLabels": selector}, "template": template}}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **copy_of(content)}

    def tried(family: str, what: str, words: str, kind: Kind, body: Resource, **more: Any) -> None:
        namespace = body["metadata"].get("namespace", "")
        found.append(
            Attempt(
                family=family, what=what, verb="create", kind=kind, words=words, body=body, namespace=namespace, **more
            )
        )

    def patched(family: str, what: str, words: str, kind: Kind, patch: Resource, **more: Any) -> None:
        found.append(Attempt(family=family, what=what, verb="patch", kind=kind, words=words, body=patch, **more))

    def deleted(family: str, what: str, words: str, kind: Kind, **more: Any) -> None:
        found.append(Attempt(family=family, what=what, verb="delete", kind=kind, words=words, **more))

    # Pods, at every place.
    first = True
    for upstream in running:
        kind = to_kind(upstream)
        for path in upstream.pods:
            for what, spec, words in _pods():
                if first or what in ("privileged", "the root of the node", "a service account"):
                    where = f"{what}, in {upstream.kind} {path}"
                    tried("pods", where, words, kind, _put(of(kind), path, copy_of(spec)))
            first = False
        for path in upstream.containers:
            evil = {**_CONTAINER, **_IN_A_CONTAINER["privileged"][0]}
            tried("pods", f"privileged, in {path}", _PRIVILEGED, kind, _put(of(kind), path, evil))
        for path in upstream.unused:
            body = _put(of(kind), path, {"thief": True})
            tried("pods", f"{path} of a {upstream.kind}", f"no translation writes {path}", kind, body)

    # Where.
    kind = to_kind(primary)
    places = {
        "kube-system": "namespaces of the system",
        "kube-public": "namespaces of the system",
        OPERATOR: "the namespace of the operator",
        EMPTY: "a namespace that has no ModelDeployment of its own (the core lists the others in status.namespaces",
    }
    for where, words in places.items():
        tried("namespaces", f"{primary.kind} in {where}", words, kind, of(kind, namespace=where))
    for where in ("kube-system", OPERATOR):
        deleted("namespaces", f"what is in {where}", places[where], CONFIG_MAP, namespace=where, name="precious")

    # Whose.
    no_owner = of(kind)
    del no_owner["metadata"]["ownerReferences"]
    tried("owners", "nobody's object", "must belong to a ModelDeployment", kind, no_owner)
    another = {**OWNER, "apiVersion": "v1", "kind": "ConfigMap"}
    wrong = of(kind)
    wrong["metadata"]["ownerReferences"] = [another]
    tried("owners", "a ConfigMap's object", "must belong to a ModelDeployment", kind, wrong)
    tried("labels", "no label", f"must have its label {names.PROVIDER}", kind, of(kind, labels={}))
    tried("labels", "another's label", "must have its label", kind, of(kind, labels={names.PROVIDER: other}))
    held = of(kind)
    held["metadata"]["finalizers"] = ["evil.io/hold"]
    tried("finalizers", "an object that cannot go", "must not change the finalizers", kind, held)
    mine = {"metadata": {"ownerReferences": [OWNER], "labels": {names.PROVIDER: provider}}}
    nobodys = "must not touch an object that belongs to no ModelDeployment"
    another_s = "must not touch the objects of"
    for of_whom, name, words in (
        ("a user", "tenant", nobodys),
        (other, "others", another_s),
        (f"{other} and called as a plan is", "others-airunway-plan", another_s),
        ("the gateway part", "picker", another_s),
    ):
        patched("objects of others", f"take what is {of_whom}'s", words, kind, mine, name=name)
        deleted("objects of others", f"delete what is {of_whom}'s", words, kind, name=name)
    released = {"metadata": {"finalizers": None}}
    patched("finalizers", "off an object of ours", "must not change the finalizers", kind, released, name="held")

    # ConfigMaps.
    plan = {"data": {"a": "b"}, **mine}
    patched("ConfigMaps", "a tenant's", nobodys, CONFIG_MAP, plan, name="tenant")
    deleted("ConfigMaps", "delete a tenant's", nobodys, CONFIG_MAP, name="tenant")
    patched("ConfigMaps", "the namespace's certificates", nobodys, CONFIG_MAP, plan, name="kube-root-ca.crt")
    for name in ("airunway-installed", "airunway-controller-policy"):
        words = places[OPERATOR]
        patched("ConfigMaps", f"{name}", words, CONFIG_MAP, plan, namespace=OPERATOR, name=name)
        deleted("ConfigMaps", f"delete {name}", words, CONFIG_MAP, namespace=OPERATOR, name=name)
    inventory = {**of(CONFIG_MAP, name="airunway-forged", namespace=OPERATOR), "data": {"airunway": "[]"}}
    tried("ConfigMaps", "an inventory", places[OPERATOR], CONFIG_MAP, inventory)

    # Rights for others.
    to_the_thief = [{"kind": "ServiceAccount", "name": "default", "namespace": "evil"}]

    def binding(name: str, role: Resource, subjects: Sequence[Resource]) -> Resource:
        return {**of(ROLE_BINDING, name=name), "roleRef": {"apiGroup": RBAC, **role}, "subjects": list(subjects)}

    writes_roles = (RBAC, "roles") in kinds

    def by_guard(words: str) -> str:
        return words if writes_roles else NO_RIGHT

    own = "mine-epp"
    themselves = {"kind": "ServiceAccount", "name": own}
    same, anybody = "refer to the Role of the same name", "for the service account of the same name"
    cluster_role = {"kind": "ClusterRole", "name": f"airunway-provider-{provider}-{OPERATOR}"}
    called = "are called as those of this provider's plans are"
    for what, words, name, role, subjects in (
        ("its own ClusterRole to anybody", called, "zz", cluster_role, to_the_thief),
        ("its own ClusterRole to its picker", same, own, cluster_role, [themselves]),
        ("a tenant's Role to its picker", same, own, {"kind": "Role", "name": "tenant"}, [themselves]),
        ("its picker's Role to anybody", anybody, own, {"kind": "Role", "name": own}, to_the_thief),
        ("its picker's Role to a user", anybody, own, {"kind": "Role", "name": own}, [{"kind": "User", "name": "eve"}]),
        ("a Role of the tenant's name", called, "tenant", {"kind": "Role", "name": "tenant"}, [themselves]),
    ):
        for subject in subjects:
            if subject["kind"] == "User":
                subject["apiGroup"] = RBAC
        tried("RBAC", what, by_guard(words), ROLE_BINDING, binding(name, role, subjects))
    for what, words, name, rules in (
        ("a Role that is not its picker's", "grant the rules of its manifest", own, _rules("apps", "deployments")),
        ("a Role for Secrets", "", own, _rules("", "secrets")),
        ("a Role for anybody", called, "zz", []),
    ):
        # What it does not have itself RBAC refuses, before the guard is asked.
        said = by_guard(words or "attempting to grant RBAC permissions not currently held")
        tried("RBAC", what, said, ROLE, {**of(ROLE, name=name), "rules": rules})
    cluster_wide = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "zz"}}
    body = {**cluster_wide, "roleRef": {"apiGroup": RBAC, **cluster_role}, "subjects": to_the_thief}
    tried("RBAC", "a ClusterRoleBinding", NO_RIGHT, CLUSTER_ROLE_BINDING, body)
    patched("RBAC", "its own ClusterRole", NO_RIGHT, CLUSTER_ROLE, {"rules": []}, name="any", namespace="")
    cloud = of(SERVICE_ACCOUNT, name=own)
    cloud["metadata"]["annotations"] = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/admin"}
    tried("RBAC", "an identity of the cloud", by_guard("clouds give identities"), SERVICE_ACCOUNT, cloud)
    account = of(SERVICE_ACCOUNT, name="cluster-admin")
    tried("RBAC", "an account of its choice", by_guard(called), SERVICE_ACCOUNT, account)
    token = {**of(SECRET), "type": "kubernetes.io/service-account-token"}
    token["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
    tried("Secrets", "a token of another account", NO_RIGHT, SECRET, token)
    deleted("Secrets", "delete one", NO_RIGHT, SECRET, name="precious")
    tried("pods", "a pod itself", NO_RIGHT, POD, {**of(POD), "spec": {"containers": [_CONTAINER]}})

    # Ways from outside.
    if ("", "services") in kinds:
        for what, spec, words in (
            ("a load balancer", {"type": "LoadBalancer"}, "of type ClusterIP"),
            ("ports of nodes", {"type": "NodePort"}, "of type ClusterIP"),
            ("a name elsewhere", {"type": "ExternalName", "externalName": "evil.example"}, "of type ClusterIP"),
            ("addresses of others", {"externalIPs": ["1.2.3.4"]}, "no addresses from outside"),
        ):
            ports = {} if spec.get("type") == "ExternalName" else {"ports": [{"port": 80}]}
            tried("services", what, words, SERVICE, {**of(SERVICE), "spec": {**spec, **ports}})
    if ("networking.k8s.io", "networkpolicies") in kinds:
        kind = Kind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
        tried("services", "all pods open", "pods of ModelDeployments", kind, {**of(kind), "spec": {"podSelector": {}}})

    told = {"status": {"namespaces": {EMPTY: "cluster-admin"}}}
    words = "must not change its namespaces and their service accounts"
    patched(
        "guards", "where it has deployments", words, CONFIG, told, namespace="", name=provider, subresource="status"
    )
    deleted("guards", "its own registration", NO_RIGHT, CONFIG, namespace="", name=provider)
    found += _of_deployments(provider, other)
    found += _of_anybody(other, kinds)
    return [_moved(attempt, customer_of(provider)) for attempt in found]


def customer_of(account: str) -> str:
    """The namespace of the deployments that a thief with this account's token goes for."""
    return f"{CUSTOMER}-{account}"


def _moved(attempt: Attempt, namespace: str) -> Attempt:
    """The attempt in that namespace, if it is in the customer's."""
    name = namespace if (attempt.kind, attempt.name) == (NAMESPACE, CUSTOMER) else attempt.name
    if attempt.namespace != CUSTOMER:
        return replace(attempt, name=name)
    body = copy_of(attempt.body) if attempt.body is not None else None
    if body is not None and "namespace" in (body.get("metadata") or {}):
        body["metadata"]["namespace"] = namespace
    return replace(attempt, namespace=namespace, body=body)


def _rules(group: str, plural: str) -> list[Resource]:
    return [{"apiGroups": [group], "resources": [plural], "verbs": ["get"]}]


def _of_deployments(provider: str, other: str) -> Iterator[Attempt]:
    kind = MODEL_DEPLOYMENT
    users = "a controller must not change the"
    for what, patch, words in (
        ("its spec", {"spec": {"suspend": True}}, f"{users} spec"),
        ("its image", {"spec": {"image": "registry.example/evil"}}, f"{users} spec"),
        ("its template", {"spec": {"model": None, "templateRef": {"name": "evil"}}}, f"{users} spec"),
        ("its labels", {"metadata": {"labels": {"team": "mine"}}}, f"{users} labels"),
        ("its annotations", {"metadata": {"annotations": {names.PAUSED: "true"}}}, f"{users} annotations"),
        ("its owners", {"metadata": {"ownerReferences": [{**OWNER, "kind": "Gone"}]}}, f"{users} ownerReferences"),
        (
            "another's finalizer",
            {"metadata": {"finalizers": [names.provider_finalizer(other)]}},
            "finalizers of others",
        ),
    ):
        yield Attempt(family="deployments", what=what, verb="patch", kind=kind, words=words, name=MINE, body=patch)
    held = {"metadata": {"finalizers": [names.provider_finalizer(provider)]}}
    words = "must not hold a deployment that was not given to it"
    yield Attempt(
        family="deployments", what="another's", verb="patch", kind=kind, words=words, name="foreign", body=held
    )
    yield Attempt(family="deployments", what="delete", verb="delete", kind=kind, words=NO_RIGHT, name=MINE)
    body = {
        "apiVersion": names.API_VERSION,
        "kind": kind.kind,
        "metadata": {"name": "thief", "namespace": CUSTOMER},
        "spec": {"model": {"id": "a/b"}},
    }
    yield Attempt(family="deployments", what="one of its own", verb="create", kind=kind, words=NO_RIGHT, body=body)
    core_s: tuple[tuple[str, Resource], ...] = (
        ("the engine", {"engine": {"type": "sglang"}}),
        ("the provider", {"provider": {"name": other}}),
        ("the selection", {"selection": {"evaluatedAt": "2026-01-01T00:00:00Z"}}),
        ("what the template gives", {"effectiveTemplate": {"spec": {"image": "registry.example/evil"}}}),
    )
    for what, status in core_s:
        yield Attempt(
            family="status",
            what=what,
            verb="patch",
            kind=kind,
            words=f"must not change {what}",
            name=MINE,
            body={"status": status},
            subresource="status",
        )
    yield Attempt(
        family="status",
        what="another's",
        verb="patch",
        kind=kind,
        words="the status of a deployment that was not given to it",
        name="foreign",
        body={"status": {"phase": "Failed"}},
        subresource="status",
    )


def _of_anybody(other: str, kinds: Collection[tuple[str, str]] = ()) -> Iterator[Attempt]:
    """What no account of ours may do; of `kinds`, which this one writes, a guard has to say so."""
    registration = {"apiVersion": names.API_VERSION, "kind": CONFIG.kind, "metadata": {"name": other}}
    no: dict[str, tuple[Literal["create", "patch", "delete"], Kind, str, str, Resource | None]] = {
        "registration of another": ("patch", CONFIG, "", other, registration),
        "registration of another, deleted": ("delete", CONFIG, "", other, None),
        "a guard": ("patch", POLICY, "", "any", {"spec": {"failurePolicy": "Ignore"}}),
        "a guard's binding": ("delete", BINDING, "", "any", None),
        "a webhook": ("patch", WEBHOOK, "", "any", {"webhooks": []}),
        "a CRD": ("patch", DEFINITION, "", "modeldeployments.airunway.ai", {"spec": {}}),
        "a namespace's labels": (
            "patch",
            NAMESPACE,
            "",
            CUSTOMER,
            {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}},
        ),
        "a node": ("patch", NODE, "", "control-plane", {"spec": {"unschedulable": True}}),
        "the operator's Deployment": ("patch", DEPLOYMENT, OPERATOR, "airunway-controller", {"spec": {"replicas": 0}}),
        "an account of the operator": ("delete", SERVICE_ACCOUNT, OPERATOR, "airunway-controller", None),
        "a Secret of the operator": ("delete", SECRET, OPERATOR, "airunway-webhook-tls", None),
        "a template": ("patch", MODEL_TEMPLATE, CUSTOMER, "fast", {"spec": {"defaults": {"image": "evil"}}}),
        "a template, deleted": ("delete", MODEL_TEMPLATE, CUSTOMER, "fast", None),
        "a template of the cluster": ("patch", CLUSTER_MODEL_TEMPLATE, "", "fast", {"spec": {"optimized": True}}),
    }
    for kind in (MODEL_TEMPLATE, CLUSTER_MODEL_TEMPLATE):
        yield Attempt(
            family="others",
            what=f"the status of a {kind.kind}",
            verb="patch",
            kind=kind,
            words=NO_RIGHT,
            namespace=CUSTOMER if kind.namespaced else "",
            name="fast",
            body={"status": {"phase": "Ready"}},
            subresource="status",
        )
    for what, (verb, kind, namespace, name, body) in no.items():
        words = "the namespace of the operator" if (kind.group, kind.plural) in kinds else NO_RIGHT
        yield Attempt(
            family="others", what=what, verb=verb, kind=kind, words=words, namespace=namespace, name=name, body=body
        )
    event = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": "thief", "namespace": CUSTOMER},
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": CUSTOMER, "name": "p"},
        "type": "Warning",
        "reason": "Failed",
        "action": "Pull",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "kubelet",
        "reportingInstance": "x",
    }
    yield Attempt(
        family="events",
        what="as the kubelet",
        verb="create",
        kind=EVENT,
        words="events of another controller",
        body=event,
    )
    told = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    yield Attempt(
        family="events",
        what="change the kubelet's",
        verb="patch",
        kind=EVENT,
        words="events of another controller",
        name="kubelets",
        body=told,
    )
    lease = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "spec": {"holderIdentity": "thief"}}
    for what, where, words in (
        ("of a provider to come", OPERATOR, "must not create the Lease of another"),
        ("of a node", "kube-node-lease", NO_RIGHT),
    ):
        body = {**lease, "metadata": {"name": "airunway-provider-new", "namespace": where}}
        yield Attempt(family="leases", what=what, verb="create", kind=LEASE, words=words, namespace=where, body=body)
    yield Attempt(
        family="leases",
        what="of another",
        verb="patch",
        kind=LEASE,
        words=NO_RIGHT,
        namespace=OPERATOR,
        name="others",
        body={"spec": {"holderIdentity": "thief"}},
    )


# --------------------------------------------------------------------------------------------------------- of the core


def _of_routes() -> Iterator[Attempt]:
    """What a thief tries with the rights of the gateway part."""
    own = f"{MINE}-epp"
    label = {names.PART: "gateway"}

    def of(kind: Kind, **metadata: Any) -> Resource:
        name = MINE if kind in (HTTP_ROUTE, INFERENCE_POOL) else own
        meta = {"name": name, "namespace": CUSTOMER, "ownerReferences": [OWNER], "labels": label, **metadata}
        return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **copy_of(_HONEST.get(kind, {}))}

    def pod(spec: Resource) -> Resource:
        body = of(DEPLOYMENT)
        body["spec"]["template"]["spec"] |= spec
        return body

    def tried(family: str, what: str, words: str, kind: Kind, body: Resource) -> Attempt:
        namespace, name = (body["metadata"].get(field, "") for field in ("namespace", "name"))
        return Attempt(
            family=family, what=what, verb="create", kind=kind, words=words, body=body, namespace=namespace, name=name
        )

    identity = "runs as the service account of its own name"
    for what, spec, words in _pods():
        if "serviceAccount" in spec:
            continue  # the API server gives it the value of serviceAccountName
        yield tried("pods", what, identity if words == _IDENTITY else words, DEPLOYMENT, pod(copy_of(spec)))
    secret = "gets no Secrets"
    volumes = of(DEPLOYMENT)["spec"]["template"]["spec"]["volumes"]
    mounted = {"volumes": [*volumes, {"name": "x", "secret": {"secretName": "precious"}}]}
    yield tried("Secrets", "mounted", secret, DEPLOYMENT, pod(mounted))
    projected = {"volumes": [*volumes, {"name": "x", "projected": {"sources": [{"secret": {"name": "precious"}}]}}]}
    yield tried("Secrets", "projected", secret, DEPLOYMENT, pod(projected))
    from_key = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "precious", "key": "x"}}}
    for what, field in (
        ("a variable", {"env": [from_key]}),
        ("all", {"envFrom": [{"secretRef": {"name": "precious"}}]}),
    ):
        yield tried("Secrets", what, secret, DEPLOYMENT, pod({"containers": [{**_CONTAINER, **field}]}))

    theirs = of(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]
    repository = repository_of(theirs["image"])
    own_program, one = "runs the program of its image", "is one pod without a priority class"
    for what, fields, words in (
        ("an image of its choice", {"image": "registry.example/evil"}, "an image of the repository of"),
        ("an image called alike", {"image": f"{repository}-evil:v1"}, "an image of the repository of"),
        ("an image below it", {"image": f"{repository}:5000/evil"}, "an image of the repository of"),
        ("a command", {"command": ["sh", "-c", "evil"]}, own_program),
        ("arguments that are no flags", {"args": ["sh"]}, own_program),
        ("a hook", {"lifecycle": {"preStop": {"exec": {"command": ["sh"]}}}}, own_program),
        ("a command as a probe", {"livenessProbe": {"exec": {"command": ["sh"]}}}, own_program),
    ):
        yield tried("pickers", what, words, DEPLOYMENT, pod({"containers": [{**theirs, **fields}]}))
        others = [theirs, {**theirs, "name": "another", "ports": [], **fields}]
        before = [{**others[1], "restartPolicy": "Always"}]  # only such ones have probes and hooks
        yield tried("pickers", f"{what}, beside it", words, DEPLOYMENT, pod({"containers": others}))
        yield tried("pickers", f"{what}, before it", words, DEPLOYMENT, pod({"initContainers": before}))
    yield tried("pickers", "a priority", one, DEPLOYMENT, pod({"priorityClassName": "high"}))
    many = of(DEPLOYMENT)
    many["spec"]["replicas"] = 50
    yield tried("pickers", "many pods", one, DEPLOYMENT, many)

    for where, words in (("kube-system", "namespaces of the system"), (OPERATOR, "the namespace of the operator")):
        for kind in (DEPLOYMENT, SERVICE, CONFIG_MAP, SERVICE_ACCOUNT, ROLE_BINDING, HTTP_ROUTE):
            yield tried("namespaces", f"a {kind.kind} in {where}", words, kind, of(kind, namespace=where))
    for kind in _HONEST:
        yield tried(
            "owners", f"a {kind.kind} of nobody", "must belong to a ModelDeployment", kind, of(kind, ownerReferences=[])
        )
        yield tried("labels", f"a {kind.kind} without the label", "must have the label", kind, of(kind, labels={}))
        called = "are called as the ModelDeployment or as its endpoint picker"
        yield tried("names", f"a {kind.kind} of its choice", called, kind, of(kind, name="thief"))
    another = [{**OWNER, "apiVersion": "v1", "kind": "ConfigMap"}]
    words = "must belong to a ModelDeployment"
    yield tried("owners", "a ConfigMap's", words, SERVICE, of(SERVICE, ownerReferences=another))
    held = of(SERVICE, finalizers=["evil.io/hold"])
    yield tried("finalizers", "an object that cannot go", "must not change the finalizers", SERVICE, held)

    themselves = {"kind": "ServiceAccount", "name": own}
    picker = {"apiGroup": RBAC, "kind": "ClusterRole", "name": names.ENDPOINT_PICKER_ROLE}
    eve = {"kind": "User", "name": "eve", "apiGroup": RBAC}
    elsewhere = {**themselves, "namespace": "evil"}
    escalation = "attempting to grant RBAC permissions not currently held"
    for what, words, role, subjects in (
        ("cluster-admin", escalation, {**picker, "name": "cluster-admin"}, [themselves]),
        ("a role of nothing", "to no other role", {**picker, "name": "harmless"}, [themselves]),
        ("a Role of the tenant", "to no other role", {**picker, "kind": "Role", "name": "harmless"}, [themselves]),
        ("to a user", "for the service account of the same name", picker, [eve]),
        ("to another namespace", "for the service account of the same name", picker, [elsewhere]),
    ):
        yield tried("RBAC", what, words, ROLE_BINDING, {**of(ROLE_BINDING), "roleRef": role, "subjects": subjects})
    cloud = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/admin"}
    body = of(SERVICE_ACCOUNT, annotations=cloud)
    yield tried("RBAC", "an identity of the cloud", "clouds give identities", SERVICE_ACCOUNT, body)
    body = of(SERVICE_ACCOUNT, labels={**label, "azure.workload.identity/use": "true"})
    yield tried("RBAC", "an identity by label", "clouds give identities", SERVICE_ACCOUNT, body)
    tokens = {**of(SERVICE_ACCOUNT), "secrets": [{"name": "precious"}]}
    yield tried("RBAC", "Secrets of an account", "must not give a service account Secrets", SERVICE_ACCOUNT, tokens)

    for what, spec, words in (
        ("a load balancer", {"type": "LoadBalancer"}, "of type ClusterIP"),
        ("ports of nodes", {"type": "NodePort"}, "of type ClusterIP"),
        ("addresses of others", {"externalIPs": ["1.2.3.4"]}, "no addresses from outside"),
    ):
        body = of(SERVICE)
        body["spec"] |= spec
        yield tried("services", what, words, SERVICE, body)
    parent = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"}
    for what, spec, words in (
        ("to another namespace", {"rules": [{"backendRefs": [{"name": "x", "namespace": "evil"}]}]}, "of their own"),
        ("a mirror", {"rules": [{"filters": [{"type": "RequestMirror"}]}]}, "without redirects or mirrors"),
        ("a redirect", {"rules": [{"filters": [{"type": "RequestRedirect"}]}]}, "without redirects or mirrors"),
        ("a hostname", {"hostnames": ["bank.example"]}, "take no hostnames"),
        ("of the mesh", {"parentRefs": [{"group": "", "kind": "Service", "name": "x"}]}, "attached to Gateways only"),
    ):
        yield tried("routes", what, words, HTTP_ROUTE, {**of(HTTP_ROUTE), "spec": {"parentRefs": [parent], **spec}})
    yield from _routes(of(HTTP_ROUTE), tried)
    body = of(INFERENCE_POOL)
    body["spec"]["endpointPickerRef"]["name"] = "evil"
    yield tried("routes", "a pool with a picker of its choice", "endpoint picker of their", INFERENCE_POOL, body)
    rule = {**of(DESTINATION_RULE), "spec": {"host": "*.local"}}
    yield tried("routes", "TLS of all", "for the Service of the same name", DESTINATION_RULE, rule)

    nobodys = "must not touch an object that it has not made for a ModelDeployment"
    mine = {"metadata": {"ownerReferences": [OWNER], "labels": label}, "data": {"a": "b"}}
    for name, where, words in (
        ("tenant", CUSTOMER, nobodys),
        ("airunway-installed", OPERATOR, "the namespace of the operator"),
        ("airunway-controller-policy", OPERATOR, "the namespace of the operator"),
    ):
        for verb in ("patch", "delete"):
            yield Attempt(
                family="ConfigMaps",
                what=f"{verb} {name}",
                verb="patch" if verb == "patch" else "delete",
                kind=CONFIG_MAP,
                words=words,
                namespace=where,
                name=name,
                body=mine if verb == "patch" else None,
            )
    yield Attempt(
        family="objects of others", what="a user's route", verb="delete", kind=HTTP_ROUTE, words=nobodys, name="users"
    )
    for kind, what in ((GATEWAY, "a Gateway"), (REFERENCE_GRANT, "a grant")):
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x", "namespace": CUSTOMER}}
        yield tried("routes", what, NO_RIGHT, kind, {**body, "spec": {}})


def _routes(honest: Resource, tried: Callable[[str, str, str, Kind, Resource], Attempt]) -> Iterator[Attempt]:
    """Routes that take more than what is the deployment's."""
    by_path, by_name = honest["spec"]["rules"]
    everything, rewrites = "none takes all requests of a Gateway", "rewrite the prefix of a path to / and nothing else"
    unwritten = "lead to Services and InferencePools"
    all_paths, values = {"path": {"type": "PathPrefix", "value": "/"}}, {"name": MODEL_HEADER, "value": ".*"}
    rewrite = by_path["filters"][0]["urlRewrite"]

    def matching(*matches: Resource) -> list[Resource]:
        return [{**by_path, "matches": list(matches)}]

    def rewriting(to: Resource) -> list[Resource]:
        return [{**by_path, "filters": [{"type": "URLRewrite", "urlRewrite": to}]}]

    for what, rules, words in (
        ("without rules", [], everything),
        ("all paths", matching(all_paths), everything),
        ("without a match", [{"backendRefs": by_path["backendRefs"]}], everything),
        ("a match of nothing", matching({}), everything),
        ("all paths, too", [by_path, {**by_name, "matches": [*by_name["matches"], all_paths]}], everything),
        ("a pattern of paths", matching({"path": {"type": "RegularExpression", "value": "/.*"}}), everything),
        ("a pattern of names", matching({"headers": [{**values, "type": "RegularExpression"}]}), everything),
        ("another header", matching({"headers": [{"name": "Accept", "value": "*/*"}]}), everything),
        ("another host", rewriting({**rewrite, "hostname": "x.y"}), rewrites),
        ("another path", rewriting({"path": {"type": "ReplaceFullPath", "replaceFullPath": "/admin"}}), rewrites),
        (
            "another prefix",
            rewriting({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/admin"}}),
            rewrites,
        ),
        ("retries", [{**by_path, "retry": {"attempts": 9}}], unwritten),
        (
            "another backend",
            [{**by_path, "backendRefs": [{"group": "x.io", "kind": "Bucket", "name": "b"}]}],
            unwritten,
        ),
    ):
        yield tried("routes", what, words, HTTP_ROUTE, {**honest, "spec": {**honest["spec"], "rules": rules}})


_ROUTED = {
    ("apps", "deployments"),
    ("", "services"),
    ("", "serviceaccounts"),
    ("", "configmaps"),
    (RBAC, "rolebindings"),
}
"""Built-in kinds that the core's account may write, so that a guard refuses it and not RBAC."""

_SELECTOR = {names.MODEL_DEPLOYMENT: MINE}


def _written_by_the_core() -> dict[Kind, Resource]:
    """What the gateway part writes for a deployment, without its metadata."""
    backend = Backend(kind=BackendKind.POOL, name=MINE, port=8000, selector=_SELECTOR, service=MINE, service_port=80)
    picker = picker_for(DEFAULT_PICKER_IMAGE)
    assert isinstance(picker, Picker)
    made = pool_objects(
        MINE, backend=backend, chosen=picker, pull_secrets=["r"], destination_rule=DESTINATION_RULE.api_version
    )
    target = Target(gateway=ObjectKey("infra", "g"), section="http")
    made.append(route(MINE, target=target, rules=Rules(path="/a/b", model_name="m"), backend=backend, timeout="5m"))
    by_kind = {kind.kind: kind for kind in (*PICKER_KINDS, HTTP_ROUTE, INFERENCE_POOL, DESTINATION_RULE)}
    head = ("apiVersion", "kind", "metadata")
    return {by_kind[obj["kind"]]: {key: value for key, value in obj.items() if key not in head} for obj in made}


_HONEST = _written_by_the_core()


def honest_of_the_core() -> list[Attempt]:
    """What the gateway part writes, which its guard allows."""
    found = []
    for kind in _HONEST:
        name = MINE if kind in (HTTP_ROUTE, INFERENCE_POOL) else f"{MINE}-epp"
        labels = {names.PART: "gateway", "org.example/team": "propagated"}
        meta = {"name": name, "namespace": customer_of("core"), "ownerReferences": [OWNER], "labels": labels}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **copy_of(_HONEST.get(kind, {}))}
        found.append(
            Attempt(
                family="honest",
                what=kind.kind,
                verb="create",
                kind=kind,
                words="(allowed)",
                body=body,
                namespace=customer_of("core"),
            )
        )
    return found


def of_the_core() -> list[Attempt]:
    """All attempts of the core's account."""
    found = list(_of_anybody("kaito", _ROUTED))
    users = "a controller must not change the"
    taken = "the core may only take off finalizers of providers"
    for what, patch, words in (
        ("its spec", {"spec": {"suspend": True}}, f"{users} spec"),
        ("its account", {"spec": {"serviceAccountName": "admin"}}, f"{users} spec"),
        ("its template", {"spec": {"model": None, "templateRef": {"name": "evil"}}}, f"{users} spec"),
        ("its labels", {"metadata": {"labels": {"team": "mine"}}}, f"{users} labels"),
        ("its annotations", {"metadata": {"annotations": {names.PAUSED: "true"}}}, f"{users} annotations"),
        ("its owners", {"metadata": {"ownerReferences": [{**OWNER, "kind": "Gone"}]}}, f"{users} ownerReferences"),
        ("a finalizer more", {"metadata": {"finalizers": ["user.example/hold", "evil.io/hold"]}}, taken),
        ("a provider's finalizer more", {"metadata": {"finalizers": [names.provider_finalizer("vllm")]}}, taken),
        ("a user's finalizer", {"metadata": {"finalizers": None}}, taken),
    ):
        found.append(
            Attempt(
                family="deployments",
                what=what,
                verb="patch",
                kind=MODEL_DEPLOYMENT,
                words=words,
                name="held",
                body=patch,
            )
        )
    for verb in ("create", "delete"):
        body = {
            "apiVersion": names.API_VERSION,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {"name": "thief", "namespace": CUSTOMER},
            "spec": {"model": {"id": "a/b"}},
        }
        found.append(
            Attempt(
                family="deployments",
                what=verb,
                verb=verb,
                kind=MODEL_DEPLOYMENT,
                words=NO_RIGHT,
                name=MINE if verb == "delete" else "thief",
                body=body if verb == "create" else None,
            )
        )
    for what, status, words in (
        ("the endpoint", {"endpoint": {"url": "http://evil.example"}}, "must not change the endpoint"),
        ("the pods", {"selector": "app=evil"}, "must not change the selector"),
        ("the provider's object", {"provider": {"resourceName": "evil"}}, "must not change the provider's object"),
        ("the config in use", {"provider": {"runtimeConfigHash": "0"}}, "must not change the config in use"),
        ("the template in use", {"provider": {"templateHash": "0"}}, "must not change the template in use"),
    ):
        found.append(
            Attempt(
                family="status",
                what=what,
                verb="patch",
                kind=MODEL_DEPLOYMENT,
                words=words,
                name=MINE,
                body={"status": status},
                subresource="status",
            )
        )
    objects: dict[Kind, Resource] = {
        POD: {"spec": {"containers": [_CONTAINER], "hostNetwork": True}},
        SECRET: {},
        ROLE: {"rules": _rules("", "secrets")},
    }
    for kind, content in objects.items():
        for where in (CUSTOMER, OPERATOR):
            body = {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"name": "thief", "namespace": where, "ownerReferences": [OWNER]},
                **copy_of(content),
            }
            what = f"a {kind.kind} in {where}"
            found.append(
                Attempt(
                    family="objects", what=what, verb="create", kind=kind, words=NO_RIGHT, namespace=where, body=body
                )
            )
    for kind in (RUNTIME_CONFIG, CLUSTER_RUNTIME_CONFIG):
        where = CUSTOMER if kind.namespaced else ""
        meta = {"name": "default", **({"namespace": where} if where else {})}
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": {}}
        found.append(
            Attempt(
                family="configs", what=kind.kind, verb="create", kind=kind, words=NO_RIGHT, namespace=where, body=body
            )
        )
    found += [*_of_routes(), *_of_downloads(), *_of_claims(), *_of_artifacts()]
    return [_moved(attempt, customer_of("core")) for attempt in found]


# ------------------------------------------------------------------------------------------------- of the model cache

_WEIGHTS = "llama-4f1c09ab2e"
_ARTIFACTS = (_WEIGHTS, "acme.model--v1", "x" * 44 + ".y-12345")
"""Names of artifacts: one that the part gives, one with what its claim cannot have, one that is cut."""


def _artifact(name: str) -> Resource:
    metadata = {"name": name, "namespace": CUSTOMER, "uid": OWNER["uid"]}
    source = {"uri": "hf://acme/tiny", "include": ["*.safetensors"]}
    spec = {"source": source, "secrets": {"huggingFaceToken": "token"}, "serviceAccountName": "buckets"}
    return {"apiVersion": names.API_VERSION, "kind": MODEL_ARTIFACT.kind, "metadata": metadata, "spec": spec}


def _claim_of_artifact(name: str = _WEIGHTS) -> Resource:
    called = claim_name(name, uid=OWNER["uid"], attempt=0)
    made = claim_of(called, Wish(size="1Gi", class_name=None, access_mode="ReadWriteMany"))
    return complete(made, owner=_artifact(name), labels=artifact_labels(name))


def _job_of_artifact(name: str = _WEIGHTS, step: Step = Step.DOWNLOAD) -> Resource:
    owner = _artifact(name)
    made = job_of(
        owner,
        step,
        name=job_name(name, step, uid=OWNER["uid"], attempt=1),
        image=DEFAULT_DOWNLOADER_IMAGE,
        revision="main",
        claim=claim_name(name, uid=OWNER["uid"], attempt=0),
        config=None,
    )
    return complete(made, owner=owner, labels={**artifact_labels(name), **made["metadata"]["labels"]})


def _claim_of_volume(deployment: str = MINE) -> Resource:
    owner: Resource = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment"}
    owner["metadata"] = {"name": deployment, "namespace": CUSTOMER, "uid": OWNER["uid"]}
    wish = Wish(size="1Gi", class_name="fast", access_mode="ReadWriteOnce")
    made = claim_of(volume_claim_name(deployment, "scratch-space"), wish)
    return complete(made, owner=owner, labels=our_labels(owner, MARK))


def made_of_the_cache(mode: str = "Shared") -> Resource:
    """A ModelArtifact as the part makes it for a deployment."""
    model = {"id": "acme/tiny", "cache": {"mode": mode, "revision": "v1"}}
    deployment: Resource = {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": MINE, "namespace": CUSTOMER, "uid": OWNER["uid"], "labels": {}},
        "spec": {"model": model, "secrets": {"huggingFaceToken": "t"}, "nodeSelector": {"gpu": "a"}},
    }
    request = request_of(deployment, None)
    assert request is not None
    assert request.artifact is not None
    return request.artifact


def made_for_a_template() -> list[Resource]:
    """ModelArtifacts as the part makes them for a ModelTemplate: of the hub, and of a bucket."""
    template: Resource = {
        "kind": MODEL_TEMPLATE.kind,
        "metadata": {"name": "fast", "namespace": CUSTOMER, "labels": {}},
        "spec": {
            "modelName": "acme/warm",
            "caching": {"enabled": True},
            "modelSources": [{"uri": "hf://acme/warm"}, {"uri": "s3://bucket/warm", "modelId": "acme/adapter"}],
        },
    }
    requests = warm_requests(template, contribution_of(template), None)
    found = [copy_of(each.artifact) for each in requests if each.artifact is not None]
    assert len(found) == 2
    for body in found:
        body["metadata"]["labels"][names.TEMPLATE] = "fast"
    return found


_CACHED = {kind.kind: kind for kind in (JOB, PERSISTENT_VOLUME_CLAIM, MODEL_ARTIFACT)}


def _created(family: str, what: str, words: str, body: Resource) -> Attempt:
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    kind = _CACHED[body["kind"]]
    return Attempt(
        family=family, what=what, verb="create", kind=kind, words=words, namespace=namespace, name=name, body=body
    )


def honest_of_the_cache() -> list[Attempt]:
    """What the model cache part writes, which its guard allows."""
    bodies = [_job_of_artifact(name, step) for name in _ARTIFACTS for step in Step]
    bodies += [_claim_of_artifact(name) for name in _ARTIFACTS]
    bodies += [_claim_of_volume(name) for name in (MINE, "y" * 52)]
    bodies += [made_of_the_cache(mode) for mode in ("Shared", "Dedicated")]
    bodies += made_for_a_template()
    found = [_created("honest", f"{body['kind']} {body['metadata']['name']}", "(allowed)", body) for body in bodies]
    return [_moved(attempt, customer_of("core")) for attempt in found]


def _changed(body: Resource, path: str, value: object) -> Resource:
    """A copy with another value at a path of fields and positions."""
    made = copy_of(body)
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    place: Any = made
    for step in steps:
        place = place[step]
    place[last] = value
    return made


def _of_downloads() -> Iterator[Attempt]:
    """What a thief tries with the right to make Jobs."""
    honest = _job_of_artifact()
    spec, pod = honest["spec"], honest["spec"]["template"]["spec"]
    container = pod["containers"][0]
    unruled = copy_of(honest)
    del unruled["spec"]["podFailurePolicy"]  # names the container
    for what, fields, words in _pods():
        if not any(field.startswith("serviceAccount") for field in fields):
            body = _changed(unruled, "spec/template/spec", {**pod, **copy_of(fields)})
            yield _created("pods of Jobs", what, words, body)
    mounts, program = "mounts the claim of its ModelArtifact and empty folders", "arguments of the downloader"
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    for what, source in (
        ("a Secret", {"secret": {"secretName": "precious"}}),
        ("a Secret, projected", {"projected": {"sources": [{"secret": {"name": "precious"}}]}}),
        ("a ConfigMap", {"configMap": {"name": "tenant"}}),
        ("a volume of its own", {"ephemeral": {"volumeClaimTemplate": template}}),
        ("a tenant's claim", {"persistentVolumeClaim": {"claimName": "training-data"}}),
        ("another artifact's claim", {"persistentVolumeClaim": {"claimName": "other-4f1c09ab2e-cache-12345678"}}),
    ):
        body = _changed(honest, "spec/template/spec/volumes", [*pod["volumes"], {"name": "x", **source}])
        yield _created("mounts of Jobs", what, mounts, body)
    image, hardened = "an image of the repository of --downloader-image", "no capabilities and a read-only file system"
    context = container["securityContext"]
    exec_ = {"exec": {"command": ["sh"]}}
    repository = repository_of(DEFAULT_DOWNLOADER_IMAGE)
    for what, fields, words in (
        ("an image of its choice", {"image": "registry.example/evil"}, image),
        ("an image called alike", {"image": f"{repository}-evil:v1"}, image),
        ("an image below it", {"image": f"{repository}:5000/evil"}, image),
        ("a command", {"command": ["sh", "-c", "evil"]}, program),
        ("another program", {"args": ["sh", "hf://a/b"]}, program),
        ("no source", {"args": ["download"]}, program),
        ("a source that is no store", {"args": ["download", "file:///etc"]}, program),
        ("another folder", {"args": ["download", "hf://a/b", "--into", "/etc"]}, program),
        ("another flag", {"args": [*container["args"], "--evil=1"]}, program),
        ("a hook", {"lifecycle": {"preStop": exec_}}, program),
        ("a command as a probe", {"livenessProbe": exec_}, program),
        ("all of a Secret", {"envFrom": [{"secretRef": {"name": "precious"}}]}, program),
        ("a mount of its choice", {"volumeMounts": [{"name": "scratch", "mountPath": "/etc"}]}, "mounts and the port"),
        ("a port", {"ports": [{"containerPort": 22}]}, "mounts and the port"),
        (
            "a file system that it can write",
            {"securityContext": {**context, "readOnlyRootFilesystem": False}},
            hardened,
        ),
        ("capabilities", {"securityContext": {**context, "capabilities": {"drop": ["KILL"]}}}, hardened),
        ("root", {"securityContext": {**context, "runAsUser": 0}}, hardened),
        ("any profile", {"securityContext": {**context, "seccompProfile": {"type": "Unconfined"}}}, hardened),
    ):
        body = _changed(honest, "spec/template/spec/containers", [{**container, **fields}])
        yield _created("program of Jobs", what, words, body)
    other = {"name": "evil", "image": DEFAULT_DOWNLOADER_IMAGE, "securityContext": context}
    one = "has one container"
    yield _created(
        "program of Jobs", "beside it", one, _changed(honest, "spec/template/spec/containers", [container, other])
    )
    yield _created("program of Jobs", "before it", one, _changed(honest, "spec/template/spec/initContainers", [other]))
    secure, users = pod["securityContext"], "run as user"
    single, names_ = "one pod at a time, without a priority class", "resolve names as all pods do"
    for what, path, value, words in (
        ("a token", "automountServiceAccountToken", True, "hold no token of the API"),
        ("root", "securityContext", {**secure, "runAsUser": 0}, users),
        ("any user", "securityContext", {**secure, "runAsNonRoot": False}, users),
        ("any profile", "securityContext", {**secure, "seccompProfile": {"type": "Unconfined"}}, users),
        ("a priority", "priorityClassName", "high", single),
        ("a runtime", "runtimeClassName", "evil", single),
        ("names of hosts", "hostAliases", [{"ip": "1.2.3.4", "hostnames": ["huggingface.co"]}], names_),
        ("name servers", "dnsConfig", {"nameservers": ["1.2.3.4"]}, names_),
    ):
        yield _created("pods of Jobs", what, words, _changed(honest, f"spec/template/spec/{path}", value))
    yield _created("pods of Jobs", "many", single, _changed(honest, "spec/parallelism", 50))
    labels = spec["template"]["metadata"]["labels"]
    for what, changed in (
        ("labels of a deployment's pods", {**labels, names.MODEL_DEPLOYMENT: MINE}),
        ("without the label", {key: value for key, value in labels.items() if key != names.PART}),
    ):
        body = _changed(honest, "spec/template/metadata/labels", changed)
        yield _created("pods of Jobs", what, "and none of a ModelDeployment's pods", body)
    for name in ("thief", honest["metadata"]["name"].replace("download", "check-size"), "evil-download-12345678"):
        yield _created("names", f"a Job {name}", "is called as", _changed(honest, "metadata/name", name))
    yield from _of_others(honest)
    for verb, name, words in (
        ("patch", "ours", "the core never changes a Job"),
        ("patch", "users", "that it has not made for a ModelArtifact"),
        ("delete", "users", "that it has not made for a ModelArtifact"),
    ):
        yield _changing(JOB, verb, name, words, {"spec": {"parallelism": 2}} if verb == "patch" else None)


def _of_others(honest: Resource) -> Iterator[Attempt]:
    """What is refused of Jobs and claims alike."""
    kind = honest["kind"]
    belongs, (owner,) = "must belong to a ModelArtifact", honest["metadata"]["ownerReferences"]
    for what, owners in (
        ("of nobody", []),
        ("of a ConfigMap", [{**owner, "apiVersion": "v1", "kind": "ConfigMap"}]),
        ("of another group", [{**owner, "apiVersion": "evil.io/v1"}]),
        ("that nothing controls", [{**owner, "controller": False}]),
    ):
        body = _changed(honest, "metadata/ownerReferences", owners)
        yield _created("owners", f"a {kind} {what}", belongs, body)
    labels = honest["metadata"]["labels"]
    unmarked = {key: value for key, value in labels.items() if key != names.PART}
    words = "must have the label airunway.ai/part"
    yield _created("labels", f"a {kind} without the label", words, _changed(honest, "metadata/labels", unmarked))
    mislabelled = {**labels, names.ARTIFACT: "another"}
    words = f"has the label {names.ARTIFACT}"
    yield _created("labels", f"a {kind} of another", words, _changed(honest, "metadata/labels", mislabelled))
    held = _changed(honest, "metadata/finalizers", ["evil.io/hold"])
    yield _created("finalizers", f"a {kind} that cannot go", "must not change the finalizers", held)
    yield from _elsewhere(honest)


def _elsewhere(honest: Resource) -> Iterator[Attempt]:
    for where, words in (("kube-system", "namespaces of the system"), (OPERATOR, "the namespace of the operator")):
        body = _changed(honest, "metadata/namespace", where)
        yield _created("namespaces", f"a {honest['kind']} in {where}", words, body)


def _changing(kind: Kind, verb: str, name: str, words: str, body: Resource | None) -> Attempt:
    return Attempt(
        family="objects of others" if name != "ours" else "objects",
        what=f"{verb} {kind.kind} {name}",
        verb="patch" if verb == "patch" else "delete",
        kind=kind,
        words=words,
        name=name,
        body=body,
    )


def _of_claims() -> Iterator[Attempt]:
    """What a thief tries with the right to make claims."""
    honest, volume = _claim_of_artifact(), _claim_of_volume()
    empty, called = "name no volume, snapshot or other claim", "is called as the artifact"
    for what, field, value, words in (
        ("a volume of others", "volumeName", "pv-of-others", empty),
        ("a copy of a claim", "dataSource", {"kind": "PersistentVolumeClaim", "name": "training-data"}, empty),
        ("a volume by label", "selector", {"matchLabels": {"tenant": "b"}}, empty),
        ("a device", "volumeMode", "Block", "file systems with one access mode"),
        ("all modes", "accessModes", ["ReadWriteOnce", "ReadWriteMany"], "file systems with one access mode"),
    ):
        yield _created("claims", what, words, _changed(honest, f"spec/{field}", value))
        yield _created("claims", f"{what}, as a volume", words, _changed(volume, f"spec/{field}", value))
    for name in ("thief", "thief-cache-12345678", f"{_WEIGHTS}-cache"):
        yield _created("names", f"a claim {name}", called, _changed(honest, "metadata/name", name))
    words = "called as the ModelDeployment and the volume"
    for name in ("thief", "another-scratch-space", "thief-12345678"):
        yield _created("names", f"a volume {name}", words, _changed(volume, "metadata/name", name))
    labels = {**volume["metadata"]["labels"], names.MODEL_DEPLOYMENT: "another"}
    words = f"the claim of a volume has the label {names.MODEL_DEPLOYMENT}"
    yield _created("labels", "a volume of another", words, _changed(volume, "metadata/labels", labels))
    yield from _of_others(honest)
    body = {"metadata": {"labels": {names.PART: names.MODEL_CACHE_PART}, "ownerReferences": [OWNER]}}
    for verb in ("patch", "delete"):
        words = "that it has not made for a ModelArtifact"
        yield _changing(PERSISTENT_VOLUME_CLAIM, verb, "users", words, body if verb == "patch" else None)


def _of_artifacts() -> Iterator[Attempt]:
    """What a thief tries with the right to make ModelArtifacts."""
    honest, none = made_of_the_cache(), "has none of env, imagePullSecrets"
    env = {"name": "X", "valueFrom": {"secretKeyRef": {"name": "precious", "key": "x"}}}
    for what, field, value, words in (
        ("a variable", "env", [env], none),
        ("an account", "serviceAccountName", "cluster-admin", none),
        ("an image", "downloaderImage", "registry.example/evil", none),
        ("pull secrets", "imagePullSecrets", [{"name": "precious"}], none),
        ("a bucket", "source", {"uri": "s3://evil/x"}, "a repository of Hugging Face as its source"),
    ):
        yield _created("artifacts", what, words, _changed(honest, f"spec/{field}", value))
    foreign = [{**OWNER, "apiVersion": "v1", "kind": "ConfigMap"}]
    belongs = "belongs to no object, or to a ModelDeployment"
    yield _created("artifacts", "of a ConfigMap", belongs, _changed(honest, "metadata/ownerReferences", foreign))
    yield _created("artifacts", "by name", "ends with ten digits", _changed(honest, "metadata/name", "thief"))
    yield _created("artifacts", "as a user's", "has the labels", _changed(honest, "metadata/labels", {}))
    held = _changed(honest, "metadata/finalizers", ["evil.io/hold"])
    yield _created("artifacts", "one that cannot go", "must not change the finalizers", held)
    yield from _elsewhere(honest)
    theirs, only = "a ModelArtifact that it has not made", "changes only labels of a ModelArtifact"
    ours = {names.PART: names.MODEL_CACHE_PART, names.MANAGED_BY: names.MANAGED_BY_VALUE}
    for name, words, body in (
        ("users", theirs, {"spec": {"size": "2Gi"}}),
        ("users", theirs, {"metadata": {"labels": ours}}),
        ("ours", only, {"spec": {"size": "2Gi"}}),
        ("ours", only, {"spec": {"downloaderImage": "registry.example/evil"}}),
        ("ours", only, {"metadata": {"annotations": {"a": "b"}}}),
        ("ours", only, {"metadata": {"ownerReferences": [OWNER]}}),
    ):
        yield _changing(MODEL_ARTIFACT, "patch", name, words, body)
    yield _changing(MODEL_ARTIFACT, "delete", "users", theirs, None)
