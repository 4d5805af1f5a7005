"""What a played engine reports is what `airunway top` reads of the real one."""

from __future__ import annotations

import pytest

from airunway.engines.metrics import ENGINE_METRICS
from airunway.view.engine_metrics import Sample, SampleReader
from airunway_testing.engine_load import EngineLoad


def read(load: EngineLoad, model: str = "llama") -> Sample:
    reader = SampleReader()
    for line in load.report(model).splitlines():
        reader.line(line)
    return reader.sample(moment=1.0)


@pytest.mark.parametrize("engine", ENGINE_METRICS)
def test_a_request_runs_and_its_tokens_are_counted(engine: str) -> None:
    load = EngineLoad(engine)
    assert (read(load).running, read(load).tokens) == (0, 0)
    with load.request() as token, load.request():
        token()
        token()
        during = read(load, 'a "quoted" \\ name')
    after = read(load)
    assert during.table is ENGINE_METRICS[engine]
    assert (during.running, during.waiting, during.tokens) == (2, 0, 2)
    assert during.kv_use is not None
    assert during.kv_use > 0
    assert (after.running, after.kv_use, after.tokens) == (0, 0, 2)
    assert bool(after.first_token) is bool(ENGINE_METRICS[engine].first_token)


def test_names_are_those_of_the_engine() -> None:
    assert "vllm:num_requests_running{" in EngineLoad("vllm").report("llama")
    assert "trtllm_num_requests_running{" in EngineLoad("trtllm").report("llama")
    with pytest.raises(KeyError):
        EngineLoad("unknown")
