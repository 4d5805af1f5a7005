"""Stolen tokens: what the charts grant and guard, tried by the account itself on a real API server (H1, H2)."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress

import pytest
import yaml
from tests.install.helm import NAMESPACE, Helm, Major
from tests.install.thief.attempt import (
    CONFIG_MAP,
    DEPLOYMENT,
    EMPTY,
    HTTP_ROUTE,
    MINE,
    OWNER,
    RBAC,
    Attempt,
    customer_of,
    to_kind,
)
from tests.install.thief.catalogue import honest_of_the_catalogue, of_the_catalogue
from tests.install.thief.core import honest_of_the_core, of_the_core
from tests.install.thief.model_cache import honest_of_the_cache, made_of_the_cache
from tests.install.thief.provider import of_a_provider
from tools.charts.generate import manifests

from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.gateway.caches import DESTINATION_RULE, GATEWAY, INFERENCE_POOL
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, INFERENCE_PROVIDER_CONFIG, MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.kube import (
    CLUSTER_ROLE,
    EVENT,
    JOB,
    LEASE,
    PERSISTENT_VOLUME_CLAIM,
    ApiError,
    Client,
    Kind,
    NotFound,
    is_served,
    load_config,
)
from airunway.kube import NAMESPACE as NAMESPACE_KIND
from airunway.plugins.contract import UpstreamKind
from airunway.plugins.registry import load
from airunway.resource import ObjectKey, Resource, copy_of, key_of, owner_reference
from airunway.sdk.workloads import RESOURCE_CLAIM_TEMPLATE
from airunway_testing.conformance.cases import Base, judged
from airunway_testing.controlplane import ControlPlane
from airunway_testing.eventually import PATIENCE
from airunway_testing.kubetools import kubectl_path

pytestmark = [pytest.mark.chart, pytest.mark.apiserver, pytest.mark.slow]

MANIFESTS = {manifest.name: manifest for manifest in manifests()}
ACCOUNTS = {
    "core": "airunway-controller",  # and the webhook, which is in its process
    "catalogue": "airunway-catalogue",
    **{name: names.provider_manager(name) for name in MANIFESTS},
}
ATTEMPTS = [("core", attempt) for attempt in of_the_core()]
ATTEMPTS += [("catalogue", attempt) for attempt in of_the_catalogue()]
ATTEMPTS += [(name, attempt) for name, manifest in MANIFESTS.items() for attempt in of_a_provider(manifest)]

NEVER = (
    ("get", "", "secrets", ""),
    ("list", "", "secrets", ""),
    ("watch", "", "secrets", ""),
    ("create", "", "secrets", ""),
    ("create", "", "pods", "exec"),
    ("create", "", "serviceaccounts", "token"),
    ("impersonate", "", "users", ""),
    ("impersonate", "", "serviceaccounts", ""),
    ("bind", RBAC, "clusterroles", ""),
    ("escalate", RBAC, "roles", ""),
    ("update", "apps", "deployments", "scale"),
    ("patch", "apps", "deployments", "status"),
    ("get", "", "nodes", "proxy"),
)
"""Verbs on resources and their subresources that no account of ours has, in any namespace."""

ROLE = Kind(RBAC, "v1", "Role", "roles")
LATE = 10.0
"""Seconds in which the API server has heard of all policies."""

_GRANTED = ("Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
_GUARDS = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@pytest.fixture(scope="module")
def plane(helms: dict[Major, Helm]) -> Iterator[ControlPlane]:
    """An API server of its own with accounts, roles and guards as the charts have them, and with what can be stolen."""
    charts = ["airunway", "airunway-catalogue", *(f"airunway-provider-{name}" for name in MANIFESTS)]
    rendered = [obj for chart in charts for obj in helms[4].render(chart)]
    with ControlPlane("api", roomy=True) as made:
        apply(made, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in (NAMESPACE, EMPTY)])
        apply(made, [*custom_resource_definitions(), *definitions()])
        apply(made, [obj for obj in rendered if obj["kind"] in _GRANTED])
        asyncio.run(furnished(made))
        apply(made, [obj for obj in rendered if obj["kind"] in _GUARDS])
        yield made


def apply(plane: ControlPlane, objects: Iterable[Resource]) -> None:
    """As the administrator. Retries while a new kind is not served yet."""
    command = [str(kubectl_path()), f"--kubeconfig={plane.kubeconfig}", "apply", "--server-side", "-f", "-"]
    for _ in range(20):
        done = subprocess.run(
            command, input=yaml.safe_dump_all(list(objects)), capture_output=True, text=True, check=False
        )
        if "no matches for kind" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr


def definitions() -> Iterator[Resource]:
    """CRDs of the upstreams that take any content: nothing but a guard refuses it."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    upstream = {(kind.group, kind.plural): kind for each in MANIFESTS.values() for kind in each.upstream}
    routing = (GATEWAY, HTTP_ROUTE, INFERENCE_POOL, DESTINATION_RULE)
    upstream |= {
        (kind.group, kind.plural): UpstreamKind(
            group=kind.group, kind=kind.kind, plural=kind.plural, versions=(kind.version,)
        )
        for kind in routing
    }
    for (group, plural), kind in upstream.items():
        if kind.builtin:
            continue
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": f"{plural}.{group}",
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
            },
            "spec": {
                "group": group,
                "names": {"kind": kind.kind, "plural": plural},
                "scope": "Namespaced",
                "versions": [
                    {"name": version, "served": True, "storage": not index, "schema": {"openAPIV3Schema": anything}}
                    for index, version in enumerate(kind.versions)
                ],
            },
        }


async def furnished(plane: ControlPlane) -> None:
    """What there is to steal: deployments of two providers, and objects of them, of users, and of the operator."""
    async with Client(load_config(kubeconfig=plane.kubeconfig)) as admin:
        async with asyncio.timeout(PATIENCE):
            while not await is_served(admin, MODEL_DEPLOYMENT):
                await asyncio.sleep(0.1)
        for account in ACCOUNTS:
            await customer(admin, account)
        await admin.create(
            CLUSTER_MODEL_TEMPLATE, {**meta(CLUSTER_MODEL_TEMPLATE, "", "fast"), "spec": {"modelName": "o/m"}}
        )
        for namespace, name in (
            ("kube-system", "precious"),
            (NAMESPACE, "precious"),
            (NAMESPACE, "airunway-installed"),
            (NAMESPACE, "airunway-controller-policy"),
        ):
            await admin.create(CONFIG_MAP, meta(CONFIG_MAP, namespace, name))
        await admin.create(DEPLOYMENT, harmless(DEPLOYMENT, NAMESPACE, "airunway-controller"))
        lease = {**meta(LEASE, NAMESPACE, "others"), "spec": {"holderIdentity": "honest"}}
        await admin.create(LEASE, lease)
        # The namespaces of the system are listed as well, so that only the rule about them refuses them.
        listed = ["kube-system", "kube-public", NAMESPACE, *map(customer_of, ACCOUNTS)]
        for name in MANIFESTS:
            registered = meta(INFERENCE_PROVIDER_CONFIG, "", name)
            await admin.create(INFERENCE_PROVIDER_CONFIG, registered)
            told = {"status": {"namespaces": dict.fromkeys(listed, "")}}
            await admin.merge_patch(INFERENCE_PROVIDER_CONFIG, ObjectKey("", name), told, subresource="status")


async def customer(admin: Client, account: str) -> None:
    """The namespace that a thief with this account's token goes for."""
    namespace, other = customer_of(account), "vllm" if account == "kaito" else "kaito"
    body = meta(NAMESPACE_KIND, "", namespace)
    if account == "core":
        body["metadata"]["labels"] = {names.MODEL_CACHE_LABEL: "allowed"}
    await admin.create(NAMESPACE_KIND, body)
    mine = await deployed(admin, namespace, MINE, provider=account)
    foreign = await deployed(admin, namespace, "foreign", provider=other)
    held = await deployed(admin, namespace, "held", provider=other)
    await admin.merge_patch(MODEL_DEPLOYMENT, key_of(held), {"metadata": {"finalizers": ["user.example/hold"]}})
    await admin.create(CONFIG_MAP, meta(CONFIG_MAP, namespace, "tenant"))
    if await absent(admin, CONFIG_MAP, ObjectKey(namespace, "kube-root-ca.crt")):
        await admin.create(CONFIG_MAP, meta(CONFIG_MAP, namespace, "kube-root-ca.crt"))
    event = next(attempt.body for attempt in of_the_core() if attempt.family == "events" and attempt.verb == "create")
    assert event is not None
    await admin.create(EVENT, {**event, "metadata": {"name": "kubelets", "namespace": namespace}})
    if account == "core":
        await admin.create(HTTP_ROUTE, meta(HTTP_ROUTE, namespace, "users"))
        await cached(admin, namespace)
        harmless_role = {**meta(CLUSTER_ROLE, "", "harmless"), "rules": []}
        await admin.create(CLUSTER_ROLE, harmless_role)
        await admin.create(ROLE, {**meta(ROLE, namespace, "harmless"), "rules": []})
    if account not in MANIFESTS:
        return
    kind = to_kind(next(kind for kind in MANIFESTS[account].upstream if kind.primary))
    for name, owner, mark in (
        ("tenant", None, {}),
        ("others", foreign, {names.PROVIDER: other}),
        ("others-airunway-plan", foreign, {names.PROVIDER: other}),
        ("picker", mine, {names.PART: names.GATEWAY_PART}),
        ("held", mine, {names.PROVIDER: account}),
    ):
        obj = harmless(kind, namespace, name)
        if owner is not None:
            obj["metadata"] |= {"ownerReferences": [owner_reference(owner)], "labels": mark}
        if name == "held":
            obj["metadata"]["finalizers"] = ["upstream.example/hold"]
        await admin.create(kind, obj)
    for name in ("tenant", f"{MINE}-epp"):
        rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
        await admin.create(ROLE, {**meta(ROLE, namespace, name), "rules": rules})


async def cached(admin: Client, namespace: str) -> None:
    """A user's Job, claim and ModelArtifact, and those of the model cache part."""
    honest = {attempt.kind: attempt.body or {} for attempt in reversed(honest_of_the_cache())}
    artifact: Resource = {}
    for name in ("users", "ours"):
        for kind in (MODEL_ARTIFACT, JOB, PERSISTENT_VOLUME_CLAIM):
            body = made_of_the_cache() if kind is MODEL_ARTIFACT else copy_of(honest[kind])
            metadata: Resource = {"name": name, "namespace": namespace}
            if name == "ours":
                metadata = {**body["metadata"], **metadata}
            if name == "ours" and kind is not MODEL_ARTIFACT:  # an owner that exists: else they are garbage
                metadata["labels"][names.ARTIFACT] = name
                metadata["ownerReferences"] = [owner_reference(artifact)]
            made = await admin.create(kind, {**body, "metadata": metadata})
            artifact = made if kind is MODEL_ARTIFACT else artifact


def meta(kind: Kind, namespace: str, name: str) -> Resource:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def harmless(kind: Kind, namespace: str, name: str) -> Resource:
    """An object of the kind with nothing in it that matters."""
    obj = meta(kind, namespace, name)
    if kind.kind == "Deployment":
        containers = [{"name": "model", "image": "registry.example/model:1"}]
        template = {"metadata": {"labels": {"a": name}}, "spec": {"containers": containers}}
        obj["spec"] = {"selector": {"matchLabels": {"a": name}}, "template": template}
    return obj


async def absent(client: Client, kind: Kind, key: ObjectKey) -> bool:
    try:
        await client.get(kind, key)
    except NotFound:
        return True
    return False


async def deployed(admin: Client, namespace: str, name: str, *, provider: str) -> Resource:
    """A deployment that was given to the provider."""
    spec = {"model": {"id": "org/model"}, "resources": {"gpu": {"count": 1}}}
    made = await admin.create(MODEL_DEPLOYMENT, {**meta(MODEL_DEPLOYMENT, namespace, name), "spec": spec})
    status = {"provider": {"name": provider}, "engine": {"type": "vllm"}}
    return await admin.merge_patch(MODEL_DEPLOYMENT, key_of(made), {"status": status}, subresource="status")


@pytest.fixture
async def thief(plane: ControlPlane, account: str) -> AsyncIterator[Client]:
    kubeconfig = plane.kubeconfig_for(f"system:serviceaccount:{NAMESPACE}:{ACCOUNTS[account]}")
    async with Client(load_config(kubeconfig=kubeconfig)) as client:
        yield client


async def tried(client: Client, attempt: Attempt) -> None:
    """Raises what the API server says; nothing is kept."""
    key = ObjectKey(attempt.namespace, attempt.name)
    if attempt.verb == "delete":
        await client.delete(attempt.kind, key, dry_run=True)
    elif attempt.verb == "patch":
        assert attempt.body is not None
        await client.merge_patch(attempt.kind, key, attempt.body, subresource=attempt.subresource, dry_run=True)
    else:
        assert attempt.body is not None
        await client.create(attempt.kind, attempt.body, dry_run=True)


def test_each_account_is_tried_in_many_ways() -> None:
    counts = Counter(account for account, _ in ATTEMPTS)
    assert set(counts) == set(ACCOUNTS)
    assert min(counts.values()) >= 30, counts


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_a_stolen_token_is_refused(thief: Client, account: str) -> None:
    """Each attempt by the guard that is meant for it, or for want of the right."""
    wrong = []
    for whose, attempt in ATTEMPTS:
        if whose != account:
            continue
        said = ""
        with suppress(TimeoutError):
            async with asyncio.timeout(LATE):  # the API server hears of policies by a watch
                while attempt.words not in said:
                    try:
                        await tried(thief, attempt)
                        said = "(allowed)"
                    except ApiError as error:
                        said = error.message
                    if attempt.words not in said:
                        await asyncio.sleep(0.2)
        if attempt.words not in said:
            wrong.append(f"{attempt}: expected {attempt.words!r}, got {said!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("account", ["vllm", "llmd", "kuberay"])
async def test_what_claims_gpus_of_a_device_class_is_allowed(thief: Client, account: str) -> None:
    """The template and the pods that name it, as the provider writes them."""
    gpu = {"count": 2, "deviceClass": "gpu.nvidia.com"}
    spec = {"model": {"id": "o/m"}, "engine": {"type": "vllm"}, "resources": {"gpu": gpu}}
    host = load(account)
    found = judged(host, Base(name=MINE, engine="vllm", spec=spec), spec)
    kinds = {each.kind: to_kind(each) for each in (host.primary_kind, RESOURCE_CLAIM_TEMPLATE)}
    asking = [each for each in found.objects if each["kind"] in kinds and "gpus" in str(each["spec"])]
    assert {each["kind"] for each in asking} == set(kinds)
    for obj in asking:
        owned = {"namespace": customer_of(account), "ownerReferences": [OWNER]}
        body = {**obj, "metadata": {**obj["metadata"], **owned}}
        await thief.create(kinds[obj["kind"]], body, dry_run=True)


async def test_what_the_parts_of_the_core_write_is_allowed(plane: ControlPlane) -> None:
    """With a propagated label on every object of a route, the ServiceAccount too."""
    kubeconfig = plane.kubeconfig_for(f"system:serviceaccount:{NAMESPACE}:{ACCOUNTS['core']}")
    async with Client(load_config(kubeconfig=kubeconfig)) as core:
        for attempt in (*honest_of_the_core(), *honest_of_the_cache()):
            await tried(core, attempt)


async def test_what_the_catalogue_writes_is_allowed(plane: ControlPlane) -> None:
    kubeconfig = plane.kubeconfig_for(f"system:serviceaccount:{NAMESPACE}:{ACCOUNTS['catalogue']}")
    async with Client(load_config(kubeconfig=kubeconfig)) as catalogue:
        for attempt in honest_of_the_catalogue():
            await tried(catalogue, attempt)


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_what_no_account_may_do_at_all(plane: ControlPlane, account: str) -> None:
    user = f"system:serviceaccount:{NAMESPACE}:{ACCOUNTS[account]}"
    async with Client(load_config(kubeconfig=plane.kubeconfig)) as admin:
        for verb, group, plural, subresource in NEVER:
            kind = Kind(group, "v1", plural, plural)
            for namespace in ("", NAMESPACE, customer_of(account)):
                allowed = await admin.subject_access_review(
                    user=user, verb=verb, kind=kind, namespace=namespace, subresource=subresource
                )
                assert not allowed, (verb, plural, subresource, namespace)
