"""The condition types of a ModelDeployment: who writes each, and what it means."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["CONDITIONS", "PARTS", "ConditionType", "ConditionWriter", "conditions_of"]


class ConditionWriter(StrEnum):
    """Who writes a condition; a condition has one writer at a time."""

    CORE = "core"
    GATEWAY = "gateway"
    """The part of the core's process that makes routes."""
    MODEL_CACHE = "model-cache"
    """The part of the core's process that keeps weights."""
    PROVIDER = "provider"
    SPEAKER = "the owner of the phase"


@dataclass(frozen=True, kw_only=True)
class ConditionType:
    """One condition type."""

    name: str
    writer: ConditionWriter
    good: str = "True"
    """Its status when all is well; ``absent``: it is only there otherwise."""
    reserved: bool = False
    """Not written in this release; other components must not write it either."""
    meaning: str
    """What it means."""


CONDITIONS: tuple[ConditionType, ...] = (
    ConditionType(
        name="Ready",
        writer=ConditionWriter.SPEAKER,
        meaning="The newest spec is served. Unknown: the upstream has not reported for five minutes.",
    ),
    ConditionType(
        name="Reconciling",
        writer=ConditionWriter.SPEAKER,
        good="False",
        meaning="Work goes on towards the newest spec (phase Pending or Deploying).",
    ),
    ConditionType(
        name="Stalled",
        writer=ConditionWriter.SPEAKER,
        good="False",
        meaning="It has failed, or nothing will happen until the spec is changed.",
    ),
    ConditionType(
        name="ConfigValid",
        writer=ConditionWriter.CORE,
        meaning="No other condition is False because of what was asked for.",
    ),
    ConditionType(
        name="AuthValid",
        writer=ConditionWriter.CORE,
        meaning="No other condition is False because of credentials or permissions.",
    ),
    ConditionType(
        name="DependenciesReachable",
        writer=ConditionWriter.CORE,
        meaning="No other condition is False because something else does not answer, the provider included.",
    ),
    ConditionType(
        name="Validated", writer=ConditionWriter.CORE, meaning="The spec keeps the rules of a ModelDeployment."
    ),
    ConditionType(name="EngineSelected", writer=ConditionWriter.CORE, meaning="An inference engine is chosen."),
    ConditionType(name="ProviderSelected", writer=ConditionWriter.CORE, meaning="A provider is chosen."),
    ConditionType(
        name="ProviderResponsive",
        writer=ConditionWriter.CORE,
        meaning=(
            "Only there while it is False: the provider has sent no heartbeat for five minutes, and what it reported "
            "last may be outdated. Ready and phase stay as the provider left them: models that run go on serving."
        ),
    ),
    ConditionType(
        name="RuntimeConfigReady",
        writer=ConditionWriter.CORE,
        meaning="The runtime config was found; with UsingDefaults there is none, and none is needed.",
    ),
    ConditionType(
        name="TemplateReady",
        writer=ConditionWriter.CORE,
        good="True or absent",
        meaning="The template was found, and what it gives is recorded. Absent where the deployment names none.",
    ),
    ConditionType(
        name="ModelCacheReady",
        writer=ConditionWriter.MODEL_CACHE,
        good="True or absent",
        meaning="The cached weights are complete. Absent where no model cache is asked for.",
    ),
    ConditionType(
        name="StorageReady",
        writer=ConditionWriter.MODEL_CACHE,
        good="True or absent",
        meaning="The claims of all volumes are there and bound. Absent without volumes, and where the part is off.",
    ),
    ConditionType(
        name="GatewayReady",
        writer=ConditionWriter.GATEWAY,
        good="True or absent",
        meaning="The gateway routes to the model. Absent where routing is not asked for and no gateway is there.",
    ),
    ConditionType(
        name="Paused",
        writer=ConditionWriter.CORE,
        good="absent",
        meaning="The annotation that stops reconciliation is set.",
    ),
    ConditionType(
        name="ProviderCompatible",
        writer=ConditionWriter.PROVIDER,
        meaning="The provider can honour every field of the spec.",
    ),
    ConditionType(
        name="ResourceCreated",
        writer=ConditionWriter.PROVIDER,
        meaning="The API server has accepted the upstream's objects.",
    ),
    ConditionType(
        name="ProviderResourceReady",
        writer=ConditionWriter.PROVIDER,
        meaning="The upstream says that its object is ready.",
    ),
    ConditionType(
        name="PodsReady",
        writer=ConditionWriter.PROVIDER,
        meaning="The pods are ready; False has the precise fault. Absent where no pod can be seen.",
    ),
    ConditionType(
        name="AutoscalerReady",
        writer=ConditionWriter.PROVIDER,
        reserved=True,
        meaning="The autoscaler that the provider made works.",
    ),
    ConditionType(
        name="Served",
        writer=ConditionWriter.PROVIDER,
        meaning=(
            "It has been Running since its upstream object was made: what breaks now degrades it, what breaks before "
            "fails it. Stays while readiness comes and goes; its observedGeneration is the newest that was served."
        ),
    ),
    ConditionType(
        name="DriftFight",
        writer=ConditionWriter.PROVIDER,
        good="absent",
        meaning="Another client keeps changing an upstream object; changes are reverted, ever more slowly.",
    ),
    ConditionType(
        name="DryRun",
        writer=ConditionWriter.PROVIDER,
        good="absent",
        meaning="The annotation that asks for a plan only is set; the ConfigMap NAME-airunway-plan holds the plan.",
    ),
)
"""Every condition that core and runtime write. A provider adds ``<Component>Ready`` for further components."""


PARTS = (ConditionWriter.GATEWAY, ConditionWriter.MODEL_CACHE)
"""The parts of the core's process that write conditions."""


def conditions_of(*writers: ConditionWriter) -> tuple[str, ...]:
    """The condition types that one of these writers writes."""
    return tuple(condition.name for condition in CONDITIONS if condition.writer in writers)
