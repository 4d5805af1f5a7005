"""Finds what helm does not report about a release: foreign objects in it, and what an uninstallation leaves. Read-only.

Every function raises KubeError.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from airunway.api import names
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.kube import Client, Kind, NotFound, served_resources
from airunway.resource import ObjectKey, Resource, annotations_of, dig, key_of

__all__ = ["named", "not_of_release", "what_stays"]

_RELEASE, _RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
_AT_ONCE = 16
"""Concurrent requests."""
_SHOWN = 20
"""ModelArtifacts that are named."""


def named(obj: Resource) -> str:
    """An object as KIND/NAMESPACE/NAME, or KIND/NAME where the manifest gives no namespace."""
    key = key_of(obj)
    return "/".join(filter(None, (str(obj.get("kind")), key.namespace, key.name)))


async def not_of_release(client: Client, objects: Sequence[Resource], *, name: str, namespace: str) -> list[str]:
    """The objects of a release's manifest that helm would delete although it did not create them.

    helm deletes every object that the release's Secret lists, and that Secret can be forged. Objects that helm created
    have the release in their annotations, which only an account with rights on that object can write.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def foreign(obj: Resource) -> str:
        async with slots:
            kind = await _kind_of(client, obj)
            if kind is None:  # for example a List, which helm splits
                return f"{named(obj)} (the API server has no such kind)"
            key = ObjectKey((key_of(obj).namespace or namespace) if kind.namespaced else "", key_of(obj).name)
            try:
                notes = annotations_of(await client.get(kind, key))
            except NotFound:
                return ""
            except ValueError:  # an invalid name
                return named(obj)
        return "" if (notes.get(_RELEASE), notes.get(_RELEASE_NAMESPACE)) == (name, namespace) else named(obj)

    return list(filter(None, await asyncio.gather(*map(foreign, objects))))


async def _kind_of(client: Client, obj: Resource) -> Kind | None:
    """The kind of an object; None if the API server does not serve it."""
    group, _, version = str(obj.get("apiVersion")).rpartition("/")
    return (await served_resources(client, group, version)).get(str(obj.get("kind")))


async def what_stays(client: Client, *, namespace: str) -> list[str]:
    """Lines about what an uninstallation leaves, with the number of deployments per provider."""
    found: Counter[str] = Counter()
    try:
        async for row in client.rows(MODEL_DEPLOYMENT):
            found[str(row.get("Provider") or "")] += 1
    except NotFound:
        return [_namespace(namespace)]
    lines = [
        f"the CRDs of {MODEL_DEPLOYMENT.group}, with all their objects, the runtime configs too",
        "routes, InferencePools and endpoint pickers of ModelDeployments, and the ClusterRole "
        f"{names.ENDPOINT_PICKER_ROLE}, if routes were made",
        "claims of sized volumes, until their ModelDeployments are deleted",
    ]
    lines += await _weights(client)
    for provider, count in sorted(found.items()):
        of = f"of {provider}" if provider else "of no provider"
        lines.append(
            f"{count} ModelDeployment{'s' * (count > 1)} {of}"
            f"{' and their upstream objects; without the provider their deletion waits' * bool(provider)}"
        )
    return [*lines, _namespace(namespace)]


async def _weights(client: Client) -> list[str]:
    """Lines about ModelArtifacts, each with its claim and the claim's size."""
    try:
        artifacts = await client.list_all(MODEL_ARTIFACT)
    except NotFound:
        return []
    lines = []
    for artifact in artifacts[:_SHOWN]:
        key, status = key_of(artifact), artifact.get("status")
        claim, size = dig(status, "persistentVolumeClaim"), dig(status, "allocatedSize")
        held = f" with its claim {claim} ({size or 'size unknown'})" if claim else ""
        lines.append(f"ModelArtifact/{key.namespace}/{key.name}{held}")
    if (more := len(artifacts) - _SHOWN) > 0:
        lines.append(f"{more} more ModelArtifacts with their claims")
    return lines


def _namespace(namespace: str) -> str:
    return f"Namespace/{namespace}, with the Leases and the webhook's Secret in it"
