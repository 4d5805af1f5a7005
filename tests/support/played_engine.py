"""Plays an inference engine in a process: parses its command line, reads the weights and answers ``/v1/models``.

It has the rights of a container in a cluster with a model cache and no more: it is not root, reaches no other address,
and writes where engines write (the hub's cache, the compilation cache). It ends with an error for a model that it would
have to fetch, a path that is not there, a hub that is not switched off, and a cache that it could write to.

    python -I played_engine.py vllm serve /model-cache --port=8000 --served-model-name=llama

It prints one line of JSON (weights, served names, address) and serves until it is terminated. Of Ray's Serve LLM the
only word is ``serveConfigV2``: ``ray {"applications": [...]}``. It imports nothing but the standard library.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

_NOBODY = 65534


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a command line asks of an engine."""

    models: Mapping[str, str]
    """What to load, by the name to serve it under; an empty name is the engine's own choice."""
    host: str = ""
    """The address to listen on; the engine's own default without a flag for it."""
    port: int = 0
    """0: it does not listen."""
    folders: Sequence[str] = field(default_factory=tuple)
    """Folders that flags name for the engine to write into."""


def main(words: Sequence[str]) -> NoReturn:
    """Plays the engine of a command line."""
    sys.addaudithook(_refuse_other_addresses)
    program, rest = _program(words)
    asked = _PARSERS[program](rest)
    for model in asked.models.values():
        _check_weights(program, model)
    if os.environ.get("HF_HUB_OFFLINE") != "1":
        _end("asks the hub for a newer revision: HF_HUB_OFFLINE is not 1")
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
    wrote = [_write(folder) for folder in (*_own_folders(), *asked.folders)]
    for model in asked.models.values():
        _check_read_only(Path(model))
    with socket.create_server(("127.0.0.1", 0)) as server:
        said = {
            "models": dict(asked.models),
            "host": asked.host,
            "port": asked.port,
            "wrote": wrote,
            "answers": server.getsockname()[1],
        }
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()
        while True:
            _answer(server, list(asked.models))


def _end(why: str) -> NoReturn:
    sys.stderr.write(f"played engine: {why}\n")
    raise SystemExit(1)


def _refuse_other_addresses(event: str, _: tuple[Any, ...]) -> None:
    if event in ("socket.connect", "socket.gethostbyname", "socket.sendto"):
        _end("connects to another address")


def _answer(server: socket.socket, names: Sequence[str]) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        body = json.dumps({"data": [{"id": name} for name in names]}).encode()
        connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n" + body)


# ------------------------------------------------------------------------------------------------------ what it touches


def _check_weights(program: str, model: str) -> None:
    path = Path(model)
    if not model.startswith("/"):
        _end(f"would have to fetch {model!r} from the hub")
    if not path.exists():
        _end(f"{model} is not there")
    is_file = path.is_file() and path.suffix == ".gguf"
    is_tree = path.is_dir() and (path / "config.json").is_file()
    if program == "llama-server" and not is_file:
        _end(f"llama.cpp loads a GGUF file, and {model} is none")
    if program in _TREES_ONLY and not is_tree:
        _end(f"{program} loads a folder with config.json, and {model} is none")
    if not (is_file or is_tree):
        _end(f"{model} is neither a GGUF file nor a folder with config.json")


def _check_read_only(model: Path) -> None:
    try:
        (model if model.is_dir() else model.parent).joinpath("written").touch()
    except OSError:
        return
    _end(f"could write beside the weights at {model}")


def _own_folders() -> list[str]:
    """Where transformers (modules of remote code) and vLLM (compiled kernels) write."""
    hub = os.environ.get("HF_HOME") or f"{os.environ['HOME']}/.cache/huggingface"
    kernels = os.environ.get("VLLM_CACHE_ROOT") or f"{os.environ['HOME']}/.cache/vllm"
    return [f"{hub}/modules", kernels]


def _write(folder: str) -> str:
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "written").touch()
    except OSError as error:
        _end(f"cannot write into {folder}: {error}")
    return folder


# -------------------------------------------------------------------------------------------------------- command lines


def _program(words: Sequence[str]) -> tuple[str, Sequence[str]]:
    """The program and the words that it parses."""
    match list(words):
        case [program, "serve", *rest] if program in ("vllm", "trtllm-serve"):
            return program, rest
        case ["python3", "-m", module, *rest] if module in _PARSERS:
            return module, rest
        case [program, *rest] if program in ("llama-server", "ray"):
            return program, rest
    _end(f"is no engine: {' '.join(words[:3])}")


def _parser(*, abbreviations: bool = True) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=abbreviations, add_help=False)
    parser.add_argument("--download-dir")
    return parser


def _parsed(parser: argparse.ArgumentParser, words: Sequence[str], **defaults: Any) -> Asked:
    found, _ = parser.parse_known_args(words)
    names = found.served or [defaults.get("name", "")]
    folders = [found.download_dir] if found.download_dir else []
    return Asked(
        models=dict.fromkeys(names, found.model),
        host=getattr(found, "host", ""),
        port=getattr(found, "port", 0),
        folders=folders,
    )


def _vllm(words: Sequence[str]) -> Asked:
    parser = _parser()
    parser.add_argument("model")
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served-model-name", dest="served", nargs="+")
    headless = "--headless" in words
    found = _parsed(parser, words)
    return Asked(models=found.models, folders=found.folders) if headless else found


def _sglang(words: Sequence[str]) -> Asked:
    parser = _parser()
    parser.add_argument("--model-path", "--model", dest="model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--served-model-name", dest="served", nargs=1)
    return _parsed(parser, words)


def _trtllm(words: Sequence[str]) -> Asked:
    parser = _parser(abbreviations=False)
    parser.add_argument("model")
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--served_model_name", dest="served", nargs=1)
    return _parsed(parser, words, name=Path(words[0]).name if words else "")


def _dynamo(flag: str) -> Callable[[Sequence[str]], Asked]:
    def parse(words: Sequence[str]) -> Asked:
        parser = _parser()
        parser.add_argument(flag, dest="model", required=True)
        parser.add_argument("--served-model-name", dest="served", nargs=1)
        return _parsed(parser, words)

    return parse


def _llama_server(words: Sequence[str]) -> Asked:
    """It knows no flag and value in one word."""
    rest, found = list(words), {"--host": "127.0.0.1", "--port": "8080", "--alias": ""}
    while rest:
        flag = rest.pop(0)
        if "=" in flag:
            _end(f"error: invalid argument: {flag}")
        if flag in ("--hf-repo", "--hf-file", "--model-url"):
            _end(f"would have to fetch {rest[0] if rest else ''} from the hub")
        if rest and not rest[0].startswith("--"):
            found[flag] = rest.pop(0)
    model = found.get("--model", "")
    return Asked(models={found["--alias"]: model}, host=found["--host"], port=int(found["--port"]))


def _ray(words: Sequence[str]) -> Asked:
    """Ray Serve LLM: every ``LLMConfig`` of the application."""
    (application,) = json.loads(words[0])["applications"]
    args = application["args"]
    configs = args.get("llm_configs") or [args["prefill_config"], args["decode_config"]]
    loading = [config["model_loading_config"] for config in configs]
    return Asked(models={each["model_id"]: each["model_source"] for each in loading})


_TREES_ONLY = ("trtllm-serve", "dynamo.trtllm")
_PARSERS: Mapping[str, Callable[[Sequence[str]], Asked]] = {
    "vllm": _vllm,
    "trtllm-serve": _trtllm,
    "sglang.launch_server": _sglang,
    "dynamo.vllm": _dynamo("--model"),
    "dynamo.sglang": _dynamo("--model-path"),
    "dynamo.trtllm": _dynamo("--model-path"),
    "llama-server": _llama_server,
    "ray": _ray,
}


if __name__ == "__main__":
    main(sys.argv[1:])
