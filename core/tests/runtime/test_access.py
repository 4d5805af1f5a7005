"""The rights of a provider follow from its manifest (finding H4)."""

from __future__ import annotations

from itertools import chain

from airunway.plugins.contract import EngineCapability, ProviderManifest, UpstreamKind
from airunway.rbac.rights import provider_rights
from airunway.resource import Resource

THING = UpstreamKind(group="acme.io", kind="Thing", plural="things", versions=("v1",), primary=True)
CONFIG_MAP = UpstreamKind(group="", kind="ConfigMap", plural="configmaps", versions=("v1",), builtin=True)
BEYOND: Resource = {"apiGroups": ["acme.io"], "resources": ["pools"], "verbs": ["get"]}


def manifest(*kinds: UpstreamKind, rules: tuple[Resource, ...] = ()) -> ProviderManifest:
    engines = (EngineCapability(name="vllm"),)
    return ProviderManifest(name="acme", version="1", engines=engines, upstream=kinds, rbac_rules=rules)


def rules_about(resource: str, *kinds: UpstreamKind, rules: tuple[Resource, ...] = ()) -> list[Resource]:
    rights = provider_rights(manifest(*kinds, rules=rules))
    return [rule for rule in chain(rights.cluster, rights.watched, rights.own) if resource in rule["resources"]]


def test_h4_a_kind_brings_its_verbs_and_its_own_rules_come_on_top() -> None:
    verbs = ["get", "list", "watch", "create", "patch", "delete"]
    assert rules_about("things", THING) == [{"apiGroups": ["acme.io"], "resources": ["things"], "verbs": verbs}]
    assert rules_about("pools", THING, rules=(BEYOND,)) == [BEYOND]


def test_h4_config_maps_are_followed_only_where_they_are_of_its_kinds() -> None:
    (plans,) = rules_about("configmaps", THING)
    assert plans["verbs"] == ["get", "create", "patch", "delete"]
    (own,) = rules_about("configmaps", THING, CONFIG_MAP)
    assert {"list", "watch"} < set(own["verbs"])


def test_h4_what_is_there_once_is_granted_by_name() -> None:
    for resource in ("inferenceproviderconfigs", "inferenceproviderconfigs/status"):
        assert [rule["resourceNames"] for rule in rules_about(resource, THING)] == [["acme"]]
    (definitions,) = rules_about("customresourcedefinitions", THING, CONFIG_MAP)
    assert definitions["resourceNames"] == ["things.acme.io"]
    assert rules_about("customresourcedefinitions", CONFIG_MAP) == []
    making, using = rules_about("leases", THING)
    assert making["verbs"] == ["create"]
    assert (using["resourceNames"], using["verbs"]) == (["airunway-provider-acme"], ["get", "update"])


def test_h4_nothing_is_granted_by_a_wildcard_and_leases_only_at_home() -> None:
    rights = provider_rights(manifest(THING, CONFIG_MAP))
    everything = [*rights.cluster, *rights.watched, *rights.own]
    assert all("*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]] for rule in everything)
    assert {resource for rule in rights.own for resource in rule["resources"]} == {"leases"}
    assert not any("secrets" in rule["resources"] for rule in everything)
