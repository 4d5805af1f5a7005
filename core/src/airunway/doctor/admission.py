"""Checks 03 and 04: the webhook, what accounts may do, and the policies that keep them to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

from airunway.doctor.components import Component
from airunway.doctor.findings import Found, Severity, check
from airunway.doctor.snapshot import Snapshot
from airunway.doctor.webhooks import configuration_of, services_of, settings_of, shuts_out
from airunway.resource import key_of
from airunway.webhook.certificates import ROTATE_AHEAD, authority_ends
from airunway.webhook.configuration import bundles_in, webhooks_of
from airunway.webhook.settings import CONFIGURATION
from airunway.words import bounded

__all__: list[str] = []

_LATE = ROTATE_AHEAD - timedelta(days=30)
"""Certificates are renewed `ROTATE_AHEAD` of their end: one that is nearer to it than this was forgotten."""

_SHOWN = 8


def _named(name: str) -> str:
    return f"ValidatingWebhookConfiguration/{name}"


def _serving(seen: Snapshot) -> Iterator[tuple[Component, str]]:
    """Cores that serve the webhook, with the name of their configuration."""
    for core in seen.cores:
        if settings_of(core) is not None:
            yield core, configuration_of(core)


@check(
    "ARW0301",
    Severity.ERROR,
    "The webhook is served and nobody calls it",
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
    "Nobody answers at the webhook's Service",
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
    why="It was tried with a rehearsed creation (dry run). Nobody can create or change a ModelDeployment.",
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
        if name not in served and seen.cores and ours and webhooks_of(live):
            yield Found(object=_named(name), what="It calls a webhook that no core in this namespace serves.")


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
    why="No part of AI Runway reads Secrets of others. Whoever takes over the process would have them all.",
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
    why="A policy does nothing without a binding: accounts may do all that RBAC cannot take from them.",
    do="Apply its binding too: docs/reference/guard.yaml has both.",
    needs=("guards", "bindings"),
)
def _unbound(seen: Snapshot) -> Iterator[Found]:
    for policy in seen.guards or ():
        if (name := key_of(policy).name) not in (seen.bindings or frozenset()):
            yield Found(object=f"ValidatingAdmissionPolicy/{name}", what="No binding names it.")


@check(
    "ARW0404",
    Severity.ERROR,
    "The guard of the status does not know an account",
    why="What the account writes into the status of deployments is refused: it cannot say how they fare.",
    do="Add the account to the policy: generate it anew with the accounts that are in use.",
    needs=("guards", "bindings", "components"),
)
def _stranger(seen: Snapshot) -> Iterator[Found]:
    for policy in seen.guards or ():
        name = key_of(policy).name
        if name not in (seen.bindings or frozenset()):
            continue
        for component in seen.components or ():
            if shuts_out(policy, component.user):
                yield Found(object=f"ValidatingAdmissionPolicy/{name}", what=f"It shuts {component.user} out.")


def _account(user: str) -> str:
    namespace, _, name = user.removeprefix("system:serviceaccount:").partition(":")
    return f"ServiceAccount/{namespace}/{name}"
