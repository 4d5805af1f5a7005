"""Keeping controllers to what is theirs (spec/quality.md, "Security"): data, for charts and tests.

A provider holds a finalizer on its deployments, for which RBAC has no smaller right than ``patch`` on the whole object;
nor does RBAC know whose ConfigMap it is, or which part of a status. ValidatingAdmissionPolicies, which the API server
evaluates by itself, take back what a controller has no use for. Each looks at the requests of its accounts only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, EVENT
from airunway.plugins.contract import ProviderManifest
from airunway.resource import Resource
from airunway.status.catalogue import CONDITIONS, Writer

__all__ = ["GUARD", "core_guard", "provider_guard", "status_guard"]

GUARD = "airunway-guard"
_VERSION = "admissionregistration.k8s.io/v1"

_FINALIZERS = {
    "before": "oldObject.metadata.?finalizers.orValue([])",
    "after": "object.metadata.?finalizers.orValue([])",
}
_OWNERS = {
    "before": "oldObject == null ? [] : oldObject.metadata.?ownerReferences.orValue([])",
    "after": "object == null ? [] : object.metadata.?ownerReferences.orValue([])",
}


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """Something that must be true of a request; `message` is what the API server says otherwise."""

    expression: str
    message: str


def core_guard(user: str, *, name: str = GUARD) -> list[Resource]:
    """The core takes finalizers of providers off deployments (of providers that are gone), and changes nothing else.

    `user` is its account's name as the API server knows it: ``system:serviceaccount:NAMESPACE:NAME``.
    """
    theirs = f"f.startsWith({_quoted(f'{names.GROUP}/')}) && f.endsWith('-provider')"
    finalizers = _Rule(
        expression="variables.after.all(f, f in variables.before) && "
        f"variables.before.all(f, f in variables.after || {theirs})",
        message="the core may only take off finalizers of providers",
    )
    return _policy(
        f"{name}-core",
        condition=_is_user(user),
        resources=[_deployments()],
        variables=_FINALIZERS,
        rules=[*_USERS_OWN, finalizers],
    )


def provider_guard(manifest: ProviderManifest, user: str, *, name: str = GUARD) -> list[Resource]:
    """What the account of one provider, which no other provider must use, may do with the rights that it has.

    Of a ModelDeployment it changes its own finalizer, and its own part of the status while the deployment is its own;
    of the upstream's kinds and ConfigMaps it touches what belongs to a ModelDeployment; its own registration; its own
    events.
    """
    name, provider = f"{name}-{manifest.name}", _quoted(manifest.name)
    own = _quoted(names.provider_finalizer(manifest.name))
    chosen = f"oldObject.?status.?provider.?name.orValue('') == {provider}"
    reporter = _quoted(f"{names.GROUP}/{names.provider_manager(manifest.name)}")
    kinds = {(kind.group, kind.plural) for kind in manifest.upstream} | {(CONFIG_MAP.group, CONFIG_MAP.plural)}
    condition = _is_user(user)
    return [
        *_policy(
            f"{name}-deployments",
            condition=condition,
            resources=[_deployments()],
            variables=_FINALIZERS,
            rules=[
                *_USERS_OWN,
                _Rule(
                    expression=f"variables.before.all(f, f == {own} || f in variables.after) && "
                    f"variables.after.all(f, f == {own} || f in variables.before)",
                    message="a provider must not touch finalizers of others",
                ),
                _Rule(
                    expression=f"!({own} in variables.after) || {own} in variables.before || {chosen}",
                    message="a provider must not hold a deployment that was not given to it",
                ),
            ],
        ),
        *_policy(
            f"{name}-status",
            condition=condition,
            resources=[_deployments(subresource="status")],
            variables={"before": _FINALIZERS["before"]},
            rules=[
                _Rule(
                    expression=f"{chosen} || {own} in variables.before",
                    message="a provider must not write the status of a deployment that was not given to it",
                ),
                *_CORE_STATUS,
            ],
        ),
        *_policy(
            f"{name}-objects",
            condition=condition,
            resources=[
                _resource(group, plural, operations=("CREATE", "UPDATE", "DELETE")) for group, plural in sorted(kinds)
            ],
            variables=_OWNERS,
            rules=[_WAS_OURS, _IS_OURS],
        ),
        *_policy(
            f"{name}-config",
            condition=condition,
            resources=[
                _resource(
                    names.GROUP,
                    *(f"{INFERENCE_PROVIDER_CONFIG.plural}{suffix}" for suffix in ("", "/status")),
                    operations=("CREATE", "UPDATE"),
                )
            ],
            rules=[
                _Rule(
                    expression=f"object.metadata.name == {provider}",
                    message="a provider must not write the InferenceProviderConfig of another",
                )
            ],
        ),
        *_policy(
            f"{name}-events",
            condition=condition,
            resources=[_resource(EVENT.group, EVENT.plural, operations=("CREATE", "UPDATE"))],
            rules=[
                _Rule(
                    expression="[object, oldObject].all(o, "
                    f"o == null || o.?reportingController.orValue('') == {reporter})",
                    message="a provider must not write events as somebody else",
                )
            ],
        ),
    ]


def status_guard(
    users: Iterable[str], *, accounts_of: str = "", namespaces: Sequence[str] = (), name: str = GUARD
) -> list[Resource]:
    """Nobody but `users` writes the status of a ModelDeployment, in these `namespaces` (empty: in all).

    Core and providers trust what is said there: whoever writes it chooses a provider past validation and policy.
    `users` are the accounts of the core, of each provider, and of what else has a say, such as a selector of one's own.
    `accounts_of` is a namespace whose accounts all may: that of the operator, where providers come and go.
    """
    listed = ", ".join(_quoted(user) for user in sorted(set(users)))
    condition = f"!(request.userInfo.username in [{listed}])"
    if accounts_of:
        condition += f" && !request.userInfo.username.startsWith({_quoted(f'system:serviceaccount:{accounts_of}:')})"
    return _policy(
        f"{name}-status",
        condition=condition,
        resources=[_deployments(subresource="status")],
        rules=[_Rule(expression="false", message="only AI Runway's controllers write the status of a deployment")],
        namespaces=namespaces,
    )


# ------------------------------------------------------------------------------------------------------------- rules


def _unchanged(path: str, message: str, *, empty: str = "{}") -> _Rule:
    """The field at `path`, in the notation of CEL (``.?`` before what may be absent), stays as it is."""
    return _Rule(expression=f"object{path}.orValue({empty}) == oldObject{path}.orValue({empty})", message=message)


_USERS_OWN = (
    _Rule(
        expression="object.spec == oldObject.spec",
        message="a controller must not change the spec of a deployment: it is its user's",
    ),
    *(
        _unchanged(
            f".metadata.?{field}",
            f"a controller must not change the {field} of a deployment: they are its user's",
            empty=empty,
        )
        for field, empty in (("labels", "{}"), ("annotations", "{}"), ("ownerReferences", "[]"))
    ),
)

_CORE_CONDITIONS = ", ".join(f"'{condition.name}'" for condition in CONDITIONS if condition.writer is Writer.CORE)

_CORE_STATUS = (
    *(
        _unchanged(f".?status{path}", f"a provider must not change {text} in a status: it is the core's", empty=empty)
        for path, text, empty in (
            (".?engine", "the engine", "{}"),
            (".?provider.?name", "the provider", "''"),
            (".?selection", "the selection", "{}"),
        )
    ),
    _Rule(
        expression=f"[{_CORE_CONDITIONS}].all(t, "
        "object.?status.?conditions.orValue([]).filter(c, c.type == t) == "
        "oldObject.?status.?conditions.orValue([]).filter(c, c.type == t))",
        message="a provider must not change conditions that are the core's",
    ),
)

_BY_DEPLOYMENT = (
    f"r.kind == '{MODEL_DEPLOYMENT.kind}' && r.apiVersion.startsWith('{names.GROUP}/') && r.?controller.orValue(false)"
)

# As `airunway.runtime.desired.is_ours` has it: where somebody took the owners off, the annotation says whose it was.
_WAS_OURS = _Rule(
    expression=f"oldObject == null || variables.before.exists(r, {_BY_DEPLOYMENT}) || "
    "(!variables.before.exists(r, r.?controller.orValue(false)) && "
    f"'{names.DEPLOYMENT_UID}' in oldObject.metadata.?annotations.orValue({{}}))",
    message="a provider must not touch an object that belongs to no ModelDeployment",
)
_IS_OURS = _Rule(
    expression=f"object == null || variables.after.exists(r, {_BY_DEPLOYMENT})",
    message="what a provider writes must belong to a ModelDeployment",
)


# -------------------------------------------------------------------------------------------------- writing it down


def _policy(
    name: str,
    *,
    condition: str,
    resources: Sequence[Resource],
    rules: Sequence[_Rule],
    variables: Mapping[str, str] | None = None,
    namespaces: Sequence[str] = (),
) -> list[Resource]:
    """A policy and its binding. The condition on the account comes first: of others' requests nothing is computed."""
    spec: Resource = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": list(resources)},
        "matchConditions": [{"name": "account", "expression": condition}],
    }
    if variables:
        spec["variables"] = [{"name": key, "expression": text} for key, text in variables.items()]
    spec["validations"] = [
        {"expression": rule.expression, "message": rule.message, "reason": "Forbidden"} for rule in rules
    ]
    bound: Resource = {"policyName": name, "validationActions": ["Deny"]}
    if namespaces:
        named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": sorted(set(namespaces))}
        bound["matchResources"] = {"namespaceSelector": {"matchExpressions": [named]}}
    return [
        {
            "apiVersion": _VERSION,
            "kind": f"ValidatingAdmissionPolicy{suffix}",
            "metadata": {"name": name},
            "spec": content,
        }
        for suffix, content in (("", spec), ("Binding", bound))
    ]


def _deployments(*, subresource: str = "") -> Resource:
    plural = MODEL_DEPLOYMENT.plural
    return _resource(names.GROUP, f"{plural}/{subresource}" if subresource else plural, operations=("UPDATE",))


def _resource(group: str, *resources: str, operations: Sequence[str]) -> Resource:
    return {"apiGroups": [group], "apiVersions": ["*"], "operations": list(operations), "resources": list(resources)}


def _is_user(user: str) -> str:
    return f"request.userInfo.username == {_quoted(user)}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
