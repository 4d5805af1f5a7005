"""Discovery: the kinds that the API server serves, their versions and their resource names.

Example: ``await served_resources(client, "apps", "v1")`` returns ``{"Deployment": Kind("apps", "v1", "Deployment",
"deployments"), …}``; a group version that is not served returns ``{}``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from airunway.kube.client import Client
from airunway.kube.errors import NotFound
from airunway.kube.kinds import CUSTOM_RESOURCE_DEFINITION, Kind, kind_of_crd
from airunway.resource import ObjectKey, Resource, dig, is_true, list_at

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_POLL_INTERVAL = 0.1
"""Seconds between two reads of a CRD that is not established yet."""


async def served_resources(client: Client, group: str, version: str) -> dict[str, Kind]:
    """Returns the kinds of a group version by name, without subresources; empty if the version is not served."""
    listing = await _document(client, Kind(group, version, "", "").base_path)
    found = {}
    for entry in listing.get("resources") or ():
        kind, plural = str(dig(entry, "kind")), str(dig(entry, "name"))
        if "/" not in plural:
            found[kind] = Kind(group, version, kind, plural, dig(entry, "namespaced") is True)
    return found


async def served_kinds(client: Client, group: str) -> dict[str, dict[str, Kind]]:
    """Returns the kinds of a group by version and name; empty if it is not served. Not for the core group."""
    document = await _document(client, f"/apis/{group}")
    versions = [str(dig(version, "version")) for version in document.get("versions") or ()]
    listings = await asyncio.gather(*(served_resources(client, group, version) for version in versions))
    return dict(zip(versions, listings, strict=True))


async def is_served(client: Client, kind: Kind) -> bool:
    """Whether the server has this kind in this version."""
    resources = await served_resources(client, kind.group, kind.version)
    return any(each.plural == kind.plural for each in resources.values())


async def served_kinds_by_name(client: Client) -> dict[tuple[str, str], list[Kind]]:
    """Returns all kinds of named API groups that the server has, by group and kind, in one request.

    Several versions of a kind come in the server's order, the preferred one first.
    https://kubernetes.io/docs/concepts/overview/kubernetes-api/#aggregated-discovery
    """
    document = await client.get_path("/apis", accept=_AGGREGATED)
    found: dict[tuple[str, str], list[Kind]] = {}
    for group in list_at(document, "items"):
        name = str(dig(group, "metadata", "name", default=""))
        for version in list_at(group, "versions"):
            for entry in list_at(version, "resources"):
                kind, plural = str(dig(entry, "responseKind", "kind")), str(dig(entry, "resource"))
                namespaced = dig(entry, "scope") == "Namespaced"
                found.setdefault((name, kind), []).append(
                    Kind(name, str(dig(version, "version")), kind, plural, namespaced)
                )
    return found


async def wait_until_established(client: Client, names: Iterable[str], *, timeout: float) -> None:
    """Returns when the CRDs with these names are served. Raises NotFound, and TimeoutError after `timeout` seconds."""
    async with asyncio.timeout(timeout):
        for name in names:
            while not await _is_established(client, name):
                await asyncio.sleep(_POLL_INTERVAL)


async def _is_established(client: Client, name: str) -> bool:
    definition = await client.get(CUSTOM_RESOURCE_DEFINITION, ObjectKey("", name))
    if not is_true(definition, "Established"):
        return False
    # The condition comes first: for a moment requests to a new group get 404.
    versions = [version["name"] for version in definition["spec"]["versions"] if version["served"]]
    return all([await is_served(client, kind_of_crd(definition, version)) for version in versions])


async def _document(client: Client, path: str) -> Resource:
    try:
        return await client.get_path(path)
    except NotFound:
        return {}
