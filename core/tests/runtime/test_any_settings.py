"""Any config, any labels and any revision, through all five providers: no traceback, and a result.

``pytest -m soak`` runs 100,000 examples of each.
"""

from __future__ import annotations

import json
from functools import cache, partial
from random import Random
from typing import Any

import orjson
import pytest
from core.tests.any_json import MANY, anything, changed, text
from core.tests.conftest import MakeDeployment
from core.tests.runtime.views import NOW, core_pass, hashed, state, stored
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.api import names
from airunway.configs.patterns import matches
from airunway.configs.resolution import Resolution, check, propagated, resolve
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import Resource, annotations_of, copy_of, format_time, labels_of
from airunway.revisions.revision import PARTS, revision_in
from airunway.runtime.plan import Decision, decide
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


def deployment(plain: MakeDeployment, provider: str, *, served: bool = True, **spec: Any) -> Resource:
    """A valid deployment of the provider."""
    obj = plain(metadata={"labels": {"example.org/team": "one"}, "creationTimestamp": format_time(NOW)}, **spec)
    seen = [{"type": "Served", "status": "True", "observedGeneration": 1, "lastTransitionTime": format_time(NOW)}]
    status = obj["status"]
    status["provider"] = {"name": provider}
    status["conditions"] = [*status["conditions"], *(seen if served else ())]
    return obj


def resolved(spec: object, *, cluster: object = None) -> Resolution:
    metadata = {"name": "default", "namespace": "ml"}
    lower = {"spec": cluster, "metadata": {"name": "default"}} if cluster is not None else None
    return resolve("default", namespaced={"metadata": metadata, "spec": spec}, cluster=lower)


@cache
def primary_of(provider: str) -> Resource:
    """What the provider makes under `CONFIG`, as the API server has it."""
    wanted = deployment(FACTORY[0], provider, served=False)
    view = state(host_of(provider), wanted, resolution=resolved(CONFIG))
    return stored(decide(view, host_of(provider), settings=settings_of(provider)).objects[0], says="")


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
    wanted = deployment(FACTORY[0], provider, served=exists)
    objects = [copy_of(primary_of(provider))] if exists else []
    view = state(host_of(provider), wanted, *objects, resolution=found)
    decision = decide(view, host_of(provider), settings=settings_of(provider))
    sound(decision)
    for each in (upper, lower):
        check({"spec": each})
    if exists and decision.objects:
        assert view.in_effect
        assert view.revision["settings"]["env"] == CONFIG["env"]
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
    wanted = deployment(FACTORY[0], provider, served=False)
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


# ------------------------------------------------------------------------------------------------------------ revisions

REVISION_KEYS = (
    *("hash", "takenFor", "adopted", "template", "settings", "cache", "gateway", "provider", "pending", "parts"),
    *("env", "name", "value", "valueFrom", "secretKeyRef", "imagePullSecrets", "token", "key", "labels", "config"),
    *("claim", "path", "accessMode", "namespace", "usesPool", "transformers", "vllm_image", "picker_image", "later"),
)
like_revision = partial(
    anything, keys=REVISION_KEYS, values=("A", "default", "image:1", "HF_TOKEN", "v0.9.0", "0.9", 0, True)
)


def storable(found: object) -> Resource:
    """What of a revision the CRD lets through: digests are text, parts are objects of any content."""
    read = orjson.loads(json.dumps(found))
    types = {"hash": str, "takenFor": str, "adopted": str, **dict.fromkeys(PARTS, dict)}
    return {key: value for key, value in read.items() if isinstance(value, types.get(key, int))} if read else {}


def any_revision(chance: Random) -> None:
    """A pass of the core over such a revision, and one of the provider: as it stands, and with its right hash."""
    provider, found = chance.choice(PROVIDERS), resolved(CONFIG)
    host = host_of(provider)
    wanted = deployment(FACTORY[0], provider, served=bool(chance.randrange(2)))
    if chance.randrange(2):
        wanted["spec"]["resources"] = {"gpu": {"count": 2}}
    live = [copy_of(primary_of(provider))] if chance.randrange(2) else []
    real = revision_in(state(host, wanted, *live, resolution=found).deployment)
    given = storable({key: like_revision(chance) for key in REVISION_KEYS[:8]})
    if chance.randrange(3):
        given = storable(changed(chance, real, like_revision))
    if chance.randrange(3):
        given = hashed({key: value for key, value in given.items() if key != "hash"})
    wanted["status"]["revision"] = given
    after = core_pass(host, wanted, *live, resolution=found)
    assert after["revision"]["takenFor"], "the core makes a whole one of any"
    for revision in (given, after["revision"]):
        view = state(host, {**wanted, "status": {**wanted["status"], "revision": revision}}, *live)
        decision = decide(view, host, settings=settings_of(provider))
        sound(decision)
        assert decision.objects or decision.results, "it is written, or it is said why not"


def test_a_claim_that_the_spec_does_not_ask_for_makes_nothing_and_is_reported(plain: MakeDeployment) -> None:
    """As in a revision that another writer made up, hash included."""
    provider, found = PROVIDERS[0], resolved(CONFIG)
    host, wanted = host_of(provider), deployment(plain, provider, served=False)
    real = revision_in(state(host, wanted, resolution=found).deployment)
    made_up = hashed({**{key: value for key, value in real.items() if key != "hash"}, "cache": {"claim": "other"}})
    view = state(host, {**wanted, "status": {**wanted["status"], "revision": made_up}})
    decision = decide(view, host, settings=settings_of(provider))
    assert not decision.objects
    assert [result.reason for result in decision.results] == ["WaitingForModelCache"]


@settings(max_examples=300, deadline=None)
@given(st.randoms())
def test_any_revision_gives_objects_or_says_why_not(chance: Random) -> None:
    any_revision(chance)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_any_of_100_000_revisions_gives_objects_or_says_why_not() -> None:
    for seed in range(MANY):
        any_revision(Random(seed))


# ------------------------------------------------------------------------------------------------------------ histories


def any_history(chance: Random) -> None:
    """Edits of the config and of the deployment, passes of either process or none between them: what is made in the
    end is what a provider makes that sees the last state alone.
    """
    provider = chance.choice(PROVIDERS)
    host, objects = host_of(provider), [copy_of(primary_of(provider))]
    wanted, found = deployment(FACTORY[0], provider), resolved(CONFIG)
    for _ in range(chance.randint(1, 5)):
        step = chance.choice(("config", "replicas", "spec", "adopt"))
        if step == "config":
            found = resolved({**CONFIG, "env": [{"name": "A", "value": str(chance.randrange(3))}]})
        elif step == "replicas":
            wanted["spec"]["scaling"] = {"replicas": chance.randint(2, 4)}
        elif step == "spec":
            wanted["spec"]["env"] = [{"name": "OWN", "value": str(chance.randrange(3))}]
        else:
            wanted["metadata"]["annotations"] = {names.ADOPT: str(chance.randrange(3))}
        if chance.randrange(3):
            recorded = core_pass(host, wanted, *objects, resolution=found)["revision"]
            wanted["status"]["revision"] = recorded
            if chance.randrange(3):
                decision = decide(state(host, wanted, *objects), host, settings=settings_of(provider))
                objects = [stored(obj, says="") for obj in decision.objects]
    wanted["status"]["revision"] = core_pass(host, wanted, *objects, resolution=found)["revision"]
    ends = [decide(state(host, wanted, *live), host, settings=settings_of(provider)) for live in (objects, ())]
    wanted = {**wanted, "status": {**wanted["status"], "revision": dict(wanted["status"]["revision"])}}
    wanted["status"]["revision"].pop("pending", None)
    ends.append(decide(state(host, wanted, *objects), host, settings=settings_of(provider)))
    first, *others = [orjson.dumps(end.objects, option=orjson.OPT_SORT_KEYS) for end in ends]
    assert first != b"[]"
    assert others == [first] * len(others)


@settings(max_examples=100, deadline=None)
@given(st.randoms())
def test_equal_spec_and_revision_give_equal_objects_after_any_history(chance: Random) -> None:
    any_history(chance)
