"""Every documented metric, and every value of a label that there is a list of, seen on the pages of real processes."""

from __future__ import annotations

from time import time
from typing import Protocol

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from airunway.process.metric_catalogue import ERROR_TYPES, METRICS, MetricsRole

pytestmark = pytest.mark.apiserver

Samples = dict[frozenset[tuple[str, str]], float]


class Seen(Protocol):
    """Of what conftest.py's story showed: what is looked at here."""

    namespace: str
    model: str
    pages: dict[str, str]
    page_after_deletion: str
    openmetrics: str
    content_types: list[str]

    def samples(self, component: str, name: str) -> Samples: ...
    def values(self, component: str, name: str, label: str) -> set[str]: ...
    def unseen(self, component: str) -> set[str]: ...
    def cut(self, component: str) -> set[str]: ...


def of(**labels: str) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())


def test_every_metric_is_seen(seen: Seen) -> None:
    catalogue = {m.name for m in METRICS if m.role is MetricsRole.CATALOGUE}
    assert seen.unseen("core") == catalogue
    quiet = {"airunway_reconciliation_errors_total"}  # no pass of the provider need have failed
    assert seen.unseen("provider") - quiet == {m.name for m in METRICS if m.role is not MetricsRole.EVERY}


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_samples_have_the_labels_that_the_catalogue_says(seen: Seen, metric: object) -> None:
    assert metric in METRICS
    found = next(m for m in METRICS if m is metric)
    for series in found.series:
        extra = {"le"} if series.endswith("_bucket") else set()
        for component in ("core", "provider"):
            for labels in seen.samples(component, series):
                assert {name for name, _ in labels} == {*found.labels, *extra}, series


def test_no_metric_is_shown_that_is_not_documented(seen: Seen) -> None:
    documented = {series for metric in METRICS for series in metric.series}
    for component, page in seen.pages.items():
        shown = {line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if line.startswith("airunway_")}
        assert shown <= documented, component


def test_every_kind_of_error_but_a_bug_is_seen(seen: Seen) -> None:
    seen_types = seen.values("core", "airunway_reconciliation_errors_total", "error_type")
    assert seen_types == set(ERROR_TYPES) - {"internal"}


def test_every_result_of_a_pass_is_shown_and_those_without_a_timer_are_seen(seen: Seen) -> None:
    labels = {dict(labels)["result"] for labels in seen.samples("core", "airunway_reconcile_total")}
    assert labels == {"success", "requeue", "retry", "error"}
    assert seen.values("core", "airunway_reconcile_total", "result") >= {"success", "retry", "error"}
    assert seen.values("provider", "airunway_reconcile_total", "result") >= {"success"}


def test_every_verdict_of_the_webhook_is_seen(seen: Seen) -> None:
    assert seen.values("core", "airunway_webhook_requests_total", "verdict") == {"allowed", "refused", "failed"}


def test_the_webhook_s_certificate_ends_in_a_year(seen: Seen) -> None:
    [ends] = seen.samples("core", "airunway_webhook_certificate_expiry_timestamp_seconds").values()
    assert 364 < (ends - time()) / 86400 <= 365


def test_lost_events_are_counted(seen: Seen) -> None:
    lost = [seen.samples(component, "airunway_events_lost_total") for component in ("core", "provider")]
    assert sum(found[of(cause="refused")] for found in lost) == 1
    assert [found[of(cause=cause)] for found in lost for cause in ("full", "limited")] == [0, 0, 0, 0]


def test_a_watch_that_was_cut_is_counted_with_its_cause(seen: Seen) -> None:
    for component in ("core", "provider"):
        assert "modeldeployments" in seen.cut(component)


def test_what_the_metrics_say(seen: Seen) -> None:
    parts = ("airunway-controller", "airunway-gateway", "airunway-model-cache")
    leads = {of(component=part): 1 for part in parts}
    assert seen.samples("core", "airunway_leader") == leads
    assert seen.samples("provider", "airunway_leader") == {of(component="airunway-provider-kaito"): 1}
    assert seen.samples("core", "airunway_provider_ready")[of(provider="kaito")] == 1
    info = seen.samples("core", "airunway_modeldeployment_info")
    named = of(namespace=seen.namespace, name="named", provider="kaito", engine="llamacpp", model=seen.model)
    assert info[named] == 1
    selections = seen.samples("core", "airunway_provider_selection_total")
    assert selections[of(provider="kaito", reason="manual")] == 2  # once more after its status was lost
    assert selections[of(provider="kaito", reason="auto")] >= 2
    suspended = seen.samples("core", "airunway_deployment_suspended")
    assert suspended[of(namespace=seen.namespace, name="sleeping")] == 1
    assert of(namespace=seen.namespace, name="story") not in suspended
    requests = seen.samples("core", "airunway_api_requests_total")
    assert requests[of(code="200", resource="modeldeployments/status", verb="apply")] > 0
    transitions = seen.samples("core", "airunway_deployment_phase_transitions_total")
    assert transitions[of(provider="kaito", from_phase="Deploying", to_phase="Running")] >= 2
    replicas = seen.samples("core", "airunway_deployment_replicas")
    assert replicas[of(namespace=seen.namespace, name="named", state="desired")] == 1


def test_what_the_metrics_say_of_a_model_artifact(seen: Seen) -> None:
    name = {"namespace": seen.namespace, "name": "weights"}
    assert seen.samples("core", "airunway_modelartifact_bytes") == {of(**name, state="allocated"): 2**30}
    assert seen.samples("core", "airunway_modelartifact_users") == {of(**name): 0}
    ((phase, number),) = seen.samples("core", "airunway_modelartifact_phase").items()
    assert (dict(phase)["name"], number) == ("weights", 1)
    downloads = seen.samples("core", "airunway_model_downloads")
    assert downloads == {of(state="running"): 1, of(state="queued"): 0}


def test_no_pass_of_the_provider_was_a_bug(seen: Seen) -> None:
    results = seen.samples("provider", "airunway_reconcile_total")
    assert results[of(controller="provider-kaito", result="error")] == 0


def test_what_is_about_an_object_goes_away_with_it(seen: Seen) -> None:
    assert f'namespace="{seen.namespace}"' in seen.pages["core"]
    assert seen.namespace not in seen.page_after_deletion


def test_openmetrics_is_spoken_where_it_is_asked_for(seen: Seen) -> None:
    openmetrics, printable = seen.content_types
    assert openmetrics.startswith("application/openmetrics-text; version=1.0.0")
    assert printable.startswith("text/plain")
    parsed = text_string_to_metric_families(seen.openmetrics)  # type: ignore[no-untyped-call]
    families = {family.name for family in parsed}
    shown = [metric for metric in METRICS if metric.role is not MetricsRole.CATALOGUE]
    assert {metric.name.removesuffix("_total") for metric in shown} <= {f.removesuffix("_total") for f in families}
