"""What an engine must be told so that it does a task: arguments by engine, dialect and task.

vLLM serves embeddings and rankings with its pooling runner (``--runner``; before 0.10 ``--task``) and finds out by the
model's architecture what transcribes. llama-server has a switch for each.
"""

from __future__ import annotations

from collections.abc import Mapping

GENERATE = "generate"
"""The task that needs no arguments and that every engine does."""

_POOLING = ("--runner=pooling",)
_BY_ENGINE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vllm": {"embed": _POOLING, "rerank": _POOLING, "classify": _POOLING, "transcribe": ()},
    "sglang": {"embed": ("--is-embedding",), "rerank": ("--is-embedding",)},
    "llamacpp": {"embed": ("--embedding",), "rerank": ("--reranking",)},
}
_VLLM_BEFORE: Mapping[str, str] = {"embed": "embed", "rerank": "score", "classify": "classify"}
_RUNNERS_SINCE = (0, 10)

_DECIDED = frozenset({"runner", "task", "convert", "is-embedding", "embedding", "embeddings", "reranking", "rerank"})
"""Flags, without dashes, by which a user says it himself."""


def tasks_of(engine: str, dialect: str = "") -> tuple[str, ...]:
    """The tasks that a program of the engine can do; the runner images of llama.cpp (a dialect) only generate."""
    others = _BY_ENGINE.get(engine, {}) if not dialect else {}
    return (GENERATE, *others)


def task_arguments(
    engine: str, task: str, *, dialect: str = "", release: tuple[int, ...] | None = None, given: Mapping[str, str]
) -> tuple[str, ...]:
    """The arguments for a task of `tasks_of`; none if one of the flags that the user has `given` decides it."""
    if task == GENERATE or dialect or not _DECIDED.isdisjoint(given):
        return ()
    if engine == "vllm" and release is not None and release[:2] < _RUNNERS_SINCE and task in _VLLM_BEFORE:
        return (f"--task={_VLLM_BEFORE[task]}",)
    return _BY_ENGINE.get(engine, {}).get(task, ())
