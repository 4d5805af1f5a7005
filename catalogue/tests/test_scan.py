"""From a source and its images to templates: filters, names, labels, limits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.configs.resolution import resolve
from airunway.resource import Resource, dig, label_value
from airunway_catalogue.labels import ImageLabels, Recommendation, read_labels
from airunway_catalogue.scan import (
    IMAGE_TEMPLATES,
    MODEL_SOURCE_LABEL,
    FilterPlan,
    Image,
    complete_images,
    made_from,
    newest_first,
    not_for,
    plan_of,
    templates_of,
)


def source(name: str = "models", labels: dict[str, str] | None = None, **spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelSource",
        "metadata": {"name": name, "uid": "u", "labels": labels or {}, "generation": 1},
        "spec": {"registry": "registry.example", "filters": [{"image": "team/*"}], **spec},
    }


def only(found: Resource) -> FilterPlan:
    [plan] = plan_of(found).filters
    return plan


def image(name: str = "team/llama", tag: str = "1.0") -> Image:
    return Image(name=name, repository=name, tag=tag, reference=f"registry.example/{name}:{tag}")


# ------------------------------------------------------------------------------------------------------------- filters


@pytest.mark.parametrize(
    ("pattern", "exclude", "yes", "no"),
    [
        ("team/llama", [], ["team/llama"], ["team/llama2", "llama", "other/team/llama"]),
        ("team/*", [], ["team/llama", "team/x.y"], ["team", "team/a/b", "other/llama"]),
        ("*/llama-?", [], ["team/llama-8", "x/llama-1"], ["llama-8", "team/llama-70", "a/b/llama-8"]),
        ("*", [], ["llama"], ["team/llama"]),
        ("team/*", ["team/llama", "team/test-*"], ["team/qwen"], ["team/llama", "team/test-1"]),
        ("team/llama", ["team/*"], [], ["team/llama"]),
        ("/team/llama/", [], ["team/llama"], []),
    ],
)
def test_a_filter_selects_by_name(pattern: str, exclude: list[str], yes: list[str], no: list[str]) -> None:
    plan = only(source(filters=[{"image": pattern, "exclude": exclude}]))
    assert plan.reason == ""
    assert [name for name in yes if not plan.selects(name)] == []
    assert [name for name in no if plan.selects(name)] == []


def test_versions_of_a_filter_replace_those_of_the_source() -> None:
    filters = [{"image": "a"}, {"image": "b", "versions": ["<1"]}]
    first, second = plan_of(source(versions=[">=1", "<2"], filters=filters)).filters
    tags = ["0.9", "1.0", "1.5", "2.0", "latest"]
    assert first.tags(tags) == ["1.5", "1.0"]
    assert second.tags(tags) == ["0.9"]


@pytest.mark.parametrize("text", ["~1.2", "^1", "1.x", "latest", "1.2", ">=1.2 <2"])
def test_a_constraint_like_tilde_is_refused_and_selects_nothing(text: str) -> None:
    filters = [{"image": "a"}, {"image": "b", "versions": [">=1", text]}, {"image": "c", "versions": ["=1"]}]
    first, second, third = plan_of(source(versions=[text], filters=filters)).filters
    assert [plan.reason for plan in (first, second, third)] == ["InvalidConstraint", "InvalidConstraint", ""]
    assert first.message.startswith(f"spec.versions: {text!r}")
    assert second.message.startswith(f"spec.filters[1].versions: {text!r}")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"image": "team/llama:1.0"}, "name tags in versions"),
        ({"image": "Team/Llama"}, "no repository"),
        ({"image": "../secrets"}, "no repository"),
        ({"image": "team/llama?x=1"}, ""),
        ({"image": "team/[a"}, "no pattern"),
        ({"image": "team/*", "exclude": ["["]}, "spec.filters[0].exclude"),
        ({"image": ""}, "spec.filters[0].image"),
        ({}, "spec.filters[0].image"),
        (7, "spec.filters[0].image"),
    ],
)
def test_a_filter_that_cannot_be_used_names_its_field(found: object, said: str) -> None:
    plan = only(source(filters=[found]))
    assert (plan.reason, said in plan.message) == ("InvalidImageReference" if said else "", True)


def test_signatures_are_no_images_and_newer_versions_come_first() -> None:
    plan = only(source(filters=[{"image": "a"}]))
    signature = "sha256-" + "0" * 64
    tags = ["latest", "1.2", "v1.10", "1.9.0-rc1", "dev", signature + ".sig", signature, "1.9"]
    assert plan.tags(tags) == ["v1.10", "1.9", "1.9.0-rc1", "1.2", "dev", "latest"]
    assert newest_first([]) == []


def test_the_rest_of_a_source() -> None:
    plan = plan_of(source(maxModels=3, syncInterval="1s", insecure=True, imagePullSecrets=[{"name": "a"}, {}, 7]))
    assert (plan.max_models, plan.interval, plan.address.insecure, plan.secrets) == (3, 60, True, ("a",))
    assert plan_of(source(syncInterval="1h30m")).interval == 5400
    assert (plan_of(source()).interval, plan_of(source()).max_models) == (3600, 100)


@given(st.randoms(use_true_random=False))
def test_any_json_is_a_plan(chance: Random) -> None:
    keys = ["spec", "filters", "image", "versions", "registry", "exclude", "name", "maxModels", "syncInterval"]
    found = anything(chance, 5, keys)
    for plan in plan_of(found if isinstance(found, dict) else {"spec": found}).filters:
        assert plan.reason or plan.image


def anything(chance: Random, depth: int, keys: list[str]) -> object:
    if not depth or chance.random() < 0.2:
        return chance.choice([None, 7, True, "", "a", "~1", "x" * 50, "1h", -3, 1e300])
    if chance.random() < 0.4:
        return [anything(chance, depth - 1, keys) for _ in range(chance.randint(0, 3))]
    return {key: anything(chance, depth - 1, keys) for key in chance.sample(keys, chance.randint(0, len(keys)))}


# ----------------------------------------------------------------------------------------------------------- templates

LABELS = {
    "com.amd.aim.model.canonicalName": "meta-llama/Llama-3.1-8B-Instruct",
    "com.amd.aim.model.recommendedDeployments": json.dumps(
        [
            {"gpuModel": "MI300X", "gpuCount": 1, "precision": "fp8", "metric": "latency", "description": "fast"},
            {"gpuModel": "MI300X", "gpuCount": 8, "precision": "fp8", "metric": "throughput", "optimized": True},
        ]
    ),
}


def made(found: ImageLabels, of: Resource | None = None, **what: str) -> list[Resource]:
    return templates_of(image(**what), found, source=of or source(), config=None)


def test_an_image_with_two_recommendations_makes_two_templates() -> None:
    first, second = made(read_labels(LABELS), source(runtimeConfigName="gpu", trustOptimized=True))
    assert first["spec"] == {
        "modelName": "meta-llama/Llama-3.1-8B-Instruct",
        "metric": "latency",
        "precision": "fp8",
        "hardware": {"gpu": {"count": 1, "model": "MI300X", "type": "amd.com/gpu"}},
        "defaults": {"image": "registry.example/team/llama:1.0"},
        "discovery": {"image": "registry.example/team/llama:1.0"},
        "runtimeConfigName": "gpu",
    }
    assert second["spec"]["optimized"] is True
    assert second["spec"]["hardware"]["gpu"]["count"] == 8
    assert re.fullmatch(r"llama-1-0-1x-mi300x-lat-fp8-[0-9a-f]{8}", first["metadata"]["name"])
    assert re.fullmatch(r"llama-1-0-8x-mi300x-thr-fp8-[0-9a-f]{8}", second["metadata"]["name"])
    assert first["metadata"]["annotations"] == {IMAGE_TEMPLATES: "2", "airunway.ai/description": "fast"}
    assert "ownerReferences" not in first["metadata"]


def test_an_image_without_labels_makes_one_template_called_like_its_repository() -> None:
    [found] = made(read_labels({}))
    assert found["spec"] == {
        "modelName": "team/llama",
        "defaults": {"image": "registry.example/team/llama:1.0"},
        "discovery": {"image": "registry.example/team/llama:1.0"},
    }


def test_an_image_decides_nothing_that_its_source_does_not_allow() -> None:
    """The labels of a vendor's image name another vendor's model, and praise the image."""
    found = replace(read_labels(LABELS), digest="sha256:" + "a" * 64)
    llama = source(models=["meta-llama/Llama-3.1-*", "team/*"])
    vendor = source(models=["vendor/*", "*/llama"])
    assert len(made(found, llama)) == 2
    assert made(found, vendor) == []
    assert "meta-llama/Llama-3.1-8B-Instruct, which spec.models does not list" in not_for(image(), found, vendor)
    assert len(made(ImageLabels(), vendor)) == 1, "an image that names no model is for that of its own name"
    assert made(ImageLabels(), vendor, name="other/thing") == []
    assert [each["spec"].get("optimized") for each in made(found)] == [None, None]
    assert {each["spec"]["defaults"]["image"] for each in made(found)} == {
        each["spec"]["discovery"]["image"] for each in made(found)
    }
    pinned = f"registry.example/team/llama:1.0@sha256:{'a' * 64}"
    assert made(found)[0]["spec"]["defaults"]["image"] == pinned, "the tag may lead to another image tomorrow"
    assert complete_images(made(found)) == {"registry.example/team/llama:1.0"}
    assert [each["metadata"]["name"] for each in made(found)] == [
        each["metadata"]["name"] for each in made(replace(found, digest=""))
    ], "another digest under the tag makes no second template"


def test_an_image_with_unreadable_recommendations_makes_none() -> None:
    assert made(read_labels({"ai.airunway.model.recommendedDeployments": "nonsense"})) == []


def test_names_are_the_same_for_every_scan_and_differ_for_every_way() -> None:
    ways = [
        Recommendation(),
        Recommendation(gpu_model="H100"),
        Recommendation(gpu_model="H100", gpu_count=2),
        Recommendation(gpu_model="H100", gpu_count=2, precision="fp8"),
        Recommendation(gpu_model="H100", gpu_count=2, precision="fp8", metric="latency"),
        Recommendation(gpu_model="H100", gpu_count=2, precision="fp8", metric="latency", optimized=True),
    ]
    found = ImageLabels(recommended=tuple(ways))
    names = [each["metadata"]["name"] for each in made(found, source(trustOptimized=True))]
    assert len(set(names)) == len(ways)
    assert names == [each["metadata"]["name"] for each in made(found, source("other", trustOptimized=True))]
    assert not set(names) & {each["metadata"]["name"] for each in made(found, tag="1.1")}


@given(
    st.from_regex(r"[a-z0-9]([a-z0-9._/-]{0,250}[a-z0-9])?", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9 ._+-]{0,61}[A-Za-z0-9+])?", fullmatch=True),
)
def test_hostile_names_and_tags_make_names_of_objects(name: str, tag: str, gpu: str) -> None:
    way = Recommendation(gpu_model=gpu, gpu_count=64, precision="x" * 32, metric="throughput")
    [found] = made(ImageLabels(recommended=(way,)), name=name, tag=tag)
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", found["metadata"]["name"])


@pytest.mark.parametrize(
    ("given_", "gpu"),
    [
        (Recommendation(gpu_model="H100"), {"count": 1, "model": "H100"}),
        (Recommendation(gpu_count=2), {"count": 2}),
        (Recommendation(gpu_count=0), None),
        (Recommendation(gpu_count=0, gpu_model="H100"), None),
        (Recommendation(precision="fp8"), None),
    ],
)
def test_hardware_has_gpus_or_is_absent(given_: Recommendation, gpu: object) -> None:
    [found] = made(ImageLabels(recommended=(given_,)))
    assert dig(found, "spec", "hardware", "gpu") == gpu


def test_labels_of_the_source_propagate_by_its_effective_config() -> None:
    labels = {
        "airunway.ai/team": "ml",
        "airunway.ai/model-source": "stolen",
        "airunway.ai/managed-by": "me",
        "org.example/cost": "7",
        "other": "x",
    }
    config = resolve(
        "default",
        namespaced=None,
        cluster={
            "metadata": {"name": "default"},
            "spec": {"labelPropagation": {"enabled": True, "match": ["org.example/*"]}},
        },
    ).config
    [found] = templates_of(image(), ImageLabels(), source=source(labels=labels), config=config)
    assert found["metadata"]["labels"] == {
        "airunway.ai/team": "ml",
        "airunway.ai/managed-by": "airunway",
        MODEL_SOURCE_LABEL: "models",
        "org.example/cost": "7",
    }
    [plain] = templates_of(image(), ImageLabels(), source=source(labels=labels), config=None)
    assert "org.example/cost" not in plain["metadata"]["labels"]


def test_a_template_names_its_source_in_a_label_that_any_name_fits_into() -> None:
    [found] = made(ImageLabels())
    assert made_from(found) == ("models",)
    assert made_from({"metadata": {"name": "x"}}) == ()
    long = "a" * 60 + "." + "b" * 100
    assert len(label_value(long)) <= 63
    assert label_value(long) != label_value(long + "c")


def test_an_image_is_complete_when_all_of_its_templates_are_there() -> None:
    both = made(read_labels(LABELS))
    [single] = made(ImageLabels(), tag="2")
    assert complete_images([*both, single]) == {"registry.example/team/llama:1.0", "registry.example/team/llama:2"}
    assert complete_images([both[0], single]) == {"registry.example/team/llama:2"}
    broken = {**single, "metadata": {**single["metadata"], "annotations": {IMAGE_TEMPLATES: "x"}}}
    assert complete_images([broken, {}, {"spec": 7}]) == set()
