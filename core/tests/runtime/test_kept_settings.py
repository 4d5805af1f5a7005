"""What runs keeps the settings that it was made with: another image of the operator's restarts nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest
from core.tests.conftest import MakeDeployment, MakeHost
from core.tests.runtime.views import made, revision_of, state, stored, with_parts

from airunway.api import names
from airunway.owned.plan import Action
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.plugins.settings import kept_settings, settings_problem, with_kept
from airunway.resource import Resource, annotations_of, canonical_json, copy_of, dig
from airunway.runtime.plan import Decision, decide
from airunway.sdk import Transformer, setting, with_defaults


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


def live(host: ProviderHost, deployment: Resource, settings: Imaged) -> Resource:
    """What was made of the deployment with those settings, as the API server has it."""
    view = state(host, deployment, settings=settings)
    return stored(decide(view, host, settings=settings).objects[0], says="Ready")


def decided(host: ProviderHost, deployment: Resource, obj: Resource, settings: Imaged) -> Decision:
    return decide(state(host, deployment, obj, settings=settings), host, settings=settings)


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
    assert decision.newer == {"transformers": [], "changes": ["image engine:2"]}
    after = decided(imaged, plain(**change), stored(decision.objects[0], says="Ready"), NEW)
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
    assert (image_of(decision), decision.newer) == ("engine:2", {})
    anew = decide(state(imaged, plain(), settings=NEW), imaged, settings=NEW)
    assert image_of(anew) == "engine:2"


def test_real_llmd_9_a_deployment_with_an_image_of_its_own_has_nothing_to_wait_for(
    imaged: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(imaged, plain(image="mine:7"), Imaged())
    decision = decided(imaged, plain(image="mine:7"), obj, replace(NEW, surge=0))
    assert (image_of(decision), decision.newer) == ("mine:7", {})


def test_real_llmd_9_ruling_27_an_autoscaler_takes_no_newer_transformer(toy: MakeHost, plain: MakeDeployment) -> None:
    host = toy(settings=Imaged)
    objects = made(host, plain(), writer="v2-a")

    def writer(**change: Any) -> str:
        decision = decide(state(host, plain(**change), *objects), host, settings=Imaged())
        assert decision.context is not None
        return decision.context.upstream.transformer.name

    assert [writer(scaling={"replicas": 5}), writer(image="x")] == ["v2-a", "v2-b"]


@pytest.mark.parametrize("text", [None, "", "0123456789abcdef"], ids=["removed", "emptied", "another hash"])
def test_a_tampered_annotation_is_put_back_and_takes_nothing_newer(
    imaged: ProviderHost, plain: MakeDeployment, text: str | None
) -> None:
    """Whoever may edit upstream objects must not choose by it what their deployments run with."""
    obj = live(imaged, plain(), Imaged())
    core = state(imaged, plain(), obj, settings=NEW).deployment
    edited = copy_of(obj)
    edited["metadata"]["annotations"].pop(names.REVISION)
    if text is not None:
        edited["metadata"]["annotations"][names.REVISION] = text
    view = state(imaged, core, edited)
    assert not view.in_effect, "until it is written again"
    decision = decide(view, imaged, settings=NEW)
    assert image_of(decision) == "engine:1"
    assert annotations_of(decision.objects[0])[names.REVISION] == annotations_of(obj)[names.REVISION]
    assert decision.plan is not None
    assert decision.plan.primary.action is Action.UPDATE


def test_the_hash_of_the_newest_revision_on_an_object_of_an_older_one_is_no_proof_that_it_has_it(
    imaged: ProviderHost, plain: MakeDeployment
) -> None:
    obj = live(imaged, plain(), Imaged())
    core = state(imaged, plain(secrets={"huggingFaceToken": "hub"}), obj, settings=NEW)
    obj["metadata"]["annotations"][names.REVISION] = core.revision_hash
    decision = decide(core, imaged, settings=NEW)
    assert image_of(decision) == "engine:2"
    assert decision.plan is not None
    assert decision.plan.primary.action is Action.UPDATE


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
    ("change", "kept"),
    [({}, True), ({"scaling": {"replicas": 3}}, True), ({"secrets": {"huggingFaceToken": "hub"}}, False)],
    ids=["as it was", "scaled", "edited"],
)
def test_ruling_23_a_release_that_was_rolled_back_keeps_settings_and_parts_that_it_does_not_know(
    imaged: ProviderHost, plain: MakeDeployment, change: Resource, kept: bool
) -> None:
    """After the next upgrade the model would otherwise take today's value of that setting."""
    newer = state(imaged, plain(), settings=Imaged(version="v")).deployment
    provider = newer["status"]["revision"]["provider"]
    newer = with_parts(newer, provider={"settings": {**provider["settings"], "future_image": "x:1"}, "future": {}})
    obj = stored(decide(state(imaged, newer), imaged, settings=Imaged(version="v")).objects[0], says="Ready")
    view = state(imaged, plain(**change), obj, settings=Imaged(version="v"))
    assert (view.revision["provider"] == newer["status"]["revision"]["provider"]) is kept
    assert "future_image" not in provider["settings"]
    assert (view.revision["provider"] == provider) is not kept


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
    assert decision.newer == {"transformers": ["new"], "changes": ["image engine:2"]}
    given = decided(newer, plain(), live(older, plain(), Imaged()), Raised(image="mine:3"))
    assert image_of(given) == "engine:1"
    assert given.newer == {"transformers": [], "changes": ["image mine:3"]}, "an administrator's is no transformer's"
    own = plain(image="mine:7")
    assert decided(newer, own, live(older, own, Imaged()), Raised()).newer == {}


def test_a_release_that_was_rolled_back_and_comes_again_restarts_nothing(
    older: ProviderHost, newer: ProviderHost, plain: MakeDeployment
) -> None:
    """The older release writes its transformer onto what the newer one made; the image stays the recorded one."""
    obj = live(newer, plain(), Raised())
    assert obj["spec"]["image"] == "engine:2"
    rolled_back = decided(older, plain(), obj, Imaged())
    assert image_of(rolled_back) == "engine:2"
    back = stored(rolled_back.objects[0], says="Ready")
    assert (annotations_of(back)[names.TRANSFORMER], revision_of(back)) == ("old", revision_of(obj))
    again = decided(newer, plain(), back, Raised())
    assert (again.objects[0]["metadata"]["annotations"], image_of(again)) == (annotations_of(obj), "engine:2")
    assert again.newer == {}


def test_the_revision_has_the_default_of_the_transformer_that_writes(
    newer: ProviderHost, plain: MakeDeployment, toy: MakeHost
) -> None:
    """Where the schema of the upstream fits the older one alone: the next default would else be taken for a setting."""
    only = toy(settings=Raised, translate_spec=written, transformers=RELEASES["2"][:1])
    obj = live(only, plain(), Raised())
    recorded = revision_of(obj)["provider"]["settings"]
    assert (obj["spec"]["image"], recorded["image"]) == ("engine:1", "engine:1")


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
