"""``airunway fit`` shows whether a model fits on GPUs, of a cluster or a file, and what its providers say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.api.names import DEVICE_CLASS_PREFIX
from airunway.cli import completers, inputs
from airunway.cli.cluster import Access, fail
from airunway.cli.manifests import manifests_in, provider_configs_in
from airunway.cli.options import cluster_options, file_option, namespace_option, output_option, providers_option
from airunway.cli.parameters import PATH, Command, IntRange, argument, option
from airunway.cli.printing import as_document, object_name, terminal_width
from airunway.redaction import printable
from airunway.resource import dig, filled, key_of
from airunway.table import format_table

if TYPE_CHECKING:
    from airunway.cli.sizing_inputs import Inventory
    from airunway.resource import Resource
    from airunway.selection.explanation import Explanation
    from airunway.sizing.checkpoint import Checkpoint
    from airunway.sizing.estimate import Estimate
    from airunway.sizing.fit import Fit, NodeFit
    from airunway.sizing.nodes import NodeGpus
    from airunway.sizing.values import Unreadable
    from airunway.sizing.workload import Role

DOES_NOT_FIT = 3
"""Exit code if a worker would not start as it is asked for."""
_GPUS_OF_A_NODE = 8
"""GPUs of the node that ``--gpu`` stands for."""


@click.command(cls=Command)
@argument("target", default=None, metavar="[MODEL]", shell_complete=completers.models, help="A model id: owner/name.")
@file_option("Deployments of a file instead; - for standard input.")
@namespace_option()
@option(
    "--nodes",
    type=PATH,
    help="File with Nodes (and Pods, ResourceClaims) instead of the cluster: kubectl get nodes,pods -A -o yaml.",
)
@option(
    "--gpu",
    shell_complete=completers.gpus,
    help="Size for this GPU, eight on a node, without looking at nodes: a name such as h100-80gb.",
)
@option(
    "--model-config",
    type=PATH,
    help="Directory with the model's config.json and its safetensors or GGUF files (only headers are read).",
)
@option("--fetch", is_flag=True, help="Read config.json and the index from the hub of HF_ENDPOINT, without a token.")
@option("--engine", help="Engine for MODEL. Default: the one that would be selected.")
@option(
    "--context-length",
    type=IntRange(min=1),
    help="Longest context in tokens, for MODEL. Default: the model's own maximum.",
)
@option("--sequences", default=1, type=IntRange(min=1, max=1_000_000), help="Requests of that length at once.")
@providers_option(
    "InferenceProviderConfigs from a file or directory, or 'installed' for the installed plugins. "
    "Default: those of the cluster; with --nodes or --gpu the installed plugins."
)
@output_option("table", "json", "yaml", "name")
@cluster_options
def fit(
    target: str | None,
    *,
    file: Path | None,
    namespace: str,
    nodes: Path | None,
    gpu: str,
    model_config: Path | None,
    fetch: bool,
    engine: str,
    context_length: int | None,
    sequences: int,
    providers: str,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show whether a model fits on the free GPUs of each node, and every provider's verdict.

    Weights, KV cache and the engine's reserve are shown with their sources, and which sizes of tensor parallelism work.

    Exits with 3 if a worker would not start as it is asked for; unknown is not a refusal.

    airunway fit meta-llama/Llama-3.3-70B-Instruct --context-length 32768

    airunway fit -f llama.yaml --nodes nodes.yaml -o json
    """
    if (target is None) == (file is None):
        raise click.BadParameter("name one model (owner/name), or a file with -f")
    if file is not None and (engine or context_length is not None):
        raise click.BadParameter("--engine and --context-length are for MODEL: a file says them itself")
    if nodes is not None and gpu:
        raise click.BadParameter("use --nodes or --gpu, not both")
    if file is None and output == "name":
        raise click.BadParameter("-o name is for the deployments of a file: MODEL is no object")
    from airunway.cli.template_inputs import with_templates
    from airunway.sizing.values import ModelConfigError

    with inputs.reporting():
        if file is not None:
            given = manifests_in(file, namespace=namespace)
            found_templates = with_templates(
                given.deployments,
                given.templates,
                access=Access(kubeconfig, context),
                on_cluster=nodes is None and not gpu,
            )
            if problem := next((f"{key_of(each.own)}: {each.problem}" for each in found_templates if each.problem), ""):
                fail(problem)
            deployments = [each.deployment for each in found_templates]
        else:
            deployments = [asked_for(target or "", namespace=namespace, engine=engine, context_length=context_length)]
        try:
            around = inventory_of(nodes, gpu, access=Access(kubeconfig, context), namespace=namespace)
            found = [
                sized(
                    deployment,
                    around,
                    gpu=gpu,
                    providers=providers,
                    model_config=model_config,
                    fetch=fetch,
                    sequences=sequences,
                    as_model=file is None,
                )
                for deployment in deployments
            ]
        except ModelConfigError as error:
            fail(str(error))
    if output == "table":
        click.echo("\n\n".join("\n".join(map(printable, _lines(each))) for each in found))
    elif output == "name":
        for each in found:
            click.echo(object_name(key_of(each.deployment).name))
    else:
        click.echo(as_document([each.as_resource() for each in found], output), nl=False)
    if any(each.refused for each in found):
        raise click.exceptions.Exit(DOES_NOT_FIT)


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
    unseen: tuple[Unreadable, ...]
    as_model: bool
    """Whether GPUs were looked for, rather than those of a spec judged."""

    @property
    def refused(self) -> bool:
        """Whether a worker would not start: on no node, and on no pipeline that a provider runs.

        A spec without GPUs is not refused: it does not ask for any.
        """
        from airunway.sizing.estimate import Verdict

        refusals = (Verdict.NOT, Verdict.IMPOSSIBLE, Verdict.LESS)
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
        from airunway.sizing.report import checkpoint_resource, fit_resource

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
                for name, verdict, detail in _providers(self.explanation)
            ],
            "unseen": [filled(why=each.why, right=each.right) for each in self.unseen],
        }


def asked_for(model: str, *, namespace: str, engine: str, context_length: int | None) -> Resource:
    """A deployment of that model with one GPU, for which providers are asked."""
    from airunway.api import names

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


def inventory_of(nodes: Path | None, gpu: str, *, access: Access, namespace: str) -> Inventory | None:
    """Nodes, pods and providers of a file or the cluster; None with ``--gpu``, which needs neither."""
    from airunway.cli.sizing_inputs import inventory_in, read_inventory

    if gpu:
        return None
    if nodes is not None:
        return inventory_in(nodes)
    return read_inventory(access=access, namespace=namespace)


def gpu_rows(gpu: str) -> tuple[NodeGpus, ...]:
    """A node with eight GPUs of a product of the table; exits with 1 and the known names if it has no such product."""
    from airunway.sizing.nodes import NodeGpus, gpu_named, known_gpus
    from airunway.sizing.values import Unknown

    facts = gpu_named(gpu)
    if isinstance(facts.memory, Unknown):
        fail(f"--gpu: {facts.memory.why}; known: {', '.join(known_gpus())}")
    resource = "amd.com/gpu" if "mi3" in gpu.lower() else "nvidia.com/gpu"
    return (NodeGpus(node="any", resource=resource, allocatable=_GPUS_OF_A_NODE, used=0, gpu=facts),)


def sized(
    deployment: Resource,
    around: Inventory | None,
    *,
    gpu: str,
    providers: str,
    model_config: Path | None,
    fetch: bool,
    sequences: int,
    as_model: bool,
    ask: bool = True,
) -> Sized:
    """Sizes one deployment. With `as_model`, GPUs are not those of its spec: the fewest that fit are looked for.

    `ask`: installed plugins say whether they refuse the deployment, which takes a second or more.

    Raises ModelConfigError, ManifestError, PluginError and OSError.
    """
    from dataclasses import replace

    from airunway.api.base import ParseError
    from airunway.api.modeldeployment import parse_deployment
    from airunway.cli.sizing_inputs import facts_of
    from airunway.selection.explanation import explain
    from airunway.selection.facts import provider_facts
    from airunway.sizing.fit import fit as fitted
    from airunway.sizing.nodes import Placement, free_gpus
    from airunway.sizing.values import Unreadable
    from airunway.sizing.workload import roles_of

    unseen: list[Unreadable] = []
    now = datetime.now(UTC)
    configs = _configs(around, providers, unseen)
    facts = [provider_facts(config) for config in configs]
    asked = inputs.asking_plugins(deployment, now=now) if ask else None
    explanation = explain(deployment, facts, now=now, asked=asked)
    chosen = explanation.engine.engine if explanation.engine is not None else None
    engine = str(dig(deployment, "spec", "engine", "type") or chosen or "")
    try:
        parsed = parse_deployment(deployment)
    except ParseError as error:
        fail(f"ModelDeployment {key_of(deployment)}: {error}")
    placement = Placement(
        node_selector=parsed.spec.node_selector,
        tolerations=tuple(each.model_dump(by_alias=True) for each in parsed.spec.tolerations),
    )
    rows: tuple[NodeGpus, ...] = ()
    if around is None:
        rows = gpu_rows(gpu)
    else:
        if isinstance(around.nodes, Unreadable):
            unseen.append(around.nodes)
        else:
            rows = free_gpus(around.nodes, around.pods, claims=around.claims, slices=around.slices, placement=placement)
        if isinstance(around.pods, Unreadable):
            unseen.append(around.pods)
        if around.models_unseen is not None:
            unseen.append(around.models_unseen)
    model = parsed.spec.model.id or ""
    added = around.models if around is not None else None
    checkpoint = facts_of(model, directory=model_config, fetch=fetch, added=added)
    roles = roles_of(parsed, engine=engine, sequences=sequences)
    if as_model:
        roles = tuple(replace(role, workload=replace(role.workload, gpus=0, resource="")) for role in roles)
    return Sized(
        deployment=deployment,
        checkpoint=checkpoint,
        roles=tuple((role, fitted(checkpoint, role.workload, rows)) for role in roles),
        explanation=explanation,
        spanning=frozenset(
            each.name for each in facts if (row := each.engine(engine)) is not None and "multiNode" in row.flags
        ),
        engine=engine,
        unseen=tuple(unseen),
        as_model=as_model,
    )


def _configs(around: Inventory | None, providers: str, unseen: list[Unreadable]) -> list[Resource]:
    from airunway.sizing.values import Unreadable

    if providers and providers != "installed":
        return provider_configs_in(Path(providers))
    if providers or around is None:
        return inputs.installed_configs()
    if isinstance(around.configs, Unreadable):
        if around.configs.right:
            unseen.append(around.configs)
        return inputs.installed_configs()
    return around.configs


def _providers(explanation: Explanation) -> Iterator[tuple[str, str, str]]:
    """Name, verdict and reason of every provider."""
    for candidate in explanation.candidates:
        failed = "; ".join(
            f"{check.path}: {check.message}" if check.path else check.message for check in candidate.failed
        )
        yield candidate.name, explanation.verdict(candidate).value, failed or "no objection"


def _lines(found: Sized) -> Iterator[str]:
    from airunway.sizing.report import kv_sentence, weights_sentence
    from airunway.sizing.values import Unknown

    checkpoint, key = found.checkpoint, key_of(found.deployment)
    if not found.as_model:
        yield f"ModelDeployment {key}"
    yield f"Model:     {checkpoint.model}{f'  (licence {checkpoint.licence})' if checkpoint.licence else ''}"
    yield f"Weights:   {weights_sentence(checkpoint)}"
    yield f"KV cache:  {kv_sentence(checkpoint)}"
    yield f"Engine:    {found.engine or 'none: ' + found.explanation.message}"
    for role, result in found.roles:
        yield ""
        if role.name:
            yield f"Role {role.name}: {role.workers} worker{'' if role.workers == 1 else 's'}"
        legal = result.legal
        yield (
            f"Tensor parallelism: {legal.why}"
            if isinstance(legal, Unknown)
            else f"Tensor parallelism on one node: {', '.join(map(str, legal))} GPUs"
        )
        yield from _role_lines(result, as_model=found.as_model)
    yield from _unseen_lines(found.unseen)
    yield ""
    rows = [
        (name, verdict, "yes" if name in found.spanning else "no", detail)
        for name, verdict, detail in _providers(found.explanation)
    ]
    if rows:
        header = ("provider", "verdict", "spans nodes", "detail")
        yield from format_table(header, rows, width=terminal_width()).split("\n")
    else:
        yield "No provider is registered."


def _role_lines(result: Fit, *, as_model: bool) -> Iterator[str]:
    from airunway.sizing.report import layout_text

    if result.nodes:
        rows = [_row(row) for row in result.nodes]
        header = ("nodes", "gpu", "free", "layout", "verdict", "detail")
        yield from format_table(header, rows, width=terminal_width()).split("\n")
    else:
        if result.workload.resource.startswith(DEVICE_CLASS_PREFIX):
            wanted = result.workload.resource.removeprefix(DEVICE_CLASS_PREFIX)
            yield f"Devices of the device class {wanted} are not counted here: kubectl get resourceslices lists them."
        else:
            yield f"No node offers {result.workload.resource or 'a GPU'}."
    best = next((row.estimate for row in result.nodes if row.estimate is not None and not row.obstacles), None)
    pipeline = result.pipeline
    if pipeline is not None:
        yield ""
        yield (
            f"Over nodes: {pipeline.estimate.verdict.value} as {layout_text(pipeline.estimate)}, one stage on each of "
            f"{pipeline.estimate.layout.stages} nodes ({_named(pipeline.nodes)}); only by a provider that spans nodes. "
            f"{pipeline.estimate.why}"
        )
        best = pipeline.estimate if pipeline.estimate.usable else best
    if best is not None and best.terms:
        yield ""
        yield from _terms(best)
    if not as_model and not result.workload.gpus:
        yield "Note: the spec asks for no GPU; this is what GPUs would be needed."
    for note in result.workload.problems:
        yield f"Note: {note}"


def _terms(found: Estimate) -> Iterator[str]:
    from airunway.sizing.report import layout_text
    from airunway.sizing.values import Unknown, gib

    memory = found.gpu.memory
    size = "unknown memory" if isinstance(memory, Unknown) else f"{gib(memory)} ({found.gpu.memory_source})"
    yield f"On one GPU of {layout_text(found)}, {found.gpu.product or 'unnamed'}, {size}:"
    rows = [(term.name, gib(term.size), term.source) for term in found.terms]
    if found.budget is not None:
        rows.insert(0, ("budget", gib(found.budget.size), found.budget.source))
    if found.pool is not None:
        rows.append(("left for KV cache", gib(found.pool), "budget less the above"))
    yield from format_table(("term", "size", "source"), rows, width=terminal_width()).split("\n")
    if found.bounds:
        times = ", ".join(f"{seconds * 1000:,.1f} ms (batch of {batch})" for batch, seconds in found.bounds)
        yield (
            f"Time per token is at least {times} with {found.context or 0:,} tokens of context: a bound (weights and "
            "KV cache that are read, over bandwidth), no forecast."
        )


def _row(row: NodeFit) -> tuple[str, ...]:
    from airunway.sizing.report import layout_text
    from airunway.sizing.values import Unreadable

    free = f"?/{row.allocatable}" if isinstance(row.free, Unreadable) else f"{row.free}/{row.allocatable}"
    found = row.estimate
    verdict = found.verdict.value if found is not None else "no free GPUs"
    why = found.why if found is not None else row.why
    blocked = f"{', '.join(row.obstacles)}; " if row.obstacles else ""
    return (
        _named(row.nodes),
        row.gpu.product or "unknown",
        free,
        layout_text(found) if found is not None else "-",
        verdict,
        f"{blocked}{why}",
    )


def _named(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {len(nodes) - 1} more"


def _unseen_lines(unseen: Sequence[Unreadable]) -> Iterator[str]:
    for each in unseen:
        yield ""
        right = f" (the right to {each.right} is missing)" if each.right else ""
        yield f"Not seen: {each.why}{right}"
