"""Checks 05 and 06: providers as they report themselves, and their upstreams."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from airunway.doctor.checks_processes import lapses
from airunway.doctor.findings import Found, error, warning
from airunway.doctor.snapshot import Snapshot, named, required_kinds, upstream_namespace
from airunway.first_seen import SKEW, human_duration
from airunway.plugins.contract import CONTRACT_VERSIONS
from airunway.resource import Resource, condition_of, dig, key_of, parse_time
from airunway.selection.facts import STALE_AFTER, ProviderFacts, provider_facts

_name = partial(named, "InferenceProviderConfig")


def _all(seen: Snapshot) -> Iterator[tuple[Resource, ProviderFacts]]:
    for config in seen.providers or ():
        yield config, provider_facts(config)


def is_silent(facts: ProviderFacts, seen: Snapshot) -> bool:
    """Whether a provider has sent no heartbeat for so long that it gets no deployments."""
    return facts.heartbeat is None or facts.is_stale(seen.now)


@error(
    "ARW0501",
    "No provider is registered",
    why="No provider can run a model: deployments stay Pending.",
    do="Install a provider (helm install airunway-provider-…); it registers itself.",
    needs=("providers",),
)
def _none(seen: Snapshot) -> Iterator[Found]:
    if not seen.providers:
        yield Found("InferenceProviderConfig", "There is none.")


@error(
    "ARW0502",
    "A provider is silent",
    why=f"After {int(STALE_AFTER.total_seconds())} s without a heartbeat it gets no new deployments, and what it "
    "runs is not managed.",
    do="Look at its pods and their log. If it was removed for good, delete its InferenceProviderConfig.",
    needs=("providers",),
)
def _silent(seen: Snapshot) -> Iterator[Found]:
    for config, facts in _all(seen):
        if not is_silent(facts, seen):
            continue
        what = "It has never sent a heartbeat."
        if facts.heartbeat is not None:
            what = f"Its last heartbeat came {human_duration(seen.now - facts.heartbeat)} ago."
        running = next((each for each in seen.components or () if facts.name in each.providers), None)
        if running is not None and (lapses(seen, running) or (seen.leases is not None and not running.available)):
            continue  # ARW0205 or ARW0202 report its process
        if running is not None:
            what += f" {running.name} should run it ({running.available} of {running.wanted} pods available)."
        elif seen.components is not None:
            what += f" No Deployment in {seen.namespace} runs it."
        yield Found(_name(config), what)


@error(
    "ARW0503",
    "A provider does not register",
    why="The core does not know of it: no deployment is assigned to it.",
    do="Read its log: it says why it cannot register (rights, a CRD that is missing, a plugin that is broken).",
    needs=("providers", "components"),
)
def _unregistered(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        for provider in component.providers:
            if component.available and provider not in seen.registered:
                yield Found(component.name, f"It runs {provider}, which is not registered.")


@error(
    "ARW0504",
    "A provider is not ready",
    why="It takes no new deployments.",
    do="Do what its message asks for.",
    needs=("providers",),
)
def _unready(seen: Snapshot) -> Iterator[Found]:
    for config, facts in _all(seen):
        condition = condition_of(config, "Ready") or {}
        reason, message = condition.get("reason", ""), condition.get("message", "")
        upstream = reason in ("UpstreamNotInstalled", "UnsupportedSchema")  # reported by ARW0601 to ARW0603
        if not facts.ready and not upstream and not is_silent(facts, seen):
            yield Found(_name(config), f"It says {reason or 'nothing'}: {message}".rstrip(": "))


@error(
    "ARW0505",
    "A provider speaks another contract",
    why="A core refuses a provider whose contract it does not speak.",
    do="Install releases of core and provider that share a version of the contract.",
    needs=("providers",),
)
def _contract(seen: Snapshot) -> Iterator[Found]:
    for config in seen.providers or ():
        spoken = dig(config, "spec", "contractVersions", default=[])
        if spoken and not set(spoken) & set(CONTRACT_VERSIONS):
            ours = ", ".join(CONTRACT_VERSIONS)
            yield Found(_name(config), f"It speaks {', '.join(spoken)}; this release speaks {ours}.")


@warning(
    "ARW0506",
    "A selection rule does not work",
    why="A rule that does not compile earns its provider nothing: another one is selected.",
    do="Correct the rule in the provider, or in the settings that it comes from.",
    needs=("providers",),
)
def _rules(seen: Snapshot) -> Iterator[Found]:
    for config in seen.providers or ():
        condition = condition_of(config, "SelectionRulesValid") or {}
        if condition.get("status") == "False":
            yield Found(_name(config), str(condition.get("message")))


@warning(
    "ARW0507",
    "A provider's clock is ahead",
    why="Its heartbeats lie in the future: it counts as alive for too long after its end.",
    do="Set the clock of its node by NTP.",
    needs=("providers",),
)
def _ahead(seen: Snapshot) -> Iterator[Found]:
    for config, facts in _all(seen):
        if facts.heartbeat is not None and facts.heartbeat - seen.now > SKEW:
            yield Found(_name(config), f"Its last heartbeat is {human_duration(facts.heartbeat - seen.now)} ahead.")


@warning(
    "ARW0508",
    "A provider is of another release than its plugin here",
    why="`airunway render`, `explain` and `preflight` answer with the plugin that is here, not as the cluster would.",
    do="Install the same release of the provider beside this command.",
    needs=("providers",),
)
def _other_release(seen: Snapshot) -> Iterator[Found]:
    for config, facts in _all(seen):
        there = str(dig(config, "status", "version", default="")).rpartition(":")[2]
        here = seen.plugins.get(facts.name, "")
        if there and here and there != here:
            yield Found(_name(config), f"It is {there} in the cluster and {here} here.")


# --------------------------------------------------------------------------------------------------------- upstreams


@error(
    "ARW0601",
    "An upstream is not installed",
    why="The provider has no upstream to run a deployment: it is not ready.",
    do="Install it: `kubectl get ipc NAME -o yaml` has its charts and steps under spec.installation.",
    needs=("providers", "served"),
)
def _not_installed(seen: Snapshot) -> Iterator[Found]:
    for config in seen.providers or ():
        for group, kind, _ in required_kinds(config):
            if not any(kind in kinds for kinds in (seen.served or {}).get(group, {}).values()):
                steps = dig(config, "spec", "installation", "steps", default=[])
                commands = [str(step["command"]) for step in steps if step.get("command")]
                do = f"Install it: {' && '.join(commands)}" if commands else ""
                yield Found(_name(config), f"{kind}.{group} is not served.", do=do)


@error(
    "ARW0602",
    "An upstream is served in other versions only",
    why="The provider writes versions that this upstream does not serve, or no longer.",
    do="Upgrade the provider, or install a release of the upstream that serves one of its versions.",
    needs=("providers", "served"),
)
def _other_versions(seen: Snapshot) -> Iterator[Found]:
    for config in seen.providers or ():
        for group, kind, versions in required_kinds(config):
            there = [version for version, kinds in (seen.served or {}).get(group, {}).items() if kind in kinds]
            if there and not set(there) & set(versions):
                yield Found(
                    _name(config),
                    f"{kind}.{group} is served as {', '.join(there)}; the provider writes {', '.join(versions)}.",
                )


@warning(
    "ARW0603",
    "The upstream's schema is not known to the provider",
    why="It is newer than the provider, or was changed: what is written is rehearsed first, and may be refused.",
    do="Upgrade the provider. `airunway preflight` says what an upstream's release would do to what runs.",
    needs=("providers",),
)
def _unverified(seen: Snapshot) -> Iterator[Found]:
    for config in seen.providers or ():
        condition = condition_of(config, "SchemaSupported") or {}
        reason, message = condition.get("reason"), str(condition.get("message", ""))
        if reason == "UnverifiedSchema" or (reason == "UnsupportedSchema" and "schema" in message):
            yield Found(_name(config), f"{message}.")


@warning(
    "ARW0604",
    "The upstream's own controllers do not run",
    why="The CRDs are there, and no controller acts on the objects: deployments stay Deploying.",
    do="Look at the Deployment: kubectl describe deployment, kubectl get pods.",
    needs=("providers", "controllers"),
)
def _idle(seen: Snapshot) -> Iterator[Found]:
    ours = {component.key for component in seen.components or ()}
    for config in seen.providers or ():
        for deployment in (seen.controllers or {}).get(upstream_namespace(config), ()):
            if key_of(deployment) in ours:
                continue
            wanted = dig(deployment, "spec", "replicas", default=1)
            if wanted and not dig(deployment, "status", "availableReplicas", default=0):
                what = f"0 of {wanted} pods are available; {key_of(config).name} has its upstream in that namespace."
                yield Found(named("Deployment", deployment), what)


@warning(
    "ARW0605",
    "A provider has not noticed that its upstream changed",
    why="What it says of the upstream is not what the API server serves: its watch of the CRD does not work.",
    do="Look at its log, and at its right to list and watch the CRD by name; a restart reads it anew.",
    needs=("providers", "served"),
)
def _unaware(seen: Snapshot) -> Iterator[Found]:
    for config, facts in _all(seen):
        kinds = list(required_kinds(config))
        left = (condition_of(config, "Healthy") or {}).get("status") == "False"  # it has reported that it stops
        if not kinds or is_silent(facts, seen) or left:
            continue
        there = all(
            any(kind in (seen.served or {}).get(group, {}).get(version, {}) for version in versions)
            for group, kind, versions in kinds
        )
        condition = condition_of(config, "UpstreamInstalled") or {}
        since = parse_time(condition.get("lastTransitionTime")) or seen.now
        if there and not facts.installed and seen.now - since > timedelta(seconds=30):
            yield Found(_name(config), "It says that its upstream is not installed, and it is.")
