"""Phase and conditions of a ModelSource, by the status library that deployments use too. Pure.

One of two filters fails: the source is Degraded, and says which. Both fail: it is Failed. A registry that cannot be
reached counts only after the grace period.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airunway.artifacts.jobs import is_due
from airunway.configs.resolution import CONFIG_READY, Resolution
from airunway.redaction import bounded
from airunway.resource import Resource, condition_of, dig, filled, format_time, key_of, list_at, parse_time
from airunway.status.conditions import Condition, as_word, conditions_in, is_fault
from airunway.status.reasons import Category, category_of
from airunway.status.rollup import DEPENDENCY_GRACE, Fault, Phase, Rollup, not_reached_since, summary_of
from airunway.status.rollup import since as since_of

SCAN_READY = "ScanReady"

_FIRST_RETRY = 60.0
_LONGEST_RETRY = 3600.0
_FILTER_MESSAGE = 512
_NOT_AVAILABLE = "UpstreamNotInstalled"

_CODES = {
    "SecretNotFound": "Secret.NotFound",
    "AuthFailed": "ImagePull.Auth",
    "Unauthorized": "ImagePull.Auth",
    "Forbidden": "ImagePull.Auth",
    "SourceNotFound": "ImagePull.NotFound",
    "ImageNotFound": "ImagePull.NotFound",
    "InvalidImageReference": "ImagePull.NotFound",
    "RateLimited": "ImagePull.RateLimited",
}
"""Root causes that reasons of filters stand for."""


_UNASKED = frozenset({"InvalidConstraint", "InvalidImageReference", "SecretNotFound"})
"""Reasons of filters for which no registry is asked."""


@dataclass(frozen=True, kw_only=True)
class FilterResult:
    """What a scan found by one filter."""

    image: str
    """The filter."""
    found: int = 0
    """Images that it selected and that could be read."""
    reason: str = ""
    """Why it failed, at least in part; empty if it did not."""
    message: str = ""
    """The same as a sentence."""


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The newest scan of a source."""

    filters: tuple[FilterResult, ...]
    """By position in ``spec.filters``."""
    notes: str = ""
    """What has to be known and is no failure: images that were passed over, a limit that was reached."""
    generation: int
    """The generation that it was about."""
    ended: datetime
    """When it ended."""
    following: datetime
    """When the next one is due."""
    missing: str = ""
    """What the cluster does not have, as a sentence; empty if it has everything."""

    @property
    def failed(self) -> list[FilterResult]:
        """The filters that failed, at least in part."""
        return [each for each in self.filters if each.reason]

    @property
    def nothing(self) -> bool:
        """Whether every filter failed and found nothing."""
        return bool(self.filters) and all(each.reason and not each.found for each in self.filters)


# --------------------------------------------------------------------------------------------------------------- times


def last_scan(source: Resource) -> Scan | None:
    """The newest scan, as the status has it; None if there was none."""
    status = source.get("status")
    status = status if isinstance(status, dict) else {}
    ended, following = parse_time(status.get("lastSyncTime")), parse_time(status.get("nextSyncTime"))
    generation = _whole(status.get("observedGeneration"))
    if ended is None or generation is None:
        return None
    ready = condition_of(source, SCAN_READY) or {}
    filters = tuple(_result(each) for each in list_at(status, "filters"))
    good = ready.get("status") == "True"
    missing = str(ready.get("message", "")) if ready.get("reason") == _NOT_AVAILABLE else ""
    return Scan(
        filters=filters,
        notes=str(ready.get("message", "")) if good else "",
        generation=generation,
        ended=ended,
        following=following or ended,
        missing=missing,
    )


def _result(entry: object) -> FilterResult:
    return FilterResult(
        image=str(dig(entry, "image", default="")),
        found=_whole(dig(entry, "found")) or 0,
        reason=str(dig(entry, "reason", default="")),
        message=str(dig(entry, "message", default="")),
    )


def _whole(value: object) -> int | None:
    """A number that the API server would store as one."""
    return value if type(value) is int and 0 <= value < 2**63 else None


def due_in(source: Resource, *, now: datetime) -> float:
    """Seconds until the next scan; 0 if it is due: the first one, after a change of the spec, at its time, and where
    the last one was recorded by a clock that was ahead.

    Nothing else of the object counts: a write of the status makes no scan due.
    """
    scan = last_scan(source)
    if scan is None or scan.generation != dig(source, "metadata", "generation"):
        return 0.0
    if is_due(scan.following, last=scan.ended, now=now):
        return 0.0
    return (scan.following - now).total_seconds()


def next_scan(
    filters: Sequence[FilterResult],
    *,
    before: Scan | None,
    interval: float,
    retry_after: float | None,
    now: datetime,
) -> datetime:
    """When the next scan is due: after the interval, or earlier where a registry did not answer or refused access, that
    is after 60 s, and twice as long after each further failure. Never before the registry allows it.
    """
    reasons = [each.reason for each in filters if each.reason]
    seconds = interval
    if any(_may_pass(reason) for reason in reasons):
        seconds = _FIRST_RETRY
        if before is not None and any(_may_pass(each.reason) for each in before.filters):
            seconds = max(_FIRST_RETRY, 2 * (before.following - before.ended).total_seconds())
        seconds = min(seconds, interval, _LONGEST_RETRY)
    return now + timedelta(seconds=max(seconds, retry_after or 0.0))


def _may_pass(reason: str) -> bool:
    """Whether a failure may go away without a change of the source."""
    return bool(reason) and category_of(reason) in (Category.CONNECTIVITY, Category.AUTH)


# -------------------------------------------------------------------------------------------------------------- status


def status_of(
    source: Resource,
    *,
    scan: Scan | None,
    progress: str = "",
    models: int,
    resolution: Resolution,
    now: datetime,
    grace: timedelta = DEPENDENCY_GRACE,
) -> tuple[Resource, float | None]:
    """The status, and after how many seconds it changes by time alone.

    `scan` is the newest scan; None before the first one has ended, of which `progress` is a reason (``Starting``,
    ``Progressing``) while it runs. `models` are the templates that were made from the source.
    """
    config, ready = _config_condition(resolution), _scan_condition(scan, progress)
    faults = [
        *_config_faults(config, models),
        *_scan_faults(scan, ready, conditions_in(source.get("status")), now=now, grace=grace),
    ]
    summary = summary_of(
        source,
        [config, ready],
        faults,
        created=scan is not None or bool(progress),
        failures=[*_filter_conditions(scan), *_not_reached(source, scan)],
        running_message=ready.message or "Every filter was scanned",
        now=now,
        grace=grace,
    )
    rollup, conditions = summary.rollup, summary.conditions
    status: Resource = {
        **filled(
            observedGeneration=scan.generation if scan is not None else None,
            phase=_phase(rollup),
            reason=rollup.reason,
            message=rollup.message,
            lastSyncTime=format_time(scan.ended) if scan is not None else None,
            nextSyncTime=format_time(scan.following) if scan is not None else None,
            effectiveRuntimeConfig=resolution.config.status() if resolution.config is not None else None,
            rootCause=_root_cause(source, scan, conditions) if rollup.phase is not Phase.RUNNING else None,
        ),
        "models": models,
        "filters": [_entry(each) for each in scan.filters] if scan is not None else [],
        "conditions": conditions,
    }
    return status, rollup.wake_after


def _entry(result: FilterResult) -> Resource:
    return {
        "image": result.image[:256],
        "found": result.found,
        **filled(
            reason=as_word(result.reason) if result.reason else "", message=bounded(result.message, _FILTER_MESSAGE)
        ),
    }


def _config_condition(resolution: Resolution) -> Condition:
    config = resolution.config
    if config is not None:
        where = f"RuntimeConfig {config.name}" if config.namespace else f"ClusterRuntimeConfig {config.name}"
        return Condition(type=CONFIG_READY, status=True, reason="RuntimeConfigFound", message=f"It follows {where}")
    if not resolution.missing:
        return Condition(type=CONFIG_READY, status=True, reason="UsingDefaults")
    text = (
        f"spec.runtimeConfigName: there is no RuntimeConfig {resolution.name} in the operator's namespace, and no "
        "ClusterRuntimeConfig of that name: create one, or name another one"
    )
    return Condition(type=CONFIG_READY, status=False, reason="ConfigNotFound", message=text)


def _config_faults(config: Condition, models: int) -> Iterator[Fault]:
    if config.status is not True:
        # What was made before goes on being used.
        yield Fault(component=config.type, reason=config.reason, message=config.message, only_degrades=models > 0)


def _scan_condition(scan: Scan | None, progress: str) -> Condition:
    if scan is None:
        text = {
            "Starting": "The first scan begins",
            "Progressing": "Images are read and templates are made",
            "Queued": "Other sources of this registry are scanned first",
        }.get(progress, "No scan has ended yet")
        return Condition(type=SCAN_READY, status=False, reason=progress or "Queued", message=text)
    if scan.missing:
        return Condition(type=SCAN_READY, status=False, reason=_NOT_AVAILABLE, message=scan.missing)
    if failed := scan.failed:
        first = _leading(failed)
        messages = [f"filter {each.image}: {each.message}" for each in [first, *(e for e in failed if e is not first)]]
        text = f"{len(failed)} of {len(scan.filters)} filters failed: {'; '.join(messages)}"
        return Condition(type=SCAN_READY, status=False, reason=first.reason, message=bounded(text))
    return Condition(type=SCAN_READY, status=True, reason="ScanComplete", message=bounded(scan.notes))


def _leading(failed: Sequence[FilterResult]) -> FilterResult:
    """The failure that decides: what only a person can mend before what may pass by itself."""
    return next((each for each in failed if category_of(each.reason) is not Category.CONNECTIVITY), failed[0])


def _scan_faults(
    scan: Scan | None, ready: Condition, before: Sequence[Resource], *, now: datetime, grace: timedelta
) -> Iterator[Fault]:
    if ready.status is True:
        return
    if scan is None or scan.missing:
        yield Fault(component=SCAN_READY, reason=ready.reason, message=ready.message, pending=ready.reason == "Queued")
        return
    category = category_of(ready.reason)
    reached = category is not Category.CONNECTIVITY
    since = (_failing_since(before) if reached else since_of(before, SCAN_READY, ready.reason)) or now
    reason = "AuthFailed" if category is Category.AUTH else ready.reason
    passing = category is Category.CONNECTIVITY and now < since + grace
    yield Fault(
        component=SCAN_READY,
        reason=reason,
        message=ready.message,
        since=since,
        # A scan that gave nothing at all is a failure whatever the reason; one that gave something degrades.
        category=Category.CONNECTIVITY if passing else Category.CONFIG,
        only_degrades=not scan.nothing,
    )


def _failing_since(before: Sequence[Resource]) -> datetime | None:
    """Since when scans have failed, whatever the reasons were."""
    ready = next((each for each in before if each.get("type") == SCAN_READY), {})
    return parse_time(ready.get("lastTransitionTime")) if is_fault(ready) else None


def _filter_conditions(scan: Scan | None) -> Iterator[Resource]:
    """Each failure as a condition of its own: two filters may fail for two parents."""
    for position, each in enumerate(scan.filters if scan is not None else ()):
        if each.reason:
            text = f"filter {each.image}: {each.message}"
            yield {"type": f"{SCAN_READY}-{position:02}", "status": "False", "reason": each.reason, "message": text}


def _not_reached(source: Resource, scan: Scan | None) -> Sequence[Resource]:
    """The failure to reach a registry that the status has, where the newest scan has asked none: that is no success."""
    asked = scan is not None and not scan.missing and any(each.reason not in _UNASKED for each in scan.filters)
    if asked or (scan is not None and not scan.missing and not scan.filters):
        return ()
    return not_reached_since(conditions_in(source.get("status")), SCAN_READY)


def _root_cause(source: Resource, scan: Scan | None, conditions: Sequence[Resource]) -> Resource | None:
    failed = scan.failed if scan is not None else []
    if scan is None or not failed:
        return None
    first = _leading(failed)
    code = _CODES.get(first.reason)
    ready = next(each for each in conditions if each["type"] == SCAN_READY)
    if code is None:
        return None
    return {
        "code": code,
        "object": f"ModelSource/{key_of(source).name}",
        "field": "spec.imagePullSecrets" if code == "Secret.NotFound" else f"spec.filters[{scan.filters.index(first)}]",
        "message": bounded(first.message, _FILTER_MESSAGE),
        "since": ready["lastTransitionTime"],
    }


def _phase(rollup: Rollup) -> str:
    match rollup.phase:
        case Phase.RUNNING:
            return "Ready"
        case _ if rollup.reason == _NOT_AVAILABLE:
            return "NotAvailable"
        case Phase.DEPLOYING:
            return "Progressing" if rollup.reason == "Progressing" else "Starting"
        case _:
            return rollup.phase.value
