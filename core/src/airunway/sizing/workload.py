"""What a deployment asks of its engine, as far as memory depends on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from airunway.api.modeldeployment import ModelDeployment
from airunway.engines.arguments import is_flag, plain
from airunway.engines.options import release_of
from airunway.engines.tables import UnknownEngineError, flag_table

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]?\.?[0-9]{1,9}", re.ASCII)
_FRACTIONS = (
    "gpu-memory-utilization",
    "mem-fraction-static",
    "free-gpu-memory-fraction",
    "kv-cache-free-gpu-memory-fraction",
)
_ANY_RELEASE = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?![0-9.])", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """One worker: its engine and the settings that decide about memory. None: the engine's default."""

    engine: str
    release: tuple[int, ...] | None = None
    context: int | None = None
    """Tokens of the longest request."""
    sequences: int = 1
    """Requests of that length that must fit at once."""
    gpus: int = 0
    """GPUs that the spec requests for each worker; 0: not given."""
    resource: str = ""
    """Resource name of the GPUs; empty: any."""
    tensor_parallel: int | None = None
    pipeline: int | None = None
    fraction: float | None = None
    batched_tokens: int | None = None
    max_sequences: int | None = None
    kv_cache_dtype: str = ""
    eager: bool = False
    """Whether CUDA graphs are off."""
    problems: tuple[str, ...] = ()
    """Settings that could not be read."""


@dataclass(frozen=True, kw_only=True)
class Role:
    """One kind of workers of a deployment."""

    name: str
    """Empty in aggregated mode."""
    workers: int
    workload: WorkerSettings


def roles_of(deployment: ModelDeployment, *, engine: str, sequences: int = 1) -> tuple[Role, ...]:
    """The roles of a deployment with that engine: one, or prefill and decode."""
    spec = deployment.spec
    base = _settings(deployment, engine, sequences)
    if spec.serving.mode == "disaggregated":
        named = (("prefill", spec.scaling.prefill), ("decode", spec.scaling.decode))
        return tuple(
            Role(
                name=name,
                workers=role.replicas,
                workload=replace(base, gpus=role.gpu.count, resource=role.gpu.resource),
            )
            for name, role in named
            if role is not None
        )
    gpu = spec.resources.gpu
    workload = replace(base, gpus=gpu.count, resource=gpu.resource)
    return (Role(name="", workers=spec.scaling.replicas, workload=workload),)


def _settings(deployment: ModelDeployment, engine: str, sequences: int) -> WorkerSettings:
    settings = deployment.spec.engine
    image = settings.image or deployment.spec.image or ""
    options = _options(settings.args, settings.extra_args)
    try:
        table = flag_table(engine)
    except UnknownEngineError:
        return WorkerSettings(
            engine=engine, context=settings.context_length, sequences=sequences, eager=settings.enforce_eager
        )
    problems: list[str] = []

    def number(*names: str) -> int | None:
        found = _first(options, names)
        if found is None or _NUMBER.fullmatch(found):
            return int(found) if found else None
        problems.append(f"spec.engine.args[{names[0]}]: {found[:40]!r} is not a whole number: it is not counted")
        return None

    def spelled(flag: str) -> tuple[str, ...]:
        names = (flag, *table.synonyms.get(flag, ())) if flag else ()
        return tuple(map(plain, names))

    fraction: float | None = None
    given = _first(options, _FRACTIONS)
    if given is not None:
        if _DECIMAL.fullmatch(given) and 0 < float(given) <= 1:
            fraction = float(given)
        else:
            problems.append(f"the memory fraction {given[:40]!r} is not from 0 to 1: the default is counted")
    return WorkerSettings(
        engine=engine,
        release=release_of(engine, image) or _tagged(image),
        context=number(*spelled(table.context_length)) or settings.context_length,
        sequences=sequences,
        tensor_parallel=number(*spelled(table.tensor_parallel)),
        pipeline=number(*(spelled(table.pipeline_parallel) or ("pp-size", "pp_size"))),
        fraction=fraction,
        batched_tokens=number("max-num-batched-tokens", "chunked-prefill-size", "max-num-tokens"),
        max_sequences=number("max-num-seqs", "max-running-requests", "max-batch-size"),
        kv_cache_dtype=_first(options, ("kv-cache-dtype",)) or "",
        eager=settings.enforce_eager or "enforce-eager" in options,
        problems=tuple(problems),
    )


def _tagged(image: str) -> tuple[int, ...] | None:
    """The release in the tag of an image whose repository ends with the engine's name, with two or three numbers."""
    repository, _, tag = image.partition("@")[0].rpartition(":")
    found = _ANY_RELEASE.match(tag) if re.search(r"(vllm|sglang|tensorrt-llm|trtllm)[^/]*$", repository) else None
    return tuple(int(part) for part in found.groups(default="0")) if found else None


def _options(args: Mapping[str, str], extra: list[str]) -> dict[str, str]:
    """The options by name without dashes; later words win."""
    found = {key.replace("_", "-"): value for key, value in args.items()}
    for word, following in zip(extra, [*extra[1:], ""], strict=False):
        if is_flag(word):
            name, equals, value = word.partition("=")
            found[plain(name)] = value if equals else "" if following.startswith("-") else following
    return found


def _first(options: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((options[name] for name in names if name in options), None)
