"""The condition types of a ModelDeployment with their writers; builds conditions, and keeps their transition times.

Parts of a condition come from third parties (a plugin's reason, an upstream's message). They are brought into a form
that the API server accepts, because it would refuse the whole status otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from airunway.api import names
from airunway.redaction import bounded
from airunway.resource import (
    Resource,
    condition_of,
    dig,
    format_time,
    list_at,
    mapping_at,
    number_at,
    parse_time,
    text_at,
)
from airunway.status.reasons import Category, category_of

WORD_LIMIT = 256
"""Longest reason, in characters (the limit of `status.reason`)."""

_WORD = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_LETTERS = re.compile(r"[A-Za-z0-9]+")

_STATUS = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition to be written."""

    type: str
    status: bool | None
    """None means ``Unknown``."""
    reason: str
    message: str = ""


def as_word(text: str, *, otherwise: str = "Unknown") -> str:
    """Returns `text` as the one word that a reason must be: unchanged if it is one, else its letters and digits."""
    if len(text) <= WORD_LIMIT and _WORD.fullmatch(text):
        return text
    parts = _LETTERS.findall(text)
    word = "".join(f"{part[0].upper()}{part[1:]}" for part in parts).lstrip("0123456789")[:WORD_LIMIT]
    return word or otherwise


def conditions_in(status: object) -> list[Resource]:
    """Returns the conditions of a status; malformed entries are left out. Total for any JSON."""
    found = dig(status, "conditions")
    entries = found if isinstance(found, list) else []
    return [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("type"), str)]


def written(
    conditions: Iterable[Condition], *, previous: Iterable[Resource], generation: int, now: datetime
) -> list[Resource]:
    """Returns the conditions for ``status.conditions``, sorted by type.

    ``lastTransitionTime`` is kept unless the status changed. Of two conditions with the same type the last one wins.
    """
    before = {c["type"]: c for c in conditions_in({"conditions": list(previous)})}
    result = {}
    for condition in conditions:
        status = _STATUS[condition.status]
        old = before.get(condition.type) or {}
        moved = old.get("status") != status or parse_time(old.get("lastTransitionTime")) is None
        result[condition.type] = {
            "type": condition.type,
            "status": status,
            "reason": as_word(condition.reason),
            "message": bounded(condition.message),
            "observedGeneration": generation,
            "lastTransitionTime": format_time(now) if moved else old["lastTransitionTime"],
        }
    return [result[type_] for type_ in sorted(result)]


def written_on(obj: Resource, conditions: Iterable[Condition], *, now: datetime) -> list[Resource]:
    """Returns the conditions for the status of an object, about its present generation, as `written` does."""
    before, generation = conditions_in(obj.get("status")), number_at(obj, "metadata", "generation")
    return written(conditions, previous=before, generation=generation, now=now)


def is_fault(condition: Resource) -> bool:
    """Whether a condition reports a fault: it is False, and not because work goes on."""
    return condition.get("status") == "False" and category_of(text_at(condition, "reason")) is not Category.PROGRESS


@dataclass(frozen=True, kw_only=True)
class Change:
    """One condition before and after a write of the status; empty where there is none."""

    before: Resource
    after: Resource

    @property
    def became_true(self) -> bool:
        return self.after.get("status") == "True" and self.before.get("status") != "True"

    @property
    def is_new_fault(self) -> bool:
        """Whether it reports a fault that it did not report before."""
        known = self.before.get("status") == "False" and self.before.get("reason") == self.after.get("reason")
        return is_fault(self.after) and not known

    @property
    def text(self) -> str:
        """Reason and message, for an event."""
        return f"{self.after.get('reason')}: {self.after.get('message')}"


def change_of(obj: Resource, status: Resource, type_: str) -> Change:
    """How a condition changes when `status` is written."""
    return Change(before=condition_of(obj, type_) or {}, after=condition_of({"status": status}, type_) or {})


# ------------------------------------------------------------------------------------------------ the condition Served


SERVED = "Served"
"""The condition of a deployment that has been ready since its upstream object was made.

It distinguishes a lost workload from one that never came up. The previous phase is not enough: a first start with
refused credentials is Degraded too. Its `lastTransitionTime` is the first time, its `observedGeneration` the newest
generation that was served. It stays when the deployment becomes unready, and is dropped with the upstream object.
"""


def is_paused(obj: Resource) -> bool:
    """Whether nothing may be written for an object."""
    return mapping_at(obj, "metadata", "annotations").get(names.PAUSED) == "true"


def is_dry_run(obj: Resource) -> bool:
    """Whether only the status may be written for an object; only the exact value counts."""
    return mapping_at(obj, "metadata", "annotations").get(names.DRY_RUN) == "true"


def is_validated(deployment: Resource) -> bool:
    """Whether the core has validated this generation of a deployment."""
    validated = condition_of(deployment, "Validated") or {}
    generation = dig(deployment, "metadata", "generation")
    return validated.get("status") == "True" and validated.get("observedGeneration") == generation


def verdict_in(deployment: Resource) -> tuple[object, ...]:
    """What of the core's verdict a part depends on: which generation is valid, and with which values of a template, for
    these change the effective spec without a new generation.
    """
    validated = condition_of(deployment, "Validated") or {}
    template = dig(deployment, "status", "revision", "template")
    return validated.get("status"), validated.get("observedGeneration"), dig(template, "hash"), dig(template, "asked")


def served_before(status: Resource, *, created: datetime | None) -> Resource | None:
    """Returns the condition ``Served`` of a status, if it counts for an object that was created at `created`.

    It also counts if that time is not known (None).
    """
    record = condition_of({"status": status}, SERVED)
    if record is None or record.get("status") != "True":
        return None
    since = parse_time(record.get("lastTransitionTime"))
    return None if created is not None and since is not None and since < created else record


IDLE = "ScaledToZero"
"""Reason of ``Served`` where the newest generation that counts wanted no pod: what wakes from it only starts."""


def served_record(
    before: Resource | None, *, ready: bool, generation: int, now: datetime, idle: bool = False
) -> Resource | None:
    """Returns the next condition ``Served``; `before` is the previous one that counts (None: there is none).

    `idle` says that the deployment is ready because no pod is wanted. Malformed parts of `before` are written anew,
    because the API server would refuse the status with them.
    """
    if not ready:
        if before is None:
            return None
        known = before.get("observedGeneration")
        generation = known if type(known) is int else generation  # a bool is an int, but not for the API server
        idle = before.get("reason") == IDLE
    reason = IDLE if idle else SERVED
    condition = Condition(type=SERVED, status=True, reason=reason, message="The model has been served")
    return written([condition], previous=[before] if before else [], generation=generation, now=now)[0]


# -------------------------------------------------------------------------------------------- types, writers and parts


class ConditionWriter(StrEnum):
    """Who writes a condition; a condition has one writer at a time."""

    CORE = "core"
    GATEWAY = "gateway"
    """The part of the core's process that makes routes."""
    MODEL_CACHE = "model-cache"
    """The part of the core's process that keeps weights."""
    PROVIDER = "provider"
    SPEAKER = "the owner of the phase"


@dataclass(frozen=True)
class ConditionType:
    """One condition type."""

    name: str
    writer: ConditionWriter
    meaning: str
    """What it means."""
    good: str = field(default="True", kw_only=True)
    """Its status when all is well; ``absent``: it is only there otherwise."""


CONDITIONS: tuple[ConditionType, ...] = (
    ConditionType(
        "Ready",
        ConditionWriter.SPEAKER,
        "The newest spec is served. Unknown: the upstream has not reported for five minutes.",
    ),
    ConditionType(
        "Reconciling",
        ConditionWriter.SPEAKER,
        "Work goes on towards the newest spec (phase Pending or Deploying).",
        good="False",
    ),
    ConditionType(
        "Stalled",
        ConditionWriter.SPEAKER,
        "It has failed, or nothing will happen until the spec is changed.",
        good="False",
    ),
    ConditionType("ConfigValid", ConditionWriter.CORE, "No other condition is False because of what was asked for."),
    ConditionType(
        "AuthValid", ConditionWriter.CORE, "No other condition is False because of credentials or permissions."
    ),
    ConditionType(
        "DependenciesReachable",
        ConditionWriter.CORE,
        "No other condition is False because something else does not answer, the provider included.",
    ),
    ConditionType("Validated", ConditionWriter.CORE, "The spec keeps the rules of a ModelDeployment."),
    ConditionType("EngineSelected", ConditionWriter.CORE, "An inference engine is chosen."),
    ConditionType("ProviderSelected", ConditionWriter.CORE, "A provider is chosen."),
    ConditionType(
        "ProviderResponsive",
        ConditionWriter.CORE,
        "Only there while it is False: the provider has sent no heartbeat for five minutes, and what it "
        "reported last may be outdated. Ready and phase stay as the provider left them: models that run go on serving.",
    ),
    ConditionType(
        "RuntimeConfigReady",
        ConditionWriter.CORE,
        "The runtime config was found; with UsingDefaults there is none, and none is needed.",
    ),
    ConditionType(
        "TemplateReady",
        ConditionWriter.CORE,
        "The template was found, and what it gives is recorded. Absent where the deployment names none.",
        good="True or absent",
    ),
    ConditionType(
        "ModelCacheReady",
        ConditionWriter.MODEL_CACHE,
        "The cached weights are complete. Absent where no model cache is asked for.",
        good="True or absent",
    ),
    ConditionType(
        "StorageReady",
        ConditionWriter.MODEL_CACHE,
        "The claims of all volumes are there and bound. Absent without volumes, and where the part is off.",
        good="True or absent",
    ),
    ConditionType(
        "GatewayReady",
        ConditionWriter.GATEWAY,
        "The gateway routes to the model. Absent where routing is not asked for and no gateway is there.",
        good="True or absent",
    ),
    ConditionType("Paused", ConditionWriter.CORE, "The annotation that stops reconciliation is set.", good="absent"),
    ConditionType("ProviderCompatible", ConditionWriter.PROVIDER, "The provider can honour every field of the spec."),
    ConditionType("ResourceCreated", ConditionWriter.PROVIDER, "The API server has accepted the upstream's objects."),
    ConditionType("ProviderResourceReady", ConditionWriter.PROVIDER, "The upstream says that its object is ready."),
    ConditionType(
        "PodsReady",
        ConditionWriter.PROVIDER,
        "The pods are ready; False has the precise fault. Absent where no pod can be seen.",
    ),
    ConditionType(
        "AutoscalerReady",
        ConditionWriter.PROVIDER,
        "The autoscaler of the deployment works (docs/autoscaling.md). Absent without autoscaling.",
        good="True or absent",
    ),
    ConditionType(
        "Served",
        ConditionWriter.PROVIDER,
        "It has been Running since its upstream object was made: what breaks now degrades it, what breaks "
        "before fails it. Stays while readiness comes and goes; its observedGeneration is the newest that was served.",
    ),
    ConditionType(
        "DriftFight",
        ConditionWriter.PROVIDER,
        "Another client keeps changing an upstream object; changes are reverted, ever more slowly.",
        good="absent",
    ),
    ConditionType(
        "DryRun",
        ConditionWriter.PROVIDER,
        "The annotation that asks for a plan only is set; the ConfigMap NAME-airunway-plan holds the plan.",
        good="absent",
    ),
)
"""Every condition that core and runtime write. A provider adds ``<Component>Ready`` for further components."""

PARTS = (ConditionWriter.GATEWAY, ConditionWriter.MODEL_CACHE)
"""The parts of the core's process that write conditions."""


def conditions_of(*writers: ConditionWriter) -> tuple[str, ...]:
    """The condition types that one of these writers writes."""
    return tuple(condition.name for condition in CONDITIONS if condition.writer in writers)


PART_NAMES = tuple(part.value for part in PARTS)
"""All parts that there are."""


def parts_of(deployment: Resource) -> list[str]:
    """The names of those that are on; empty where none was asked for."""
    return list_at(deployment, "status", "parts")
