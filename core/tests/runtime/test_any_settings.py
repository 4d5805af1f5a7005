"""Any config, any labels and any record on the primary object, through all five providers: no traceback, and a result.

``pytest -m soak`` runs 100,000 examples of each.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache, partial
from random import Random
from typing import Any

import orjson
import pytest
from core.tests.any_json import MANY, anything, changed, text
from core.tests.conftest import MakeDeployment
from core.tests.runtime.views import NOW, state
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.api import names
from airunway.configs.patterns import matches
from airunway.configs.resolution import Resolution, check, propagated, resolve
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.plugins.registry import load
from airunway.plugins.settings import runtime_settings
from airunway.resource import Resource, annotations_of, copy_of, format_time, labels_of
from airunway.runtime.plan import Decision, decide
from airunway.runtime.translate import parsed, translate
from airunway.status.reasons import REASONS

PROVIDERS = ("kaito", "vllm", "llmd", "kuberay", "dynamo")
CONFIG: Resource = {
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
    "imagePullSecrets": [{"name": "registry"}],
    "secrets": {"huggingFaceToken": "hf"},
    "labelPropagation": {"enabled": True, "match": ["example.org/*"]},
    "routing": {"enabled": False},
}


@cache
def host_of(name: str) -> ProviderHost:
    return load(name)


@cache
def settings_of(name: str) -> object:
    return host_of(name).settings({})


def deployment(
    plain: MakeDeployment, provider: str, *, found: Resolution, served: bool = True, **spec: Any
) -> Resource:
    """A valid deployment of the provider, of which the core has published the config."""
    obj = plain(metadata={"labels": {"example.org/team": "one"}, "creationTimestamp": format_time(NOW)}, **spec)
    ready = {"type": "RuntimeConfigReady", "status": "True", "reason": "ConfigFound", "observedGeneration": 1}
    seen = [{"type": "Served", "status": "True", "observedGeneration": 1, "lastTransitionTime": format_time(NOW)}]
    status = obj["status"]
    status["provider"] = {"name": provider}
    status["conditions"] = [*status["conditions"], ready, *(seen if served else ())]
    if found.config is not None:
        status["effectiveRuntimeConfig"] = found.config.status()
    return obj


def resolved(spec: object, *, cluster: object = None) -> Resolution:
    metadata = {"name": "default", "namespace": "ml"}
    lower = {"spec": cluster, "metadata": {"name": "default"}} if cluster is not None else None
    return resolve("default", namespaced={"metadata": metadata, "spec": spec}, cluster=lower)


@cache
def primary_of(provider: str) -> Resource:
    """What the provider makes under `CONFIG`, as the API server has it."""
    found, host = resolved(CONFIG), host_of(provider)
    wanted = deployment(FACTORY[0], provider, found=found)
    runtime = runtime_settings(found.config, labels_of(wanted), reserved=host.manifest.reserved_labels)
    context = replace(assumed_context(host, engine="vllm", now=NOW), runtime=runtime)
    made = translate(host, wanted, parsed(wanted), context, config=found.config).objects[0]
    metadata = {**made["metadata"], "uid": "uid-1", "creationTimestamp": format_time(NOW)}
    return {**copy_of(made), "metadata": metadata}


FACTORY: list[MakeDeployment] = []


@pytest.fixture(autouse=True, scope="module")
def factory(plain: MakeDeployment) -> None:
    """Hypothesis draws before fixtures are there: what is drawn from asks for the records of real objects."""
    FACTORY[:] = [plain]


def sound(decision: Decision) -> None:
    """It says something, in words that are documented; what it would write is JSON with texts as labels."""
    for result in decision.results:
        assert result.reason != "ProviderError", result.message
        assert result.reason in REASONS or result.ok, result
        assert isinstance(result.message, str)
    assert all(isinstance(finding.message, str) for finding in decision.warnings)
    for obj in decision.objects:
        assert orjson.loads(orjson.dumps(obj))["kind"]
        assert all(isinstance(value, str) for value in {**labels_of(obj), **annotations_of(obj)}.values())


# -------------------------------------------------------------------------------------------------------------- configs

KEYS = (
    *("env", "name", "value", "valueFrom", "secretKeyRef", "key", "imagePullSecrets", "secrets", "huggingFaceToken"),
    *("labelPropagation", "enabled", "match", "routing", "pathTemplate", "inherit", "rollout", "statusPolicy"),
    *("dependencyGracePeriod", "storage", "maxConcurrentRollouts", "gatewayRef", "annotations", "later"),
)
like_config = partial(
    anything, keys=KEYS, values=("A", "HF_TOKEN", "Cluster", "Immediately", "*", "[bad", "/{.a}", "10s", "", 0, True)
)


def any_spec(chance: Random) -> object:
    return changed(chance, CONFIG, like_config) if chance.randrange(3) else like_config(chance)


def any_config(chance: Random) -> None:
    """A provider's pass under any config: what is new gets its settings, what serves keeps those that it has."""
    provider, exists = chance.choice(PROVIDERS), bool(chance.randrange(2))
    upper, lower = any_spec(chance), any_spec(chance) if chance.randrange(2) else None
    found = resolved(upper, cluster=lower)
    assert found.config is not None
    wanted = deployment(FACTORY[0], provider, found=found, served=exists)
    objects = [copy_of(primary_of(provider))] if exists else []
    view = state(host_of(provider), wanted, *objects, resolution=found)
    decision = decide(view, host_of(provider), settings=settings_of(provider))
    sound(decision)
    for each in (upper, lower):
        check({"spec": each})
    if exists and decision.objects:
        kept = orjson.loads(annotations_of(decision.objects[0])[names.RUNTIME_SETTINGS])["pods"]["env"]
        assert kept == CONFIG["env"]
    elif not exists:
        assert decision.objects or decision.results, "it is made, or it is said why not"


@settings(max_examples=300, deadline=None)
@given(st.randoms())
def test_any_config_gives_objects_or_says_why_not(chance: Random) -> None:
    any_config(chance)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_any_of_100_000_configs_gives_objects_or_says_why_not() -> None:
    for seed in range(MANY):
        any_config(Random(seed))


# --------------------------------------------------------------------------------------------------------------- labels

PREFIXES = ("airunway.ai/", "kaito.sh/", "ray.io/", "nvidia.com/", "llm-d.ai/", "app.kubernetes.io/", "example.org/")


def label_text(chance: Random) -> str:
    prefix = chance.choice(PREFIXES) if chance.randrange(2) else ""
    known = chance.choice([*names.NEVER_PROPAGATED, "app.kubernetes.io/managed-by"])
    return known if chance.randrange(8) == 0 else prefix + text(chance, longest=20)


def any_labels(chance: Random) -> None:
    """Our own labels and the selectors stay as they are, whatever the deployment has; what is propagated is its own."""
    provider = chance.choice(PROVIDERS)
    # An API server stores texts only; `propagated` alone takes any JSON (test_patterns).
    labels = {label_text(chance): text(chance) for _ in range(chance.randrange(7))}
    some = [*labels, "*", "*/*", "[bad", "a*/[^b-c]?", None, 5]
    patterns = [chance.choice([*some, label_text(chance)]) for _ in range(chance.randrange(6))]
    found = resolved({"labelPropagation": {"enabled": True, "match": patterns}})
    wanted = deployment(FACTORY[0], provider, found=found, served=False)
    bare = decide(
        state(host_of(provider), wanted, resolution=found), host_of(provider), settings=settings_of(provider)
    ).objects
    wanted["metadata"]["labels"] = labels
    host = host_of(provider)
    chosen = propagated(labels, found.config, reserved=host.manifest.reserved_labels)
    assert chosen.items() <= {key: value for key, value in labels.items() if isinstance(value, str)}.items()
    assert not chosen.keys() & names.NEVER_PROPAGATED
    usable = [pattern for pattern in patterns if isinstance(pattern, str)]
    for key in chosen:
        assert key.startswith(f"{names.GROUP}/") or any(matches(pattern, key) for pattern in usable)
    decision = decide(state(host, wanted, resolution=found), host, settings=settings_of(provider))
    sound(decision)
    for before, after in zip(bare, decision.objects, strict=True):
        kept = {key: value for key, value in labels_of(before).items() if not key.startswith("example.org/")}
        assert kept.items() <= labels_of(after).items(), "ours and the translation's come first"
        assert before["spec"].get("selector") == after["spec"].get("selector") if "spec" in before else True


@settings(max_examples=300, deadline=None)
@given(st.randoms())
def test_any_labels_and_patterns_leave_what_is_ours(chance: Random) -> None:
    any_labels(chance)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_any_of_100_000_labels_and_patterns_leave_what_is_ours() -> None:
    for seed in range(MANY):
        any_labels(Random(seed))


# ---------------------------------------------------------------------------------------------------- recorded settings

RECORD_KEYS = (
    *("for", "config", "provider", "pods", "gateway", "env", "name", "value", "valueFrom", "imagePullSecrets"),
    *("token", "key", "labels", "namespace", "usesPool", "vllm_image", "picker_image", "runtime_version", "later"),
)
like_record = partial(
    anything, keys=RECORD_KEYS, values=("A", "default", "image:1", "HF_TOKEN", "v0.9.0", "0.9", 0, True)
)


def any_record(chance: Random) -> str:
    """The text of an annotation: any JSON, one that a provider wrote with other values, cut, deep, no JSON."""
    how = chance.choice(("any", "changed", "changed", "cut", "deep", "text"))
    if how == "text":
        return text(chance, longest=40)
    if how == "deep":
        depth = chance.choice([100, 200, 240, 260, 900, 2000])
        inner = "[" * depth + "]" * depth if chance.randrange(2) else '{"a":' * depth + "1" + "}" * depth
        return f'{{"for":"x","{chance.choice(RECORD_KEYS)}":{inner}}}'
    if how == "any":
        return json.dumps(like_record(chance))
    written = annotations_of(primary_of(chance.choice(PROVIDERS)))[names.RUNTIME_SETTINGS]
    if how == "cut":
        return written[: chance.randint(0, len(written))]
    return json.dumps(changed(chance, json.loads(written), like_record))


def with_any_record(chance: Random) -> None:
    """A pass of the provider over an object with such a record."""
    provider, served = chance.choice(PROVIDERS), bool(chance.randrange(2))
    found, host = resolved(CONFIG), host_of(provider)
    wanted = deployment(FACTORY[0], provider, found=found, served=served)
    if chance.randrange(2):
        wanted["spec"]["resources"] = {"gpu": {"count": 2}}
    primary = copy_of(primary_of(provider))
    primary["metadata"]["annotations"][names.RUNTIME_SETTINGS] = any_record(chance)
    decision = decide(state(host, wanted, primary, resolution=found), host, settings=settings_of(provider))
    sound(decision)
    assert decision.objects or decision.results, "it is written, or it is said why not"


@settings(max_examples=300, deadline=None)
@given(st.randoms())
def test_any_recorded_settings_give_objects_or_say_why_not(chance: Random) -> None:
    with_any_record(chance)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_any_of_100_000_recorded_settings_give_objects_or_say_why_not() -> None:
    for seed in range(MANY):
        with_any_record(Random(seed))
