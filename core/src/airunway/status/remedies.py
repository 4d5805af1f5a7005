"""Splits the message of a root cause into evidence and remedy, for programs that show them apart."""

from __future__ import annotations

from airunway.status.engine_texts import ENGINE, MORE_MEMORY
from airunway.status.reasons import Code
from airunway.status.rootcause import NODE_DISK
from airunway.status.scheduling import KUEUE, TOO_MANY_GPUS
from airunway.status.texts import (
    AUTOSCALING,
    CREATION,
    IMAGE_PULL,
    MOUNT,
    PREPARATION,
    PROVISIONING,
    REFUSAL,
    SCHEDULING,
)

TABLES = (ENGINE, AUTOSCALING, CREATION, IMAGE_PULL, MOUNT, PREPARATION, PROVISIONING, REFUSAL, SCHEDULING)
"""All tables of texts that reveal a cause."""

_OWN = tuple(
    dict.fromkeys(
        [*(row.remedy for table in TABLES for row in table if row.remedy), MORE_MEMORY, NODE_DISK, KUEUE, TOO_MANY_GPUS]
    )
)
"""Remedies of single cases, which replace those of their codes."""


def split(message: str, code: Code, object_: str) -> tuple[str, str]:
    """Returns evidence and remedy; the whole message and the code's remedy if the message ends with none of ours."""
    general = code.remedy_for(object_)
    for remedy in (general, *(code.remedy_for(object_, own) for own in _OWN)):
        if message.endswith(f" {remedy}"):
            return message.removesuffix(f" {remedy}"), remedy
    return message, general
