"""The facts of a model: those of a directory, a catalogue in the cluster, the one in the wheel, or a hub if asked."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from airunway.sizing.catalogue import nearest, of_entry
from airunway.sizing.checkpoint import Checkpoint, gguf_checkpoint, read_checkpoint, unknown_checkpoint
from airunway.sizing.precision import LENGTH_BYTES, header_length, sum_tensors, tensors_in
from airunway.sizing.values import MAX_CONFIG, ConfigReader, ModelConfigError, load_config, text_of

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)
_INDEX = "model.safetensors.index.json"
_MAX_INDEX = 64 * 2**20
_MOST_FILES = 2000
_HUB = "https://huggingface.co"


def facts_of(
    model: str,
    *,
    directory: Path | None = None,
    added: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
) -> Checkpoint:
    """The facts of a model: from `directory`, from `added` (entries of ConfigMaps by id), from the wheel's catalogue;
    else nothing, with what to do.

    Raises ModelConfigError and OSError.
    """
    if directory is not None:
        return read_directory(directory, model=model)
    if added is not None and model.lower() in added:
        origin, entry = added[model.lower()]
        return of_entry(entry, origin=origin)
    bundled = nearest(model)
    if bundled is not None:
        return of_entry(bundled, origin="catalogue of this release")
    return unknown_checkpoint(
        model,
        why="the model is not in the catalogue: use --model-config DIR (its config.json and safetensors), a ConfigMap "
        "labelled airunway.ai/model-catalogue=true, or --fetch",
    )


def read_directory(directory: Path, *, model: str) -> Checkpoint:
    """The facts of a downloaded model: its config.json, and the headers of its safetensors files or its GGUF file.

    Weights are not read. Raises ModelConfigError and OSError.
    """
    files = sorted(directory.iterdir())[: _MOST_FILES + 1]
    if len(files) > _MOST_FILES:
        raise ModelConfigError(str(directory), "", f"the directory has more than {_MOST_FILES:,} files")
    gguf = [file for file in files if file.suffix == ".gguf" and "mmproj" not in file.name]
    config_file = directory / "config.json"
    if gguf and not config_file.exists():
        base = unknown_checkpoint(model, why=f"{directory} has no config.json beside the GGUF file")
        return gguf_checkpoint(base, size=_sizes(gguf), source=f"size of {_named(gguf)}")
    config = _config(config_file, model=model)
    extra = directory / "hf_quant_config.json"
    if "quantization_config" not in config and extra.exists():
        quantization = _config(extra, model=model).get("quantization")
        if isinstance(quantization, dict):
            config = {**config, "quantization_config": {"quant_method": "modelopt", **quantization}}
    source = f"{directory}"
    if gguf:
        base = read_checkpoint(config, model=model, source=source, parameters=1)
        return gguf_checkpoint(base, size=_sizes(gguf), source=f"size of {_named(gguf)}")
    shards = [file for file in files if file.suffix == ".safetensors" and "consolidated" not in file.name]
    if shards:
        tensors = _headers(shards, config, model=model)
        where = f"headers of {_named(shards)}"
        return read_checkpoint(config, model=model, source=where, tensors=tensors)
    index = directory / _INDEX
    size = _index_size(_bounded_read(index, _MAX_INDEX, model=model), model=model) if index.exists() else None
    return read_checkpoint(config, model=model, source=source, size=size)


def _config(file: Path, *, model: str) -> dict[str, Any]:
    return load_config(_bounded_read(file, MAX_CONFIG, model=model), model=model)


def _bounded_read(file: Path, most: int, *, model: str) -> bytes:
    size = file.stat().st_size
    if size > most:
        raise ModelConfigError(model, "", f"{file.name} has {size:,} bytes; at most {most:,} are read")
    with file.open("rb") as stream:
        return stream.read(most + 1)


def _headers(shards: list[Path], config: Mapping[str, Any], *, model: str) -> Any:
    found: dict[str, tuple[str, int]] = {}
    for file in shards:
        with file.open("rb") as stream:
            length = header_length(stream.read(LENGTH_BYTES), file=file.name)
            found.update(tensors_in(stream.read(length), file=file.name))
    layers = ConfigReader(text_of(config, model=model), model=model).count("num_hidden_layers")
    return sum_tensors(found.items(), layers=layers, file=str(shards[0].name))


def _index_size(data: bytes, *, model: str) -> int | None:
    """``metadata.total_size`` of an index of safetensors files, in bytes."""
    try:
        index = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ModelConfigError(model, "", f"{_INDEX} is not JSON: {error}") from error
    metadata = index.get("metadata") if isinstance(index, dict) else None
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if total is None:
        return None
    if type(total) not in (int, float) or not 1 <= total < 2**53:
        raise ModelConfigError(model, "metadata.total_size", f"{_INDEX}: must be a number from 1")
    return int(total)


def _sizes(files: list[Path]) -> int:
    return sum(file.stat().st_size for file in files)


def _named(files: list[Path]) -> str:
    return files[0].name if len(files) == 1 else f"{len(files)} files ({files[0].name}, …)"


class FetchError(Exception):
    """The hub does not give the facts of a model; the message says why, and what to do."""


async def fetched(model: str) -> Checkpoint:
    """The facts of a model on the hub of ``HF_ENDPOINT``, to which no credentials are sent.

    Raises ModelConfigError and FetchError.
    """
    import aiohttp

    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB
    if not _ID.fullmatch(model):
        raise FetchError(f"{model!r} is not the id of a model on a hub (owner/name)")
    if not endpoint.startswith(("https://", "http://")):
        raise FetchError(f"HF_ENDPOINT {endpoint!r} is no http or https address")

    async def get(session: aiohttp.ClientSession, file: str, most: int) -> bytes | int:
        """The file's content, or the HTTP status if it is not 200."""
        async with session.get(f"{endpoint}/{model}/resolve/main/{file}") as answer:
            if answer.status != 200:
                return answer.status
            data = b""
            async for part in answer.content.iter_chunked(2**16):
                data += part
                if len(data) > most:
                    raise FetchError(f"{model}: {file} has more than {most:,} bytes")
            return data

    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
            config = await get(session, "config.json", MAX_CONFIG)
            index = await get(session, _INDEX, _MAX_INDEX) if isinstance(config, bytes) else 404
    except (aiohttp.ClientError, TimeoutError, UnicodeError) as error:
        why = f"does not answer: {type(error).__name__}: check HF_ENDPOINT and the network"
        raise FetchError(f"{endpoint} {why}") from error
    if isinstance(config, int):
        gated = config in (401, 403)
        hint = "the model is gated or private: download it and use --model-config DIR" if gated else "check the id"
        raise FetchError(f"{endpoint} answers {config} for {model}/config.json: {hint}")
    size = _index_size(index, model=model) if isinstance(index, bytes) else None
    return read_checkpoint(load_config(config, model=model), model=model, source=endpoint, size=size)
