"""What a thief tries with the token of the core, the rights of the gateway part included."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.install.thief.attempt import (
    ANNOTATIONS,
    CLUSTER_RUNTIME_CONFIG,
    CONFIG_MAP,
    CONTAINER,
    CUSTOMER,
    DEPLOYMENT,
    DESTINATION_RULE,
    GATEWAY,
    HTTP_ROUTE,
    IDENTITY,
    INFERENCE_POOL,
    LOADERS,
    MINE,
    MODEL_DEPLOYMENT,
    NO_RIGHT,
    OPERATOR,
    ORDERS,
    OWNER,
    POD,
    RBAC,
    REFERENCE_GRANT,
    ROLE,
    ROLE_BINDING,
    RUNTIME_CONFIG,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Attempt,
    customer_of,
    may_read,
    moved,
    pods,
)
from tests.install.thief.model_cache import of_the_model_cache
from tests.install.thief.provider import of_any_account

from airunway.api import names
from airunway.gateway.application import DEFAULT_PICKER_IMAGE
from airunway.gateway.caches import PICKER_KINDS
from airunway.kube import Kind
from airunway.rbac.policy_rules import repository_of
from airunway.resource import ObjectKey, Resource, copy_of
from airunway.routing.backends import Backend, BackendKind, Picker, picker_for, pool_objects
from airunway.routing.gateways import Target
from airunway.routing.routes import RouteRules, route


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
    for what, spec, words in pods():
        if "serviceAccount" in spec:
            continue  # the API server gives it the value of serviceAccountName
        yield tried("pods", what, identity if words == IDENTITY else words, DEPLOYMENT, pod(copy_of(spec)))
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
        yield tried("Secrets", what, secret, DEPLOYMENT, pod({"containers": [{**CONTAINER, **field}]}))

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
    for name in LOADERS:
        variables = [*theirs["env"], {"name": name, "value": "/x"}]
        words = "an endpoint picker gets only the variables NAMESPACE, POD_NAME"
        yield tried(
            "pickers", f"the variable {name}", words, DEPLOYMENT, pod({"containers": [{**theirs, "env": variables}]})
        )
    for key, value in ORDERS.items():
        body = of(DEPLOYMENT)
        body["spec"]["template"]["metadata"]["annotations"] = {key: value}
        yield tried("annotations", f"{key} on pods", ANNOTATIONS, DEPLOYMENT, body)
        for kind in (DEPLOYMENT, SERVICE, INFERENCE_POOL, DESTINATION_RULE, CONFIG_MAP):
            yield tried("annotations", f"{key} on a {kind.kind}", ANNOTATIONS, kind, of(kind, annotations={key: value}))
    yield tried("pickers", "a priority", one, DEPLOYMENT, pod({"priorityClassName": "high"}))
    many = of(DEPLOYMENT)
    many["spec"]["replicas"] = 50
    yield tried("pickers", "many pods", one, DEPLOYMENT, many)

    for where, words in (("kube-system", "namespaces of the system"), (OPERATOR, "the namespace of the operator")):
        for kind in (DEPLOYMENT, SERVICE, CONFIG_MAP, SERVICE_ACCOUNT, ROLE_BINDING, HTTP_ROUTE):
            yield tried("namespaces", f"a {kind.kind} in {where}", words, kind, of(kind, namespace=where))
    for kind in _HONEST:
        yield tried(
            "owners",
            f"a {kind.kind} without an owner",
            "must belong to a ModelDeployment",
            kind,
            of(kind, ownerReferences=[]),
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

    unowned = "must not touch an object that it has not made for a ModelDeployment"
    mine = {"metadata": {"ownerReferences": [OWNER], "labels": label}, "data": {"a": "b"}}
    for name, where, words in (
        ("tenant", CUSTOMER, unowned),
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
        family="objects of others", what="a user's route", verb="delete", kind=HTTP_ROUTE, words=unowned, name="users"
    )
    for kind, what in ((GATEWAY, "a Gateway"), (REFERENCE_GRANT, "a grant")):
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "x", "namespace": CUSTOMER}}
        yield tried("routes", what, NO_RIGHT, kind, {**body, "spec": {}})


def _routes(honest: Resource, tried: Callable[[str, str, str, Kind, Resource], Attempt]) -> Iterator[Attempt]:
    """Routes that take more than what is the deployment's."""
    by_path, by_name = honest["spec"]["rules"]
    everything, rewrites = "none takes all requests of a Gateway", "rewrite the prefix of a path to / and nothing else"
    unwritten = "lead to Services and InferencePools"
    all_paths, values = {"path": {"type": "PathPrefix", "value": "/"}}, {"name": names.MODEL_HEADER, "value": ".*"}
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
    of_servers, by_header = "model servers or gateways answer themselves", {"headers": [{**values, "value": "m"}]}
    for path, words in (
        ("/v1", of_servers),
        ("/V1/chat/completions", of_servers),
        ("/health", of_servers),
        ("/.well-known/acme-challenge", of_servers),
        ("/models", of_servers),
        ("//v1", everything),
    ):
        rules = matching({"path": {"type": "PathPrefix", "value": path}})
        yield tried(
            "routes", f"the path {path}", words, HTTP_ROUTE, {**honest, "spec": {**honest["spec"], "rules": rules}}
        )
    longer = matching({"path": {"type": "PathPrefix", "value": "/v1"}, **by_header})
    spec = {**honest["spec"], "rules": longer}
    yield tried("routes", "a name below a path", everything, HTTP_ROUTE, {**honest, "spec": spec})
    for key in ("external-dns.alpha.kubernetes.io/hostname", "konghq.com/plugins", "nginx.org/server-snippets"):
        metadata = {**honest["metadata"], "annotations": {key: "x"}}
        orders = "annotations that controllers take orders from"
        yield tried("routes", f"the annotation {key}", orders, HTTP_ROUTE, {**honest, "metadata": metadata})


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
    made.append(
        route(MINE, target=target, rules=RouteRules(path="/a/b", model_name="m"), backend=backend, timeout="5m")
    )
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
    found = list(of_any_account("kaito", _ROUTED))
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
        ("the revision in use", {"provider": {"revision": "0"}}, "must not change the revision in use"),
        ("what is newer", {"provider": {"newer": {"changes": ["x"]}}}, "must not change what is newer in the provider"),
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
        POD: {"spec": {"containers": [CONTAINER], "hostNetwork": True}},
        SECRET: {},
        ROLE: {"rules": may_read("", "secrets")},
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
    found += [*_of_routes(), *of_the_model_cache()]
    return [moved(attempt, customer_of("core")) for attempt in found]
