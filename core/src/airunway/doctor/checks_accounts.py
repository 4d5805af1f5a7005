"""Checks 04: the rights of our accounts, and the guards (ValidatingAdmissionPolicies) that limit them.

`airunway.rbac` creates the expected rights and guards, as it does for the charts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product

from airunway.api import names
from airunway.cel import CelError, compile_expression
from airunway.doctor.checks_webhook import settings_of, spared
from airunway.doctor.findings import Found, error, warning
from airunway.doctor.snapshot import OURS, ProcessDeployment, Right, Snapshot, named
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.plugins.host import ProviderHost
from airunway.rbac.admission_policies import (
    GUARD,
    core_guard,
    gateway_guard,
    model_cache_guard,
    provider_guard,
    status_guard,
)
from airunway.rbac.part_rules import ANNOTATION_KEYS
from airunway.rbac.policy_rules import CHOSEN, IMAGES, repository_of
from airunway.rbac.rights import (
    AddOn,
    Rights,
    core_rights,
    gateway_rights,
    leader_election_rights,
    model_cache_rights,
    provider_rights,
    webhook_rights,
)
from airunway.resource import Resource, dig, is_deleting, key_of, labels_of
from airunway.validation.policy import PolicyError, read_selector

_POLICY = "ValidatingAdmissionPolicy"

_WRITERS = re.compile(r"!\(request\.userInfo\.username in \[('[^']*'(, '[^']*')*)?\]\)")
"""The condition by which charts allow further accounts to write a status (``guard.statusWriters``)."""

_LISTED = re.compile(r"'([^',][^']*)'")
"""A text in a list of repositories of images."""

_DEFAULTS: Mapping[str, object] = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "namespaceSelector": {},
    "objectSelector": {},
    "scope": "*",
}
"""Default values that the API server sets."""

_SHOWN = 8
"""Resources that are named in one finding."""


# ------------------------------------------------------------------------------------------------------------ rights


def expected_rights(
    components: Sequence[ProcessDeployment], hosts: Sequence[ProviderHost], add_ons: Mapping[str, AddOn]
) -> list[Right]:
    """Every right that the accounts need for what their processes do, and those that none must have.

    Providers and add-ons whose distribution is not installed here are left out, and processes that have not published
    their settings.
    """
    found: list[Right] = []
    for component in components:
        rights = _of_the_core(component) if component.core else Rights()
        for host in hosts:
            if host.name in component.providers:
                rights += provider_rights(host.manifest)
        for add_on in component.add_ons:
            if add_on in add_ons:
                rights += add_ons[add_on].rights
        if component.known:
            found += _questions(component, rights)
        # No process may list Secrets: a role grants the webhook's own Secret by name, in its namespace.
        found.append(Right(user=component.user, verb="list", group="", resource="secrets", wanted=False))
    return list(dict.fromkeys(found))


def _of_the_core(core: ProcessDeployment) -> Rights:
    rights = core_rights(policy=bool(core.option("policy")), namespaces=core.watched)
    if core.on("leader-elect"):
        rights += leader_election_rights(names.CORE_MANAGER)
    if core.has_gateway:
        rights += gateway_rights()
    if core.has_model_cache:
        rights += model_cache_rights()
    settings = settings_of(core)
    return rights + webhook_rights(settings) if settings is not None else rights


def _questions(component: ProcessDeployment, rights: Rights) -> Iterator[Right]:
    """The rights one by one, as questions for the API server."""
    own = [rule for rule in rights.own if component.on("leader-elect") or rule["resources"] != ["leases"]]
    placed = [("", rule) for rule in rights.cluster]
    placed += [(namespace, rule) for rule in rights.watched for namespace in component.watched or ("",)]
    placed += [(component.key.namespace, rule) for rule in own]
    for namespace, rule in placed:
        listed = (rule["apiGroups"], rule["resources"], rule["verbs"], dig(rule, "resourceNames", default=[""]))
        for group, full, verb, name in product(*listed):
            resource, _, subresource = full.partition("/")
            yield Right(
                user=component.user,
                verb=verb,
                group=group,
                resource=resource,
                subresource=subresource,
                namespace=namespace,
                name=name,
            )


@error(
    "ARW0401",
    "An account lacks rights",
    why="The process is refused what it needs: watches do not start, or objects are not written.",
    do="Grant them: the charts do, and docs/reference/*-roles.yaml list them for each provider.",
    needs=("components", "rights"),
)
def _refused(seen: Snapshot) -> Iterator[Found]:
    missing: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for right, allowed in (seen.rights or {}).items():
        if right.wanted and not allowed:
            missing[right.user][right.target].append(right.verb)
    for user, targets in missing.items():
        lacking = [f"{', '.join(verbs)} {target}" for target, verbs in targets.items()]
        more = f"; and {len(lacking) - _SHOWN} more" if len(lacking) > _SHOWN else ""
        yield Found(_account(user), f"It may not {'; '.join(lacking[:_SHOWN])}{more}.")


@warning(
    "ARW0402",
    "An account may read every Secret",
    why="No part of AI Runway reads Secrets of others. An attacker who takes over the process would have them all.",
    do="Take the binding away that grants it; `kubectl get clusterrolebindings -o wide` shows which names the account.",
    needs=("components", "rights"),
)
def _too_much(seen: Snapshot) -> Iterator[Found]:
    for right, allowed in (seen.rights or {}).items():
        if not right.wanted and allowed:
            yield Found(_account(right.user), f"It may {right.verb} {right.target} in all namespaces.")


def _account(user: str) -> str:
    return f"ServiceAccount/{user.removeprefix('system:serviceaccount:').replace(':', '/', 1)}"


# ------------------------------------------------------------------------------------------------------------ guards


def expected_guards(
    component: ProcessDeployment,
    hosts: Sequence[ProviderHost],
    add_ons: Mapping[str, AddOn],
    *,
    on_fault: Callable[[str, BaseException], None],
) -> tuple[Resource, ...]:
    """The policies and bindings that a chart of this release installs with a guarded component.

    `on_fault` is called with the name of an add-on whose guards cannot be made, and the error.
    """
    if not component.guarded or not component.known or not component.comparable:
        return ()
    user, namespace, watched = component.user, component.key.namespace, component.watched
    name = f"{component.key.name}-{namespace}-guard"
    found: list[Resource] = []
    if component.core:
        found += core_guard(user, name=name)
        parts = (
            (component.has_gateway, gateway_guard, "epp-image"),
            (component.has_model_cache, model_cache_guard, "downloader-image"),
        )
        for on, guard, option in parts:
            if on:
                images = list(filter(None, [repository_of(component.option(option))]))
                found += guard(user, own=namespace, namespaces=watched, images=images, name=name)
        found += status_guard([], accounts_of=namespace, namespaces=watched, name=name)
    for host in hosts:
        if host.name in component.providers:
            found += provider_guard(
                host.manifest, user, own=namespace, core=component.guarded, namespaces=watched, name=name
            )
    for add_on in component.add_ons:
        if add_on in add_ons:
            try:
                guards = tuple(add_ons[add_on].guard(user, own=namespace, namespaces=watched, name=name))
                _ = [(each["kind"], each["spec"], each["metadata"]["name"]) for each in guards]
            except (Exception, SystemExit) as error:  # noqa: BLE001 - of another distribution
                on_fault(add_on, error)
            else:
                found += guards
    return tuple(found)


def difference(wanted: Resource, live: Resource) -> str:
    """The first field in which a live policy or binding differs from the expected one, with both values; or empty.

    Charts may add a condition that allows further writers of a status, and fill in some variables
    (``guard.statusWriters``, ``endpointPicker.images``, ``modelCache.namespaces``, ``gateway.annotations``).
    """
    should, spec = wanted["spec"], live.get("spec") or {}
    if conditions := dig(spec, "matchConditions"):
        spec = {**spec, "matchConditions": [each for each in conditions if not _adds_writers(each)]}
    if _images_in(should) <= _images_in(spec):
        should, spec = _without_images(should), _without_images(spec)
    return _difference(should, spec, "spec")


def _images_in(spec: Resource) -> set[str]:
    """The repositories of images that a guard of the core lists."""
    texts = [str(dig(each, "expression")) for each in dig(spec, "variables", default=[]) if dig(each, "name") == IMAGES]
    return {image for text in texts for listed in _LISTED.findall(text) for image in listed.split(",") if image}


def _without_images(spec: Resource) -> Resource:
    added = (*CHOSEN, ANNOTATION_KEYS)
    variables = [each for each in dig(spec, "variables", default=[]) if dig(each, "name") not in added]
    return {**spec, "variables": variables} if "variables" in spec else spec


def _adds_writers(condition: object) -> bool:
    expression = str(dig(condition, "expression"))
    return dig(condition, "name") == "writers" and _WRITERS.fullmatch(expression) is not None


def _difference(wanted: object, live: object, path: str) -> str:
    if isinstance(live, dict) and (wanted is None or isinstance(wanted, dict)):
        should = wanted or {}
        for name in {**should, **live}:
            default = _DEFAULTS.get(name)
            if found := _difference(should.get(name, default), live.get(name, default), f"{path}.{name}"):
                return found
        return ""
    if isinstance(wanted, list) and isinstance(live, list):
        if len(wanted) != len(live):
            return f"{path} has {len(live)} entries, not {len(wanted)}"
        pairs = enumerate(zip(wanted, live, strict=True))
        return next((found for at, each in pairs if (found := _difference(*each, f"{path}[{at}]"))), "")
    if (wanted or None) == (live or None):
        return ""
    if live in (None, "", [], {}):
        return f"{path} is not there; it should be {_shown(wanted)}"
    return f"{path} is {_shown(live)}" + ("" if wanted is None else f", not {_shown(wanted)}")


def _shown(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:120]}…"


def _denies(binding: Resource, *, policy: str) -> bool:
    """Whether a binding enforces that policy: one that only audits or warns refuses nothing."""
    actions = dig(binding, "spec", "validationActions", default=[])
    return dig(binding, "spec", "policyName") == policy and "Deny" in actions


def shuts_out(
    policy: Resource,
    bindings: Sequence[Resource],
    component: ProcessDeployment,
    labels: Mapping[str, Mapping[str, str]],
) -> bool:
    """Whether a policy and its bindings refuse a component's account the status of deployments in a namespace where it
    works.

    `rbac.admission_policies.status_guard` creates one such policy. `labels` are those of the namespaces, by name. A
    condition or selector that cannot be evaluated here counts as allowing.
    """
    rules = dig(policy, "spec", "matchConstraints", "resourceRules", default=[])
    resources = [resource for rule in rules for resource in dig(rule, "resources", default=[])]
    verdicts = [dig(each, "expression") for each in dig(policy, "spec", "validations", default=[])]
    if resources != [f"{MODEL_DEPLOYMENT.plural}/status"] or set(verdicts) != {"false"}:
        return False
    places = {name: labels.get(name, {}) for name in component.watched}
    own = dig(policy, "spec", "matchConstraints", "namespaceSelector")
    in_force = [
        dig(binding, "spec", "matchResources", "namespaceSelector")
        for binding in bindings
        if _denies(binding, policy=key_of(policy).name)
    ]
    if not _reaches(own, places) or not any(_reaches(selector, places) for selector in in_force):
        return False
    request = {"request": {"userInfo": {"username": component.user}}}
    conditions = dig(policy, "spec", "matchConditions", default=[])
    try:
        return all(
            compile_expression(str(dig(each, "expression")), variables=["request"]).evaluate(request) is True
            for each in conditions
        )
    except CelError:
        return False


def _reaches(selector: object, places: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether a selector may match one of these namespaces (empty: any namespace)."""
    try:
        read_selector(selector, "namespaceSelector")
    except PolicyError:
        return False
    return not places or any(not spared(selector, {name: labels}) for name, labels in places.items())


def _is_guard(policy: Resource) -> bool:
    """Whether a ValidatingAdmissionPolicy concerns AI Runway's kinds, or was created by us for upstream kinds."""
    rules = dig(policy, "spec", "matchConstraints", "resourceRules", default=[])
    if any(names.GROUP in dig(rule, "apiGroups", default=[]) for rule in rules):
        return True
    label, _, value = OURS.partition("=")
    return key_of(policy).name.startswith(f"{GUARD}-") or labels_of(policy).get(label) == value


@warning(
    "ARW0403",
    "A guard is not in force",
    why="A policy does nothing without a binding that denies: accounts may do all that RBAC cannot take from them.",
    do="Apply its binding too, with validationActions [Deny]: the charts have both, and docs/reference/guard.yaml.",
    needs=("policies", "bindings"),
)
def _unbound(seen: Snapshot) -> Iterator[Found]:
    for policy in filter(_is_guard, seen.policies or ()):
        name = key_of(policy).name
        if not any(_denies(binding, policy=name) for binding in seen.bindings or ()):
            idle = [key_of(each).name for each in seen.bindings or () if dig(each, "spec", "policyName") == name]
            what = f"Its binding {', '.join(idle)} does not deny." if idle else "No binding names it."
            yield Found(f"{_POLICY}/{name}", what)


@error(
    "ARW0404",
    "The guard of the status does not know an account",
    why="What the account writes into the status of deployments is refused: it cannot say how they fare.",
    do="Add the account to the policy: generate it anew with the accounts that are in use (in charts: "
    "guard.statusWriters). Where the account belongs to another installation, limit this one's binding to its own "
    "namespaces (in charts: watchNamespaces).",
    needs=("policies", "bindings", "components", "namespaces"),
)
def _stranger(seen: Snapshot) -> Iterator[Found]:
    for policy in filter(_is_guard, seen.policies or ()):
        for component in seen.components or ():
            if not component.core and not component.providers:
                continue  # an add-on writes no deployment's status
            labels = {name: seen.labels_of(name) for name in component.watched}
            if shuts_out(policy, seen.bindings or (), component, labels):
                yield Found(named(_POLICY, policy), f"It shuts {component.user} out, in {component.scope}.")


@error(
    "ARW0405",
    "A guard is missing",
    why="Only RBAC limits the account then, which cannot tell whose object or which field it is: who takes the process "
    "over can change deployments of others.",
    do="Install it again: helm upgrade with the same values (airunway upgrade), or docs/reference/guard.yaml. If the "
    "installation is meant to be without guards, say so: guard.enabled=false in charts.",
    needs=("components", "policies", "guards"),
)
def _unguarded(seen: Snapshot) -> Iterator[Found]:
    there = {key_of(policy).name for policy in seen.policies or ()}
    for component, guards in (seen.guards or {}).items():
        for guard in guards:
            if guard["kind"] == _POLICY and key_of(guard).name not in there:
                yield Found(named(_POLICY, guard), f"It is not there; {component} was installed with it.")


@error(
    "ARW0406",
    "A guard was altered",
    why="It allows what the guard of this release refuses, or refuses what the process has to do.",
    do="Put it back as the chart has it (helm upgrade with the same values; airunway upgrade), and find who changed "
    "it: `kubectl get validatingadmissionpolicy NAME -o yaml --show-managed-fields`.",
    needs=("components", "policies", "bindings", "guards"),
)
def _altered(seen: Snapshot) -> Iterator[Found]:
    policies = {key_of(each).name: each for each in seen.policies or ()}
    bindings = {key_of(each).name: each for each in seen.bindings or ()}
    for guard in (each for guards in (seen.guards or {}).values() for each in guards):
        kind, name = guard["kind"], key_of(guard).name
        live = (policies if kind == _POLICY else bindings).get(name)
        if live is None or (kind != _POLICY and not _denies(live, policy=name)):
            continue  # ARW0405, ARW0403
        if what := difference(guard, live):
            yield Found(f"{kind}/{name}", f"{what}.")


@error(
    "ARW0407",
    "The guard of a provider does not know a namespace in which it has deployments",
    why="The API server refuses what the provider creates there: the core did not list the namespace in "
    "status.namespaces of the InferenceProviderConfig, which the guard reads.",
    do="Upgrade the core to the provider's release, or start it with --guard-parameters (the chart airunway does).",
    needs=("components", "providers", "deployments"),
)
def _unlisted(seen: Snapshot) -> Iterator[Found]:
    """The core lists a namespace before it gives a deployment there to a provider."""
    configs = {key_of(config).name: config for config in seen.providers or ()}
    guarded = [component for component in seen.components or () if component.guarded]
    for component, provider in ((each, name) for each in guarded for name in each.providers if name in configs):
        given = {
            key_of(deployment).namespace
            for deployment in seen.deployments or ()
            if dig(deployment, "status", "provider", "name") == provider and not is_deleting(deployment)
        }
        watched = given & set(component.watched) if component.watched else given
        if missing := sorted(watched - set(dig(configs[provider], "status", "namespaces", default={}))):
            listed = ", ".join(missing[:_SHOWN]) + (" and others" if len(missing) > _SHOWN else "")
            yield Found(f"{INFERENCE_PROVIDER_CONFIG.kind}/{provider}", f"It does not list {listed}.")
