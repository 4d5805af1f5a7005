"""How images and models are named: what a container runtime, and what a hub, can have. Pure.

``ghcr.io/acme/vllm:0.23`` is an image and ``docker.io/vllm/../evil/x:1`` is none; ``org/model`` is a model of a hub and
``/data/model`` is a path. The validation rules, the policy and the catalogue share these definitions, so that a name
never passes one of them as something else than it is for the next.
"""

from __future__ import annotations

import re

_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_PORT = "(:[0-9]{1,5})?"
# A first part with an upper-case letter is a registry, too: no repository has one.
_NAME = rf"{_LABEL}(\.{_LABEL})+|localhost|[a-z0-9-]*[A-Z][A-Za-z0-9-]*"
_HOST = rf"(({_NAME}){_PORT}|{_LABEL}:[0-9]{{1,5}}|\[[0-9A-Fa-f:.]{{2,45}}\]{_PORT})"
_PART = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"

_REPOSITORY = rf"{_PART}(/{_PART})*(:[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?"
_DIGEST = "@(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})"

IMAGE_PATTERN = rf"^({_HOST}/)?{_REPOSITORY}({_DIGEST})?$"
"""What is a reference to an image, as container runtimes read it; for CEL, too."""

OCI = "oci://"
"""What the address of an image with weights begins with (``spec.model.uri``)."""

OCI_PATTERN = rf"^{OCI}{_HOST}/{_REPOSITORY}(@.*)?$"
"""``oci://`` and a reference with its registry, since tools complete a short name in different ways; the digest is
checked by `DIGEST_PATTERN`. For CEL.
"""

DIGEST_PATTERN = f"{_DIGEST}$"
"""How a reference ends that names a digest; for CEL."""

_ID_PART = "[A-Za-z0-9_][A-Za-z0-9._@:+-]*"

MODEL_PATTERN = rf"^({_ID_PART}(/{_ID_PART})*/?|/[^[:cntrl:]]*)$"
"""A model of a hub, with the file or folder that is meant, or an absolute path; for CEL."""

NO_MODEL = "model.id must be owner/name, or an absolute path"
"""Said of a text that is neither."""

_IMAGE = re.compile(IMAGE_PATTERN)
_MODEL = re.compile(MODEL_PATTERN.replace("[:cntrl:]", r"\x00-\x1f\x7f"))


def is_image(text: str) -> bool:
    """Whether a text is a reference to an image; with ``..``, a blank or an upper-case repository it is none."""
    return _IMAGE.fullmatch(text) is not None


def is_model(text: str) -> bool:
    """Whether a text is the id of a model."""
    return _MODEL.fullmatch(text) is not None


def is_path(model: str) -> bool:
    """Whether the id of a model is a path in the engine's container: no hub has it, and nothing is fetched for it."""
    return model.startswith(("/", "./", "../")) or model in (".", "..")
