"""Where a llama.cpp image finds its model, and which command line that image has."""

from __future__ import annotations

from airunway.api.modeldeployment import ModelDeployment

__all__ = ["CONSUMED_ARGS", "LLAMA_SERVER", "LOCALAI", "gguf_arguments", "gguf_reference", "llamacpp_dialect"]

CONSUMED_ARGS = ("ggufUrl",)
"""Keys of ``spec.engine.args`` that are no flags of llama.cpp but say where the model file is."""

LLAMA_SERVER = ""
"""Dialect: llama.cpp's own server."""
LOCALAI = "localai"
"""Dialect: the runner images of KAITO's CPU examples, which are built on LocalAI."""

_SERVER_IMAGES = frozenset({"llama.cpp", "llama-server", "llama-cpp-server"})
_HUB = "huggingface://"


def llamacpp_dialect(image: str) -> str:
    """The command line of an image, judged by the last segment of its repository; a runner unless known otherwise."""
    repository = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return LLAMA_SERVER if repository in _SERVER_IMAGES else LOCALAI


def gguf_reference(deployment: ModelDeployment) -> str:
    """Where the GGUF file is: ``ggufUrl`` in the engine's args, else the model id (repository, or repository and file).

    Empty for a custom source, whose image has the model.
    """
    spec = deployment.spec
    if url := spec.engine.args.get("ggufUrl"):
        return url
    return f"{_HUB}{spec.model.id}" if spec.model.id and spec.model.source == "huggingface" else ""


def gguf_arguments(deployment: ModelDeployment, dialect: str) -> list[str]:
    """The words that name the model on that command line; none where the image has it."""
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
