"""Compares the guards (ValidatingAdmissionPolicies that limit our accounts) with those of this release. Pure.

`airunway.rbac.admission_policies` creates the expected ones, as it does for the charts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from airunway import __version__
from airunway.api import names
from airunway.cel import CelError, compile_expression
from airunway.doctor.components import OURS, ProcessDeployment
from airunway.doctor.webhook_comparison import spared
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.plugins.host import ProviderHost
from airunway.rbac.admission_policies import (
    GUARD,
    core_guard,
    gateway_guard,
    model_cache_guard,
    provider_guard,
    status_guard,
)
from airunway.rbac.policy_rules import IMAGES, repository_of
from airunway.resource import Resource, dig, key_of, labels_of
from airunway.validation.policy import PolicyError, read_selector

__all__ = [
    "POLICY",
    "comparable",
    "denies",
    "difference",
    "expected_guards",
    "is_guard",
    "shuts_out",
]

POLICY = "ValidatingAdmissionPolicy"

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


def is_guard(policy: Resource) -> bool:
    """Whether a ValidatingAdmissionPolicy concerns AI Runway's kinds, or was created by us for upstream kinds."""
    rules = dig(policy, "spec", "matchConstraints", "resourceRules", default=[])
    if any(names.GROUP in dig(rule, "apiGroups", default=[]) for rule in rules):
        return True
    label, _, value = OURS.partition("=")
    return key_of(policy).name.startswith(f"{GUARD}-") or labels_of(policy).get(label) == value


def comparable(component: ProcessDeployment) -> bool:
    """Whether a component and its guards are of the same release as this command."""
    return component.version in ("", __version__)


def expected_guards(component: ProcessDeployment, hosts: Sequence[ProviderHost]) -> tuple[Resource, ...]:
    """The policies and bindings that a chart of this release installs with a guarded component."""
    if not component.guarded or not component.known or not comparable(component):
        return ()
    namespace = component.key.namespace
    base = f"{component.key.name}-{namespace}-guard"
    found: list[Resource] = []
    if component.core:
        found += core_guard(component.user, name=base)
        if component.option("gateway") == "auto":
            image = repository_of(component.option("epp-image"))
            found += gateway_guard(
                component.user, own=namespace, namespaces=component.watched, images=[image] if image else [], name=base
            )
        if component.option("model-cache") == "on":
            image = repository_of(component.option("downloader-image"))
            found += model_cache_guard(
                component.user, own=namespace, namespaces=component.watched, images=[image] if image else [], name=base
            )
        found += status_guard([], accounts_of=namespace, namespaces=component.watched, name=base)
    for host in hosts:
        if host.name in component.providers:
            found += provider_guard(
                host.manifest,
                component.user,
                own=namespace,
                core=component.guarded,
                namespaces=component.watched,
                name=base,
            )
    return tuple(found)


def difference(wanted: Resource, live: Resource) -> str:
    """The first field in which a live policy or binding differs from the expected one, with both values; or empty."""
    spec = live.get("spec") or {}
    conditions = [each for each in dig(spec, "matchConditions", default=[]) if not _adds_writers(each)]
    if dig(spec, "matchConditions"):
        spec = {**spec, "matchConditions": conditions}
    should = wanted["spec"]
    if _images_in(should) <= _images_in(
        spec
    ):  # charts may list more (``endpointPicker.images``, ``modelCache.images``)
        should, spec = _without_images(should), _without_images(spec)
    return _difference(should, spec, "spec")


def _images_in(spec: Resource) -> set[str]:
    """The repositories of images that a guard of the core lists."""
    texts = [str(dig(each, "expression")) for each in dig(spec, "variables", default=[]) if dig(each, "name") == IMAGES]
    return {image for text in texts for listed in _LISTED.findall(text) for image in listed.split(",") if image}


def _without_images(spec: Resource) -> Resource:
    variables = [each for each in dig(spec, "variables", default=[]) if dig(each, "name") != IMAGES]
    return {**spec, "variables": variables} if "variables" in spec else spec


def _adds_writers(condition: object) -> bool:
    if dig(condition, "name") != "writers":
        return False
    return _WRITERS.fullmatch(str(dig(condition, "expression"))) is not None


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


def denies(binding: Resource, *, policy: str) -> bool:
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
        if denies(binding, policy=key_of(policy).name)
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
