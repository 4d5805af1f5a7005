"""Reads what sizing needs: nodes, pods, claims and providers of a cluster or a file, and the facts of a model.

What may not be read is a value. Facts are those of a directory, a catalogue in the cluster, the one in the wheel, or a
hub if the user asks for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airunway.cli.cluster import Access, fail, on_cluster
from airunway.cli.manifests import ManifestError, objects_in
from airunway.resource import Resource, dig, labels_of

if TYPE_CHECKING:
    from airunway.kube import Client, Kind
    from airunway.sizing.checkpoint import Checkpoint
    from airunway.sizing.values import Unreadable


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """What the cluster, or a file, says about GPUs, providers and models."""

    nodes: list[Resource] | Unreadable
    pods: list[Resource] | Unreadable
    claims: list[Resource]
    slices: list[Resource]
    configs: list[Resource] | Unreadable
    """InferenceProviderConfigs."""
    models: Mapping[str, tuple[str, Mapping[str, Any]]]
    """Entries of catalogue ConfigMaps by lower-case id."""
    models_unseen: Unreadable | None = None
    """Why ConfigMaps could not be read."""


def inventory_in(path: Path) -> Inventory:
    """The nodes of a file, with pods, claims, ResourceSlices and catalogue ConfigMaps that are in it.

    Raises ManifestError (also if there is no Node), ModelConfigError and OSError.
    """
    from airunway.sizing.catalogue import entries_of_config_maps
    from airunway.sizing.nodes import nodes_of
    from airunway.sizing.values import Unreadable

    objects = objects_in(path)
    nodes, pods, claims, slices = nodes_of(objects)
    if not nodes:
        raise ManifestError(f"{path}: contains no Node")
    return Inventory(
        nodes=nodes,
        pods=pods,
        claims=claims,
        slices=slices,
        configs=Unreadable(why="the nodes are those of a file", right=""),
        models=entries_of_config_maps(filter(_is_catalogue, objects)),
    )


def read_inventory(*, access: Access, namespace: str) -> Inventory:
    """Reads the cluster; a forbidden list becomes Unreadable with the missing right. Exits with 1 on other errors."""
    from airunway.kinds import INFERENCE_PROVIDER_CONFIG
    from airunway.kube import CONFIG_MAP, NODE, POD, Kind
    from airunway.sizing.catalogue import CATALOGUE_LABEL, entries_of_config_maps
    from airunway.sizing.values import Unreadable

    claim = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
    part = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False)

    async def read(client: Client) -> Inventory:
        nodes = await _listed(client, NODE)
        unfinished = "status.phase!=Succeeded,status.phase!=Failed"
        pods = await _listed(client, POD, field_selector=unfinished, scope=" in all namespaces")
        claims: list[Resource] = []
        slices: list[Resource] = []
        # Claims matter if a pod has some; without them its GPUs would count as free.
        if not isinstance(pods, Unreadable) and any(dig(pod, "spec", "resourceClaims") for pod in pods):
            held, parts = await _listed(client, claim), await _listed(client, part)
            if isinstance(held, Unreadable) or isinstance(parts, Unreadable):
                pods = held if isinstance(held, Unreadable) else parts
            else:
                claims, slices = held, parts
        maps = await _listed(
            client,
            CONFIG_MAP,
            namespace=namespace or client.config.namespace,
            label_selector=f"{CATALOGUE_LABEL}=true",
        )
        return Inventory(
            nodes=nodes,
            pods=pods,
            claims=claims,
            slices=slices,
            configs=await _listed(client, INFERENCE_PROVIDER_CONFIG),
            models={} if isinstance(maps, Unreadable) else entries_of_config_maps(maps),
            models_unseen=maps if isinstance(maps, Unreadable) else None,
        )

    return on_cluster(read, access)


async def _listed(client: Client, kind: Kind, *, scope: str = "", **selectors: str) -> list[Resource] | Unreadable:
    from airunway.kube import ApiError, ErrorKind, Forbidden
    from airunway.sizing.values import Unreadable

    try:
        return await client.list_all(kind, **selectors)
    except Forbidden:
        right = f"list {kind}{scope}"
        return Unreadable(why=f"you may not {right}", right=right)
    except ApiError as error:
        if error.kind is not ErrorKind.KIND_NOT_SERVED:
            raise
        return Unreadable(why=f"the cluster does not serve {kind}", right="")


def _is_catalogue(obj: Resource) -> bool:
    from airunway.sizing.catalogue import CATALOGUE_LABEL

    return obj.get("kind") == "ConfigMap" and labels_of(obj).get(CATALOGUE_LABEL) == "true"


# ------------------------------------------------------------------------------------------------ the facts of a model


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)
_INDEX = "model.safetensors.index.json"
_MAX_INDEX = 64 * 2**20
_MOST_FILES = 2000
_HUB = "https://huggingface.co"


def facts_of(
    model: str,
    *,
    directory: Path | None = None,
    fetch: bool = False,
    added: Mapping[str, tuple[str, Mapping[str, Any]]] | None = None,
) -> Checkpoint:
    """The facts of a model: from `directory`, from the hub if `fetch`, from `added` (entries of ConfigMaps by id), from
    the wheel's catalogue; else nothing, with what to do.

    Raises ModelConfigError and OSError. Exits with 1 if the hub does not answer.
    """
    from airunway.sizing.catalogue import nearest, of_entry
    from airunway.sizing.checkpoint import unknown_checkpoint

    if directory is not None:
        return read_directory(directory, model=model)
    if fetch:
        return _fetched(model)
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
    from airunway.sizing.checkpoint import gguf_checkpoint, read_checkpoint, unknown_checkpoint
    from airunway.sizing.values import ModelConfigError

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
    from airunway.sizing.values import MAX_CONFIG, load_config

    return load_config(_bounded_read(file, MAX_CONFIG, model=model), model=model)


def _bounded_read(file: Path, most: int, *, model: str) -> bytes:
    from airunway.sizing.values import ModelConfigError

    size = file.stat().st_size
    if size > most:
        raise ModelConfigError(model, "", f"{file.name} has {size:,} bytes; at most {most:,} are read")
    with file.open("rb") as stream:
        return stream.read(most + 1)


def _headers(shards: list[Path], config: Mapping[str, Any], *, model: str) -> Any:
    from airunway.sizing.precision import LENGTH_BYTES, header_length, sum_tensors, tensors_in
    from airunway.sizing.values import Reader, text_of

    found: dict[str, tuple[str, int]] = {}
    for file in shards:
        with file.open("rb") as stream:
            length = header_length(stream.read(LENGTH_BYTES), file=file.name)
            found.update(tensors_in(stream.read(length), file=file.name))
    layers = Reader(text_of(config, model=model), model=model).count("num_hidden_layers")
    return sum_tensors(found.items(), layers=layers, file=str(shards[0].name))


def _index_size(data: bytes, *, model: str) -> int | None:
    """``metadata.total_size`` of an index of safetensors files, in bytes."""
    import orjson

    from airunway.sizing.values import ModelConfigError

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


def _fetched(model: str) -> Checkpoint:
    """The facts of a model on the hub of ``HF_ENDPOINT``; no credentials are sent. Exits with 1 on errors."""
    import asyncio

    import aiohttp

    from airunway.sizing.checkpoint import read_checkpoint
    from airunway.sizing.values import MAX_CONFIG, load_config

    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or _HUB
    if not _ID.fullmatch(model):
        fail(f"--fetch: {model!r} is not the id of a model on a hub (owner/name)")
    if not endpoint.startswith(("https://", "http://")):
        fail(f"--fetch: HF_ENDPOINT {endpoint!r} is no http or https address")

    async def get(session: aiohttp.ClientSession, file: str, most: int) -> bytes | int:
        """The file's content, or the HTTP status if it is not 200."""
        async with session.get(f"{endpoint}/{model}/resolve/main/{file}") as answer:
            if answer.status != 200:
                return answer.status
            data = b""
            async for part in answer.content.iter_chunked(2**16):
                data += part
                if len(data) > most:
                    fail(f"--fetch: {model}: {file} has more than {most:,} bytes")
            return data

    async def both() -> tuple[bytes | int, bytes | int]:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
            config = await get(session, "config.json", MAX_CONFIG)
            return config, await get(session, _INDEX, _MAX_INDEX) if isinstance(config, bytes) else 404

    try:
        config, index = asyncio.run(both())
    except (aiohttp.ClientError, TimeoutError, UnicodeError) as error:
        fail(f"--fetch: {endpoint} does not answer: {type(error).__name__}: check HF_ENDPOINT and the network")
    if isinstance(config, int):
        gated = config in (401, 403)
        hint = "the model is gated or private: download it and use --model-config DIR" if gated else "check the id"
        fail(f"--fetch: {endpoint} answers {config} for {model}/config.json: {hint}")
    size = _index_size(index, model=model) if isinstance(index, bytes) else None
    return read_checkpoint(load_config(config, model=model), model=model, source=endpoint, size=size)
