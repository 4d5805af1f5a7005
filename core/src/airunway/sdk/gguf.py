"""Where a llama.cpp image gets its model from, and which command line the image has."""

from __future__ import annotations

from airunway.api.modeldeployment import ModelDeployment

__all__ = ["CONSUMED_ARGS", "LLAMA_SERVER", "LOCALAI", "gguf_arguments", "gguf_reference", "llamacpp_dialect"]

CONSUMED_ARGS = ("ggufUrl",)
"""Keys of ``spec.engine.args`` that name the model file and are no flags of llama.cpp."""

LLAMA_SERVER = ""
"""Dialect of llama.cpp's own server."""
LOCALAI = "localai"
"""Dialect of the runner images in KAITO's CPU examples, which are built on LocalAI."""

_SERVER_IMAGES = frozenset({"llama.cpp", "llama-server", "llama-cpp-server"})
_HUB = "huggingface://"


def llamacpp_dialect(image: str) -> str:
    """The command line dialect of an image, by the last segment of its repository; `LOCALAI` for unknown ones."""
    repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return LLAMA_SERVER if repository in _SERVER_IMAGES else LOCALAI


def gguf_reference(deployment: ModelDeployment) -> str:
    """Where the GGUF file is: ``ggufUrl`` in the engine's args, else the model id (repository, or repository and file).

    Empty for a custom source, because its image contains the model.
    """
    spec = deployment.spec
    if url := spec.engine.args.get("ggufUrl"):
        return url
    return f"{_HUB}{spec.model.id}" if spec.model.id and spec.model.source == "huggingface" else ""


def gguf_arguments(deployment: ModelDeployment, dialect: str) -> list[str]:
    """The arguments that name the model in that dialect; none if the image contains the model."""
    reference = gguf_reference(deployment)
    if not reference or dialect == LOCALAI:
        return [reference] if reference else []
    if reference.startswith(_HUB):
        owner, _, rest = reference.removeprefix(_HUB).partition("/")
        repository, _, file = rest.partition("/")
        return ["--hf-repo", f"{owner}/{repository}".rstrip("/"), *(["--hf-file", file] if file else [])]
    if reference.startswith(("https://", "http://")):
        return ["--model-url", reference]
    return ["--model", reference.removeprefix("file://")]
