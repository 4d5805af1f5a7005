"""What an answer means is read from more than its code. Each row of the table, said by a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
import yaml

from airunway.kube import (
    CUSTOM_RESOURCE_DEFINITION,
    POD,
    ApiError,
    Client,
    Conflict,
    ErrorKind,
    Kind,
    NotFound,
    is_retryable,
    load_config,
)
from airunway.kube.errors import ERROR_PATTERNS
from airunway.resource import ObjectKey, Resource
from airunway_testing.controlplane import Cluster
from airunway_testing.eventually import PATIENCE
from airunway_testing.operator import install_definitions, remove_definition

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning"),  # that is what is tried
]

GROUP = "answers.example.com"
THING = Kind(GROUP, "v1", "Thing", "things")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
API_SERVICE = Kind("apiregistration.k8s.io", "v1", "APIService", "apiservices", namespaced=False)
ADMISSION = "admissionregistration.k8s.io"
WEBHOOK = Kind(ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False)
POLICY = Kind(ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False)
BINDING = Kind(ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", False)
RBAC = "rbac.authorization.k8s.io"
ROLE = Kind(RBAC, "v1", "Role", "roles")
BINDING_OF_ROLE = Kind(RBAC, "v1", "RoleBinding", "rolebindings")
NOBODY = "00000000-0000-0000-0000-000000000000"


def definition(group: str = GROUP) -> Resource:
    fields = {"number": {"type": "integer", "maximum": 5}, "text": {"type": "string"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"},
            "versions": [version],
        },
    }


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Where a situation is made: the administrator's client, a namespace of the test's own."""

    client: Client
    cluster: Cluster
    namespace: str
    folder: Path

    def thing(self, name: str = "a", *, group: str = GROUP, **metadata: Any) -> Resource:
        where = {"name": name, "namespace": self.namespace, **metadata}
        return {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": where, "spec": {}}

    async def apply(self, obj: Resource, kind: Kind = THING, client: Client | None = None) -> Resource:
        return await (client or self.client).apply(kind, obj, manager="tests", force=True)

    async def until_refused(self) -> None:
        """Apply a new object until the server, which learns of policies by a watch, says no."""
        async with asyncio.timeout(PATIENCE):
            while True:
                await self.apply(self.thing(f"t-{uuid4().hex[:8]}"))
                await asyncio.sleep(0.1)


Situation: TypeAlias = Callable[[Scene], Awaitable[object]]
SITUATIONS: dict[str, tuple[ErrorKind, Situation]] = {}


def answers(expected: ErrorKind) -> Callable[[Situation], Situation]:
    def register(situation: Situation) -> Situation:
        SITUATIONS[situation.__name__.replace("_", " ").strip()] = (expected, situation)
        return situation

    return register


@answers(ErrorKind.FORBIDDEN)
async def a_user_without_rights(scene: Scene) -> None:
    config = load_config(kubeconfig=scene.cluster.kubeconfig_for(f"nobody-{uuid4().hex[:6]}"))
    async with Client(config) as theirs:
        await scene.apply(scene.thing(), client=theirs)


@answers(ErrorKind.FORBIDDEN)
async def a_role_with_more_rights_than_its_author_has(scene: Scene) -> None:
    user = f"author-{uuid4().hex[:6]}"
    where = {"name": "author", "namespace": scene.namespace}
    granted = (ROLE, {"rules": [{"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["create", "get", "patch"]}]})
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": user}]
    bound = (BINDING_OF_ROLE, {"subjects": subjects, "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "author"}})
    for kind, content in (granted, bound):
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": where, **content}
        await scene.client.create(kind, body)
    more = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    metadata = {"name": "more", "namespace": scene.namespace}
    role = {"apiVersion": ROLE.api_version, "kind": ROLE.kind, "metadata": metadata, "rules": more}
    async with Client(load_config(kubeconfig=scene.cluster.kubeconfig_for(user))) as theirs, asyncio.timeout(PATIENCE):
        while True:
            try:
                await theirs.apply(ROLE, role, manager="tests")
            except ApiError as error:
                if "cannot" not in error.message:  # the authorizer learns of a role by a watch
                    raise
            await asyncio.sleep(0.1)


@answers(ErrorKind.UNAUTHENTICATED)
async def a_token_that_nobody_issued(scene: Scene) -> None:
    known = yaml.safe_load(scene.cluster.kubeconfig.read_text())
    for user in known["users"]:
        user["user"] = {"token": "unknown"}
    path = scene.folder / "kubeconfig"
    path.write_text(yaml.safe_dump(known))
    async with Client(load_config(kubeconfig=path)) as theirs:
        await scene.apply(scene.thing(), client=theirs)


@answers(ErrorKind.QUOTA)
async def a_quota_that_is_used_up(scene: Scene) -> None:
    hard = {f"count/things.{GROUP}": "0"}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": scene.namespace}}
    await scene.client.create(QUOTA, {**body, "spec": {"hard": hard}})
    # What the quota controller does, which does not run at this level.
    status = {"status": {"hard": hard, "used": hard}}
    await scene.client.merge_patch(QUOTA, ObjectKey(scene.namespace, "q"), status, subresource="status")
    await scene.until_refused()


@answers(ErrorKind.NAMESPACE_TERMINATING)
async def a_namespace_that_is_being_deleted(scene: Scene) -> None:
    name = f"leaving-{uuid4().hex[:8]}"
    await scene.client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    held = scene.thing("held", finalizers=["example.com/held"])
    held["metadata"]["namespace"] = name
    await scene.apply(held)
    await scene.client.delete(NAMESPACE, ObjectKey("", name))
    try:
        fresh = scene.thing("fresh")
        fresh["metadata"]["namespace"] = name
        await scene.apply(fresh)
    finally:
        await scene.client.merge_patch(THING, ObjectKey(name, "held"), {"metadata": {"finalizers": None}})


@answers(ErrorKind.NAMESPACE_NOT_FOUND)
async def a_namespace_that_is_not_there(scene: Scene) -> None:
    obj = scene.thing()
    obj["metadata"]["namespace"] = "nowhere"
    await scene.apply(obj)


@answers(ErrorKind.KIND_TERMINATING)
async def a_definition_that_is_being_deleted(scene: Scene) -> None:
    group = f"g{uuid4().hex[:8]}.example.com"
    kind = Kind(group, "v1", "Thing", "things")
    await install_definitions(scene.client, [definition(group)])
    await scene.apply(scene.thing("held", group=group, finalizers=["example.com/held"]), kind)
    await scene.client.delete(CUSTOM_RESOURCE_DEFINITION, ObjectKey("", f"things.{group}"))
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                await scene.apply(scene.thing(f"t-{uuid4().hex[:8]}", group=group), kind)
    finally:
        await remove_definition(scene.client, f"things.{group}")


@answers(ErrorKind.KIND_NOT_SERVED)
async def a_group_that_is_not_installed(scene: Scene) -> None:
    await scene.apply(scene.thing(group="absent.example.com"), Kind("absent.example.com", "v1", "Thing", "things"))


@answers(ErrorKind.KIND_NOT_SERVED)
async def a_version_that_is_not_served(scene: Scene) -> None:
    await scene.apply({**scene.thing(), "apiVersion": f"{GROUP}/v9"}, Kind(GROUP, "v9", "Thing", "things"))


@answers(ErrorKind.KIND_NOT_SERVED)
async def a_kind_of_the_core_that_does_not_exist(scene: Scene) -> None:
    await scene.apply({**scene.thing(), "apiVersion": "v1"}, Kind("", "v1", "Thing", "things"))


@answers(ErrorKind.SCHEMA)
async def a_field_that_the_schema_has_not(scene: Scene) -> None:
    await scene.apply({**scene.thing(), "spec": {"unknown": 1}})


@answers(ErrorKind.SCHEMA)
async def a_value_of_another_type(scene: Scene) -> None:
    await scene.apply({**scene.thing(), "spec": {"number": "one"}})


@answers(ErrorKind.INVALID)
async def a_value_out_of_range(scene: Scene) -> None:
    await scene.apply({**scene.thing(), "spec": {"number": 7}})


@answers(ErrorKind.TOO_LARGE)
async def an_object_above_the_limit_of_etcd(scene: Scene) -> None:
    await scene.apply({**scene.thing(), "spec": {"text": "x" * 1_900_000}})


@answers(ErrorKind.TOO_LARGE)
async def an_object_above_the_limit_of_messages_to_etcd(scene: Scene) -> None:
    await scene.apply({**scene.thing(), "spec": {"text": "x" * 2_900_000}})


@answers(ErrorKind.TOO_LARGE)
async def a_request_above_the_limit(scene: Scene) -> None:
    await scene.apply({**scene.thing(), "spec": {"text": "x" * 4_000_000}})


@answers(ErrorKind.DENIED)
async def a_pod_that_the_namespace_s_security_level_forbids(scene: Scene) -> None:
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await scene.client.merge_patch(NAMESPACE, ObjectKey("", scene.namespace), level)
    async with asyncio.timeout(PATIENCE):
        while True:
            await scene.apply(pod(scene, f"p-{uuid4().hex[:8]}"), POD)


@pytest.mark.parametrize("reason", ["Forbidden", "Invalid", "RequestEntityTooLarge"])
async def test_ruling_28_an_admission_policy_denies_whatever_its_code(reason: str, scene: Scene) -> None:
    with pytest.raises(ApiError) as caught:
        await denied_by_policy(scene, reason)
    assert caught.value.kind is ErrorKind.DENIED, str(caught.value)


async def denied_by_policy(scene: Scene, reason: str) -> None:
    name = f"answers-{uuid4().hex[:8]}"
    things = {"apiGroups": [GROUP], "apiVersions": ["*"], "resources": ["things"], "operations": ["CREATE"]}
    policy = {
        "matchConstraints": {"resourceRules": [things]},
        "validations": [{"expression": "false", "message": "no", "reason": reason}],
    }
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": here}
    await scene.client.create(POLICY, admission(POLICY, name, spec=policy))
    await scene.client.create(BINDING, admission(BINDING, name, spec=binding))
    try:
        await scene.until_refused()
    finally:
        await scene.client.delete(BINDING, ObjectKey("", name))
        await scene.client.delete(POLICY, ObjectKey("", name))


@answers(ErrorKind.WEBHOOK_FAILED)
async def a_webhook_that_is_down(scene: Scene) -> None:
    name = f"answers-{uuid4().hex[:8]}"
    webhook = {
        "name": "w.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "admissionReviewVersions": ["v1"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": scene.namespace}},
        "rules": [{"apiGroups": [GROUP], "apiVersions": ["*"], "resources": ["things"], "operations": ["*"]}],
    }
    await scene.client.create(WEBHOOK, admission(WEBHOOK, name, webhooks=[webhook]))
    try:
        await scene.until_refused()
    finally:
        await scene.client.delete(WEBHOOK, ObjectKey("", name))


@answers(ErrorKind.UID_MISMATCH)
async def the_uid_of_an_object_that_is_gone(scene: Scene) -> None:
    await scene.apply(scene.thing(uid=NOBODY))


@answers(ErrorKind.UID_MISMATCH)
async def the_uid_of_another_object(scene: Scene) -> None:
    await scene.apply(scene.thing())
    await scene.apply(scene.thing(uid=NOBODY))


@answers(ErrorKind.ALREADY_EXISTS)
async def a_creation_of_what_is_there(scene: Scene) -> None:
    await scene.client.create(THING, scene.thing())
    await scene.client.create(THING, scene.thing())


@answers(ErrorKind.CONFLICT)
async def a_stale_version(scene: Scene) -> None:
    await scene.apply(scene.thing())
    await scene.apply(scene.thing(resourceVersion="1"))


@answers(ErrorKind.CONFLICT)
async def a_field_of_another_manager(scene: Scene) -> None:
    await scene.client.apply(THING, {**scene.thing(), "spec": {"number": 1}}, manager="one")
    await scene.client.apply(THING, {**scene.thing(), "spec": {"number": 2}}, manager="two")


@answers(ErrorKind.NOT_FOUND)
async def an_object_that_is_not_there(scene: Scene) -> None:
    await scene.client.get(THING, ObjectKey(scene.namespace, "nobody"))


@answers(ErrorKind.THROTTLED)
async def an_eviction_that_a_budget_forbids(scene: Scene) -> None:
    await scene.client.create(POD, pod(scene, "p"))
    where = {"name": "b", "namespace": scene.namespace}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}}
    await scene.client.create(
        BUDGET, {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": where, "spec": spec}
    )
    ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    await scene.client.merge_patch(POD, ObjectKey(scene.namespace, "p"), ready, subresource="status")
    eviction = Kind("", "v1", "Eviction", "pods/p/eviction")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": scene.namespace}}
    await scene.client.create(eviction, body)


@answers(ErrorKind.SERVER_ERROR)
async def an_aggregated_api_without_a_server(scene: Scene) -> None:
    group = f"g{uuid4().hex[:8]}.example.com"
    name = f"v1.{group}"
    spec = {
        "group": group,
        "version": "v1",
        "groupPriorityMinimum": 10,
        "versionPriority": 10,
        "insecureSkipTLSVerify": True,
        "service": {"name": "nobody", "namespace": scene.namespace},
    }
    body = {"apiVersion": API_SERVICE.api_version, "kind": API_SERVICE.kind, "metadata": {"name": name}, "spec": spec}
    await scene.client.create(API_SERVICE, body)
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await scene.client.get_path(f"/apis/{group}/v1/things")
                except NotFound:  # the server learns of it by a watch
                    await asyncio.sleep(0.1)
    finally:
        await scene.client.delete(API_SERVICE, ObjectKey("", name))


@answers(ErrorKind.UNKNOWN)
async def a_method_that_is_not_allowed(scene: Scene) -> None:
    reviews = Kind("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False)
    await scene.client.list_all(reviews)


def admission(kind: Kind, name: str, **content: Any) -> Resource:
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, **content}


def pod(scene: Scene, name: str) -> Resource:
    where = {"name": name, "namespace": scene.namespace, "labels": {"app": name}}
    containers = [{"name": "a", "image": "registry.example/a:1"}]
    spec = {"automountServiceAccountToken": False, "containers": containers}
    return deepcopy({"apiVersion": "v1", "kind": "Pod", "metadata": where, "spec": spec})


@pytest.fixture
async def scene(client: Client, control_plane: Cluster, namespace: str, tmp_path: Path) -> Scene:
    await install_definitions(client, [definition()])
    return Scene(client=client, cluster=control_plane, namespace=namespace, folder=tmp_path)


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_ruling_28_an_answer_is_understood(situation: str, scene: Scene) -> None:
    expected, make = SITUATIONS[situation]
    with pytest.raises(ApiError) as caught:
        await make(scene)
    assert caught.value.kind is expected, f"{caught.value} {caught.value.details}"
    assert is_retryable(caught.value) == expected.is_retryable
    if expected is ErrorKind.UID_MISMATCH:
        assert isinstance(caught.value, Conflict)


def test_every_answer_of_the_table_is_made_by_some_situation() -> None:
    """But for history that is compacted: that takes minutes (core/tests/kube/test_reflector.py has it)."""
    made = {answer for answer, _ in SITUATIONS.values()}
    assert made == ({pattern.kind for pattern in ERROR_PATTERNS} | {ErrorKind.UNKNOWN}) - {ErrorKind.EXPIRED}
