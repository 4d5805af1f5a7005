"""What is read of engines' metrics: of several releases, of several pods, of none, and of hostile ones."""

from __future__ import annotations

import json
import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.engines.metrics import ENGINE_METRICS
from airunway.view import Unseen
from airunway.view.engine_metrics import (
    MOST_SERIES,
    LoadRow,
    PodLoad,
    Sample,
    SampleReader,
    load_row,
    quantile,
)

VLLM = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/model"} 3.0
vllm:num_requests_running{engine="1",model_name="org/model"} 1.0
vllm:num_requests_waiting{engine="0",model_name="org/model"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="org/model"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="org/model"} 0.25
vllm:generation_tokens_total{engine="0",model_name="org/model"} 1000.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="org/model"} 50.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="org/model"} 100.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="org/model"} 100.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="org/model"} 33.0
vllm:num_preemptions_total{engine="0",model_name="org/model"} 0.0
process_cpu_seconds_total 12.0
"""


def sample(text: str, moment: float = 0.0) -> Sample:
    reader = SampleReader()
    for line in text.splitlines():
        reader.line(line)
    return reader.sample(moment)


def row(*pods: PodLoad, engine: str = "vllm") -> LoadRow:
    return load_row(namespace="ml", name="llama", engine=engine, loads=pods)


def test_the_engines_of_a_pod_are_summed() -> None:
    found = sample(VLLM)
    assert (found.running, found.waiting, found.kv_use, found.tokens) == (4.0, 2.0, 0.375, 1000.0)
    assert found.first_token == {0.1: 50.0, 1.0: 100.0, math.inf: 100.0}
    assert found.others == ("vllm_num_preemptions_total",)


@pytest.mark.parametrize(
    ("text", "engine", "use"),
    [
        ("vllm:gpu_cache_usage_perc 0.5", "vllm", 0.5),
        ("vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.5", "vllm", 0.5),
        ('ray_vllm_kv_cache_usage_perc{ReplicaId="x"} 0.5', "vllm", 0.5),
        ('sglang:token_usage{model_name="m",tp_rank="0"} 0.5', "sglang", 0.5),
        ("trtllm_kv_cache_utilization 0.5", "trtllm", 0.5),
        ("llamacpp:kv_cache_usage_ratio 0.5", "llamacpp", 0.5),
        ("vllm:kv_cache_usage_perc 2 1700000000000", "vllm", 1.0),
        ('vllm:kv_cache_usage_perc{a="b} 7"}\t0.5', "vllm", 0.5),
    ],
)
def test_every_spelling_of_a_name_is_known(text: str, engine: str, use: float) -> None:
    found = sample(text)
    assert found.table is ENGINE_METRICS[engine]
    assert found.kv_use == use


def test_rates_and_quantiles_are_of_the_window() -> None:
    later = VLLM.replace(" 1000.0", " 1150.0").replace('le="1.0",model_name="org/model"} 100.0', 'le="1.0"} 120.0')
    later = later.replace('le="+Inf",model_name="org/model"} 100.0', 'le="+Inf"} 120.0')
    view = row(PodLoad(pod="a", samples=(sample(VLLM, 10.0), sample(later, 25.0))))
    assert (view.tokens_per_second, view.window, view.first_token_of) == (10.0, 15.0, "window")
    # All twenty new requests took between 0.1 and 1 s.
    assert view.first_token_p50 == pytest.approx(0.55)
    assert view.first_token_p95 == pytest.approx(0.955)


def test_without_a_request_in_the_window_all_requests_count() -> None:
    view = row(PodLoad(pod="a", samples=(sample(VLLM, 10.0), sample(VLLM, 25.0))))
    assert (view.first_token_of, view.first_token_p50, view.tokens_per_second) == ("start", 0.1, 0.0)


def test_an_engine_that_started_again_has_no_negative_rate() -> None:
    again = VLLM.replace(" 1000.0", " 30.0").replace(" 50.0", " 1.0").replace(" 100.0", " 2.0")
    view = row(PodLoad(pod="a", samples=(sample(VLLM, 0.0), sample(again, 10.0))))
    assert view.tokens_per_second == 3.0
    assert view.first_token_of == "window"


def test_pods_are_summed_and_those_that_report_nothing_are_counted() -> None:
    denied = Unseen(what="metrics", why="you have no right to it", right="get pods/proxy in namespace ml")
    pair = (sample(VLLM, 0.0), sample(VLLM.replace(" 1000.0", " 1100.0"), 10.0))
    view = row(PodLoad(pod="a", samples=pair), PodLoad(pod="b", samples=pair), PodLoad(pod="c", unseen=denied))
    assert (view.pods, view.reporting, view.running, view.kv_use) == (3, 2, 8.0, 0.375)
    assert (view.tokens_per_second, view.unseen) == (20.0, (denied,))


def test_what_is_not_reported_is_unseen_and_names_what_there_is() -> None:
    nothing = row(PodLoad(pod="a", samples=(sample("python_info 1"),)), engine="sglang")
    assert isinstance(nothing.running, Unseen)
    assert "SGLang reports them with --enable-metrics" in nothing.running.why
    renamed = row(PodLoad(pod="a", samples=(sample("vllm:requests_in_flight 3"),)))
    assert isinstance(renamed.running, Unseen)
    assert "does not report vllm_num_requests_running; it has vllm_requests_in_flight" in renamed.running.why
    llama = row(PodLoad(pod="a", samples=(sample("llamacpp:requests_processing 1"),)), engine="llamacpp")
    assert llama.running == 1.0
    assert isinstance(llama.first_token_p50, Unseen)
    assert llama.first_token_p50.why == "llamacpp has no such metric"
    assert isinstance(llama.tokens_per_second, Unseen)
    pods = Unseen(what="pods", why="you have no right to it", right="list pods in namespace ml")
    assert load_row(namespace="ml", name="x", engine="", loads=pods).running == pods
    none = row()
    assert isinstance(none.running, Unseen)
    assert "no ready pod" in none.running.why
    values = (none.as_resource()[name] for name in ("running", "waiting", "kvUse", "tokensPerSecond"))
    assert all(value != 0 for value in values)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300", "x", "0x10", "", "9" * 63])
def test_a_value_that_is_no_number_of_requests_is_not_reported(value: str) -> None:
    assert sample(f"vllm:num_requests_running {value}").running is None


def test_quantiles() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({1.0: 0.0, math.inf: 0.0}, 0.5) is None
    assert quantile({1.0: 10.0, math.inf: 10.0}, 0.5) == 0.5
    # Beyond the last bound it is at least that bound.
    assert quantile({1.0: 0.0, 2.0: 1.0, math.inf: 10.0}, 0.95) == 2.0
    # Counts that fall from bound to bound.
    assert quantile({1.0: 10.0, 2.0: 5.0, math.inf: 10.0}, 0.95) == pytest.approx(0.95)


def test_of_many_series_and_names_a_bounded_number_is_kept() -> None:
    reader = SampleReader()
    for number in range(MOST_SERIES + 10):
        reader.line(f'vllm:metric_{number}{{x="{number}"}} 1')
    reader.line("vllm:num_requests_running 1")
    found = reader.sample(0.0)
    assert (found.running, len(found.others)) == (None, 5)


@settings(max_examples=200, deadline=None)
@given(st.randoms())
def test_any_text_gives_a_row(chance: Random) -> None:
    lines = VLLM.splitlines()
    for _ in range(20):
        place = chance.randrange(len(lines))
        word = chance.choice(["NaN", "\x1b[2J", 'le="', "}", "{", "-3", "1e999", " ", "\u202e", "vllm:", "x" * 300])
        at = chance.randrange(len(lines[place]) + 1)
        lines[place] = lines[place][:at] + word + lines[place][at:]
    first, second = sample("\n".join(lines), 0.0), sample(VLLM, 10.0)
    for pair in ((first, second), (second, first), (first, first)):
        view = row(PodLoad(pod="a", samples=pair))
        assert json.dumps(view.as_resource(), ensure_ascii=False).isprintable()
