"""The toggle test itself: every field is asked about, and a provider that drops one is found out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import host_of
from airunway.resource import Resource
from airunway.sdk import (
    Compatibility,
    Component,
    Context,
    EngineCapability,
    Finding,
    ModelDeployment,
    Observation,
    Observed,
    Provider,
    ProviderManifest,
    Transformer,
    UpstreamKind,
)
from airunway_testing.conformance.cases import CACHE, GATEWAY, OF_THE_CORE, SETTINGS, TOGGLES, bases, spec_fields
from airunway_testing.conformance.fields import Answer, Outcome, outcomes, replaced_labels, setting_outcomes

_SERVER = UpstreamKind(group="acme.io", kind="Server", plural="servers", versions=("v1",), primary=True)


def host(
    *,
    drops: Sequence[str] = (),
    warns: Sequence[str] = (),
    refuses: Sequence[str] = (),
    settings: Callable[[Context[Any]], Resource] = lambda context: {},
    pools: bool = False,
    caches: bool = False,
    reserved: tuple[str, ...] = (),
) -> ProviderHost:
    """A provider that reads everything and writes all of it down, but for what it `drops` (names in Python).

    `settings` is what it writes of its context; with `pools` its upstream makes InferencePools, with `caches` its
    engine loads weights from a model cache.
    """

    def can_handle(deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
        said = tuple(
            Finding(path=f"spec.{name}", reason="FieldIgnored", message=f"no {name} here")
            for name in (*warns, *refuses)
            if getattr(deployment.spec, name)
        )
        blockers = tuple(finding for finding in said if finding.path.removeprefix("spec.") in refuses)
        return Compatibility(blockers=blockers, warnings=tuple(finding for finding in said if finding not in blockers))

    def translate_spec(deployment: ModelDeployment, context: Context[Any]) -> list[Resource]:
        spec = deployment.to_resource()["spec"]
        kept = {key: value for key, value in spec.items() if key not in drops} | settings(context)
        return [{"apiVersion": "acme.io/v1", "kind": "Server", "metadata": {"name": "m"}, "spec": kept}]

    def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
        return Observation(components=(Component(name="Server", ready=None, reason="Unknown"),))

    manifest = ProviderManifest(
        name="acme",
        version="1",
        engines=(
            EngineCapability(
                name="vllm",
                gpu_support=True,
                model_cache=caches,
                image_volumes=True,
                gateway={"managesInferencePool": pools},
            ),
        ),
        upstream=(_SERVER,),
        reserved_labels=reserved,
    )
    provider = Provider(
        manifest,
        [Transformer(name="v1", api_version="acme.io/v1")],
        can_handle=can_handle,
        translate_spec=translate_spec,
        translate_status=translate_status,
    )
    return host_of("acme", provider)


def of(field: str, found: Sequence[Outcome]) -> set[Answer]:
    return {outcome.answer for outcome in found if outcome.field == field}


def test_every_field_of_the_spec_is_asked_about_or_is_the_cores() -> None:
    fields = set(spec_fields())
    missing = {field for field in fields - set(TOGGLES) if not field.startswith(tuple(OF_THE_CORE))}
    assert missing == set(), "new fields: add a toggle, or say why they are not a provider's"
    assert set(TOGGLES) <= fields
    assert {name for name in OF_THE_CORE if not any(field.startswith(name) for field in fields)} == set()
    assert len(fields) > 50


def test_a_provider_that_writes_everything_honours_everything() -> None:
    found = list(outcomes(host()))
    assert {outcome.field for outcome in found} == set(TOGGLES)
    assert {outcome.field for outcome in found if outcome.answer is not Answer.HONOURED} == set()


def test_a_dropped_field_is_found_out_though_it_was_read() -> None:
    found = list(outcomes(host(drops=["tolerations"])))
    assert of("spec.tolerations", found) == {Answer.IGNORED}
    assert {outcome.field for outcome in found if outcome.answer is Answer.IGNORED} == {"spec.tolerations"}


def test_what_is_said_counts_with_its_words() -> None:
    careful = host(drops=["tolerations", "affinity"], warns=["tolerations"], refuses=["affinity"])
    found = list(outcomes(careful))
    assert of("spec.tolerations", found) == {Answer.WARNED}
    assert of("spec.affinity", found) == {Answer.REFUSED}
    words = {finding.message for outcome in found if outcome.answer is not Answer.HONOURED for finding in outcome.words}
    assert {"no tolerations here", "no affinity here"} <= words


def test_a_warning_about_something_else_is_no_word_about_the_field() -> None:
    careless = host(drops=["tolerations"], warns=["model"])
    assert of("spec.tolerations", list(outcomes(careless))) == {Answer.IGNORED}


def test_bases_are_what_the_provider_runs() -> None:
    assert [base.name for base in bases(host())] == [
        "vllm",
        "vllm, own image",
        "vllm, own model",
        "vllm, 16 GPUs",
        "vllm, disaggregated",
        "vllm, disaggregated, usual image",
    ]
    assert "vllm" not in [base.name for base in bases(host(refuses=["resources"]))]


# ----------------------------------------------------------------------------- what comes from outside of a deployment


def everything(context: Context[Any]) -> Resource:
    runtime = context.runtime
    return {
        "variables": [*runtime.env],
        "labels": dict(runtime.labels),
        "pull": [*runtime.image_pull_secrets],
        "hub": runtime.token or "",
        "class": runtime.runtime_class or "",
        "weights": context.cache.claim if context.cache else "",
        "pooled": bool(context.gateway and context.gateway.uses_pool),
    }


def test_every_setting_is_asked_about_and_one_that_reaches_an_object_is_honoured() -> None:
    found = list(setting_outcomes(host(settings=everything, pools=True)))
    assert {outcome.field for outcome in found} == set(SETTINGS)
    assert {outcome.answer for outcome in found} == {Answer.HONOURED}


def test_a_setting_that_reaches_no_object_is_warned_about_by_the_runtime() -> None:
    found = list(setting_outcomes(host()))
    assert {outcome.field for outcome in found} == set(SETTINGS) - {GATEWAY}, "the core makes the pool"
    assert {outcome.answer for outcome in found} == {Answer.WARNED}
    assert all("no pod of this provider has " in outcome.words[0].message for outcome in found)


def test_a_pool_that_the_upstream_should_make_and_nothing_shows_is_found_out() -> None:
    assert of(GATEWAY, list(setting_outcomes(host(pools=True)))) == {Answer.IGNORED}


def test_an_engine_that_mounts_cached_weights_and_is_not_told_of_them_is_found_out() -> None:
    def told(context: Context[Any]) -> Resource:
        return {**everything(context), "path": context.cache.path if context.cache else ""}

    found = [each for each in setting_outcomes(host(settings=everything, caches=True)) if each.field == CACHE]
    ignored = {each.base for each in found if each.answer is Answer.IGNORED}
    assert {each.base for each in found} - ignored == {"vllm, own model"}, "which decides itself what it loads"
    assert of(CACHE, list(setting_outcomes(host(settings=told, caches=True)))) == {Answer.HONOURED}


def test_l2_a_propagated_label_that_replaces_the_provider_s_own_is_found_out() -> None:
    own = {"acme.io/server": "m", "tier": "gpu", "airunway.ai/component": "server"}
    last = host(settings=lambda context: {"labels": {**context.runtime.labels, **own}})
    first = host(settings=lambda context: {"labels": {**own, **context.runtime.labels}})
    reserved = host(settings=lambda context: {"labels": {**own, **context.runtime.labels}}, reserved=("acme.io/",))
    found = [replaced_labels(each, bases(each)[0]) for each in (last, first, reserved)]
    assert found == [[], ["acme.io/server", "tier"], ["tier"]]
