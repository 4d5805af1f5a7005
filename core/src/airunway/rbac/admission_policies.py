"""The guards: ValidatingAdmissionPolicies that limit the accounts of controllers (docs/admission.md).

Example: to set its finalizer a provider needs ``patch`` on the whole ModelDeployment; its guard refuses every other
change. RBAC also cannot limit by the owner of a ConfigMap or by part of a status. Each policy applies to its account.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airunway.api import names
from airunway.gateway.caches import DESTINATION_RULE, HTTP_ROUTE, INFERENCE_POOL, PICKER_KINDS
from airunway.kinds import (
    CLUSTER_RUNTIME_CONFIG,
    INFERENCE_PROVIDER_CONFIG,
    MODEL_ARTIFACT,
    MODEL_DEPLOYMENT,
    RUNTIME_CONFIG,
)
from airunway.kube import CONFIG_MAP, JOB, PERSISTENT_VOLUME_CLAIM
from airunway.plugins.contract import ProviderManifest
from airunway.rbac.part_rules import BY_ARTIFACT, artifact_contents, gateway_contents, model_cache_contents
from airunway.rbac.policy_rules import (
    BY_DEPLOYMENT,
    HELD,
    OWNERS,
    VARIABLES,
    PolicyRule,
    if_present,
    is_account,
    keeps_finalizers,
    literals,
    own_records,
    policy_and_binding,
    quoted,
    resource_rule,
    resource_rules,
    whereabouts,
    whose_kind,
)
from airunway.rbac.provider_rules import contents, uses
from airunway.resource import Resource
from airunway.status.conditions import PARTS, ConditionWriter, conditions_of

GUARD = "airunway-guard"

"""The parts of the core's process, which have one account: each has its own Lease and writes events in its own name."""

_FINALIZERS = {
    "before": "oldObject.metadata.?finalizers.orValue([])",
    "after": "object.metadata.?finalizers.orValue([])",
}


def core_guard(user: str, *, name: str = GUARD) -> list[Resource]:
    """The core may remove finalizers of providers from deployments, and write its own events and its own Leases.

    Of runtime configs it writes only the status. Of the status of a deployment it does not write the provider's part.

    `user` is its account's name as the API server knows it: ``system:serviceaccount:NAMESPACE:NAME``.
    """
    theirs = f"f.startsWith({quoted(f'{names.GROUP}/')}) && f.endsWith('-provider')"
    finalizers = PolicyRule(
        expression="variables.after.all(f, f in variables.before) && "
        f"variables.before.all(f, f in variables.after || {theirs})",
        message="the core may only take off finalizers of providers",
    )
    condition = is_account(user)
    return [
        *policy_and_binding(
            f"{name}-core",
            condition=condition,
            resources=[_deployments()],
            variables=_FINALIZERS,
            rules=[*_USERS_OWN, finalizers],
        ),
        *policy_and_binding(
            f"{name}-core-fields",
            condition=condition,
            resources=[_deployments(subresource="status")],
            rules=list(_PROVIDERS_STATUS),
        ),
        *policy_and_binding(
            f"{name}-core-configs",
            condition=condition,
            resources=[resource_rule(names.GROUP, RUNTIME_CONFIG.plural, CLUSTER_RUNTIME_CONFIG.plural)],
            rules=[PolicyRule(expression="false", message="the core writes only the status of runtime configs")],
        ),
        *own_records(f"{name}-core", condition, *names.CORE_MANAGERS),
    ]


def gateway_guard(
    user: str,
    *,
    own: str,
    namespaces: Sequence[str] = (),
    images: Sequence[str] = (),
    annotations: Sequence[str] = (),
    name: str = GUARD,
) -> list[Resource]:
    """The limits of the core's account on the objects of its gateway part, in addition to `core_guard`.

    The account may write routes, pools and endpoint pickers that a ModelDeployment controls, that have the part's
    label, that are called as the deployment is, and that have no content that the part never writes. It may bind
    service accounts to one ClusterRole only. `own` is the namespace in which it runs, `namespaces` are those that it
    watches (empty: all), `images` further repositories of endpoint pickers, `annotations` the keys with a domain that
    routes may have.
    """
    variables, rules = gateway_contents(images, annotations)
    kinds = sorted((kind.group, kind.plural) for kind in (HTTP_ROUTE, INFERENCE_POOL, DESTINATION_RULE, *PICKER_KINDS))
    part, gateway = quoted(names.PART), quoted(names.GATEWAY_PART)
    return policy_and_binding(
        f"{name}-gateway",
        condition=is_account(user),
        resources=resource_rules(kinds),
        variables={**OWNERS, **variables, **HELD},
        rules=[
            *whereabouts([own], namespaces, who="the core"),
            PolicyRule(
                expression=f"oldObject == null || oldObject.metadata.?labels[?{part}].orValue('') == {gateway} && "
                f"({_OWNED_BEFORE})",
                message="the core must not touch an object that it has not made for a ModelDeployment",
            ),
            PolicyRule(
                expression=f"object == null || variables.after.exists(r, {BY_DEPLOYMENT})",
                message="what the core writes must belong to a ModelDeployment",
            ),
            PolicyRule(
                expression=f"object == null || object.metadata.?labels[?{part}].orValue('') == {gateway}",
                message=f"what the gateway part writes must have the label {names.PART}: {names.GATEWAY_PART}",
            ),
            keeps_finalizers("the core"),
            *if_present(rules),
        ],
    )


def model_cache_guard(
    user: str,
    *,
    own: str,
    namespaces: Sequence[str] = (),
    images: Sequence[str] = (),
    where: str = "Labelled",
    name: str = GUARD,
) -> list[Resource]:
    """The limits of the core's account on the objects of its model cache part, in addition to `core_guard`.

    The account may write claims and Jobs that a ModelArtifact controls (claims of volumes: a ModelDeployment), that
    have the part's label, that are called as their owner, and that have no content that the part never writes. Of
    ModelArtifacts it may write and delete those that it has made, and change nothing but their labels. `own` is the
    namespace in which it runs, `namespaces` are those that it watches (empty: all), `images` further repositories of
    the downloader. Jobs run only in namespaces with a label that allows them, unless `where` is ``All``.
    """
    variables, rules = model_cache_contents(images, where=where)
    claims = f"variables.kind == {whose_kind(PERSISTENT_VOLUME_CLAIM.group, PERSISTENT_VOLUME_CLAIM.plural)}"
    owned = f"variables.%s.exists(r, {BY_ARTIFACT} || {claims} && {BY_DEPLOYMENT})"
    orphaned = (
        "!variables.before.exists(r, r.?controller.orValue(false)) && "
        f"'{names.DEPLOYMENT_UID}' in oldObject.metadata.?annotations.orValue({{}})"
    )
    part, managed = (
        f"%s.metadata.?labels[?{quoted(key)}].orValue('') == {quoted(value)}"
        for key, value in ((names.PART, names.MODEL_CACHE_PART), (names.MANAGED_BY, names.MANAGED_BY_VALUE))
    )
    condition, places = is_account(user), whereabouts([own], namespaces, who="the core")
    return [
        *policy_and_binding(
            f"{name}-model-cache",
            condition=condition,
            resources=resource_rules(sorted((kind.group, kind.plural) for kind in (JOB, PERSISTENT_VOLUME_CLAIM))),
            variables={**OWNERS, **variables, **HELD},
            rules=[
                *places,
                PolicyRule(
                    expression=f"oldObject == null || {part % 'oldObject'} && ({owned % 'before'} || {orphaned})",
                    message="the core must not touch an object that it has not made for a ModelArtifact",
                ),
                PolicyRule(
                    expression=f"object == null || {owned % 'after'}",
                    message="what the core writes must belong to a ModelArtifact, or be the claim of a ModelDeployment",
                ),
                PolicyRule(
                    expression=f"object == null || {part % 'object'}",
                    message=f"what the model cache part writes must have the label {names.PART}: "
                    f"{names.MODEL_CACHE_PART}",
                ),
                # The API server itself puts its protection on every claim.
                keeps_finalizers("the core", "kubernetes.io/pvc-protection"),
                *if_present(rules),
            ],
        ),
        *policy_and_binding(
            f"{name}-model-artifacts",
            condition=condition,
            resources=[resource_rule(MODEL_ARTIFACT.group, MODEL_ARTIFACT.plural)],
            variables={**OWNERS, **HELD, "o": "dyn(object)"},
            rules=[
                *places,
                PolicyRule(
                    expression=f"oldObject == null || {part % 'oldObject'} && {managed % 'oldObject'}",
                    message="the core must not touch a ModelArtifact that it has not made",
                ),
                PolicyRule(
                    expression=f"object == null || {part % 'object'} && {managed % 'object'}",
                    message=f"a ModelArtifact that the core makes has the labels {names.PART} and {names.MANAGED_BY}",
                ),
                keeps_finalizers("the core"),
                *if_present(artifact_contents()),
            ],
        ),
    ]


def provider_guard(
    manifest: ProviderManifest,
    user: str,
    *,
    own: str,
    core: str = "",
    namespaces: Sequence[str] = (),
    name: str = GUARD,
) -> list[Resource]:
    """The limits of the account of one provider, which no other provider may use.

    The account may change:

    - of a ModelDeployment, the provider's own finalizer, and its part of the status while the deployment is its own,
    - upstream objects and ConfigMaps with its label, in namespaces that have ModelDeployments, and without any content
      that no translation writes (`airunway.rbac.policy_rules`),
    - its own registration, events and Lease.

    `own` is the namespace in which it runs, `core` that of the core if it is another. `namespaces` are those that the
    provider watches (empty: all). The core must publish where deployments are (``--guard-parameters``). Raises
    ValueError for a manifest with a path that CEL cannot walk.
    """
    name, provider = f"{name}-{manifest.name}", quoted(manifest.name)
    finalizer = quoted(names.provider_finalizer(manifest.name))
    chosen = f"oldObject.?status.?provider.?name.orValue('') == {provider}"
    written = [kind for kind in manifest.upstream if kind.write]
    kinds = sorted({(kind.group, kind.plural) for kind in written} | {(CONFIG_MAP.group, CONFIG_MAP.plural)})
    condition = is_account(user)
    variables, rules = contents(manifest)
    core = core or own
    return [
        *policy_and_binding(
            f"{name}-deployments",
            condition=condition,
            resources=[_deployments()],
            variables=_FINALIZERS,
            rules=[
                *_USERS_OWN,
                PolicyRule(
                    expression=f"variables.before.all(f, f == {finalizer} || f in variables.after) && "
                    f"variables.after.all(f, f == {finalizer} || f in variables.before)",
                    message="a provider must not touch finalizers of others",
                ),
                PolicyRule(
                    expression=f"!({finalizer} in variables.after) || {finalizer} in variables.before || {chosen}",
                    message="a provider must not hold a deployment that was not given to it",
                ),
            ],
        ),
        *policy_and_binding(
            f"{name}-status",
            condition=condition,
            resources=[_deployments(subresource="status")],
            variables={"before": _FINALIZERS["before"]},
            rules=[
                PolicyRule(
                    expression=f"{chosen} || {finalizer} in variables.before",
                    message="a provider must not write the status of a deployment that was not given to it",
                ),
                *_CORE_STATUS,
            ],
        ),
        *policy_and_binding(
            f"{name}-objects",
            condition=condition,
            resources=resource_rules(kinds),
            variables={
                **OWNERS,
                **variables,
                **HELD,
                "whose": f"oldObject == null ? '' : oldObject.metadata.?labels[?{quoted(names.PROVIDER)}].orValue('')",
            },
            # One policy for all of it: the API server converts the object once per policy.
            rules=[
                *whereabouts([own, core], namespaces),
                _WAS_OURS,
                _IS_OURS,
                *_belongs_to(provider),
                keeps_finalizers("a provider"),
                *if_present(rules),
            ],
        ),
        *_with_parameters(manifest, f"{name}-namespaces", condition=condition, kinds=kinds),
        *policy_and_binding(
            f"{name}-config",
            condition=condition,
            resources=[
                resource_rule(
                    names.GROUP,
                    *(f"{INFERENCE_PROVIDER_CONFIG.plural}{suffix}" for suffix in ("", "/status")),
                    operations=("CREATE", "UPDATE"),
                )
            ],
            rules=[
                PolicyRule(
                    expression=f"object.metadata.name == {provider}",
                    message="a provider must not write the InferenceProviderConfig of another",
                ),
                PolicyRule(
                    expression="object.?status.?namespaces.orValue({}) == "
                    "(oldObject == null ? {} : oldObject.?status.?namespaces.orValue({}))",
                    message="a provider must not change its namespaces and their service accounts: the core notes them",
                ),
            ],
        ),
        *own_records(name, condition, names.provider_manager(manifest.name)),
    ]


def _with_parameters(
    manifest: ProviderManifest, name: str, *, condition: str, kinds: Sequence[tuple[str, str]]
) -> list[Resource]:
    """Limits that depend on the existing deployments, which the core lists on the provider's InferenceProviderConfig.

    The API server looks for the config before it checks the account, and refuses requests of any account without it. So
    the policy matches only objects with the provider's label (`provider_guard` requires that label of the account), and
    without the config only creations are refused: upstream operators and the garbage collector can still change
    existing objects.
    """
    variables, rules = uses(manifest, noted="variables.noted")
    policy, binding = policy_and_binding(
        name,
        condition=condition,
        resources=resource_rules(kinds, operations=("CREATE", "UPDATE")),
        variables={
            **VARIABLES,
            **variables,
            "namespaces": "params.?status.?namespaces.orValue({})",
            "noted": "variables.namespaces[?request.namespace].orValue('').split(' ')",
        },
        rules=[
            PolicyRule(
                expression="has(object.metadata.deletionTimestamp) || request.namespace in variables.namespaces",
                message="a provider must not write into a namespace that has no ModelDeployment of its own (the core "
                "lists the others in status.namespaces of the InferenceProviderConfig; if this one is missing there, "
                "upgrade the core, or start it with --guard-parameters)",
            ),
            *rules,
        ],
    )
    policy["spec"]["paramKind"] = {
        "apiVersion": INFERENCE_PROVIDER_CONFIG.api_version,
        "kind": INFERENCE_PROVIDER_CONFIG.kind,
    }
    policy["spec"]["matchConstraints"]["objectSelector"] = {"matchLabels": {names.PROVIDER: manifest.name}}
    bindings = []
    for operation, missing in (("CREATE", "Deny"), ("UPDATE", "Allow")):
        bound: Resource = {
            **binding["spec"],
            "paramRef": {"name": manifest.name, "parameterNotFoundAction": missing},
            "matchResources": {"resourceRules": resource_rules(kinds, operations=(operation,))},
        }
        bindings.append({**binding, "metadata": {"name": f"{name}-{operation.lower()}"}, "spec": bound})
    return [policy, *bindings]


def status_guard(
    users: Iterable[str], *, accounts_of: str = "", namespaces: Sequence[str] = (), name: str = GUARD
) -> list[Resource]:
    """Only `users` may write the status of a ModelDeployment, in these `namespaces` (empty: in all).

    Core and providers trust it: a writer of that status could choose a provider without validation and policy. `users`
    are the accounts of the core, of each provider, and of other writers, such as a custom selector. `accounts_of` is a
    namespace all of whose accounts are allowed: the operator's, in which providers are added and removed.
    """
    listed = ", ".join(quoted(user) for user in sorted(set(users)))
    condition = f"!(request.userInfo.username in [{listed}])"
    if accounts_of:
        condition += f" && !request.userInfo.username.startsWith({quoted(f'system:serviceaccount:{accounts_of}:')})"
    return policy_and_binding(
        f"{name}-status",
        condition=condition,
        resources=[_deployments(subresource="status")],
        rules=[PolicyRule(expression="false", message="only AI Runway's controllers write the status of a deployment")],
        namespaces=namespaces,
    )


# ------------------------------------------------------------------------------------------------------------- rules


def _unchanged(path: str, message: str, *, empty: str = "{}") -> PolicyRule:
    """The field at `path`, in CEL notation (``.?`` before optional fields), must not change."""
    return PolicyRule(expression=f"object{path}.orValue({empty}) == oldObject{path}.orValue({empty})", message=message)


_USERS_OWN = (
    PolicyRule(
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


def _of_others(
    who: str, owner: str, fields: Iterable[tuple[str, str, str]], conditions: Iterable[str]
) -> tuple[PolicyRule, ...]:
    """Fields (with their names in messages and their empty values) and conditions of a status that another writes."""
    return (
        *(
            _unchanged(f".?status{path}", f"{who} must not change {text} in a status: it is {owner}", empty=empty)
            for path, text, empty in fields
        ),
        PolicyRule(
            expression=f"{literals(conditions)}.all(t, "
            "object.?status.?conditions.orValue([]).filter(c, c.type == t) == "
            "oldObject.?status.?conditions.orValue([]).filter(c, c.type == t))",
            message=f"{who} must not change conditions that are {owner}",
        ),
    )


_CORE_STATUS = _of_others(
    "a provider",
    "the core's",
    (
        (".?engine", "the engine", "{}"),
        (".?provider.?name", "the provider", "''"),
        (".?selection", "the selection", "{}"),
        (".?effectiveRuntimeConfig", "the runtime config in effect", "{}"),
        (".?parts", "the parts", "[]"),
        (".?gateway", "the route", "{}"),
        (".?modelCache", "the model cache", "{}"),
        (".?revision", "what it runs with", "{}"),
        (".?effectiveTemplate", "what the template gives", "{}"),
    ),
    conditions_of(ConditionWriter.CORE, *PARTS),
)

_PROVIDERS_STATUS = _of_others(
    "the core",
    "the provider's",
    (
        (".?observedGeneration", "the observed generation", "0"),
        (".?provider.?resourceName", "the provider's object", "''"),
        (".?provider.?resourceKind", "the provider's object", "''"),
        (".?provider.?revision", "the revision in use", "''"),
        (".?provider.?newer", "what is newer in the provider", "{}"),
        (".?endpoint", "the endpoint", "{}"),
        (".?selector", "the selector", "''"),
        (".?replicas", "the replicas", "{}"),
        (".?image", "the image", "{}"),
        (".?rootCause", "the root cause", "{}"),
    ),
    conditions_of(ConditionWriter.PROVIDER),
)

# As in `airunway.owned.objects.is_ours`: without owner references, the annotation shows the owner.
_OWNED_BEFORE = (
    f"variables.before.exists(r, {BY_DEPLOYMENT}) || "
    "(!variables.before.exists(r, r.?controller.orValue(false)) && "
    f"'{names.DEPLOYMENT_UID}' in oldObject.metadata.?annotations.orValue({{}}))"
)
_WAS_OURS = PolicyRule(
    expression=f"oldObject == null || {_OWNED_BEFORE}",
    message="a provider must not touch an object that belongs to no ModelDeployment",
)
_IS_OURS = PolicyRule(
    expression=f"object == null || variables.after.exists(r, {BY_DEPLOYMENT})",
    message="what a provider writes must belong to a ModelDeployment",
)


def _belongs_to(provider: str) -> list[PolicyRule]:
    """An object belongs to this provider by its label; only the plan of a dry run may move between providers."""
    kind = whose_kind(CONFIG_MAP.group, CONFIG_MAP.plural)
    # By kind and owner: a deployment may itself be called `x-airunway-plan`, and so are its objects then.
    named_after = f"oldObject.metadata.name == r.name + {quoted(names.PLAN_SUFFIX)}"
    plan = f"variables.kind == {kind} && variables.before.exists(r, {BY_DEPLOYMENT} && {named_after})"
    return [
        PolicyRule(
            # Without the label it is an object of a part: a picker's Deployment, a download's claim.
            expression=f"oldObject == null || variables.whose == {provider} || {plan}",
            message="a provider must not touch the objects of another",
        ),
        PolicyRule(
            expression="object == null || "
            f"object.metadata.?labels[?{quoted(names.PROVIDER)}].orValue('') == {provider}",
            message=f"what a provider writes must have its label {names.PROVIDER}",
        ),
    ]


def _deployments(*, subresource: str = "") -> Resource:
    plural = MODEL_DEPLOYMENT.plural
    return resource_rule(names.GROUP, f"{plural}/{subresource}" if subresource else plural, operations=("UPDATE",))
