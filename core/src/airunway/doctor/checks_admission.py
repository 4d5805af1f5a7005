"""Checks 03 and 04: the webhook, the rights of accounts, and the policies that limit accounts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

from airunway.doctor.components import ProcessDeployment
from airunway.doctor.findings import Found, Severity, check
from airunway.doctor.guards import POLICY, comparable, denies, difference, is_guard, shuts_out
from airunway.doctor.snapshot import Snapshot
from airunway.doctor.webhook_comparison import configuration_of, disarmed, services_of, settings_of
from airunway.redaction import bounded
from airunway.resource import Resource, dig, key_of
from airunway.webhook.certificates import ROTATE_AHEAD, authority_ends
from airunway.webhook.configuration import CONFIGURATION, bundles_in, webhooks_of

__all__: list[str] = []

_LATE = ROTATE_AHEAD - timedelta(days=30)
"""Certificates are renewed `ROTATE_AHEAD` of their end. If less than this time is left, the renewal has failed."""

_SHOWN = 8


def _named(name: str) -> str:
    return f"ValidatingWebhookConfiguration/{name}"


def _serving(seen: Snapshot) -> Iterator[tuple[ProcessDeployment, str]]:
    """The cores that serve the webhook, each with the name of its configuration."""
    for core in seen.cores:
        if settings_of(core) is not None:
            yield core, configuration_of(core)


@check(
    "ARW0301",
    Severity.ERROR,
    "The webhook is served, but the API server does not call it",
    why="Without its ValidatingWebhookConfiguration the API server sends it nothing: providers, rights and policy of a "
    "namespace are not checked at admission.",
    do="Install it with the chart, or start the core with --webhook-manage-configuration.",
    needs=("components", "configurations"),
)
def _uncalled(seen: Snapshot) -> Iterator[Found]:
    for core, name in _serving(seen):
        live = (seen.configurations or {}).get(name)
        if live is None:
            yield Found(object=_named(name), what=f"It is not there; {core.key.name} serves the webhook.")
        elif not webhooks_of(live):
            yield Found(object=_named(name), what="It has no webhook of AI Runway in it.")


@check(
    "ARW0302",
    Severity.ERROR,
    "The API server trusts no certificate of the webhook",
    why="A call to a webhook without a CA bundle fails, and with failurePolicy Fail every new spec is refused.",
    do="The core's leader puts the bundle in. If it leads, its log says what keeps it: most often the right to patch "
    "this object by name, or a tool that writes caBundle.",
    needs=("components", "configurations"),
)
def _untrusted(seen: Snapshot) -> Iterator[Found]:
    for _, name in _serving(seen):
        for bundle in bundles_in((seen.configurations or {}).get(name, {})):
            if authority_ends(bundle) is None:
                yield Found(
                    object=_named(name), what="Its caBundle holds no certificate." if bundle else "It has no caBundle."
                )


@check(
    "ARW0303",
    Severity.ERROR,
    "The webhook's authority has ended",
    why="The API server refuses its certificate, and with failurePolicy Fail every new spec is refused.",
    do="Restart the core, which makes a new one; look at its log for what kept the leader from doing so in time.",
    needs=("components", "configurations"),
)
def _ended(seen: Snapshot) -> Iterator[Found]:
    for _, name in _serving(seen):
        for bundle in bundles_in((seen.configurations or {}).get(name, {})):
            ends = authority_ends(bundle)
            if ends is not None and ends <= seen.now:
                yield Found(object=_named(name), what=f"Every certificate in its caBundle ended by {ends:%Y-%m-%d}.")


@check(
    "ARW0304",
    Severity.WARNING,
    "The webhook's authority is not renewed",
    why=f"The leader renews it {ROTATE_AHEAD.days} days ahead, and has not. When it ends, new specs are refused.",
    do="Look at the log of the core's leader: it says what keeps it (the Secret, or the right to patch this object).",
    needs=("components", "configurations"),
)
def _forgotten(seen: Snapshot) -> Iterator[Found]:
    for _, name in _serving(seen):
        for bundle in bundles_in((seen.configurations or {}).get(name, {})):
            ends = authority_ends(bundle)
            if ends is not None and seen.now < ends <= seen.now + _LATE:
                yield Found(object=_named(name), what=f"Its caBundle ends on {ends:%Y-%m-%d}.")


@check(
    "ARW0305",
    Severity.ERROR,
    "The webhook's Service has no ready endpoint",
    why="The API server has no pod to send reviews to, and with failurePolicy Fail every new spec is refused.",
    do="Compare the Service's selector and port with the core's pods; a pod that is not ready is no endpoint.",
    needs=("components", "configurations", "endpoints"),
)
def _unreachable(seen: Snapshot) -> Iterator[Found]:
    for _, name in _serving(seen):
        live = (seen.configurations or {}).get(name)
        for key in dict.fromkeys(services_of([live] if live else [])):
            count = (seen.endpoints or {}).get(key)
            if not count:
                what = "It is not there." if count is None else "It has no ready endpoint."
                yield Found(object=f"Service/{key}", what=f"{what} {name} points to it.")


@check(
    "ARW0306",
    Severity.ERROR,
    "The API server cannot call a webhook that deployments pass",
    why="It was tried with a creation (dry run). No ModelDeployment can be created or changed.",
    do="Read its words: x509 means certificate or caBundle; refused or timeout means Service, pods or NetworkPolicy. "
    "If the webhook is not ours, its owner has to put it right.",
    needs=("call",),
)
def _failing(seen: Snapshot) -> Iterator[Found]:
    if seen.call is not None and seen.call.failed:
        yield Found(object="ModelDeployment", what=bounded(seen.call.failed, 500))


@check(
    "ARW0307",
    Severity.ERROR,
    "A webhook configuration was left behind",
    why="The API server asks a webhook that no core here serves: with failurePolicy Fail every new spec is refused.",
    do="Delete the configuration, or switch the webhook on (--webhook-bind-address; in charts: webhook.enabled).",
    needs=("components", "configurations"),
)
def _left(seen: Snapshot) -> Iterator[Found]:
    served = {name for _, name in _serving(seen)}
    for name, live in (seen.configurations or {}).items():
        services = services_of([live])
        ours = any(key.namespace == seen.namespace for key in services) or (name == CONFIGURATION and not services)
        if name not in served and seen.cores and all(core.known for core in seen.cores) and ours and webhooks_of(live):
            yield Found(object=_named(name), what="It calls a webhook that no core in this namespace serves.")


@check(
    "ARW0308",
    Severity.ERROR,
    "The webhook is disarmed",
    why="Specs that it would refuse are taken. The core still judges them, after they are stored; what depends on the "
    "user, who may not be allowed to create the provider's resources, is not checked at all.",
    do="Put the configuration back as the chart has it (helm upgrade with the same values; airunway upgrade), and find "
    "who changed it: `kubectl get validatingwebhookconfiguration NAME -o yaml --show-managed-fields`.",
    needs=("components", "configurations", "namespaces"),
)
def _disarmed(seen: Snapshot) -> Iterator[Found]:
    for core, name in _serving(seen):
        live, settings = (seen.configurations or {}).get(name), settings_of(core)
        if live is None or settings is None:
            continue
        watched = {each: seen.labels_of(each) for each in core.watched}
        for what in disarmed(live, settings, watched=watched, rules=comparable(core)):
            yield Found(object=_named(name), what=what)


@check(
    "ARW0401",
    Severity.ERROR,
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
        said = [f"{', '.join(verbs)} {target}" for target, verbs in targets.items()]
        more = f"; and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
        yield Found(object=_account(user), what=f"It may not {'; '.join(said[:_SHOWN])}{more}.")


@check(
    "ARW0402",
    Severity.WARNING,
    "An account may read every Secret",
    why="No part of AI Runway reads Secrets of others. An attacker who takes over the process would have them all.",
    do="Take the binding away that grants it; `kubectl get clusterrolebindings -o wide` shows which names the account.",
    needs=("components", "rights"),
)
def _too_much(seen: Snapshot) -> Iterator[Found]:
    for right, allowed in (seen.rights or {}).items():
        if not right.wanted and allowed:
            yield Found(object=_account(right.user), what=f"It may {right.verb} {right.target} in all namespaces.")


@check(
    "ARW0403",
    Severity.WARNING,
    "A guard is not in force",
    why="A policy does nothing without a binding that denies: accounts may do all that RBAC cannot take from them.",
    do="Apply its binding too, with validationActions [Deny]: the charts have both, and docs/reference/guard.yaml.",
    needs=("policies", "bindings"),
)
def _unbound(seen: Snapshot) -> Iterator[Found]:
    for policy in filter(is_guard, seen.policies or ()):
        name = key_of(policy).name
        if any(denies(binding, policy=name) for binding in seen.bindings or ()):
            continue
        idle = [key_of(each).name for each in seen.bindings or () if dig(each, "spec", "policyName") == name]
        what = f"Its binding {', '.join(idle)} does not deny." if idle else "No binding names it."
        yield Found(object=f"{POLICY}/{name}", what=what)


@check(
    "ARW0404",
    Severity.ERROR,
    "The guard of the status does not know an account",
    why="What the account writes into the status of deployments is refused: it cannot say how they fare.",
    do="Add the account to the policy: generate it anew with the accounts that are in use (in charts: "
    "guard.statusWriters). Where the account belongs to another installation, limit this one's binding to its own "
    "namespaces (in charts: watchNamespaces).",
    needs=("policies", "bindings", "components", "namespaces"),
)
def _stranger(seen: Snapshot) -> Iterator[Found]:
    for policy in filter(is_guard, seen.policies or ()):
        for component in seen.components or ():
            labels = {name: seen.labels_of(name) for name in component.watched}
            if shuts_out(policy, seen.bindings or (), component, labels):
                yield Found(
                    object=f"{POLICY}/{key_of(policy).name}",
                    what=f"It shuts {component.user} out, in {component.scope}.",
                )


@check(
    "ARW0405",
    Severity.ERROR,
    "A guard is missing",
    why="Only RBAC limits the account then, which cannot tell whose object or which field it is: who takes the process "
    "over can change deployments of others.",
    do="Install it again: helm upgrade with the same values (airunway upgrade), or docs/reference/guard.yaml. If the "
    "installation is meant to be without guards, say so: guard.enabled=false in charts.",
    needs=("components", "policies", "guards"),
)
def _unguarded(seen: Snapshot) -> Iterator[Found]:
    there = {key_of(policy).name for policy in seen.policies or ()}
    for component, guard in _wanted(seen):
        if guard["kind"] == POLICY and (name := key_of(guard).name) not in there:
            yield Found(object=f"{POLICY}/{name}", what=f"It is not there; {component} was installed with it.")


@check(
    "ARW0406",
    Severity.ERROR,
    "A guard was altered",
    why="It allows what the guard of this release refuses, or refuses what the process has to do.",
    do="Put it back as the chart has it (helm upgrade with the same values; airunway upgrade), and find who changed "
    "it: `kubectl get validatingadmissionpolicy NAME -o yaml --show-managed-fields`.",
    needs=("components", "policies", "bindings", "guards"),
)
def _altered(seen: Snapshot) -> Iterator[Found]:
    policies = {key_of(each).name: each for each in seen.policies or ()}
    bindings = {key_of(each).name: each for each in seen.bindings or ()}
    for _, guard in _wanted(seen):
        kind, name = guard["kind"], key_of(guard).name
        found = (policies if kind == POLICY else bindings).get(name)
        if found is None or (kind != POLICY and not denies(found, policy=name)):
            continue  # ARW0405, ARW0403
        if what := difference(guard, found):
            yield Found(object=f"{kind}/{name}", what=f"{what}.")


def _wanted(seen: Snapshot) -> Iterator[tuple[str, Resource]]:
    """The expected guards, each with the name of its component."""
    for component, guards in (seen.guards or {}).items():
        for guard in guards:
            yield component, guard


def _account(user: str) -> str:
    namespace, _, name = user.removeprefix("system:serviceaccount:").partition(":")
    return f"ServiceAccount/{namespace}/{name}"
