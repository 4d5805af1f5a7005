"""Builds the HTTPRoute of a deployment (docs/routing.md).

Every field that the API server would fill in is written out, so that an unchanged route equals what was applied. Owner
and our own labels are added by the writer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from airunway.api import names
from airunway.configs.canonical import parse_duration
from airunway.configs.resolution import BUILT_IN, EffectiveConfig
from airunway.resource import Resource, entries_at, mapping_at, text_at
from airunway.routing.backends import POOL_GROUP, Backend, BackendKind
from airunway.routing.claims import Claim, ClaimKind
from airunway.routing.gateways import Target, parents_of
from airunway.routing.groups import Share
from airunway.sdk import picker

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MAX_HEADER = 2048
"""The limit of ``status.gateway.modelName``; a header of an HTTPRoute may have 4096 characters."""


@dataclass(frozen=True, kw_only=True)
class RouteRules:
    """The rules of a route; an empty text means that the rule is left out."""

    path: str = ""
    model_name: str = ""

    def __bool__(self) -> bool:
        return bool(self.path or self.model_name)


def route(
    name: str,
    *,
    target: Target,
    rules: RouteRules,
    backend: Backend | None,
    timeout: str = "",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    path_to_service: bool = False,
    shared: Mapping[ClaimKind, Sequence[Share]] | None = None,
) -> Resource:
    """The HTTPRoute with at least one of the two rules.

    The path rule has exactly one match: a rewrite of the prefix allows no second one. `path_to_service` sends it to
    the Service although the backend is a pool, for pickers that do not understand a path before its rewrite.
    The rules in `shared` lead to several deployments instead, by weight.
    """
    shared = shared or {}
    parent: Resource = {
        "group": names.GATEWAY_GROUP,
        "kind": "Gateway",
        "namespace": target.gateway.namespace,
        "name": target.gateway.name,
    }
    if target.section:
        parent["sectionName"] = target.section
    made = []
    if rules.path:
        rewrite = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}
        made.append(
            _rule(
                match={"path": {"type": "PathPrefix", "value": rules.path}},
                backends=_refs(shared.get(ClaimKind.PATH), path=True)
                or [_backend_ref(backend, service=path_to_service)],
                filters=[{"type": "URLRewrite", "urlRewrite": {"path": rewrite}}],
                timeout=timeout,
            )
        )
    if rules.model_name:
        header = {"type": "Exact", "name": names.MODEL_HEADER, "value": rules.model_name}
        made.append(
            _rule(
                match={"path": {"type": "PathPrefix", "value": "/"}, "headers": [header]},
                backends=_refs(shared.get(ClaimKind.MODEL_NAME), path=False) or [_backend_ref(backend)],
                timeout=timeout,
            )
        )
    metadata: Resource = {"name": name}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {
        "apiVersion": f"{names.GATEWAY_GROUP}/v1",
        "kind": "HTTPRoute",
        "metadata": metadata,
        "spec": {"parentRefs": [parent], "rules": made},
    }


def _refs(shares: Sequence[Share] | None, *, path: bool) -> list[Resource]:
    return [
        {**_backend_ref(share.backend, service=path and share.member.path_to_service), "weight": share.weight}
        for share in shares or ()
        if share.backend is not None
    ]


def _rule(*, match: Resource, backends: list[Resource], filters: Sequence[Resource] = (), timeout: str) -> Resource:
    rule: Resource = {"matches": [match], "backendRefs": backends}
    if filters:
        rule["filters"] = list(filters)
    if timeout:
        rule["timeouts"] = {"request": timeout}
    return rule


def _backend_ref(backend: Backend | None, *, service: bool = False) -> Resource:
    if backend is None:
        raise ValueError("a rule without a backend")
    if backend.kind is BackendKind.POOL and not (service and backend.service):
        return {"group": POOL_GROUP, "kind": "InferencePool", "name": backend.name, "weight": 1}
    return {"group": "", "kind": "Service", "name": backend.service, "port": backend.service_port, "weight": 1}


def header_problem(model_name: str) -> str:
    """Why a model name can be no value of a header, as the end of a sentence; empty if it can."""
    if _CONTROL.search(model_name):
        return "has a control character, which no HTTP header can have"
    if model_name != model_name.strip():
        return "begins or ends with a blank, which HTTP headers lose"
    if len(model_name) > _MAX_HEADER:
        return f"has more than {_MAX_HEADER} characters"
    return ""


def request_timeout(
    deployment: Resource, config: EffectiveConfig | None, *, holds_at_zero: bool = False
) -> tuple[str, str]:
    """The longest time for a request, and a remark about one that no HTTPRoute takes (else empty).

    With `holds_at_zero` there is always one: gateways derive from it how long a request may wait for a replica.
    """
    otherwise = picker.HOLD_TIME if holds_at_zero else ""
    asked, field = text_at(deployment, "spec", "gateway", "requestTimeout"), "spec.gateway.requestTimeout"
    if not asked and config is not None:
        asked, field = config.routing.request_timeout, f"spec.routing.requestTimeout of config {config.name}"
    if not asked or parse_duration(asked) is not None:
        return asked or otherwise, ""
    return otherwise, f"{field} is left out: an HTTPRoute takes durations such as 30s, 5m or 1h30m"


def annotations_for(deployment: Resource, config: EffectiveConfig | None) -> tuple[dict[str, str], str]:
    """The annotations of the route, the deployment's before the config's, and a remark about those left out."""
    asked = {
        **(config or BUILT_IN).routing.annotations,
        **mapping_at(deployment, "spec", "gateway", "annotations"),
    }
    kept: dict[str, str] = {}
    left = []
    for key, value in asked.items():
        prefix, slash, _ = key.rpartition("/")
        reserved = slash and (prefix == names.GROUP or prefix.endswith(f".{names.GROUP}"))
        if isinstance(value, str) and _is_key(key) and not reserved:
            kept[key] = value
        else:
            left.append(key)
    if not left:
        return kept, ""
    return (
        kept,
        f"{len(left)} annotations of the route are left out, {left[0][:80]!r} first: no valid or a reserved key",
    )


def _is_key(key: str) -> bool:
    """Whether the API server takes it as the key of an annotation."""
    prefix, slash, name = key.rpartition("/")
    labels = prefix.split(".") if slash else []
    return len(prefix) <= 253 and all(map(_LABEL.fullmatch, labels)) and _NAME.fullmatch(name) is not None


def rules_in(live: Resource) -> RouteRules:
    """The rules of a route of ours that exists."""
    found = {claim.kind: claim.value for claim in reversed(claims_in(live))}
    return RouteRules(path=found.get(ClaimKind.PATH, ""), model_name=found.get(ClaimKind.MODEL_NAME, ""))


def claims_in(live: Resource) -> tuple[Claim, ...]:
    """The paths and model names that a route of ours takes on its Gateways."""
    found = []
    for target in parents_of(live):
        for match in (match for rule in entries_at(live, "spec", "rules") for match in entries_at(rule, "matches")):
            headers = [
                text_at(header, "value")
                for header in entries_at(match, "headers")
                if text_at(header, "name").lower() == names.MODEL_HEADER.lower()
            ]
            path = text_at(match, "path", "value")
            if headers and headers[0]:
                found.append(Claim(target.gateway, target.section, ClaimKind.MODEL_NAME, headers[0]))
            elif path not in ("", "/"):
                found.append(Claim(target.gateway, target.section, ClaimKind.PATH, path))
    return tuple(found)
