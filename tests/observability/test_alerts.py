"""Every alert on metrics as they would be in the trouble that it is for: silent before, firing in it, silent after.

The expressions are evaluated by the part of PromQL that they use, on samples every half minute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from airunway.process.metric_catalogue import METRICS

ALERTS = Path(__file__).resolve().parents[2] / "dashboards" / "alerts.yaml"
RULES = {
    rule["alert"]: rule
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
}

STEP, LOOKBACK = 30, 300
BEGIN, END, HORIZON = 3600, 7200, 14400
"""Seconds: when the trouble begins and ends, and how long is looked at."""

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = dict[Labels, float]
Level: TypeAlias = Callable[[int], float | None]
"""The value of a series at a moment; None: it is not there."""

# -------------------------------------------------------------------------------------------------------- PromQL

_TOKEN = re.compile(r'\s*("[^"]*"|[a-zA-Z_:][\w:]*|\d+(?:\.\d+)?[smh]?|=~|!~|!=|==|>=|<=|[-+*/(){}\[\],=<>])')
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_AGGREGATES: dict[str, Callable[[list[float]], float]] = {"sum": sum, "max": max, "min": min}
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    "==": lambda a, b: a == b,
}


@dataclass(frozen=True)
class World:
    """Series by name and labels."""

    series: Mapping[tuple[str, Labels], Level]

    def samples(self, name: str, labels: Labels, *, since: int, until: int) -> list[tuple[int, float]]:
        level = self.series[name, labels]
        moments = range(max(0, since + STEP - since % STEP if since % STEP else since), until + 1, STEP)
        return [(moment, value) for moment in moments if (value := level(moment)) is not None]


class Expression:
    """A parsed text, evaluated as it is read: an expression is looked at anew at every moment."""

    def __init__(self, text: str, world: World, moment: int) -> None:
        self._tokens = _TOKEN.findall(text)
        assert "".join(self._tokens) == re.sub(r"\s", "", text), f"cannot be read: {text}"
        self._at = 0
        self._world, self._moment = world, moment

    def value(self) -> Vector:
        found = self._either()
        assert self._at == len(self._tokens), self._tokens[self._at :]
        return found

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _take(self, wanted: str = "") -> str:
        token = self._peek()
        assert not wanted or token == wanted, f"{wanted} expected at {self._tokens[self._at :]}"
        self._at += 1
        return token

    def _either(self) -> Vector:
        left = self._without()
        while self._peek() == "or":
            self._take()
            right = self._without()
            left = {**{labels: value for labels, value in right.items() if labels not in left}, **left}
        return left

    def _without(self) -> Vector:
        left = self._compared()
        while self._peek() in ("unless", "and"):
            if self._take() == "and":
                both = self._compared()
                left = {labels: value for labels, value in left.items() if labels in both}
                continue
            self._take("on")
            names = self._names()
            right = {_only(labels, names) for labels in self._compared()}
            left = {labels: value for labels, value in left.items() if _only(labels, names) not in right}
        return left

    def _compared(self) -> Vector:
        left = self._divided()
        if self._peek() not in _COMPARISONS:
            return left
        holds, bound = _COMPARISONS[self._take()], float(self._take())
        return {labels: value for labels, value in left.items() if holds(value, bound)}

    def _divided(self) -> Vector:
        left = self._one()
        while self._peek() in ("/", "-"):
            if self._take() == "-":
                for token in ("time", "(", ")"):
                    self._take(token)
                left = {labels: value - self._moment for labels, value in left.items()}
                continue
            right = self._one()
            left = {labels: value / right[labels] for labels, value in left.items() if right.get(labels)}
        return left

    def _one(self) -> Vector:
        name = self._take()
        if name in _AGGREGATES:
            names = self._names() if self._peek() == "by" and self._take() else ()
            return self._aggregate(_AGGREGATES[name], names)
        if name in ("rate", "increase", "min_over_time"):
            self._take("(")
            found = self._over_time(name)
        elif name == "absent":
            self._take("(")
            equal = self._matchers(self._take())[1]
            present = self._selected(equal)
            found = {} if present else {frozenset((k, v) for k, o, v in equal[1] if o == "="): 1.0}
        else:
            return self._selected(self._matchers(name)[1])
        self._take(")")
        return found

    def _names(self) -> tuple[str, ...]:
        self._take("(")
        names = []
        while self._peek() != ")":
            if (token := self._take()) != ",":
                names.append(token)
        self._take(")")
        return tuple(names)

    def _aggregate(self, together: Callable[[list[float]], float], names: tuple[str, ...]) -> Vector:
        self._take("(")
        groups: dict[Labels, list[float]] = {}
        for labels, value in self._either().items():
            groups.setdefault(_only(labels, names), []).append(value)
        self._take(")")
        return {labels: together(values) for labels, values in groups.items()}

    def _matchers(self, name: str) -> tuple[str, tuple[str, list[tuple[str, str, str]]]]:
        found: list[tuple[str, str, str]] = []
        if self._peek() == "{":
            self._take()
            while self._peek() != "}":
                if self._peek() == ",":
                    self._take()
                found.append((self._take(), self._take(), self._take().strip('"')))
            self._take("}")
        return name, (name, found)

    def _matching(self, selector: tuple[str, list[tuple[str, str, str]]]) -> Iterator[Labels]:
        name, matchers = selector
        for series, labels in self._world.series:
            has = dict(labels)
            if series == name and all((has.get(k, "") == v) is (o == "=") for k, o, v in matchers):
                yield labels

    def _selected(self, selector: tuple[str, list[tuple[str, str, str]]]) -> Vector:
        found = {}
        for labels in self._matching(selector):
            samples = self._world.samples(selector[0], labels, since=self._moment - LOOKBACK, until=self._moment)
            # A target that is scraped and shows a series no longer ends it at once.
            if samples and samples[-1][0] > self._moment - STEP:
                found[labels] = samples[-1][1]
        return found

    def _over_time(self, function: str) -> Vector:
        selector = self._matchers(self._take())[1]
        self._take("[")
        length = self._take()
        seconds = int(length[:-1]) * _SECONDS[length[-1]]
        self._take("]")
        found = {}
        for labels in self._matching(selector):
            since = self._moment - seconds
            samples = self._world.samples(selector[0], labels, since=since, until=self._moment)
            if function == "min_over_time" and samples:
                found[labels] = min(value for _, value in samples)
            elif function != "min_over_time" and len(samples) > 1:
                grown = sum(max(0.0, after - before) for (_, before), (_, after) in pairwise(samples))
                slope = grown / (samples[-1][0] - samples[0][0])
                found[labels] = slope if function == "rate" else slope * seconds
        return found


def _only(labels: Labels, names: tuple[str, ...]) -> Labels:
    return frozenset((name, value) for name, value in labels if name in names)


def firing(alert: str, world: World) -> list[int]:
    """The moments at which an alert fires: it held at every look for as long as its rule says."""
    rule = RULES[alert]
    lasting = int(rule["for"][:-1]) * _SECONDS[rule["for"][-1]]
    since: dict[Labels, int] = {}
    moments = []
    for moment in range(0, HORIZON, STEP):
        found = Expression(rule["expr"], world, moment).value()
        since = {labels: since.get(labels, moment) for labels in found}
        if any(moment - begun >= lasting for begun in since.values()):
            moments.append(moment)
    return moments


# --------------------------------------------------------------------------------------------------------- worlds

TARGET = {"instance": "10.0.0.1:8080", "job": "airunway"}


def series(name: str, level: Level, /, **labels: str) -> dict[tuple[str, Labels], Level]:
    """One series as the catalogue has it: its labels must be the metric's own."""
    metric = next(metric for metric in METRICS if metric.name == name)
    assert set(labels) == set(metric.labels), name
    return {(name, frozenset({**labels, **TARGET}.items())): level}


def during(bad: float | None, good: float | None) -> Level:
    return lambda moment: bad if BEGIN <= moment < END else good


def growing(*, every: float, when: Callable[[int], bool] = lambda _: True) -> Level:
    """A counter that grows by one each `every` seconds while `when`."""

    totals = list(accumulate((STEP / every if when(at) else 0.0 for at in range(0, HORIZON, STEP)), initial=0.0))
    return lambda moment: totals[moment // STEP]


def in_trouble(moment: int) -> bool:
    return BEGIN <= moment < END


def deployment(*, ready: Level, unready: Level, suspended: Level = lambda _: None) -> dict[tuple[str, Labels], Level]:
    name = {"namespace": "ml", "name": "llama"}
    return {
        **series("airunway_modeldeployment_condition", ready, **name, type="Ready", status="True"),
        **series("airunway_modeldeployment_condition", unready, **name, type="Ready", status="False"),
        **series("airunway_deployment_suspended", suspended, **name),
    }


def passes(result: str, level: Level) -> dict[tuple[str, Labels], Level]:
    return series("airunway_reconcile_total", level, controller="core", result=result)


def reviews(verdict: str, level: Level) -> dict[tuple[str, Labels], Level]:
    return series("airunway_webhook_requests_total", level, verdict=verdict)


def restarts(level: Level) -> dict[tuple[str, Labels], Level]:
    return series("airunway_watch_restarts_total", level, resource="pods", cause="Forbidden")


DAY = 86400.0
WEIGHTS = {"namespace": "ml", "name": "weights"}

MEMBER = {"namespace": "ml", "name": "chat-v2", "group": "chat"}

HEALTHY: dict[tuple[str, Labels], Level] = {
    **deployment(ready=lambda _: 1.0, unready=lambda _: None),
    **passes("success", growing(every=10)),
    **passes("error", growing(every=HORIZON)),
    **reviews("allowed", growing(every=30)),
    **reviews("refused", growing(every=60)),
    **reviews("failed", lambda _: 0.0),
    **series("airunway_webhook_certificate_expiry_timestamp_seconds", lambda moment: moment + 91 * DAY),
    **restarts(growing(every=300)),  # an API server closes watches now and then
    **series("airunway_provider_heartbeat_age_seconds", lambda moment: float(moment % 60), provider="kaito"),
    **series("airunway_watch_synced", lambda _: 1.0, resource="pods"),
    **series("airunway_gateway_share", lambda _: 10.0, **MEMBER),
    **series("airunway_gateway_weight", lambda _: 1.0, **MEMBER),
    **series("airunway_leader", lambda _: 1.0, component="airunway-controller"),
    **series("airunway_workqueue_depth", lambda moment: float(moment % 300 == 0) * 7, controller="core"),
    **series(
        "airunway_provider_condition", lambda _: None, provider="kaito", type="SelectionRulesValid", status="False"
    ),
    **series("airunway_objects_left_out", lambda _: 0.0),
    **series("airunway_modelartifact_phase", lambda _: 1.0, **WEIGHTS, phase="Ready"),
    **series("airunway_modelartifact_bytes", lambda _: 90.0, **WEIGHTS, state="needed"),
    **series("airunway_modelartifact_bytes", lambda _: 100.0, **WEIGHTS, state="allocated"),
    **series("airunway_modelartifact_bytes", lambda moment: float(moment), **WEIGHTS, state="downloading"),
    **series(
        "airunway_event_loop_lag_seconds", lambda moment: 3.0 if moment % 600 < 60 else 0.01
    ),  # now and then a bad one
}

TROUBLE: dict[str, tuple[str, dict[tuple[str, Labels], Level]]] = {
    "not ready": ("AirunwayNotReady", deployment(ready=during(None, 1.0), unready=during(1.0, None))),
    "a bug": ("AirunwayReconcileErrors", passes("error", growing(every=20, when=in_trouble))),
    "a provider that died": (
        "AirunwayProviderDown",
        series(
            "airunway_provider_heartbeat_age_seconds",
            lambda moment: float(moment - BEGIN) if in_trouble(moment) else 30.0,
            provider="kaito",
        ),
    ),
    "a watch that is refused": ("AirunwayWatchStalled", restarts(growing(every=30, when=in_trouble))),
    "a kind that is not served": (
        "AirunwayWatchStalled",
        series("airunway_watch_synced", during(0.0, 1.0), resource="pods"),
    ),
    "a queue that is stuck": (
        "AirunwayQueueBacklog",
        series("airunway_workqueue_depth", during(3.0, 0.0), controller="core"),
    ),
    "only standbys": (
        "AirunwayNoLeader",
        series("airunway_leader", during(0.0, 1.0), component="airunway-controller"),
    ),
    "no core at all": (
        "AirunwayNoLeader",
        series("airunway_leader", during(None, 1.0), component="airunway-controller"),
    ),
    "a webhook without an answer": ("AirunwayWebhookErrors", reviews("failed", growing(every=60, when=in_trouble))),
    "a certificate that is not renewed": (
        "AirunwayWebhookCertificateEnding",
        series(
            "airunway_webhook_certificate_expiry_timestamp_seconds",
            lambda moment: moment + (59 if in_trouble(moment) else 61) * DAY,
        ),
    ),
    "a wrong rule": (
        "AirunwaySelectionRulesInvalid",
        series(
            "airunway_provider_condition",
            during(1.0, None),
            provider="kaito",
            type="SelectionRulesValid",
            status="False",
        ),
    ),
    "passes that keep the loop": ("AirunwayLoopBlocked", series("airunway_event_loop_lag_seconds", during(4.0, 0.01))),
    "a model that is gated": (
        "AirunwayModelDownloadFailing",
        series("airunway_modelartifact_phase", during(1.0, None), **WEIGHTS, phase="Degraded"),
    ),
    "a hub that sends nothing": (
        "AirunwayModelDownloadStalled",
        series(
            "airunway_modelartifact_bytes",
            lambda moment: float(min(moment, BEGIN) + max(0, moment - END)),
            **WEIGHTS,
            state="downloading",
        ),
    ),
    "a claim without room": (
        "AirunwayModelClaimNearlyFull",
        series("airunway_modelartifact_bytes", during(98.0, 90.0), **WEIGHTS, state="needed"),
    ),
    "a version that gets no requests": (
        "AirunwayNoShare",
        series("airunway_gateway_share", during(0.0, 10.0), **MEMBER),
    ),
    "too many deployments": ("AirunwayObjectsLeftOut", series("airunway_objects_left_out", during(5.0, 0.0))),
}


@pytest.mark.parametrize("alert", RULES)
def test_nothing_fires_while_all_is_well(alert: str) -> None:
    assert firing(alert, World(HEALTHY)) == []


@pytest.mark.parametrize("trouble", TROUBLE)
def test_an_alert_fires_in_its_trouble_and_clears_after_it(trouble: str) -> None:
    alert, changed = TROUBLE[trouble]
    moments = firing(alert, World({**HEALTHY, **changed}))
    assert moments, f"{alert} never fires"
    assert moments[0] >= BEGIN
    assert moments[0] <= END - 600  # within the trouble, and long before its end
    assert moments[-1] <= END + 1800  # those that look back clear when the window has passed
    assert moments == list(range(moments[0], moments[-1] + 1, STEP))  # once, without a flap


@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_trouble_fires_no_other_alert(trouble: str) -> None:
    alert, changed = TROUBLE[trouble]
    world = World({**HEALTHY, **changed})
    assert [other for other in RULES if other != alert and firing(other, world)] == []


def test_every_alert_has_its_trouble() -> None:
    assert {alert for alert, _ in TROUBLE.values()} == set(RULES)


def test_a_suspended_deployment_is_meant_not_to_be_ready() -> None:
    world = World({**HEALTHY, **deployment(ready=lambda _: None, unready=lambda _: 1.0, suspended=lambda _: 1.0)})
    assert firing("AirunwayNotReady", world) == []


def test_a_short_trouble_wakes_nobody() -> None:
    short: Level = lambda moment: 1.0 if BEGIN <= moment < BEGIN + 300 else None  # noqa: E731
    well: Level = lambda moment: None if short(moment) else 1.0  # noqa: E731
    assert firing("AirunwayNotReady", World({**HEALTHY, **deployment(ready=well, unready=short)})) == []
