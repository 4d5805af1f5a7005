"""What runs keeps the settings that it was made with: another image of the operator's restarts nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from core.tests.conftest import MakeDeployment, MakeHost
from core.tests.runtime.views import NOW, state

from airunway.api import names
from airunway.owned.plan import Action
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.plugins.registry import load
from airunway.plugins.settings import kept_settings, settings_problem, with_kept
from airunway.resource import Resource, canonical_json, copy_of, dig
from airunway.runtime.plan import Decision, decide
from airunway.runtime.translate import parsed, translate
from airunway.sdk import Transformer, setting, with_defaults

MANAGER = "airunway-provider-toy"


@dataclass(frozen=True, kw_only=True)
class Imaged:
    image: str = setting("engine:1", "Image of the engine.", kept=True)
    version: str = setting("", "Its release.", kept=True)
    surge: int = setting(0, "Not kept.")

    def __post_init__(self) -> None:
        if self.image == "refused":
            raise ValueError("not this one")


def written(deployment: Any, context: Any) -> list[Resource]:
    """The toy's objects of these tests: the image is the deployment's, else the provider's."""
    spec = {
        "image": deployment.spec.image or context.settings.image,
        "replicas": deployment.spec.scaling.replicas,
        "surge": context.settings.surge,
        "token": deployment.spec.secrets.hugging_face_token,
        "model": deployment.spec.model.id,
        "gpus": deployment.spec.resources.gpu.count,
    }
    metadata = {"name": deployment.metadata.name}
    return [{"apiVersion": context.upstream.api_version, "kind": "Thing", "metadata": metadata, "spec": spec}]


Make = Callable[..., ProviderHost]


@pytest.fixture
def imaged(toy: MakeHost) -> ProviderHost:
    return toy(settings=Imaged, translate_spec=written)


def live(host: ProviderHost, deployment: Resource, settings: Imaged, **how: Any) -> Resource:
    """What was made of the deployment with those settings, as the API server has it."""
    context = replace(assumed_context(host, engine="vllm", now=NOW), settings=settings)
    obj = copy_of(translate(host, deployment, parsed(deployment), context, **how).objects[0])
    fields: Resource = {f"f:{key}": {} for key in obj["metadata"]["annotations"]}
    entry = {"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:metadata": {"f:annotations": fields}}}
    obj["metadata"] |= {"uid": "uid-1", "managedFields": [{**entry, "apiVersion": obj["apiVersion"]}]}
    return obj


def decided(host: ProviderHost, deployment: Resource, obj: Resource, settings: Imaged) -> Decision:
    return decide(state(host, deployment, obj), host, settings=settings)


def image_of(decision: Decision) -> str:
    return str(dig(decision.objects[0], "spec", "image"))


NEW = Imaged(image="engine:2", surge=1)


@pytest.mark.parametrize("change", [{}, {"scaling": {"replicas": 3}}, {"gateway": {"enabled": False}}])
def test_real_llmd_9_another_image_of_the_provider_s_waits_for_a_change_of_the_deployment(
    imaged: ProviderHost, plain: MakeDeployment, change: Resource
) -> None:
    obj = live(imaged, plain(), Imaged())
    decision = decided(imaged, plain(**change), obj, NEW)
    assert image_of(decision) == "engine:1"
    assert dig(decision.objects[0], "spec", "surge") == 1, "what is not kept is taken at once"
    (told,) = decision.warnings
    assert told.reason == "NewerSettingsWait"
    assert "image engine:2 takes effect with the next change of the spec" in told.message
    after = decided(imaged, plain(**change), decided(imaged, plain(**change), obj, NEW).objects[0], NEW)
    assert image_of(after) == "engine:1", "it is still known by then"


@pytest.mark.parametrize(
    "deployment",
    [
        {"secrets": {"huggingFaceToken": "hub"}},
        {"metadata": {"annotations": {names.ADOPT: "now"}}},
    ],
    ids=["the spec", "an adoption"],
)
def test_real_llmd_9_a_change_of_the_deployment_takes_it_and_so_does_an_object_that_is_made_anew(
    imaged: ProviderHost, plain: MakeDeployment, deployment: Resource
) -> None:
    obj = live(imaged, plain(), Imaged())
    decision = decided(imaged, plain(**deployment), obj, NEW)
    assert (image_of(decision), decision.warnings) == ("engine:2", ())
    anew = decide(state(imaged, plain()), imaged, settings=NEW)
    assert image_of(anew) == "engine:2"


def test_real_llmd_9_a_deployment_with_an_image_of_its_own_has_nothing_to_wait_for(
    imaged: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(imaged, plain(image="mine:7"), Imaged())
    decision = decided(imaged, plain(image="mine:7"), obj, replace(NEW, surge=0))
    assert (image_of(decision), decision.warnings) == ("mine:7", ())


def test_real_llmd_9_ruling_27_an_autoscaler_takes_no_newer_transformer(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(settings=Imaged)
    older = next(t for t in host.transformers if t.name == "v2-a")
    context = assumed_context(host, engine="vllm", now=NOW)
    upstream = replace(context.upstream, api_version=older.api_version, transformer=older)
    deployment = plain()
    obj = copy_of(translate(host, deployment, parsed(deployment), replace(context, upstream=upstream)).objects[0])
    scaled = decide(state(host, plain(scaling={"replicas": 5}), obj), host, settings=Imaged())
    assert scaled.context is not None
    assert scaled.context.upstream.transformer.name == "v2-a"
    changed = decide(state(host, plain(image="x"), obj), host, settings=Imaged())
    assert changed.context is not None
    assert changed.context.upstream.transformer.name == "v2-b"


def test_real_llmd_9_the_record_is_no_reason_to_write_what_was_made_before_there_was_one(
    imaged: ProviderHost, plain: MakeDeployment
) -> None:
    """Operators copy annotations: an upgrade of ours writes nothing of what it finds."""
    before = live(imaged, plain(), Imaged(), records=False)
    assert names.RUNTIME_SETTINGS not in before["metadata"]["annotations"]
    decision = decided(imaged, plain(), before, Imaged())
    assert names.RUNTIME_SETTINGS not in decision.objects[0]["metadata"]["annotations"]
    scaled = decided(imaged, plain(scaling={"replicas": 2}), before, Imaged())
    assert names.RUNTIME_SETTINGS in scaled.objects[0]["metadata"]["annotations"]
    assert scaled.plan is not None
    assert scaled.plan.primary.action is Action.UPDATE


def test_real_llmd_9_a_record_that_somebody_else_wrote_counts_for_nothing(
    imaged: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(imaged, plain(), Imaged(image="theirs:1"))
    theirs: Resource = {"f:metadata": {"f:annotations": {f"f:{names.RUNTIME_SETTINGS}": {}}}}
    ours = obj["metadata"]["managedFields"][0]
    del ours["fieldsV1"]["f:metadata"]["f:annotations"][f"f:{names.RUNTIME_SETTINGS}"]
    obj["metadata"]["managedFields"].append({"manager": "kubectl-edit", "operation": "Update", "fieldsV1": theirs})
    assert image_of(decided(imaged, plain(), obj, Imaged())) == "engine:1"


@pytest.mark.parametrize(
    "recorded", [{}, {"image": 7}, {"gone": "x"}, {"image": "refused"}, {"surge": 9}, {"image": "engine:1"}]
)
def test_real_llmd_9_what_does_not_fit_the_settings_any_more_is_passed_over(recorded: dict[str, Any]) -> None:
    now = Imaged()
    assert with_kept(now, recorded) is now
    assert kept_settings(with_kept(now, {"image": "old:1", **recorded, "version": "v1"}))["version"] in ("v1", "")


@dataclass(frozen=True, kw_only=True)
class Listed:
    image: str = setting("engine:1", "Image of the engine.", kept=True)
    version: str | None = setting(None, "Its release.", kept=True)
    args: tuple[str, ...] = setting(("a",), "Its arguments.", kept=True)
    limits: Mapping[str, int] = setting({}, "Its limits.", kept=True)

    def __post_init__(self) -> None:
        if (self.image == "engine:0") != (self.version == "0"):
            raise ValueError("they belong together")


@pytest.mark.parametrize(
    "made_with",
    [
        Listed(args=("x", "y")),
        Listed(version="1"),
        Listed(limits={"a": 1}),
        Listed(image="engine:0", version="0", args=()),
    ],
    ids=["a list", "a text where there is none now", "a map", "values that fit together only"],
)
def test_values_of_every_type_are_kept_as_they_were_recorded(made_with: Listed) -> None:
    assert settings_problem(Listed) == ""
    recorded = orjson.loads(canonical_json(kept_settings(made_with)))
    assert with_kept(Listed(), recorded) == made_with


def test_a_value_that_is_refused_today_takes_no_other_along() -> None:
    recorded = {"image": "engine:0", "args": ["x"], "limits": {"a": "many"}}
    assert with_kept(Listed(), recorded) == Listed(args=("x",))
    assert with_kept(Imaged(), {"image": "refused", "version": "v1"}) == Imaged(version="v1")


@pytest.mark.parametrize(
    ("change", "recorded"),
    [
        ({}, {"image": "engine:1", "version": "v", "future_image": "x:1"}),
        ({"scaling": {"replicas": 3}}, {"image": "engine:1", "version": "v", "future_image": "x:1"}),
        ({"secrets": {"huggingFaceToken": "hub"}}, {"image": "engine:1", "version": "v"}),
    ],
    ids=["as it was", "scaled", "edited"],
)
def test_ruling_23_a_release_that_was_rolled_back_keeps_the_record_of_settings_that_it_does_not_know(
    imaged: ProviderHost, plain: MakeDeployment, change: Resource, recorded: Resource
) -> None:
    """After the next upgrade the model would otherwise take today's value of that setting."""
    settings = Imaged(version="v")
    obj = live(imaged, plain(), settings)
    record = orjson.loads(obj["metadata"]["annotations"][names.RUNTIME_SETTINGS])
    record["provider"]["future_image"] = "x:1"
    obj["metadata"]["annotations"][names.RUNTIME_SETTINGS] = canonical_json(record).decode()
    decision = decided(imaged, plain(**change), obj, settings)
    written_again = orjson.loads(decision.objects[0]["metadata"]["annotations"][names.RUNTIME_SETTINGS])
    assert written_again["provider"] == recorded


OLD = Transformer(name="old", api_version="toy.example.org/v2")
RELEASES = {
    "1": (OLD,),  # the class has engine:1 as well, then
    "2": (*with_defaults([OLD], image="engine:1"), replace(OLD, name="new")),
}
"""What a provider does to raise a default image: the released transformer keeps its own."""


@dataclass(frozen=True, kw_only=True)
class Raised(Imaged):
    image: str = setting("engine:2", "Image of the engine.", kept=True)


@pytest.fixture
def older(toy: MakeHost) -> ProviderHost:
    return toy(settings=Imaged, translate_spec=written, transformers=RELEASES["1"])


@pytest.fixture
def newer(toy: MakeHost) -> ProviderHost:
    return toy(settings=Raised, translate_spec=written, transformers=RELEASES["2"])


def test_a_raised_default_image_restarts_nothing_and_says_that_it_waits(
    older: ProviderHost, newer: ProviderHost, plain: MakeDeployment
) -> None:
    decision = decided(newer, plain(), live(older, plain(), Imaged()), Raised())
    assert image_of(decision) == "engine:1"
    (warning,) = decision.warnings
    assert warning.reason == "NewerTransformerWaits"
    assert "transformer new (image engine:2) takes effect with the next change of the spec" in warning.message
    given = decided(newer, plain(), live(older, plain(), Imaged()), Raised(image="mine:3"))
    assert image_of(given) == "engine:1"
    assert [each.reason for each in given.warnings] == ["NewerSettingsWait"], "an administrator's is no transformer's"
    own = plain(image="mine:7")
    assert decided(newer, own, live(older, own, Imaged()), Raised()).warnings == ()


def test_a_release_that_was_rolled_back_and_comes_again_restarts_nothing(
    older: ProviderHost, newer: ProviderHost, plain: MakeDeployment
) -> None:
    """The older release writes its transformer onto what the newer one made; the image stays the recorded one."""
    made = live(newer, plain(), Raised())
    assert made["spec"]["image"] == "engine:2"
    rolled_back = decided(older, plain(), made, Imaged())
    assert image_of(rolled_back) == "engine:2"
    back = {**made, "metadata": {**made["metadata"], **rolled_back.objects[0]["metadata"]}}
    assert back["metadata"]["annotations"][names.TRANSFORMER] == "old"
    again = decided(newer, plain(), back, Raised())
    assert (image_of(again), again.warnings) == ("engine:2", ())


def test_the_record_has_the_default_of_the_transformer_that_writes(
    newer: ProviderHost, plain: MakeDeployment, toy: MakeHost
) -> None:
    """Where the schema of the upstream fits the older one alone: the next default would else be taken for a setting."""
    only = toy(settings=Raised, translate_spec=written, transformers=RELEASES["2"][:1])
    made = decide(state(only, plain()), only, settings=Raised()).objects[0]
    record = orjson.loads(made["metadata"]["annotations"][names.RUNTIME_SETTINGS])
    assert (made["spec"]["image"], record["provider"]["image"]) == ("engine:1", "engine:1")


def test_real_llmd_9_every_provider_keeps_its_images_and_the_family_of_addresses() -> None:
    names_ = ("vllm", "llmd", "kuberay", "dynamo", "kaito")
    kept = {name: set(kept_settings(load(name).settings({}))) for name in names_}
    assert all("ip_family" in found for found in kept.values())
    assert {name: found - {"ip_family"} for name, found in kept.items()} == {
        "vllm": {"vllm_image", "sglang_image", "trtllm_image", "llamacpp_image"},
        "llmd": {"vllm_image", "picker_image", "picker_version", "sidecar_image", "sidecar_version"},
        "kuberay": {"image"},
        "dynamo": {"runtime_version", "registry"},
        "kaito": {"vllm_image"},
    }
