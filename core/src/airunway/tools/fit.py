"""How a deployment or a model fits on GPUs, and what its providers say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airunway.api import names
from airunway.api.modeldeployment import parse_deployment
from airunway.resource import Resource, dig, filled, key_of
from airunway.selection.explanation import Explanation, explain
from airunway.selection.facts import provider_facts
from airunway.sizing.checkpoint import Checkpoint
from airunway.sizing.estimate import FitVerdict
from airunway.sizing.fit import Fit, fit
from airunway.sizing.inventory import Inventory
from airunway.sizing.nodes import NodeGpus, Placement, free_gpus, gpu_named, known_gpus
from airunway.sizing.report import checkpoint_resource, fit_resource, unseen_text
from airunway.sizing.values import Unknown
from airunway.sizing.workload import Role, roles_of
from airunway.tools.assignment import asking_plugins, installed_configs
from airunway.unseen import Unseen

_GPUS_OF_A_NODE = 8
"""GPUs of the node that stands for any."""


class UnknownGpuError(ValueError):
    """No GPU has that name; the message has the known ones."""


@dataclass(frozen=True, kw_only=True)
class Sized:
    """One deployment, or one model, against the GPUs."""

    deployment: Resource
    checkpoint: Checkpoint
    roles: tuple[tuple[Role, Fit], ...]
    explanation: Explanation
    spanning: frozenset[str]
    """Providers whose engine can span several nodes."""
    engine: str
    unseen: tuple[Unseen, ...]
    as_model: bool
    """Whether GPUs were looked for, rather than those of a spec judged."""

    @property
    def refused(self) -> bool:
        """Whether a worker would not start: on no node, and on no pipeline that a provider runs.

        A spec without GPUs is not refused: it does not ask for any.
        """
        refusals = (FitVerdict.NOT, FitVerdict.IMPOSSIBLE, FitVerdict.LESS)
        return any(
            found.verdict in refusals and (self.as_model or bool(found.workload.gpus)) and not self._spans(found)
            for _, found in self.roles
        )

    def _spans(self, found: Fit) -> bool:
        """Whether a provider can run it as a pipeline over nodes; that of a spec must have as many GPUs as it names."""
        pipeline = found.pipeline
        if pipeline is None or not pipeline.estimate.usable or not self.spanning:
            return False
        return self.as_model or pipeline.estimate.layout.gpus == found.workload.gpus

    def as_resource(self) -> Resource:
        """As JSON, in a stable form for scripts."""
        key = key_of(self.deployment)
        return {
            **filled(namespace=key.namespace, name=key.name),
            "model": checkpoint_resource(self.checkpoint),
            "engine": self.engine,
            "roles": [
                {**filled(role=role.name), "workers": role.workers, **fit_resource(found)} for role, found in self.roles
            ],
            "providers": [
                {"name": name, "verdict": verdict, "spansNodes": name in self.spanning, "detail": detail}
                for name, verdict, detail in verdicts(self.explanation)
            ],
            "unseen": [filled(why=unseen_text(each), right=each.right) for each in self.unseen],
        }


def asked_for(model: str, *, namespace: str, engine: str, context_length: int | None) -> Resource:
    """Returns a deployment of that model with one GPU, for which providers are asked."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": filled(name="model", namespace=namespace or "default"),
        "spec": {
            "model": {"id": model},
            "engine": filled(type=engine, contextLength=context_length),
            "resources": {"gpu": {"count": 1}},
        },
    }


def gpu_rows(gpu: str) -> tuple[NodeGpus, ...]:
    """Returns a node with eight GPUs of a product of the table. Raises UnknownGpuError."""
    facts = gpu_named(gpu)
    if isinstance(facts.memory, Unknown):
        raise UnknownGpuError(f"{facts.memory.why}; known: {', '.join(known_gpus())}")
    resource = "amd.com/gpu" if "mi3" in gpu.lower() else "nvidia.com/gpu"
    return (NodeGpus(node="any", resource=resource, allocatable=_GPUS_OF_A_NODE, used=0, gpu=facts),)


def sized(
    deployment: Resource,
    around: Inventory | Sequence[NodeGpus],
    *,
    facts_of: Callable[[str], Checkpoint],
    configs: Sequence[Resource] | None = None,
    sequences: int,
    as_model: bool,
    ask: bool = True,
) -> Sized:
    """Sizes one deployment for a cluster, or for GPUs. With `as_model`, GPUs are not those of its spec: the fewest that
    fit are looked for.

    `facts_of` gives the facts of a model; `configs` are the InferenceProviderConfigs, by default those of the cluster,
    else of the installed plugins. `ask`: installed plugins say whether they refuse the deployment, which takes a second
    or more. Raises ParseError, PluginError, and what `facts_of` raises.
    """
    unseen: list[Unseen] = []
    now = datetime.now(UTC)
    if configs is None:
        configs = _configs(around, unseen)
    facts = [provider_facts(config) for config in configs]
    asked = asking_plugins(deployment, now=now) if ask else None
    explanation = explain(deployment, facts, now=now, asked=asked)
    chosen = explanation.engine.engine if explanation.engine is not None else None
    engine = str(dig(deployment, "spec", "engine", "type") or chosen or "")
    parsed = parse_deployment(deployment)
    placement = Placement(
        node_selector=parsed.spec.node_selector,
        tolerations=tuple(each.model_dump(by_alias=True) for each in parsed.spec.tolerations),
    )
    rows = _free(around, placement, unseen) if isinstance(around, Inventory) else tuple(around)
    checkpoint = facts_of(parsed.spec.model.id or "")
    roles = roles_of(parsed, engine=engine, sequences=sequences)
    if as_model:
        roles = tuple(replace(role, workload=replace(role.workload, gpus=0, resource="")) for role in roles)
    return Sized(
        deployment=deployment,
        checkpoint=checkpoint,
        roles=tuple((role, fit(checkpoint, role.workload, rows)) for role in roles),
        explanation=explanation,
        spanning=frozenset(
            each.name for each in facts if (row := each.engine(engine)) is not None and "multiNode" in row.flags
        ),
        engine=engine,
        unseen=tuple(unseen),
        as_model=as_model,
    )


def _free(around: Inventory, placement: Placement, unseen: list[Unseen]) -> tuple[NodeGpus, ...]:
    """The GPUs of the nodes; what was not seen of them is added to `unseen`."""
    unseen += [each for each in (around.nodes, around.pods, *around.models_unseen) if isinstance(each, Unseen)]
    if isinstance(around.nodes, Unseen):
        return ()
    return free_gpus(around.nodes, around.pods, claims=around.claims, slices=around.slices, placement=placement)


def _configs(around: Inventory | Sequence[NodeGpus], unseen: list[Unseen]) -> Sequence[Resource]:
    """The cluster's InferenceProviderConfigs, else those of the installed plugins."""
    if not isinstance(around, Inventory):
        return installed_configs()
    if isinstance(around.configs, Unseen):
        unseen += [around.configs] if around.configs.right else []
        return installed_configs()
    return around.configs


def verdicts(explanation: Explanation) -> Iterator[tuple[str, str, str]]:
    """Yields name, verdict and reason of every provider."""
    for candidate in explanation.candidates:
        failed = "; ".join(
            f"{check.path}: {check.message}" if check.path else check.message for check in candidate.failed
        )
        yield candidate.name, explanation.verdict(candidate).value, failed or "no objection"
