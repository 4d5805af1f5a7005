"""Phase, conditions and times of a ModelSource."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airunway.configs.resolution import Resolution, resolve
from airunway.resource import Resource, condition_of, format_time
from airunway_catalogue.source_status import FilterResult, Scan, due_in, last_scan, next_scan, status_of

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
FOUND = Resolution(name="default", config=None)
GONE = resolve("gpu", namespaced=None, cluster=None)
GOOD = FilterResult(image="a", found=3)


def bad(reason: str, found: int = 0, image: str = "b") -> FilterResult:
    return FilterResult(image=image, found=found, reason=reason, message=f"why {reason}")


def source(status: Resource | None = None, generation: int = 1) -> Resource:
    return {"kind": "ModelSource", "metadata": {"name": "s", "generation": generation}, "status": status or {}}


def scan(*filters: FilterResult, missing: str = "", notes: str = "", generation: int = 1) -> Scan:
    hour = timedelta(hours=1)
    return Scan(filters=filters, missing=missing, notes=notes, generation=generation, ended=NOW, following=NOW + hour)


def status(
    found: Scan | None,
    *,
    before: Resource | None = None,
    progress: str = "",
    now: datetime = NOW,
    models: int = 0,
    resolution: Resolution = FOUND,
) -> Resource:
    return status_of(source(before), scan=found, progress=progress, models=models, resolution=resolution, now=now)[0]


def said(found: Resource, type_: str) -> tuple[str, str]:
    condition = condition_of({"status": found}, type_)
    assert condition is not None
    return condition["status"], condition["reason"]


LATER = NOW + timedelta(seconds=11)


@pytest.mark.parametrize(
    ("found", "more", "phase", "reason"),
    [
        (None, {}, "Pending", "Queued"),
        (None, {"progress": "Queued"}, "Pending", "Queued"),
        (None, {"resolution": GONE}, "Pending", "ConfigNotFound"),
        (None, {"progress": "Starting"}, "Starting", "Starting"),
        (None, {"progress": "Progressing"}, "Progressing", "Progressing"),
        (scan(GOOD), {}, "Ready", "Ready"),
        (scan(), {}, "Ready", "Ready"),
        (scan(GOOD, bad("Unauthorized")), {}, "Degraded", "AuthFailed"),
        (scan(GOOD, bad("SourceNotFound")), {}, "Degraded", "SourceNotFound"),
        (scan(GOOD, bad("InvalidConstraint")), {}, "Degraded", "InvalidConstraint"),
        (scan(GOOD), {"resolution": GONE, "models": 3}, "Degraded", "ConfigNotFound"),
        (scan(missing="no CRDs"), {}, "NotAvailable", "UpstreamNotInstalled"),
        (scan(bad("InvalidConstraint")), {}, "Failed", "InvalidConstraint"),
        (scan(bad("Unauthorized"), bad("Forbidden")), {}, "Failed", "AuthFailed"),
        (scan(bad("SourceNotFound")), {}, "Failed", "SourceNotFound"),
        (scan(bad("DNSFailure"), bad("Forbidden")), {}, "Failed", "AuthFailed"),
    ],
)
def test_the_seven_phases(found: Scan | None, more: dict[str, Any], phase: str, reason: str) -> None:
    result = status(found, **more)
    assert (result["phase"], result["reason"]) == (phase, reason)
    assert said(result, "Ready")[0] == ("True" if phase == "Ready" else "False")


@pytest.mark.parametrize("previous", ["", "Ready", "Degraded", "Failed", "NotAvailable"])
def test_partial_failure_is_Degraded_and_all_failed_is_Failed_whatever_was_before(previous: str) -> None:  # noqa: N802
    before = {"phase": previous} if previous else {}
    assert status(scan(GOOD, bad("Forbidden")), before=before)["phase"] == "Degraded"
    assert status(scan(bad("Forbidden")), before=before)["phase"] == "Failed"
    assert status(scan(GOOD), before=before)["phase"] == "Ready"


PARENTS = ("ConfigValid", "AuthValid", "DependenciesReachable")


@pytest.mark.parametrize(
    ("reason", "parent"),
    [
        ("InvalidConstraint", "ConfigValid"),
        ("InvalidImageReference", "ConfigValid"),
        ("SourceNotFound", "ConfigValid"),
        ("ImageNotFound", "ConfigValid"),
        ("AuthFailed", "AuthValid"),
        ("Unauthorized", "AuthValid"),
        ("Forbidden", "AuthValid"),
        ("SecretNotFound", "AuthValid"),
        ("RateLimited", "DependenciesReachable"),
        ("ServerError", "DependenciesReachable"),
        ("DNSFailure", "DependenciesReachable"),
        ("ConnectionRefused", "DependenciesReachable"),
        ("Timeout", "DependenciesReachable"),
    ],
)
def test_each_reason_of_a_filter_makes_its_parent_False(reason: str, parent: str) -> None:  # noqa: N802
    result = status(scan(GOOD, bad(reason)))
    assert said(result, parent) == ("False", reason)
    assert [said(result, each)[0] for each in PARENTS if each != parent] == ["True", "True"]
    assert result["filters"] == [
        {"image": "a", "found": 3},
        {"image": "b", "found": 0, "reason": reason, "message": f"why {reason}"},
    ]


def test_two_filters_may_fail_for_two_parents() -> None:
    result = status(scan(bad("DNSFailure"), bad("Unauthorized", image="c")))
    assert [said(result, each)[0] for each in PARENTS] == ["True", "False", "False"]
    assert "filter c: why Unauthorized" in result["message"]
    assert "filter b: why DNSFailure" in result["message"]


def test_the_four_parents_and_both_children_are_always_there() -> None:
    for found in (None, scan(GOOD), scan(bad("Timeout"))):
        types = [each["type"] for each in status(found)["conditions"]]
        assert types == sorted([*PARENTS, "Ready", "RuntimeConfigReady", "ScanReady"])


def test_a_registry_that_is_not_reached_counts_after_the_grace_period() -> None:
    before = status(scan(GOOD))
    first, wake = status_of(source(before), scan=scan(bad("DNSFailure")), models=0, resolution=FOUND, now=NOW)
    assert (first["phase"], wake) == ("Ready", 10.0)
    assert said(first, "DependenciesReachable") == ("False", "DNSFailure")
    second = status(scan(bad("Timeout")), before=first, now=LATER)
    assert second["phase"] == "Failed"
    third = status(scan(GOOD, bad("Timeout")), before=first, now=LATER)
    assert third["phase"] == "Degraded"


def test_a_registry_stays_unreachable_until_it_answers_and_degrades_exactly_ten_seconds_later() -> None:
    """Neither another filter's fault nor a scan that asks nothing is a success of it."""

    def at(seconds: float, found: Scan, before: Resource) -> tuple[Resource, tuple[str, str, str]]:
        now = NOW + timedelta(seconds=seconds)
        result = status(found, before=before, now=now)
        parent = condition_of({"status": result}, "DependenciesReachable") or {}
        return result, (result["phase"], parent["status"], parent["lastTransitionTime"])

    turned = format_time(NOW)
    before, seen = at(0, scan(bad("DNSFailure")), status(scan(GOOD)))
    assert seen == ("Ready", "False", turned)
    before, seen = at(9.9, scan(bad("Timeout")), before)
    assert seen == ("Ready", "False", turned), "another failure of the same kind counts from the first one"
    before, seen = at(10, scan(bad("Timeout")), before)
    assert seen == ("Failed", "False", turned)
    for unasked in (scan(bad("SecretNotFound")), scan(missing="no CRDs"), scan(bad("InvalidConstraint"))):
        before, (_, *parent) = at(60, unasked, before)
        assert parent == ["False", turned]
    # What refuses access has answered.
    assert at(70, scan(bad("Unauthorized")), before)[1] == ("Failed", "True", format_time(NOW + timedelta(seconds=70)))
    assert at(70, scan(GOOD), before)[1] == ("Ready", "True", format_time(NOW + timedelta(seconds=70)))


def test_a_limit_that_was_reached_is_in_the_message_of_a_source_that_is_Ready() -> None:  # noqa: N802
    result = status(scan(GOOD, notes="maxModels is reached: 100 templates"), models=100)
    assert (result["phase"], result["message"], result["models"]) == (
        "Ready",
        "maxModels is reached: 100 templates",
        100,
    )


def test_the_root_cause_names_filter_and_code() -> None:
    result = status(scan(GOOD, bad("Unauthorized")))
    cause = result["rootCause"]
    assert (cause["code"], cause["object"], cause["field"]) == ("ImagePull.Auth", "ModelSource/s", "spec.filters[1]")
    assert "rootCause" not in status(scan(GOOD), before=result)


def test_a_recovered_source_has_nothing_of_the_failure_left() -> None:
    recovered = status(scan(GOOD), before=status(scan(bad("Forbidden"))))
    fresh = status(scan(GOOD))
    assert {**recovered, "conditions": []} == {**fresh, "conditions": []}
    assert "why" not in str(recovered)


def test_a_pass_without_a_scan_says_the_same_as_the_scan() -> None:
    for found in (
        scan(GOOD, notes="maxModels is reached"),
        scan(GOOD, bad("Unauthorized")),
        scan(bad("SourceNotFound"), bad("Forbidden")),
        scan(missing="no CRDs"),
    ):
        written = status(found, now=LATER)
        kept = last_scan(source(written))
        assert kept is not None
        assert status(kept, before=written, now=LATER) == written


# --------------------------------------------------------------------------------------------------------------- times


def test_a_status_write_starts_no_scan_and_a_change_of_the_spec_does() -> None:
    written = status(scan(GOOD))
    assert due_in(source(), now=NOW) == 0
    assert due_in(source(written), now=NOW) == 3600
    edits: tuple[Resource, ...] = (
        {"models": 7},
        {"phase": "Failed"},
        {"conditions": []},
        {"filters": []},
        {"message": "x"},
    )
    for edit in edits:
        assert due_in(source({**written, **edit}), now=NOW) == 3600
    labelled = source(written)
    labelled["metadata"]["labels"] = {"a": "b"}
    assert due_in(labelled, now=NOW) == 3600
    assert due_in(source(written, generation=2), now=NOW) == 0
    assert due_in(source(written), now=NOW + timedelta(hours=1)) == 0


def test_a_scan_that_was_recorded_by_a_clock_that_was_ahead_makes_one_due() -> None:
    written = status(scan(GOOD))
    assert due_in(source(written), now=NOW - timedelta(seconds=60)) == 3660, "clocks differ a little"
    assert due_in(source(written), now=NOW - timedelta(seconds=61)) == 0


def test_a_status_of_any_shape_makes_a_scan_due() -> None:
    for hostile in ({"lastSyncTime": 7}, {"lastSyncTime": "x", "observedGeneration": 1}, {"observedGeneration": "1"}):
        assert due_in(source(hostile), now=NOW) == 0
    strange = {"lastSyncTime": format_time(NOW), "observedGeneration": 1, "filters": [7, {}, {"found": "x"}]}
    found = last_scan(source(strange))
    assert found is not None
    assert len(found.filters) == 3
    assert status(found, before=strange)["filters"][0] == {"image": "", "found": 0}


def delay(*filters: FilterResult, before: Scan | None = None, retry_after: float | None = None) -> float:
    following = next_scan(filters, before=before, interval=7200, retry_after=retry_after, now=NOW)
    return (following - NOW).total_seconds()


def failed(seconds: float) -> Scan:
    return Scan(
        filters=(bad("Timeout"),), generation=1, ended=NOW - timedelta(1), following=NOW - timedelta(1, -seconds)
    )


def test_the_next_scan_is_after_the_interval_or_sooner_after_a_failure() -> None:
    assert delay(GOOD) == 7200
    assert delay(bad("SourceNotFound")) == 7200
    assert delay(bad("InvalidConstraint")) == 7200
    for reason in ("Timeout", "RateLimited", "ServerError", "Unauthorized", "SecretNotFound"):
        assert delay(GOOD, bad(reason)) == 60
    assert [delay(bad("Timeout"), before=failed(seconds)) for seconds in (60, 120, 1000, 3600)] == [
        120,
        240,
        2000,
        3600,
    ]
    assert delay(bad("Timeout"), before=scan(GOOD)) == 60
    short = next_scan([bad("Timeout")], before=failed(60), interval=60, retry_after=None, now=NOW)
    assert short == NOW + timedelta(seconds=60)


def test_a_registry_is_never_asked_before_the_time_that_it_names() -> None:
    assert delay(bad("RateLimited"), retry_after=300) == 300
    assert delay(bad("RateLimited"), retry_after=5) == 60
    assert delay(bad("RateLimited"), retry_after=86_400) == 86_400
