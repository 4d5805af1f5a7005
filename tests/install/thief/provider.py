"""What a thief tries with the token of a provider."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal

from tests.install.thief.attempt import (
    ANNOTATIONS,
    BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG,
    CONFIG_MAP,
    CONTAINER,
    CUSTOMER,
    DEFINITION,
    DEPLOYMENT,
    EMPTY,
    EVENT,
    IN_A_CONTAINER,
    LEASE,
    MINE,
    MODEL_DEPLOYMENT,
    NAMESPACE,
    NO_RIGHT,
    NODE,
    OPERATOR,
    ORDERS,
    OWNER,
    POD,
    POLICY,
    PRIVILEGED,
    RBAC,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    WEBHOOK,
    Attempt,
    annotations_of,
    customer_of,
    may_read,
    moved,
    pods,
    put,
    to_kind,
)

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_TEMPLATE
from airunway.kube import Kind
from airunway.plugins.contract import ProviderManifest
from airunway.plugins.host import SCALED_OBJECT
from airunway.resource import Resource, copy_of

TEMPLATE = Kind("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
DEVICES: Resource = {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 2}}
"""What a provider may ask for."""


SCALES_ITSELF: Resource = {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "name": OWNER["name"]}
TRIGGER: Resource = {"type": "prometheus", "metadata": {"serverAddress": "http://p:9090", "query": "up"}}


def _asked(**more: object) -> Resource:
    exactly = {**DEVICES["exactly"], **more}
    return {**DEVICES, "exactly": {key: value for key, value in exactly.items() if value is not None}}


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
            template = {"metadata": {"labels": selector}, "spec": {"containers": [CONTAINER]}}
            content = {"spec": {"selector": {"matchLabels": selector}, "template": template}}
        if kind.kind == "ScaledObject":
            content = {"spec": {"scaleTargetRef": SCALES_ITSELF, "triggers": [copy_of(TRIGGER)]}}
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
            for what, spec, words in pods():
                if first or what in ("privileged", "the root of the node", "a service account"):
                    where = f"{what}, in {upstream.kind} {path}"
                    tried("pods", where, words, kind, put(of(kind), path, copy_of(spec)))
            first = False
        for path in upstream.containers:
            evil = {**CONTAINER, **IN_A_CONTAINER["privileged"][0]}
            tried("pods", f"privileged, in {path}", PRIVILEGED, kind, put(of(kind), path, evil))
        for path in annotations_of(upstream):
            for key, value in {**ORDERS, "container.apparmor.security.beta.kubernetes.io/model": "unconfined"}.items():
                where = f"{key}, in {path} of a {upstream.kind}"
                tried("annotations", where, ANNOTATIONS, kind, put(of(kind), f"{path}", {key: value}))
        for path in upstream.probes:
            probe = {"httpGet": {"port": 80, "host": "169.254.169.254"}}
            tried("probes", f"{path} of a {upstream.kind}", "probes must not", kind, put(of(kind), path, probe))
        for path in upstream.replicas:
            body = put(of(kind), path, 100_000)
            tried("replicas", f"{path} of a {upstream.kind}", "at most 1000 pods", kind, body)
        for path in upstream.unused:
            body = put(of(kind), path, {"thief": True})
            tried("pods", f"{path} of a {upstream.kind}", f"no translation writes {path}", kind, body)

    for upstream in written:
        kind = to_kind(upstream)
        body = of(kind)
        body["metadata"]["annotations"] = {"kaito.sh/enablelb": "True"}
        if kind.kind == "Service":
            body["spec"] = {"ports": [{"port": 80}]}
        if kind.kind == "NetworkPolicy":
            body["spec"] = {"podSelector": {"matchLabels": {names.MODEL_DEPLOYMENT: MINE, "ray.io/is-ray-node": "yes"}}}
        if kind.kind == "ResourceClaimTemplate":
            body["spec"] = {"spec": {"devices": {"requests": [DEVICES]}}}
        if (kind.group, kind.plural) != ("", "serviceaccounts") and kind.group != RBAC:  # those have names of plans
            tried("annotations", f"on a {kind.kind}", ANNOTATIONS, kind, body)

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
    tried("owners", "an object without an owner", "must belong to a ModelDeployment", kind, no_owner)
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
    unowned = "must not touch an object that belongs to no ModelDeployment"
    another_s = "must not touch the objects of"
    for of_whom, name, words in (
        ("a user", "tenant", unowned),
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
    patched("ConfigMaps", "a tenant's", unowned, CONFIG_MAP, plan, name="tenant")
    deleted("ConfigMaps", "delete a tenant's", unowned, CONFIG_MAP, name="tenant")
    patched("ConfigMaps", "the namespace's certificates", unowned, CONFIG_MAP, plan, name="kube-root-ca.crt")
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
    same, holder = "refer to the Role of the same name", "for the service account of the same name"
    cluster_role = {"kind": "ClusterRole", "name": f"airunway-provider-{provider}-{OPERATOR}"}
    called = "are called as those of this provider's plans are"
    for what, words, name, role, subjects in (
        ("its own ClusterRole to another account", called, "zz", cluster_role, to_the_thief),
        ("its own ClusterRole to its picker", same, own, cluster_role, [themselves]),
        ("a tenant's Role to its picker", same, own, {"kind": "Role", "name": "tenant"}, [themselves]),
        ("its picker's Role to another account", holder, own, {"kind": "Role", "name": own}, to_the_thief),
        ("its picker's Role to a user", holder, own, {"kind": "Role", "name": own}, [{"kind": "User", "name": "eve"}]),
        ("a Role of the tenant's name", called, "tenant", {"kind": "Role", "name": "tenant"}, [themselves]),
    ):
        for subject in subjects:
            if subject["kind"] == "User":
                subject["apiGroup"] = RBAC
        tried("RBAC", what, by_guard(words), ROLE_BINDING, binding(name, role, subjects))
    for what, words, name, rules in (
        ("a Role that is not its picker's", "grant the rules of its manifest", own, may_read("apps", "deployments")),
        ("a Role for Secrets", "", own, may_read("", "secrets")),
        ("a Role for another account", called, "zz", []),
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
    tried("pods", "a pod itself", NO_RIGHT, POD, {**of(POD), "spec": {"containers": [CONTAINER]}})

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
        ray = {"ray.io/is-ray-node": "yes"}
        for what, selected in (
            ("all pods open", {}),
            ("another provider's pods open", {names.MODEL_DEPLOYMENT: MINE}),
            ("another deployment's pods open", {names.MODEL_DEPLOYMENT: "foreign", **ray}),
            ("a tenant's Ray cluster open", ray),
            ("another label of a deployment", {names.PROVIDER: other, **ray}),
        ):
            body = {**of(kind), "spec": {"podSelector": {"matchLabels": selected}, "ingress": [{}]}}
            tried("services", what, "pods of its own ModelDeployment only", kind, body)

    # Autoscalers: KEDA may scale anything, and asks any URL.
    if (SCALED_OBJECT.group, SCALED_OBJECT.plural) in kinds:
        kind, words = to_kind(SCALED_OBJECT), "scale the ModelDeployment that they belong to and nothing else"
        for what, target in (
            ("another deployment", {**SCALES_ITSELF, "name": "foreign"}),
            ("a user's Deployment", {"name": "tenant"}),
            ("one that only sounds like it", {**SCALES_ITSELF, "apiVersion": "evil.example/v1"}),
        ):
            spec = {"scaleTargetRef": target, "triggers": [TRIGGER]}
            tried("autoscalers", what, words, kind, {**of(kind), "spec": spec})
        for what, trigger in (
            ("any URL of KEDA's network", {"type": "metrics-api", "metadata": {"url": "http://169.254.169.254"}}),
            ("work of KEDA's own", {"type": "kubernetes-workload", "metadata": {"podSelector": "a=b"}}),
            ("another namespace's credentials", {**TRIGGER, "authenticationRef": {"name": "a", "namespace": "b"}}),
        ):
            spec = {"scaleTargetRef": SCALES_ITSELF, "triggers": [TRIGGER, trigger]}
            tried("autoscalers", what, "no trigger reads what others", kind, {**of(kind), "spec": spec})
        spec = {"scaleTargetRef": SCALES_ITSELF, "triggers": [TRIGGER]}
        formula = {**spec, "advanced": {"scalingModifiers": {"formula": "1000", "target": "1"}}}
        tried("autoscalers", "a number of its own", "have no formula", kind, {**of(kind), "spec": formula})

    # Devices.
    if ("resource.k8s.io", "resourceclaimtemplates") in kinds:
        either = {"name": "b", **DEVICES["exactly"]}
        opaque = {"opaque": {"driver": "gpu.nvidia.com", "parameters": {"sharing": "all"}}}
        for what, spec in (
            ("all devices of a node", {"devices": {"requests": [_asked(allocationMode="All", count=None)]}}),
            ("tainted devices", {"devices": {"requests": [_asked(tolerations=[{"operator": "Exists"}])]}}),
            ("devices of its choice", {"devices": {"requests": [_asked(selectors=[{"cel": {"expression": "true"}}])]}}),
            ("any of some classes", {"devices": {"requests": [{"name": "a", "firstAvailable": [either]}]}}),
            ("the configuration of a driver", {"devices": {"requests": [DEVICES], "config": [opaque]}}),
        ):
            body = {**of(TEMPLATE), "spec": {"spec": spec}}
            tried("devices", what, "a number of devices of a class and nothing else", TEMPLATE, body)
        # The API server itself refuses this one first, in a namespace without its label.
        body = {**of(TEMPLATE), "spec": {"spec": {"devices": {"requests": [_asked(adminAccess=True)]}}}}
        tried("devices", "access as administrator", "admin access to devices requires", TEMPLATE, body)
        marked = {"metadata": {"annotations": ORDERS}, "spec": {"devices": {"requests": [DEVICES]}}}
        words = "a number of devices of a class and nothing else"
        tried("devices", "orders on the claims", words, TEMPLATE, {**of(TEMPLATE), "spec": marked})

    told = {"status": {"namespaces": {EMPTY: "cluster-admin"}}}
    words = "must not change its namespaces and their service accounts"
    patched(
        "guards", "where it has deployments", words, CONFIG, told, namespace="", name=provider, subresource="status"
    )
    deleted("guards", "its own registration", NO_RIGHT, CONFIG, namespace="", name=provider)
    found += _of_deployments(provider, other)
    found += of_any_account(other, kinds)
    return [moved(attempt, customer_of(provider)) for attempt in found]


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
        ("what it runs with", {"revision": {"template": {"spec": {"image": "registry.example/evil"}}}}),
        ("what it runs with", {"revision": {"settings": {"token": {"name": "another", "key": "HF_TOKEN"}}}}),
        ("what the template gives", {"effectiveTemplate": {"hash": "0"}}),
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


def of_any_account(other: str, kinds: Collection[tuple[str, str]] = ()) -> Iterator[Attempt]:
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
