"""Counts what a played engine answers, and reports it under the names of that engine's metrics.

load = EngineLoad("vllm")
with load.request() as token:      # it runs
    token()                        # its first token
load.report("llama")               # the body of GET /metrics
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from airunway.engines.metrics import ENGINE_METRICS

_BOUNDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Bounds of the histogram, in seconds."""

_CACHE = 2048
"""Tokens that the KV cache has room for: few, so that its use can be watched."""


class EngineLoad:
    """The load of one server of an engine; raises KeyError for an engine of which no metrics are known."""

    def __init__(self, engine: str) -> None:
        self._names = ENGINE_METRICS[engine]
        self._running = 0
        self._tokens = 0
        self._held = 0
        self._first = [0] * (len(_BOUNDS) + 1)

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the engine's server reports its metrics."""
        return self._names.paths

    @contextmanager
    def request(self) -> Iterator[Callable[[], None]]:
        """A request that runs while the context lasts; gives what is to be called at each token."""
        begun, tokens = monotonic(), 0

        def token() -> None:
            nonlocal tokens
            if not tokens:
                self._first[bisect_left(_BOUNDS, monotonic() - begun)] += 1
            tokens += 1
            self._tokens += 1
            self._held += 1

        self._running += 1
        try:
            yield token
        finally:
            self._running -= 1
            self._held -= tokens

    def report(self, model: str) -> str:
        """The metrics in the text format of Prometheus."""
        names, label = self._names, f'model_name="{_escaped(model)}"'
        values = (
            (names.running, self._running),
            (names.waiting, 0),
            (names.kv_use, min(1.0, self._held / _CACHE)),
            (names.tokens, self._tokens),
        )
        lines = [f"{self._as_reported(found[0])}{{{label}}} {value}" for found, value in values if found]
        if names.first_token:
            lines += self._histogram(self._as_reported(names.first_token[0]), label)
        return "".join(f"{line}\n" for line in lines)

    def _histogram(self, name: str, label: str) -> Iterator[str]:
        count = 0
        for bound, number in zip((*map(str, _BOUNDS), "+Inf"), self._first, strict=True):
            count += number
            yield f'{name}_bucket{{le="{bound}",{label}}} {count}'
        yield f"{name}_count{{{label}}} {count}"

    def _as_reported(self, name: str) -> str:
        """Engines but TensorRT-LLM write a colon behind their prefix; the table has the name without it."""
        engine = self._names.engine
        return name if engine == "trtllm" else f"{engine}:{name.removeprefix(f'{engine}_')}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"")
