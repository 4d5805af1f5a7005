"""Reads pull Secrets, by name and in the operator's namespace only: the account has no right to read any other."""

from __future__ import annotations

from collections.abc import Sequence

from airunway.kube import Client, Forbidden, Kind, NotFound
from airunway.resource import ObjectKey, Resource
from airunway_catalogue.credentials import Credentials, UnreadableSecret, credentials_in
from airunway_catalogue.registry_errors import Denied

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
