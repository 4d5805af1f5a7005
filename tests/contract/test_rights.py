"""What an account of a provider may do, what it publishes, and with what it begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.deployed_operator import Operator
from tests.support.toy_variants import shape_of, toy_host, usual

from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import CONFIG_MAP, Client, Kind
from airunway.rbac.rights import provider_rights
from airunway.resource import ObjectKey, Resource, condition_of, dig
from airunway.sdk import Context, ModelDeployment, SettingsError, Translation, workloads
from airunway.selection.facts import provider_facts
from airunway_testing.expectations import plan_says, running_at
from airunway_testing.operator import until
from airunway_testing.toy import provider

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
READ_PODS: Resource = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
ACCOUNT = (workloads.SERVICE_ACCOUNT, workloads.ROLE, workloads.ROLE_BINDING)


def with_account(deployment: ModelDeployment, context: Context[Any]) -> Translation:
    toys = usual(deployment, context)
    if shape_of(deployment) == "plain":
        return toys
    return Translation(objects=(*toys.objects, *workloads.account(f"{deployment.metadata.name}-picker", [READ_PODS])))


def plan_of(found: Resource) -> str:
    return str((condition_of(found, "DryRun") or {}).get("message"))


@pytest.mark.parametrize("existing", [False, True], ids=["at-once", "beside-what-runs"])
async def test_g8_b8_a_role_and_its_binding_come_in_one_plan_from_an_account_that_can_grant_no_more(
    operator: Operator, client: Client, existing: bool
) -> None:
    kinds = (*provider.manifest.upstream, *ACCOUNT)
    host = toy_host(translate_spec=with_account, upstream=kinds, rbac_rules=(READ_PODS,))
    user = await operator.provider(host)
    key, picker = await operator.deploy(shape="plain" if existing else ""), operator.key("llama-picker")
    await until(client, key, running_at(1))
    if existing:
        # A plan first: the binding is refused for want of the Role that comes with it, which says nothing.
        annotated = {"metadata": {"annotations": {"airunway.ai/dry-run": "true"}}}
        await client.merge_patch(MODEL_DEPLOYMENT, key, annotated, manager="user")
        await operator.edit(key, shape="")
        planned = await until(client, key, plan_says("RoleBinding 'llama-picker'"))
        assert "refused" not in plan_of(planned)
        off = {"metadata": {"annotations": {"airunway.ai/dry-run": None}}}
        await client.merge_patch(MODEL_DEPLOYMENT, key, off, manager="user")
        await until(client, key, running_at(2))
    binding = await operator.exists(BINDING, picker)
    assert dig(binding, "roleRef", "name") == picker.name
    assert (await client.get(ROLE, picker))["rules"] == [READ_PODS]
    assert operator.writes(user).count("patch rolebindings llama-picker") == 1


async def test_g26_b7_kinds_are_published_with_the_primary_first_and_only_needed_crds_are_required(
    operator: Operator, client: Client
) -> None:
    primary, *others = provider.manifest.upstream
    await operator.provider(toy_host(upstream=(*others, primary)))
    config = await operator.exists(
        INFERENCE_PROVIDER_CONFIG, ObjectKey("", "toy"), lambda found: dig(found, "status", "ready") is True
    )
    published = {entry["kind"]: entry["requiresCRD"] for entry in config["spec"]["upstream"]}
    assert published == {"Toy": True, "ToyBox": False, "ToyPart": True} | dict.fromkeys(
        ("Service", "ConfigMap", "ScaledObject"), False
    )
    facts = provider_facts(config).upstream
    assert facts is not None
    assert (facts.group, facts.version, facts.kind) == ("testing.airunway.ai", "v1beta1", "Toy"), "who asks, asks of it"


async def test_g25_the_rights_follow_from_the_kinds_and_are_enough_for_a_life(
    operator: Operator, client: Client
) -> None:
    """Every test here lives by them; this one has a manifest with a kind more and a kind less."""
    boxes = [kind for kind in provider.manifest.upstream if kind.kind == "ToyBox"]
    kinds = tuple(kind for kind in provider.manifest.upstream if kind not in boxes)
    rights = provider_rights(replace(provider.manifest, upstream=kinds))
    assert not any("toyboxes" in str(rule) for rule in (*rights.watched, *rights.cluster))
    read = next(rule for rule in rights.watched if rule["resources"] == ["toyparts"])
    assert read["verbs"] == ["list", "watch"]
    user = await operator.provider(toy_host(upstream=kinds))
    key = await operator.deploy()
    await until(client, key, running_at(1))
    await until(client, key, running_at(await operator.edit(key, model={"id": "org/other"})))
    asked = [request for request in operator.requests() if request.user == user]
    assert not [request for request in asked if request.resource == "toyboxes"]
    assert operator.refused() == []


async def test_g20_a_wrong_setting_ends_the_start_with_a_message(operator: Operator) -> None:
    with pytest.raises(SettingsError, match="box"):
        await operator.provider(toy_host(), values={"box": "perhaps"}, simulated=False)
    with pytest.raises(SettingsError, match="colour"):
        await operator.provider(toy_host(), values={"colour": "red"}, simulated=False)


async def test_g20_the_plugin_gets_its_settings_as_the_dataclass_that_it_named(
    operator: Operator, client: Client
) -> None:
    await operator.provider(toy_host(), values={"greeting": "good day", "box": "false"})
    key = await operator.deploy()
    await until(client, key, running_at(1))
    assert (await client.get(CONFIG_MAP, operator.key("llama-toy")))["data"] == {"greeting": "good day"}
