"""``airunway fit`` shows whether a model fits on GPUs, of a cluster or a file, and what its providers say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from airunway.api.names import DEVICE_CLASS_PREFIX
from airunway.cli import completers, inputs
from airunway.cli.cluster import Access, fail, on_cluster
from airunway.cli.manifests import manifests_in, objects_in, provider_configs_in
from airunway.cli.options import cluster_options, file_option, namespace_option, output_option, providers_option
from airunway.cli.parameters import PATH, Command, IntRange, argument, option
from airunway.cli.printing import as_document, object_name, terminal_width
from airunway.redaction import printable
from airunway.resource import key_of
from airunway.table import format_table
from airunway.tools.manifests import ManifestError

if TYPE_CHECKING:
    from airunway.resource import Resource
    from airunway.sizing.checkpoint import Checkpoint
    from airunway.sizing.estimate import Estimate
    from airunway.sizing.fit import Fit, NodeFit
    from airunway.sizing.inventory import Inventory
    from airunway.tools.fit import Sized
    from airunway.unseen import Unseen

DOES_NOT_FIT = 3
"""Exit code if a worker would not start as it is asked for."""


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
    from airunway.tools.fit import asked_for

    with inputs.reporting():
        if file is not None:
            given = manifests_in(file, namespace=namespace)
            found_templates = inputs.with_templates(
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
        options = GpuOptions(Access(kubeconfig, context), namespace, nodes, gpu, model_config, fetch)
        found = fitted(deployments, options, providers=providers, sequences=sequences, as_model=file is None)
    if output == "table":
        click.echo("\n\n".join("\n".join(map(printable, _lines(each))) for each in found))
    elif output == "name":
        for each in found:
            click.echo(object_name(key_of(each.deployment).name))
    else:
        click.echo(as_document([each.as_resource() for each in found], output), nl=False)
    if any(each.refused for each in found):
        raise click.exceptions.Exit(DOES_NOT_FIT)


class GpuOptions(NamedTuple):
    """Where GPUs and the facts of models come from."""

    access: Access
    namespace: str
    nodes: Path | None
    """File instead of the cluster."""
    gpu: str
    """GPU instead of nodes; empty: nodes."""
    model_config: Path | None
    fetch: bool


def fitted(
    deployments: Sequence[Resource],
    given: GpuOptions,
    *,
    providers: str = "",
    sequences: int = 1,
    as_model: bool,
    ask: bool = True,
) -> list[Sized]:
    """Each deployment against the GPUs of a file, of the cluster, or of the type `gpu`; see `sized`.

    Exits with 1 if sizes cannot be computed. Raises ManifestError, PluginError and OSError.
    """
    import asyncio

    from airunway.api.base import ParseError
    from airunway.sizing.inventory import Inventory
    from airunway.sizing.values import ModelConfigError
    from airunway.snapshots.model_files import FetchError, facts_of, fetched
    from airunway.tools.assignment import installed_configs
    from airunway.tools.fit import UnknownGpuError, gpu_rows, sized

    configs = None
    if providers:
        configs = installed_configs() if providers == "installed" else provider_configs_in(Path(providers))
    found = []
    try:
        around = gpu_rows(given.gpu) if given.gpu else _inventory(given)

        def facts(model: str) -> Checkpoint:
            if given.fetch and given.model_config is None:
                return asyncio.run(fetched(model))
            return facts_of(
                model, directory=given.model_config, added=around.models if isinstance(around, Inventory) else None
            )

        for deployment in deployments:
            try:
                one = sized(
                    deployment, around, facts_of=facts, configs=configs, sequences=sequences, as_model=as_model, ask=ask
                )
                found.append(one)
            except ParseError as error:
                fail(f"ModelDeployment {key_of(deployment)}: {error}")
    except UnknownGpuError as error:
        fail(f"--gpu: {error}")
    except FetchError as error:
        fail(f"--fetch: {error}")
    except ModelConfigError as error:
        fail(str(error))
    return found


def _inventory(given: GpuOptions) -> Inventory:
    """Nodes, pods and providers of a file, else of the cluster. Raises ManifestError (also without a Node)."""
    from airunway.sizing.inventory import inventory_among

    if given.nodes is None:
        from airunway.snapshots.inventory import read_inventory

        return on_cluster(lambda client: read_inventory(client, namespace=given.namespace), given.access)
    found = inventory_among(objects_in(given.nodes))
    if not found.nodes:
        raise ManifestError(f"{given.nodes}: contains no Node")
    return found


def _lines(found: Sized) -> Iterator[str]:
    from airunway.sizing.report import kv_sentence, weights_sentence
    from airunway.sizing.values import Unknown
    from airunway.tools.fit import verdicts

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
        for name, verdict, detail in verdicts(found.explanation)
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
    from airunway.unseen import Unseen

    free = f"?/{row.allocatable}" if isinstance(row.free, Unseen) else f"{row.free}/{row.allocatable}"
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


def _unseen_lines(unseen: Sequence[Unseen]) -> Iterator[str]:
    from airunway.sizing.report import unseen_text

    for each in unseen:
        yield ""
        right = f" (the right to {each.right} is missing)" if each.right else ""
        yield f"Not seen: {unseen_text(each)}{right}"
