"""Lists the rights that each account should have, as questions for the API server. Charts have the same lists. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airunway.doctor.components import ProcessDeployment
from airunway.doctor.snapshot import Right
from airunway.doctor.webhook_comparison import settings_of
from airunway.plugins.host import ProviderHost
from airunway.rbac.rights import (
    Rights,
    core_rights,
    gateway_rights,
    leader_election_rights,
    model_cache_rights,
    provider_rights,
    webhook_rights,
)
from airunway.resource import Resource, dig

__all__ = ["expected_rights", "unknown_providers"]


def expected_rights(components: Sequence[ProcessDeployment], hosts: Sequence[ProviderHost]) -> list[Right]:
    """Every right that the accounts need for what their processes do, and those that none must have.

    Providers whose plugin is not installed here (`unknown_providers`) and processes that have not published their
    settings are left out.
    """
    by_name = {host.name: host for host in hosts}
    found: list[Right] = []
    for component in components:
        rights = _of_the_core(component) if component.core else Rights()
        for provider in component.providers:
            if provider in by_name:
                rights += provider_rights(by_name[provider].manifest)
        if component.known:
            found += _questions(component, rights)
        # No process may list Secrets: a role grants the webhook's own Secret by name, in its namespace.
        found.append(Right(user=component.user, verb="list", group="", resource="secrets", wanted=False))
    return list(dict.fromkeys(found))


def unknown_providers(components: Sequence[ProcessDeployment], plugins: Sequence[str]) -> list[str]:
    """Running providers whose plugin is not installed here."""
    running = {name for each in components for name in each.providers}
    return sorted(running - set(plugins))


def _of_the_core(component: ProcessDeployment) -> Rights:
    rights = core_rights(policy=bool(component.options.get("policy")), namespaces=component.watched)
    if component.on("leader-elect"):
        rights += leader_election_rights("airunway-controller")
    if component.option("gateway") == "auto":
        rights += gateway_rights()
    if component.option("model-cache") == "on":
        rights += model_cache_rights()
    settings = settings_of(component)
    return rights + webhook_rights(settings) if settings is not None else rights


def _questions(component: ProcessDeployment, rights: Rights) -> Iterator[Right]:
    for rule in rights.cluster:
        yield from _of_rule(component, rule, namespace="")
    for rule in rights.watched:
        for namespace in component.watched or ("",):
            yield from _of_rule(component, rule, namespace=namespace)
    for rule in rights.own:
        if component.on("leader-elect") or rule["resources"] != ["leases"]:
            yield from _of_rule(component, rule, namespace=component.key.namespace)


def _of_rule(component: ProcessDeployment, rule: Resource, *, namespace: str) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for full in rule["resources"]:
            resource, _, subresource = full.partition("/")
            for verb in rule["verbs"]:
                for name in dig(rule, "resourceNames", default=[""]):
                    yield Right(
                        user=component.user,
                        verb=verb,
                        group=group,
                        resource=resource,
                        subresource=subresource,
                        namespace=namespace,
                        name=name,
                    )
