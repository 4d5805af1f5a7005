"""Reads pull Secrets and the authorities of registries, by name and in the operator's namespace only: the account may
read no others.
"""

from __future__ import annotations

from collections.abc import Sequence

from airunway.configs.resolution import CABundle
from airunway.kube import CONFIG_MAP, Client, Forbidden, Kind, NotFound
from airunway.resource import ObjectKey, Resource, text_at
from airunway_catalogue.credentials import Credentials, UnreadableSecret, credentials_in
from airunway_catalogue.registry_errors import Denied, RegistryError

SECRET = Kind(group="", version="v1", kind="Secret", plural="secrets", namespaced=True)


async def read_credentials(
    client: Client, names: Sequence[str], *, namespace: str, host: str, folder: str
) -> Credentials | None:
    """The credentials for a registry that the first of these Secrets has; None: none of them has any. Raises Denied,
    and KubeError for a transient failure of the API server.
    """
    secrets: list[Resource] = []
    for name in names:
        where = f"Secret {name} in namespace {namespace}"
        try:
            secrets.append(await client.get(SECRET, ObjectKey(namespace, name)))
        except NotFound:
            text = f"spec.imagePullSecrets: there is no {where}: create it, or name another one"
            raise Denied("SecretNotFound", text) from None
        except Forbidden:
            text = f"spec.imagePullSecrets: the catalogue may not read {where}: add it to "
            text += "registrySecrets of the chart airunway-catalogue (get on this Secret, by name)"
            raise Denied("Forbidden", text) from None
        try:
            credentials_in(secrets[-1:], host="", folder="")
        except UnreadableSecret as error:
            raise Denied("AuthFailed", f"spec.imagePullSecrets: {where} {error}") from None
    return credentials_in(secrets, host=host, folder=folder)


async def read_authorities(client: Client, bundle: CABundle | None, *, namespace: str) -> str:
    """The certificates in PEM that a registry is trusted by besides the public ones; empty without a bundle. Raises
    RegistryError, and KubeError for a transient failure of the API server.
    """
    if bundle is None:
        return ""
    where = f"ConfigMap {bundle.config_map} in namespace {namespace}"
    try:
        found = await client.get(CONFIG_MAP, ObjectKey(namespace, bundle.config_map))
    except NotFound:
        text = f"spec.caBundle: there is no {where}: create it, or name another one"
        raise RegistryError("ReferenceNotFound", text) from None
    except Forbidden:
        raise Denied("Forbidden", f"spec.caBundle: the catalogue may not read {where}") from None
    if certificates := text_at(found, "data", bundle.key):
        return certificates
    raise RegistryError("ReferenceNotFound", f"spec.caBundle: {where} has no key {bundle.key}")
