"""Accounts that may do exactly what is listed, and whether they use all of it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress

from tests.support.audit import AuditReader, Request

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, Client, Forbidden, Kind, NotFound
from airunway.rbac.rights import Rights, roles
from airunway.resource import ObjectKey, Resource, dig, key_of
from airunway_testing.eventually import PATIENCE

_GROUPS = {
    "rbac.authorization.k8s.io": ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"),
    "admissionregistration.k8s.io": ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
_PLURALS = {"ValidatingAdmissionPolicy": "validatingadmissionpolicies"}
_KINDS = {
    kind: Kind(
        group,
        "v1",
        kind,
        _PLURALS.get(kind, f"{kind.lower()}s"),
        namespaced=kind in ("Role", "RoleBinding"),
    )
    for group, kinds in _GROUPS.items()
    for kind in kinds
}


def account_of(user: str) -> Resource:
    """A user, or the service account that has this user name, as a subject of bindings."""
    parts = user.split(":")
    if parts[:2] == ["system", "serviceaccount"]:
        return {"kind": "ServiceAccount", "namespace": parts[2], "name": parts[3]}
    return {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}


@asynccontextmanager
async def applied(client: Client, objects: Sequence[Resource]) -> AsyncIterator[None]:
    """Roles, policies and bindings, for the duration. Policies are asked from the beginning on."""
    try:
        for obj in objects:
            await client.apply(_KINDS[obj["kind"]], obj, manager="airunway-testing", force=True)
        if any(obj["kind"] == "ValidatingAdmissionPolicy" for obj in objects):
            await _until_asked(client)
        yield
    finally:
        for obj in reversed(objects):
            with suppress(NotFound):
                await client.delete(_KINDS[obj["kind"]], key_of(obj))


async def _until_asked(client: Client) -> None:
    """Wait until the API server asks the policies that were made before: it does once it asks one that is made now."""
    name = f"airunway-testing-{uuid.uuid4().hex[:8]}"
    denies = {"expression": f"object.metadata.name != '{name}'", "reason": "Forbidden"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    policy = {"matchConstraints": {"resourceRules": [rule]}, "validations": [denies]}
    binding = {"policyName": name, "validationActions": ["Deny"]}
    last = (
        {**group, "kind": "ValidatingAdmissionPolicy", "spec": policy},
        {**group, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
    )
    map_ = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
    try:
        for obj in last:
            await client.apply(_KINDS[str(obj["kind"])], obj, manager="airunway-testing", force=True)
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await client.create(CONFIG_MAP, map_, dry_run=True)
                except Forbidden:
                    return
                await asyncio.sleep(0.05)
    finally:
        for obj in last:
            with suppress(NotFound):
                await client.delete(_KINDS[str(obj["kind"])], ObjectKey("", name))


@asynccontextmanager
async def granted(
    client: Client, rights: Rights, *, user: str, namespace: str, watched: Sequence[str] = ()
) -> AsyncIterator[None]:
    """`user` may do what `rights` say and nothing else, for the duration: as `airunway.rbac.rights.roles` has it."""
    made = roles(rights, name=user.replace(":", "-"), namespace=namespace, subject=account_of(user), watched=watched)
    async with applied(client, made):
        async with asyncio.timeout(PATIENCE):  # the authorizer learns of the bindings by watches
            for where in watched or [""]:
                while not await client.subject_access_review(
                    user=user, verb="list", kind=MODEL_DEPLOYMENT, namespace=where
                ):
                    await asyncio.sleep(0.05)
        yield


def unused(rights: Rights, requests: Collection[Request], *, rare: Collection[tuple[str, str]] = ()) -> list[str]:
    """Each verb on each resource (with a name, where the rule has names) that was granted and that no request used.

    An apply that made its object has used ``patch`` and ``create``. `rare` are verbs on resources which need not be
    used.
    """
    used = set()
    for request in requests:
        for verb in {request.verb, "create"} if (request.verb, request.code) == ("patch", 201) else {request.verb}:
            used |= {(verb, request.resource, ""), (verb, request.resource, request.name)}
    return sorted(
        " ".join(part for part in right if part)
        for right in _single(rights)
        if right not in used and right[:2] not in rare
    )


async def requests_until_used(
    audit: AuditReader, rights: Rights, *, user: str, rare: Collection[tuple[str, str]] = ()
) -> list[Request]:
    """The requests of the user in the audit log since it was read last, watches included, once they have used all the
    rights but the `rare`; at most the patience of a test is waited for that, so that the test says what is unused.
    """
    found: list[Request] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while not found or unused(rights, found, rare=rare):
                found += [request for request in audit.read(watches=True) if request.user == user]
                await asyncio.sleep(0.2)
    return found


def _single(rights: Rights) -> Iterator[tuple[str, str, str]]:
    for rule in (*rights.cluster, *rights.watched, *rights.own):
        for verb in rule["verbs"]:
            for resource in rule["resources"]:
                for name in dig(rule, "resourceNames", default=[""]):
                    yield verb, resource, name
