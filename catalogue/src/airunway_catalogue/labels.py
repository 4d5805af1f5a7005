"""Reads what an image's labels say of its model and of the hardware that it was made for. Pure and total.

The label ``com.amd.aim.model.recommendedDeployments: {'gpuModel': 'MI300X', 'gpuCount': 1}, {'gpuModel': 'MI325X'}``
gives two recommendations. Whatever a label has, the result is a list and the problems, which name the label.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airunway.redaction import bounded
from airunway.resource import is_integer
from airunway.templates.choice import METRICS

MAX_LABEL = 64 * 2**10
"""Most characters of one label that are read."""

MAX_RECOMMENDED = 64
"""Most recommendations of one image."""

_MAX_DEPTH = 16
"""Deepest nesting of a label: a parser never recurses further."""

_MAX_PROBLEMS = 16
_SHOWN = 120
"""Bytes of a value that a problem shows."""

_PREFIXES = (("ai.airunway.", ""), ("com.amd.aim.", "amd.com/gpu"), ("org.amd.silogen.", "amd.com/gpu"))
"""Prefixes of labels, the most important first, with the resource name of the GPUs that they speak of (empty: any)."""

_MODEL = ("model.canonicalName", "model.name")
_RECOMMENDED = ("model.recommendedDeployments", "model.deployments")

_FIELDS = {
    "gpumodel": "gpu_model",
    "gpu": "gpu_model",
    "gpucount": "gpu_count",
    "gpus": "gpu_count",
    "gputype": "gpu_type",
    "resourcename": "gpu_type",
    "precision": "precision",
    "metric": "metric",
    "description": "description",
    "optimized": "optimized",
    "type": "optimized",
}
"""Spellings of the fields, in lower case and without ``_`` and ``-``."""

_GPU_MODEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9 ._+-]{0,61}[A-Za-z0-9+])?")
_GPU_TYPE = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,252})/[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PRECISION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,31})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@:+-]{0,510}")
_EXAMPLE = '[{"gpuModel": "H100", "gpuCount": 1}]'
_OPTIMIZED = {"optimized": True, "preview": False, "unoptimized": False, "true": True, "false": False}
_MOST_GPUS = 64


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """One way to run the image."""

    gpu_model: str = ""
    """Such as MI300X; empty: any."""
    gpu_count: int | None = None
    """GPUs of one replica; None: not given."""
    gpu_type: str = ""
    """Resource name of the GPUs; empty: not given."""
    precision: str = ""
    """Such as fp8; empty: not given."""
    metric: str = ""
    """``latency`` or ``throughput``; empty: not given."""
    description: str = ""
    """One line for people."""
    optimized: bool | None = None
    """Whether it was tuned and tested; None: not given."""


@dataclass(frozen=True, kw_only=True)
class ImageLabels:
    """What the labels of one image say."""

    model: str = ""
    """Name of the model; empty: not given."""
    recommended: tuple[Recommendation, ...] = ()
    """Ways to run it, in the label's order and without repetitions."""
    problems: tuple[str, ...] = ()
    """What could not be read; each names the label."""
    digest: str = ""
    """Digest of the image that has these labels; empty: not known."""
    unreadable: bool = False
    """Whether the label with the recommendations is there and gives none at all."""


def read_labels(labels: Mapping[str, object]) -> ImageLabels:
    """Returns what the labels of an image say. Total for any labels."""
    problems: list[str] = []
    model = _model(labels, problems)
    keys = ((prefix + name, gpu_type) for prefix, gpu_type in _PREFIXES for name in _RECOMMENDED)
    key, gpu_type = next(((key, gpu_type) for key, gpu_type in keys if key in labels), ("", ""))
    if key:
        before = len(problems)
        found = tuple(dict.fromkeys(_recommended(key, labels[key], gpu_type=gpu_type, problems=problems)))
        return ImageLabels(
            model=model,
            recommended=found,
            problems=tuple(problems[:_MAX_PROBLEMS]),
            unreadable=not found and len(problems) > before,
        )
    return ImageLabels(model=model, problems=tuple(problems[:_MAX_PROBLEMS]))


def _model(labels: Mapping[str, object], problems: list[str]) -> str:
    for prefix, _ in _PREFIXES:
        for name in _MODEL:
            value = labels.get(prefix + name)
            if value is None or value == "":
                continue
            if isinstance(value, str) and _NAME.fullmatch(value.strip()):
                return value.strip()
            problems.append(f"label {prefix}{name}: {_shown(value)} is no name of a model")
    return ""


def _recommended(key: str, value: object, *, gpu_type: str, problems: list[str]) -> Iterator[Recommendation]:
    if not isinstance(value, str):
        problems.append(f"label {key}: must be text")
        return
    if not value.strip():
        return
    if len(value) > MAX_LABEL:
        problems.append(f"label {key}: has {len(value)} characters, of which at most {MAX_LABEL} are read")
        return
    entries = list(_entries(key, value, problems))
    if len(entries) > MAX_RECOMMENDED:
        problems.append(f"label {key}: has {len(entries)} entries, of which the first {MAX_RECOMMENDED} are read")
    for position, entry in enumerate(entries[:MAX_RECOMMENDED]):
        found = _recommendation(f"label {key}, entry {position + 1}", entry, gpu_type=gpu_type, problems=problems)
        if found is not None:
            yield found


# ------------------------------------------------------------------------------------------------------------ syntax


def _entries(key: str, text: str, problems: list[str]) -> Iterator[object]:
    """The entries of a label: of a list, of one object, or of several objects that follow each other."""
    pieces = _pieces(text)
    if isinstance(pieces, str):
        problems.append(f"label {key}: {pieces}")
        return
    for piece in pieces:
        try:
            value = _value(piece)
        except ValueError:
            problems.append(f"label {key}: {_shown(piece)} is neither JSON nor a Python literal")
            continue
        yield from value if isinstance(value, list | tuple) else (value,)


def _pieces(text: str) -> list[str] | str:
    """The values at the top level of a text; a sentence if it has another form. Linear in the text."""
    pieces: list[str] = []
    depth, start, quote, at = 0, 0, "", 0
    while at < len(text):
        character = text[at]
        if quote:
            if character == "\\":
                at += 1
            elif character == quote:
                quote = ""
        elif character in "\"'" and depth:
            quote = character
        elif character in "{[(":
            if not depth:
                start = at
            depth += 1
            if depth > _MAX_DEPTH:
                return f"is nested more than {_MAX_DEPTH} levels deep"
        elif character in "}])":
            depth -= 1
            if depth < 0:
                return f"has a closing {character!r} that nothing opens"
            if not depth:
                pieces.append(text[start : at + 1])
        elif not depth and character not in ", \t\r\n;":
            return f'{_shown(text[at:])} is no object: write JSON, such as [{{"gpuModel": "H100", "gpuCount": 1}}]'
        at += 1
    if depth or quote:
        return "ends in the middle of an object"
    return pieces


def _value(piece: str) -> object:
    """The value of a piece as JSON, else as a Python literal. Raises ValueError.

    A piece is no longer than a label and not nested deeper than the limits, which is what makes the second safe.
    """
    try:
        return json.loads(piece)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that Python does not know
            return ast.literal_eval(piece)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError(type(error).__name__) from error


# ------------------------------------------------------------------------------------------------------------ fields


def _recommendation(where: str, entry: object, *, gpu_type: str, problems: list[str]) -> Recommendation | None:
    """One entry; None if a field of it cannot be read: half of a recommendation would be another one."""
    if not isinstance(entry, dict):
        problems.append(f"{where}: {_shown(entry)} is no object")
        return None
    fields = _known(entry)
    wrong = list(_wrong(fields))
    if wrong:
        problems.append(f"{where}: {'; '.join(wrong)}")
        return None
    count = _whole(fields.get("gpu_count"))
    model = _text(fields.get("gpu_model"))
    kind = _text(fields.get("gpu_type")) or (gpu_type if model or count else "")
    return Recommendation(
        gpu_model=model,
        gpu_count=count,
        gpu_type=kind,
        precision=_text(fields.get("precision")).lower(),
        metric=_text(fields.get("metric")).lower(),
        description=bounded(_text(fields.get("description")), 256),
        optimized=_OPTIMIZED.get(str(fields.get("optimized")).strip().lower()),
    )


def _known(entry: Mapping[object, object]) -> dict[str, object]:
    """The fields that count, by their one name; null and empty ones are left out."""
    found: dict[str, object] = {}
    for key, value in entry.items():
        spelled = key.lower().replace("_", "").replace("-", "") if isinstance(key, str) else ""
        name = _FIELDS.get(spelled)
        if name is None or value is None or value == "":
            continue
        if spelled == "type" and _text(value).lower() not in _OPTIMIZED:
            continue  # other vendors have other types
        found.setdefault(name, value)
    return found


def _wrong(fields: Mapping[str, object]) -> Iterator[str]:
    count = fields.get("gpu_count")
    number = _whole(count)
    if count is not None and (number is None or not 0 <= number <= _MOST_GPUS):
        yield f"gpuCount {_shown(count)} is no number from 0 to {_MOST_GPUS}"
    for name, label, pattern, wanted in (
        ("gpu_model", "gpuModel", _GPU_MODEL, "no model of a GPU of at most 63 characters"),
        ("gpu_type", "gpuType", _GPU_TYPE, "no resource name such as amd.com/gpu"),
        ("precision", "precision", _PRECISION, "no precision such as fp8"),
    ):
        value = fields.get(name)
        if value is not None and not (isinstance(value, str) and pattern.fullmatch(value.strip())):
            yield f"{label} {_shown(value)} is {wanted}"
    metric = fields.get("metric")
    if metric is not None and _text(metric).lower() not in METRICS:
        yield f"metric {_shown(metric)} is neither latency nor throughput"
    optimized = fields.get("optimized")
    if optimized is not None and not (isinstance(optimized, bool) or _text(optimized).lower() in _OPTIMIZED):
        yield f"optimized {_shown(optimized)} is neither true nor false"


def _whole(value: object) -> int | None:
    """A whole number that is written as a number or as text; None for anything else."""
    if is_integer(value):
        return value
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,4}", value.strip()):
        return int(value)
    return None


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _shown(value: object) -> str:
    """A value of a label in a message: short, on one line, without what looks like a credential."""
    if isinstance(value, str):
        return bounded(repr(value[:1024]), _SHOWN)
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 10**18):
        return repr(value)
    return f"(a Python {type(value).__name__})"
