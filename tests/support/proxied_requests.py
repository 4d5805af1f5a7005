"""What an API request is about, as a proxy sees it: verb, resource, namespace, name."""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web


@dataclass(kw_only=True)
class ProxiedRequest:
    """One request as it passed; `code` is 0 until (or if never) answered, `fault` what was done to it."""

    method: str
    path: str
    query: dict[str, str]
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int = 0
    fault: str = ""


def parsed_request(incoming: web.Request) -> ProxiedRequest:
    """What an API path and a method mean: verb, resource, namespace, name."""
    query = dict(incoming.query)
    parts = [part for part in incoming.path.split("/") if part]
    parts = parts[2:] if parts[:1] == ["api"] else parts[3:] if parts[:1] == ["apis"] else []
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    resource, name, subresource = (*parts, "", "", "")[:3]
    collection = not name
    verb = {
        "GET": "list" if collection else "get",
        "POST": "create",
        "PUT": "update",
        "PATCH": "apply" if "apply-patch" in incoming.content_type else "patch",
        "DELETE": "delete",
    }.get(incoming.method, incoming.method.lower())
    if verb == "list" and query.get("watch") in ("1", "true"):
        verb = "watch"
    return ProxiedRequest(
        method=incoming.method,
        path=incoming.path,
        query=query,
        verb=verb,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )
