"""An optional kind that cannot be written any more: its objects stay as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from core.tests.conftest import TRANSFORMERS, MakeDeployment, MakeHost
from core.tests.runtime.views import NOW, decided, made, reasons, state, there

from airunway.owned.plan import Action
from airunway.plugins.contract import Transformer, Upstream
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, condition_of
from airunway.runtime.crd_versions import Installed
from airunway.runtime.plan import Decision, Do
from airunway.runtime.report import unread_status
from airunway.sdk import Compatibility, Finding, NoSettings
from airunway.upgrades.forecast import Cluster, Effect, Forecast, forecast

OPTION = "Option.toy.example.org"
WAYS = (*TRANSFORMERS, Transformer(name="option", api_version="toy.example.org/v1", kind="Option"))
NO_SCHEMA = Installed(upstream=None, reason="UnsupportedSchema", message="options has a schema (abc) that is not known")


def _written(kind: str, deployment: Any, context: Any) -> Resource:
    version = context.upstream.api_version if kind == "Thing" else "toy.example.org/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": deployment.metadata.name}, "spec": {"model": "m"}}


def beside(deployment: Any, context: Any) -> list[Resource]:
    """A Thing, with an Option beside it where there are Options: as an InferencePool beside a Deployment."""
    kinds = ("Thing", "Option") if OPTION in context.served else ("Thing",)
    return [_written(kind, deployment, context) for kind in kinds]


def instead(deployment: Any, context: Any) -> list[Resource]:
    """An Option where there are Options, otherwise a Thing: as an InferenceSet in place of a Workspace."""
    return [_written("Option" if OPTION in context.served else "Thing", deployment, context)]


def not_known(host: ProviderHost, **changes: Any) -> dict[tuple[str, str], Installed]:
    """The schema of the Options is a new one, under the policy Fail."""
    found = there(host)
    served = found["toy.example.org", "Option"].served
    unverified = tuple(replace(each, verified=False) for each in served)
    found["toy.example.org", "Option"] = replace(NO_SCHEMA, **{"served": unverified, **changes})
    return found


def unsupported(decision: Decision) -> list[str]:
    return [each.message for each in decision.warnings if each.reason == "UnsupportedSchema"]


@pytest.mark.parametrize("plan", [beside, instead])
@pytest.mark.parametrize("spec", [{}, {"env": [{"name": "A", "value": "1"}]}], ids=["as it was", "edited"])
def test_ruling_13_an_optional_kind_s_new_schema_touches_and_fails_nothing_that_has_one(
    toy: MakeHost, plain: MakeDeployment, plan: Any, spec: Resource
) -> None:
    host = toy(translate_spec=plan, transformers=WAYS)
    objects = made(host, plain())
    assert "Option" in {obj["kind"] for obj in objects}
    decision = decided(host, state(host, plain(**spec), *objects, installed=not_known(host)))
    (result,) = decision.results
    assert (decision.do, decision.plan) == (Do.OBSERVE_ONLY, None)
    assert (result.condition, result.reason, result.message, result.as_fault()) == (
        "ProviderCompatible",
        "UnsupportedSchema",
        NO_SCHEMA.message,
        None,
    )
    assert decision.subject == "CustomResourceDefinition/options.toy.example.org"
    assert decision.context is not None
    assert OPTION in decision.context.served, "what runs is read as it was written"


def test_what_has_no_object_of_the_kind_is_written_as_without_it_and_the_schema_is_named(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    host = toy(translate_spec=beside, transformers=WAYS)
    decision = decided(host, state(host, plain(), installed=not_known(host)))
    assert decision.do is Do.APPLY
    assert [obj["kind"] for obj in decision.objects] == ["Thing"]
    assert unsupported(decision) == [NO_SCHEMA.message]


@pytest.mark.parametrize("served", [True, False], ids=["a new schema", "no version that we know"])
def test_a_refusal_for_want_of_the_kind_names_the_schema(toy: MakeHost, plain: MakeDeployment, served: bool) -> None:
    def needs_it(_: Any, context: Any) -> Compatibility:
        blocker = Finding(path="spec.x", reason="IncompatibleConfiguration", message="needs Options")
        return Compatibility(blockers=() if OPTION in context.served else (blocker,))

    host = toy(translate_spec=beside, transformers=WAYS, can_handle=needs_it)
    installed = not_known(host) if served else not_known(host, served=())
    decision = decided(host, state(host, plain(), installed=installed))
    assert reasons(decision) == ["IncompatibleConfiguration"]
    assert unsupported(decision) == [NO_SCHEMA.message]
    capable = toy(translate_spec=beside, transformers=WAYS)
    others = decided(capable, state(capable, plain(), installed=not_known(capable, served=())))
    assert unsupported(others) == [], "an upstream release without that version is nothing to warn of"


def test_what_is_suspended_is_removed_all_the_same(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(translate_spec=beside, transformers=WAYS)
    objects = made(host, plain())
    decision = decided(host, state(host, plain(suspend=True), *objects, installed=not_known(host)))
    assert decision.do is Do.SUSPEND


def test_a_crd_that_is_gone_has_taken_its_objects_along(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(translate_spec=instead, transformers=WAYS)
    installed = not_known(host, reason="UpstreamNotInstalled", served=())
    status = {"provider": {"name": "toy", "resourceKind": "Option", "resourceAPIVersion": "toy.example.org/v1"}}
    decision = decided(host, state(host, plain(status=status), installed=installed))
    assert decision.plan is not None
    assert [(step.action, step.subject["kind"]) for step in decision.plan.steps] == [(Action.CREATE, "Thing")]


# ------------------------------------------------------------------------------------ a version that is not served

_MADE = {
    "name": "toy",
    "resourceName": "llama",
    "resourceKind": "Option",
    "resourceAPIVersion": "toy.example.org/v1",
    "schemaHash": "abc",
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"suspend": True},
        {"spec": {"env": [{"name": "A", "value": "1"}]}},
        {"conditions": [{"type": "Validated", "status": "False", "message": "no", "observedGeneration": 1}]},
    ],
    ids=["as it was", "suspended", "edited", "not valid"],
)
def test_an_object_of_a_version_that_is_not_served_is_not_seen_and_not_made_again(
    toy: MakeHost, plain: MakeDeployment, changes: Resource
) -> None:
    host = toy(translate_spec=instead, transformers=WAYS)
    status = {"provider": _MADE, "phase": "Running"}
    if "conditions" in changes:
        status["conditions"] = changes["conditions"]
    spec = {key: value for key, value in changes.items() if key == "suspend"}
    deployment = plain(status=status, **spec, **changes.get("spec", {}))
    gone = not_known(host, message="options serves the versions v2; this provider writes v1", served=())
    decision = decided(host, state(host, deployment, installed=gone))
    (result,) = decision.results
    assert (decision.do, decision.unread) == (Do.OBSERVE_ONLY, True)
    assert (result.condition, result.reason) == ("ProviderCompatible", "UnsupportedSchema")
    assert result.message.startswith("Option 'llama' cannot be read: options serves the versions v2")
    assert result.as_fault() is not None, "preflight calls it broken"


def test_a_provider_that_is_replaced_keeps_its_finalizer_while_its_object_is_not_seen(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    """The next provider would make a second model beside the one that runs."""
    host = toy(translate_spec=instead, transformers=WAYS)
    gone = not_known(host, message="options serves the versions v2; this provider writes v1", served=())
    given_away = plain(status={"provider": {**_MADE, "name": "other"}})
    assert decided(host, state(host, given_away, installed=gone)).do is Do.SKIP
    assert decided(host, state(host, given_away)).do is Do.FINALIZE


def test_what_is_not_seen_any_more_keeps_its_status_and_is_not_known_to_be_ready(plain: MakeDeployment) -> None:
    since = "2026-11-20T12:00:00Z"
    served = {"type": "Served", "status": "True", "reason": "Served", "message": "m", "lastTransitionTime": since}
    live = {
        "phase": "Running",
        "provider": _MADE,
        "endpoint": {"service": "llama", "port": 80},
        "replicas": {"desired": 2, "ready": 2, "available": 2, "summary": "2/2"},
        "selector": "a=b",
        "conditions": [served],
    }
    status = unread_status(plain(status=live), "Option 'llama' cannot be read", now=NOW)
    kept = ("phase", "endpoint", "replicas", "selector")
    assert {key: status[key] for key in kept} == {key: live[key] for key in kept}
    assert status["provider"] == {key: value for key, value in _MADE.items() if key != "name"}, "the core has the name"
    found = {
        type_: (condition_of({"status": status}, type_) or {}).get("status")
        for type_ in ("Ready", "ProviderCompatible", "Served")
    }
    assert found == {"Ready": "Unknown", "ProviderCompatible": "False", "Served": "True"}


def test_an_object_that_another_served_version_shows_is_read_in_that(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(translate_spec=instead, transformers=WAYS)
    objects = made(host, plain())
    deployment = plain(status={"provider": _MADE})
    decision = decided(host, state(host, deployment, *objects, installed=not_known(host)))
    assert (decision.do, decision.unread) == (Do.OBSERVE_ONLY, False)
    assert decision.context is not None
    assert decision.context.served[OPTION] == Upstream(
        api_version="toy.example.org/v1", transformer=WAYS[-1], verified=False
    )


# ------------------------------------------------------------------------------------------------- what preflight says


def definition(kind: str, *versions: str) -> Resource:
    schema: Resource = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = [{"name": each, "served": True, "schema": {"openAPIV3Schema": schema}} for each in versions]
    established = [{"type": "Established", "status": "True"}]
    return {
        "metadata": {"name": f"{kind.lower()}s.toy.example.org"},
        "spec": {"group": "toy.example.org", "names": {"kind": kind}, "scope": "Namespaced", "versions": served},
        "status": {"conditions": established},
    }


def cluster(**versions: tuple[str, ...]) -> Cluster:
    definitions = {("toy.example.org", kind): definition(kind, *served) for kind, served in versions.items()}
    return Cluster(definitions=definitions, kubernetes=(1, 33))


def forecast_of(host: ProviderHost, deployment: Resource, after: Cluster) -> Forecast:
    view = state(host, deployment)
    objects = decided(host, view).objects
    before = cluster(Thing=("v2", "v1"), Option=("v1",))
    return forecast(host, view.deployment, objects, before=before, after=after, settings=NoSettings(), now=NOW)


def with_config(deployment: Any, context: Any) -> list[Resource]:
    """A Thing, and a ConfigMap where there are Options: as an endpoint picker's."""
    thing = _written("Thing", deployment, context)
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{deployment.metadata.name}-config"}}
    return [thing, config] if OPTION in context.served else [thing]


def with_renamed_config(deployment: Any, context: Any) -> list[Resource]:
    """A Thing, and a ConfigMap that is named by its content."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b" if OPTION in context.served else "a"}}
    return [_written("Thing", deployment, context), config]


def test_preflight_calls_a_deletion_that_the_user_has_not_asked_for_broken(
    toy: MakeHost, plain: MakeDeployment
) -> None:
    host = toy(translate_spec=with_config, transformers=WAYS)
    found = forecast_of(host, plain(), cluster(Thing=("v2", "v1")))
    assert (found.at_once, found.why) == (Effect.BREAK, "delete ConfigMap 'llama-config'")
    same = forecast_of(host, plain(), cluster(Thing=("v2", "v1"), Option=("v1",)))
    assert same.at_once is Effect.UPDATE, "objects without managedFields are written once more"
    renaming = toy(translate_spec=with_renamed_config, transformers=WAYS)
    assert forecast_of(renaming, plain(), cluster(Thing=("v2", "v1"))).at_once is Effect.UPDATE


def test_preflight_calls_an_object_broken_whose_version_goes(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(translate_spec=instead, transformers=WAYS)
    found = forecast_of(host, plain(status={"provider": _MADE}), cluster(Thing=("v2", "v1"), Option=("v9",)))
    assert found.at_once is Effect.BREAK
    assert found.why.startswith("UnsupportedSchema: Option 'llama' cannot be read")
