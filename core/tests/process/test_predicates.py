"""Which changes bring a pass: all of others, and none that came back of one's own writes."""

from __future__ import annotations

from typing import Any

import pytest

from airunway.api.bounds import EXCESS
from airunway.process.predicates import RelevantMetadata, has_our_prefix, is_user_edit, needs_reconcile
from airunway.resource import Resource, copy_of, dig, labels_of

ME, OTHER = "me", "other"
OURS = RelevantMetadata(labels=has_our_prefix)
FINALIZERS = RelevantMetadata(finalizers=lambda finalizer: finalizer != "mine")


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
    assert not needs_reconcile(before, BOTH, manager=ME, echo=True, relevant=OURS)


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
    assert needs_reconcile(
        BOTH, deployment({**MINE, "phase": "Failed"}, {**THEIRS, **change}), manager=ME, echo=echo, relevant=OURS
    )


@pytest.mark.parametrize(
    "metadata",
    [
        {"generation": 2},
        {"labels": {"airunway.ai/a": "b"}},
        {"annotations": {"airunway.ai/a": "b"}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"uid": "another life"},
    ],
    ids=lambda metadata: next(iter(metadata)),
)
@pytest.mark.parametrize("echo", [True, False])
def test_metadata_that_is_looked_at_is_news(metadata: Resource, echo: bool) -> None:
    assert needs_reconcile(BOTH, deployment(MINE, THEIRS, **metadata), manager=ME, echo=echo, relevant=OURS)


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a": "b", "example.com/airunway.ai": "c"}},
        {"annotations": {"a": "b", "airunway.ai.example.com/x": "c"}},
        {"ownerReferences": [{"uid": "1"}]},
        {"somethingNew": 1},
    ],
    ids=lambda metadata: next(iter(metadata)),
)
@pytest.mark.parametrize("echo", [True, False])
def test_l3_metadata_that_nothing_looks_at_is_no_news(metadata: Resource, echo: bool) -> None:
    """Each such edit of one tenant was a pass of the core and one of the provider."""
    after = deployment(MINE, THEIRS, **metadata)
    assert not needs_reconcile(BOTH, after, manager=ME, echo=echo, relevant=OURS)
    both = RelevantMetadata(labels=lambda _: True, annotations=lambda _: True)
    looked_at = {"labels", "annotations"} >= metadata.keys()
    assert needs_reconcile(BOTH, after, manager=ME, echo=echo, relevant=both) == looked_at, (
        "a plugin may look at all of them"
    )
    assert not needs_reconcile(after, after, manager=ME, echo=echo, relevant=both)


def test_l3_labels_of_ours_are_no_news_where_they_are_handed_on_by_nobody() -> None:
    labelled = deployment(MINE, THEIRS, labels={"airunway.ai/a": "b"})
    assert not needs_reconcile(BOTH, labelled, manager=ME, echo=False, relevant=RelevantMetadata())


@pytest.mark.parametrize(
    ("after", "edited"),
    [
        pytest.param(deployment(MINE, THEIRS, generation=2), True, id="spec"),
        pytest.param(deployment(MINE, THEIRS, labels={"a": "b"}), True, id="label"),
        pytest.param(deployment(MINE, THEIRS, annotations={"a": "b"}), True, id="annotation"),
        pytest.param(deployment({**MINE, "phase": "Failed"}, THEIRS), False, id="status"),
        pytest.param(deployment(MINE, THEIRS, finalizers=["mine"]), False, id="finalizer"),
        pytest.param(
            deployment(MINE, THEIRS, generation=2, deletionTimestamp="2026-01-01T00:00:00Z"), False, id="deletion"
        ),
        pytest.param(None, False, id="gone"),
    ],
)
def test_l3_what_counts_as_an_edit(after: Resource | None, edited: bool) -> None:
    assert is_user_edit(BOTH, after) == edited
    assert not is_user_edit(None, after)


def test_l3_a_deleted_object_that_is_held_is_edited_like_any_other() -> None:
    deleted, again = (
        deployment(MINE, THEIRS, deletionTimestamp="2026-01-01T00:00:00Z", annotations={"a": text}) for text in "bc"
    )
    assert is_user_edit(deleted, again)


def test_an_edit_of_an_own_field_by_somebody_else_is_news() -> None:
    edited = deployment({**MINE, "phase": "Failed"}, THEIRS)
    assert needs_reconcile(BOTH, edited, manager=ME, echo=False, relevant=OURS)
    edited["metadata"]["managedFields"] = []
    assert needs_reconcile(BOTH, edited, manager=ME, echo=True, relevant=OURS)


def test_an_own_field_that_somebody_else_takes_over_is_news() -> None:
    taken = deployment({k: v for k, v in MINE.items() if k != "phase"}, {**THEIRS, "phase": "Running"})
    assert needs_reconcile(BOTH, taken, manager=ME, echo=False, relevant=OURS)
    assert needs_reconcile(BOTH, taken, manager=ME, echo=True, relevant=OURS)


def test_a_version_alone_is_no_news() -> None:
    before, after = (deployment(MINE, THEIRS, resourceVersion=version) for version in "12")
    assert not needs_reconcile(before, after, manager=ME, echo=False, relevant=OURS)


READS = RelevantMetadata(
    labels=has_our_prefix,
    status=lambda obj: (dig(obj, "status", "engine"), dig(obj, "status", "provider", "name")),
    by_labels=lambda obj: labels_of(obj).get("team"),
)
ROUTE = {"gateway": {"ready": True}, "conditions": [condition("Validated"), condition("GatewayReady")]}


@pytest.mark.parametrize("echo", [True, False])
def test_what_others_write_is_news_only_where_the_reader_reads_it(echo: bool) -> None:
    routed = deployment(MINE, {**THEIRS, **ROUTE})
    assert not needs_reconcile(BOTH, routed, manager=ME, echo=echo, relevant=READS)
    assert needs_reconcile(BOTH, routed, manager=ME, echo=echo, relevant=OURS), "who names nothing reads all"
    for theirs in ({"engine": {"type": "sglang"}}, {"provider": {"name": "other"}}):
        assert needs_reconcile(BOTH, deployment(MINE, {**THEIRS, **theirs}), manager=ME, echo=echo, relevant=READS)
    labelled = deployment(MINE, THEIRS, labels={"team": "red"})
    assert needs_reconcile(BOTH, labelled, manager=ME, echo=echo, relevant=READS)


def test_a_reader_of_named_fields_still_defends_its_own() -> None:
    edited = deployment({**MINE, "phase": "Failed"}, THEIRS)
    assert needs_reconcile(BOTH, edited, manager=ME, echo=False, relevant=READS)
    taken = deployment({k: v for k, v in MINE.items() if k != "phase"}, {**THEIRS, "phase": "Running"})
    half = deployment(
        {**MINE, "conditions": [condition("PodsReady")]},
        {**THEIRS, "conditions": [condition("Validated"), condition("Ready")]},
    )
    for others in (taken, half):
        for echo in (True, False):
            assert needs_reconcile(BOTH, others, manager=ME, echo=echo, relevant=READS)
    written = deployment({**MINE, "phase": "Failed", "reason": "New"}, THEIRS)
    assert not needs_reconcile(BOTH, written, manager=ME, echo=True, relevant=READS)
    dropped = deployment({"phase": "Running"}, THEIRS)
    assert not needs_reconcile(BOTH, dropped, manager=ME, echo=True, relevant=READS)


def test_finalizers_are_news_to_whom_heeds_them_and_to_all_once_it_is_deleted() -> None:
    held, free = deployment(MINE, THEIRS, finalizers=["mine", "theirs"]), deployment(MINE, THEIRS, finalizers=["mine"])
    assert not needs_reconcile(free, held, manager=ME, echo=False, relevant=OURS)
    assert needs_reconcile(free, held, manager=ME, echo=False, relevant=FINALIZERS)
    assert needs_reconcile(held, free, manager=ME, echo=True, relevant=FINALIZERS)
    assert not needs_reconcile(BOTH, free, manager=ME, echo=True, relevant=FINALIZERS)
    for each in (held, free):
        each["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert needs_reconcile(held, free, manager=ME, echo=True, relevant=OURS)


def test_that_something_is_too_large_is_news() -> None:
    assert needs_reconcile(
        BOTH, {**BOTH, EXCESS: [("metadata.labels", "too many", "x")]}, manager=ME, echo=False, relevant=OURS
    )
