"""A provider's refusal is a verdict: who is asked next, what is remembered, and when it is settled."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from airunway.controller.decision import CoreDecision, decide
from airunway.resource import Resource, condition_of, dig
from airunway.selection.explanation import CandidateVerdict, explain
from airunway.selection.facts import (
    ProviderFacts,
    ProviderRefusal,
    is_refusal_open,
    provider_facts,
    refusals,
    refused_by,
    request_of,
)
from airunway.selection.provider import MAX_BYTES, choose_provider, recorded

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
WORDS = "spec.model.cache.mode: this provider has no model cache"


def config(name: str, *engines: str, priority: int = 0, explicit: bool = False) -> ProviderFacts:
    return provider_facts(
        {
            "metadata": {"name": name},
            "spec": {
                "selection": "Explicit" if explicit else "Auto",
                "capabilities": {
                    "engines": [
                        {"name": engine, "servingModes": ["aggregated"], "gpuSupport": True} for engine in engines
                    ]
                },
                "selectionRules": [{"condition": "true", "priority": priority}],
            },
            "status": {"ready": True, "lastHeartbeat": NOW.isoformat()},
        }
    )


BEST, NEXT, LAST = config("best", "vllm", priority=9), config("next", "vllm", priority=5), config("last", "sglang")
ALL = [BEST, NEXT, LAST]


def deployment(*, generation: int = 1, status: Resource | None = None, **spec: Any) -> Resource:
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "a", "namespace": "ml", "uid": "1", "generation": generation},
        "spec": {"model": {"id": "org/model"}, "resources": {"gpu": {"count": 1}}, **spec},
        "status": status or {},
    }


def refused(obj: Resource, by: str, *, words: str = WORDS) -> Resource:
    """The deployment after the provider `by` has said no to it, and written nothing else."""
    generation = obj["metadata"]["generation"]
    said = {
        "type": "ProviderCompatible",
        "status": "False",
        "reason": "IncompatibleConfiguration",
        "message": words,
        "observedGeneration": generation,
    }
    owned: Resource = {"f:status": {"f:conditions": {'k:{"type":"ProviderCompatible"}': {"f:status": {}}}}}
    entry = {"manager": f"airunway-provider-{by}", "operation": "Apply", "subresource": "status", "fieldsV1": owned}
    others = [
        each for each in dig(obj, "metadata", "managedFields", default=[]) if each["manager"] == "airunway-controller"
    ]
    conditions = [c for c in dig(obj, "status", "conditions", default=[]) if c["type"] != "ProviderCompatible"]
    status = {**obj["status"], "observedGeneration": generation, "conditions": [*conditions, said]}
    return {**obj, "metadata": {**obj["metadata"], "managedFields": [*others, entry]}, "status": status}


def decided(obj: Resource, providers: list[ProviderFacts] = ALL, *, selector: bool = True) -> CoreDecision:
    return decide(obj, violations=(), providers=providers, selector=selector, now=NOW)


def after(obj: Resource, providers: list[ProviderFacts] = ALL) -> Resource:
    """The deployment with the core's next status over it."""
    status = decided(obj, providers).status
    theirs = [c for c in dig(obj, "status", "conditions", default=[]) if c["type"] == "ProviderCompatible"]
    conditions = [*(c for c in status["conditions"] if c["type"] != "ProviderCompatible"), *theirs]
    return {**obj, "status": {**obj["status"], **status, "conditions": conditions}}


def chosen(obj: Resource) -> tuple[str, str]:
    return dig(obj, "status", "provider", "name"), dig(obj, "status", "engine", "type")


def candidate(obj: Resource, name: str) -> Resource:
    found: Resource = next(each for each in obj["status"]["selection"]["candidates"] if each["name"] == name)
    return found


def test_the_next_candidate_is_chosen_and_the_status_says_who_refused_and_why() -> None:
    first = after(deployment())
    assert chosen(first) == ("best", "vllm")
    no = refused(first, "best")
    second = after(no)
    assert chosen(second) == ("next", "vllm")
    assert candidate(second, "best")["refusal"] == {
        "generation": 1,
        "reason": "IncompatibleConfiguration",
        "message": WORDS,
    }
    assert candidate(second, "best")["reasons"][0] == f"it refuses this spec: {WORDS} (IncompatibleConfiguration)"
    assert not candidate(second, "best")["eligible"]
    events = [event.note for event in decided(no).events if event.reason == "ProviderSelected"]
    assert events == [
        "Selected provider 'next': matched capabilities: engine=vllm, gpu=true, mode=aggregated; "
        f"provider 'best' refused: {WORDS}"
    ]
    selected = condition_of(second, "ProviderSelected") or {}
    assert selected["message"] == "Provider next auto-selected; refused by best (status.selection says why)"


def test_the_words_of_the_provider_before_are_not_those_of_the_next() -> None:
    """Between the choice and the next one's first status the condition of the first still stands there."""
    second = after(refused(after(deployment()), "best"))
    assert chosen(after(second)) == ("next", "vllm")
    assert chosen(after(after(second))) == ("next", "vllm")


def test_the_same_words_of_the_next_are_its_own_refusal() -> None:
    second = after(refused(after(deployment()), "best"))
    third = after(refused(second, "next"))
    assert chosen(third) == ("last", "sglang"), "another engine is taken where no provider of the first one is left"


def test_a_refusal_is_open_until_another_provider_has_answered_or_all_have_refused() -> None:
    first = after(deployment())
    assert not is_refusal_open(first)
    one = refused(first, "best")
    assert is_refusal_open(one), "the core chooses another one next"
    two = after(one)
    assert is_refusal_open(two), "the one that is chosen now has not answered"
    held = {**two, "metadata": {**two["metadata"], "finalizers": ["airunway.ai/next-provider"]}}
    assert is_refusal_open(held), "neither when it is about to"
    last = after(refused(after(refused(two, "next")), "last"))
    assert chosen(last)[0] == "best"
    assert not is_refusal_open(refused(last, "best"))
    assert not is_refusal_open(refused(after(deployment(provider={"name": "best"})), "best"))
    assert not is_refusal_open(refused(deployment(status={"provider": {"name": "best"}}), "best")), "another selector"


def test_if_all_refuse_the_best_one_stays_and_speaks_and_nothing_is_written_again() -> None:
    obj = after(deployment())
    for provider in ("best", "next", "last"):
        assert chosen(obj)[0] == provider
        obj = after(refused(obj, provider))
    assert chosen(obj) == ("best", "vllm")
    obj = refused(obj, "best")
    status = decided(obj).status
    assert {name: obj["status"][name] for name in ("provider", "engine", "selection")} == {
        name: status[name] for name in ("provider", "engine", "selection")
    }
    assert decided(obj).events == ()
    assert {each["name"] for each in status["selection"]["candidates"] if "refusal" in each} == {"best", "next", "last"}


def test_a_provider_that_comes_later_takes_what_all_refused() -> None:
    obj = after(refused(after(deployment(), [BEST]), "best"), [BEST])
    assert chosen(obj) == ("best", "vllm")
    assert chosen(after(refused(obj, "best"), [BEST, NEXT])) == ("next", "vllm")


def test_another_generation_is_a_new_question() -> None:
    second = after(refused(after(deployment()), "best"))
    edited = {**second, "metadata": {**second["metadata"], "generation": 2}}
    assert refusals(edited) == {}
    assert chosen(after(edited)) == ("next", "vllm"), "a provider that was selected stays"
    assert chosen(after(refused(edited, "next"))) == ("best", "vllm"), "the first one is asked about the new spec"


@pytest.mark.parametrize(
    ("spec", "status", "finalizers"),
    [
        ({"provider": {"name": "best"}}, {}, []),
        ({}, {"provider": {"name": "best", "resourceName": "a"}}, []),
        ({}, {}, ["airunway.ai/best-provider"]),
        ({}, {}, ["airunway.ai/other-provider"]),
    ],
)
def test_once_something_exists_or_is_named_no_other_provider_is_chosen(
    spec: Resource, status: Resource, finalizers: list[str]
) -> None:
    obj = after(deployment(**spec))
    assert chosen(obj)[0] == "best"
    obj["metadata"]["finalizers"] = finalizers
    obj["status"] = {**obj["status"], **status}
    assert chosen(after(refused(obj, "best")))[0] == "best"


def test_a_refusal_of_an_older_spec_or_of_another_provider_counts_for_nothing() -> None:
    no = refused(after(deployment()), "best")
    older = {**no, "metadata": {**no["metadata"], "generation": 2}}
    assert refused_by(older) == ()
    stranger = refused(after(deployment()), "stranger")
    assert (refused_by(stranger), refusals(stranger)) == (("stranger",), {})
    assert chosen(after(stranger))[0] == "best"


def test_with_a_selector_of_ones_own_nothing_is_passed_over() -> None:
    no = refused(after(deployment()), "best")
    assert "provider" not in decided(no, selector=False).status


def test_explain_tells_the_same_story_and_asks_the_plugins_that_are_at_hand() -> None:
    no = refused(after(deployment()), "best")
    explained = explain(no, ALL, now=NOW)
    assert (explained.provider, explained.message) == (
        "next",
        "matched capabilities: engine=vllm, gpu=true, mode=aggregated",
    )
    asked: list[tuple[str, str]] = []

    def ask(name: str, engine: str) -> ProviderRefusal | None:
        asked.append((name, engine))
        return ProviderRefusal(generation=0, reason="No", message="no") if name != "last" else None

    fresh = explain(deployment(), ALL, now=NOW, asked=ask)
    assert fresh.provider == "last"
    assert fresh.as_resource()["engine"]["type"] == "sglang"
    assert asked == [("best", "vllm"), ("next", "vllm"), ("last", "sglang")]
    verdicts = {each.name: fresh.verdict(each) for each in fresh.candidates}
    assert verdicts == {
        "best": CandidateVerdict.REJECTED,
        "next": CandidateVerdict.REJECTED,
        "last": CandidateVerdict.SELECTED,
    }


def test_refusals_have_room_and_are_read_back_as_they_were_written() -> None:
    providers = [config(f"p{number:02}", "vllm") for number in range(40)]
    words = {each.name: ProviderRefusal(generation=1, reason="R" * 300, message="é" * 5000) for each in providers}
    request = request_of(deployment()["spec"])
    choice = choose_provider(request, providers, engine="vllm", now=NOW, refused=words)
    assert len(orjson.dumps(recorded(choice.candidates))) <= MAX_BYTES
    first = after(deployment(), [BEST, NEXT])
    second = after(refused(first, "best", words="x" * 1000), [BEST, NEXT])
    third = after(refused(second, "next"), [BEST, NEXT])
    fourth = after(refused(third, "best", words="x" * 1000), [BEST, NEXT])
    assert fourth["status"]["selection"] == third["status"]["selection"]
