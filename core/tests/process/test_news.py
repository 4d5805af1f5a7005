"""Which changes bring a pass: all of others, and none that came back of one's own writes."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.api.bounds import EXCESS
from airunway.process.news import is_news
from airunway.resource import Resource, copy_of

ME, OTHER = "me", "other"


def condition(type_: str, status: str = "True") -> Resource:
    return {"type": type_, "status": status}


def entry(status: Resource) -> Resource:
    fields: Resource = {}
    for name, value in status.items():
        if name == "conditions":
            fields["f:conditions"] = {f'k:{{"type":"{each["type"]}"}}': {".": {}} for each in value}
        elif isinstance(value, dict):
            fields[f"f:{name}"] = {f"f:{key}": {} for key in value}
        else:
            fields[f"f:{name}"] = {}
    return {"manager": ME, "operation": "Apply", "subresource": "status", "fieldsV1": {"f:status": fields}}


def deployment(mine: Resource | None = None, theirs: Resource | None = None, **metadata: Any) -> Resource:
    """With our part of the status and that of others."""
    status: Resource = copy_of(mine or {})
    for name, value in copy_of(theirs or {}).items():
        if isinstance(value, list):
            status[name] = [*status.get(name, []), *value]
        elif isinstance(value, dict):
            status[name] = {**status.get(name, {}), **value}
        else:
            status[name] = value
    entries = [entry(mine)] if mine else []
    known = {"name": "d", "namespace": "n", "uid": "u", "generation": 1, "managedFields": entries}
    return {"metadata": {**known, **metadata}, "spec": {}, **({"status": status} if status else {})}


MINE = {"phase": "Running", "provider": {"resourceName": "x"}, "conditions": [condition("Ready")]}
THEIRS = {"engine": {"type": "vllm"}, "provider": {"name": "toy"}, "conditions": [condition("Validated")]}
BOTH = deployment(MINE, THEIRS)


@pytest.mark.parametrize(
    "before",
    [
        deployment(None, THEIRS),
        deployment({**MINE, "phase": "Pending"}, THEIRS),
        deployment({**MINE, "conditions": [condition("Ready"), condition("PodsReady")]}, THEIRS),
        deployment({**MINE, "reason": "Old"}, THEIRS),
        deployment(
            None, {**THEIRS, "phase": "Pending", "conditions": [condition("Validated"), condition("Ready", "?")]}
        ),
    ],
    ids=["the first", "another value", "a condition fewer", "a field fewer", "taken over from others"],
)
def test_the_echo_of_an_own_status_is_no_news(before: Resource) -> None:
    assert not is_news(before, BOTH, manager=ME, echo=True)


@pytest.mark.parametrize(
    "change",
    [
        {"engine": {"type": "sglang"}},
        {"provider": {"name": "else"}},
        {"conditions": [condition("Validated", "False")]},
        {"conditions": []},
        {"conditions": [condition("Validated"), condition("Paused")]},
        {"selection": {"candidates": []}},
    ],
    ids=["engine", "part of a map", "condition", "condition gone", "condition more", "field more"],
)
@pytest.mark.parametrize("echo", [True, False])
def test_what_others_wrote_is_news_also_together_with_an_echo(change: Resource, echo: bool) -> None:
    assert is_news(BOTH, deployment({**MINE, "phase": "Failed"}, {**THEIRS, **change}), manager=ME, echo=echo)


@pytest.mark.parametrize(
    "metadata",
    [
        {"generation": 2},
        {"labels": {"a": "b"}},
        {"annotations": {"a": "b"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"ownerReferences": [{"uid": "1"}]},
        {"uid": "another life"},
    ],
    ids=lambda metadata: next(iter(metadata)),
)
@pytest.mark.parametrize("echo", [True, False])
def test_metadata_is_news(metadata: Resource, echo: bool) -> None:
    assert is_news(BOTH, deployment(MINE, THEIRS, **metadata), manager=ME, echo=echo)


def test_an_edit_of_an_own_field_by_somebody_else_is_news() -> None:
    edited = deployment({**MINE, "phase": "Failed"}, THEIRS)
    assert is_news(BOTH, edited, manager=ME, echo=False)
    edited["metadata"]["managedFields"] = []
    assert is_news(BOTH, edited, manager=ME, echo=True)


def test_an_own_field_that_somebody_else_takes_over_is_news() -> None:
    taken = deployment({k: v for k, v in MINE.items() if k != "phase"}, {**THEIRS, "phase": "Running"})
    assert is_news(BOTH, taken, manager=ME, echo=False)
    assert is_news(BOTH, taken, manager=ME, echo=True)


def test_a_version_alone_is_no_news() -> None:
    before, after = (deployment(MINE, THEIRS, resourceVersion=version) for version in "12")
    assert not is_news(before, after, manager=ME, echo=False)


def test_finalizers_are_news_to_whom_heeds_them_and_to_all_once_it_is_deleted() -> None:
    held, free = deployment(MINE, THEIRS, finalizers=["mine", "theirs"]), deployment(MINE, THEIRS, finalizers=["mine"])
    assert not is_news(free, held, manager=ME, echo=False)
    assert is_news(free, held, manager=ME, echo=False, heeds=lambda finalizer: finalizer != "mine")
    assert is_news(held, free, manager=ME, echo=True, heeds=lambda finalizer: finalizer != "mine")
    assert not is_news(BOTH, free, manager=ME, echo=True, heeds=lambda finalizer: finalizer != "mine")
    for each in (held, free):
        each["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert is_news(held, free, manager=ME, echo=True)


def test_that_something_is_too_large_is_news() -> None:
    assert is_news(BOTH, {**BOTH, EXCESS: [("metadata.labels", "too many", "x")]}, manager=ME, echo=False)
