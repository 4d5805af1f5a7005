"""Derived names of artifacts, claims and Jobs: short enough, valid, and different for different inputs. Pure.

Example: ``hf://meta-llama/Llama-3.1-8B`` becomes the artifact ``llama-3-1-8b-4f1c09ab2e``.
"""

from __future__ import annotations

import re

from airunway.resource import digest

__all__ = ["SLUG_LENGTH", "artifact_name", "claim_name", "job_name"]

SLUG_LENGTH = 41
"""Characters of a model's part of an artifact's name: with '-' and 10 digits of a digest it has at most 52."""

_DIGITS = 10
_SHORT = 8
_LONGEST = 63
_NO_NAME = re.compile(r"[^a-z0-9]+")


def artifact_name(uri: str, *key: object) -> str:
    """The name of a made artifact: a slug of the model and a digest over everything that tells two artifacts apart."""
    last = uri.rstrip("/").rpartition("/")[2]
    return f"{_slug(last, SLUG_LENGTH)}-{digest([uri, *key], length=_DIGITS)}"


def claim_name(artifact: str, *, uid: str, attempt: int) -> str:
    """The claim of an artifact; `attempt` counts the claims that were lost or too small to go on with."""
    return _derived(artifact, "cache", uid, attempt)


def job_name(artifact: str, step: str, *, uid: str, attempt: int) -> str:
    """The Job of a step (``check-size`` or ``download``)."""
    return _derived(artifact, step, uid, attempt)


def _derived(artifact: str, step: str, uid: str, attempt: int) -> str:
    """``<artifact>-<step>-<hash8>``, at most 63 characters: Job controllers copy the name into a label."""
    ending = f"-{step}-{digest([uid, step, attempt], length=_SHORT)}"
    return f"{_slug(artifact, _LONGEST - len(ending))}{ending}"


def _slug(text: str, longest: int) -> str:
    return _NO_NAME.sub("-", text.lower()).strip("-")[:longest].rstrip("-") or "model"
