"""``airunway new`` prints a manifest for a model, with comments for what was chosen; it writes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from airunway.cli import completers, inputs
from airunway.cli.cluster import Access, about_deployment, fail, remark
from airunway.cli.fit import GpuOptions, fitted
from airunway.cli.options import cluster_options, namespace_option
from airunway.cli.parameters import PATH, Command, IntRange, argument, option
from airunway.cli.printing import as_document
from airunway.redaction import printable
from airunway.references import NO_MODEL, is_model

if TYPE_CHECKING:
    from airunway.kube import Client
    from airunway.resource import Resource
    from airunway.sizing.estimate import Estimate
    from airunway.tools.fit import Sized

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_GATED = ("llama", "gemma")
"""Beginnings of licences that a user accepts on the hub, so that a token is needed."""


@click.command(cls=Command)
@argument(
    "model",
    default="",
    metavar="MODEL",
    shell_complete=completers.models,
    help="A model id: owner/name, or an absolute path. With --beside: another model.",
)
@option("--name", help="Name of the deployment. Default: made from the model's, or from that of --beside.")
@option("--beside", metavar="md/NAME", help="A second version of this deployment, in its group, with weight 0.")
@option("--image", help="Container image of the model server. Default: the provider's image.")
@namespace_option("Namespace (default: none is written; with --beside the context's).")
@option("--engine", help="Engine. Default: left to the selection.")
@option("--provider", shell_complete=completers.providers, help="Provider. Default: left to the selection.")
@option("--context-length", type=IntRange(min=1), help="Longest context in tokens. Default: the longest that fits.")
@option("--gpus", type=IntRange(min=0, max=64), help="GPUs of a replica. Default: the fewest that fit.")
@option("--gpu-type", help="Resource name of the GPUs. Default: that of the node.")
@option("--replicas", default=1, type=IntRange(min=0, max=32), help="Replicas.")
@option("--token-secret", help="Secret with the Hugging Face token under the key HF_TOKEN, for a gated model.")
@option("--nodes", type=PATH, help="File with Nodes (and Pods) instead of the cluster.")
@option("--gpu", shell_complete=completers.gpus, help="Size for this GPU, such as h100-80gb, without looking at nodes.")
@option("--model-config", type=PATH, help="Directory with the model's config.json and its safetensors or GGUF files.")
@option("--fetch", is_flag=True, help="Read config.json from the hub of HF_ENDPOINT.")
@cluster_options
def new(
    model: str,
    *,
    name: str,
    beside: str,
    image: str,
    namespace: str,
    engine: str,
    provider: str,
    context_length: int | None,
    gpus: int | None,
    gpu_type: str,
    replicas: int,
    token_secret: str,
    nodes: Path | None,
    gpu: str,
    model_config: Path | None,
    fetch: bool,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Print a ModelDeployment for a model, with a comment for each choice. Nothing is created.

    GPUs and context come from sizing (airunway fit): against the cluster, --nodes or --gpu. With --gpus no cluster is
    asked.

    airunway new Qwen/Qwen3-32B --gpu h100-80gb | kubectl apply -f -

    airunway new --beside md/chat-v1 --provider kaito

    With --beside, the spec of a deployment of the cluster is copied with what MODEL, --provider, --engine and --image
    change: to shift requests from one version to the next without an outage (docs/side-by-side.md).
    """
    if name and not _NAME.fullmatch(name):
        fail(f"--name: {name!r} is no name of a deployment: use letters, digits and '-', at most 63")
    if beside:
        _refuse_sizes()
        if model and not is_model(model):
            fail(f"{model}: {NO_MODEL}")
        changes = {"name": name, "model": model, "provider": provider, "engine": engine, "image": image}
        _print_beside(beside, changes, namespace=namespace, access=Access(kubeconfig, context))
        return
    if not model:
        raise click.BadParameter("name a MODEL, or a deployment with --beside")
    if nodes is not None and gpu:
        raise click.BadParameter("use --nodes or --gpu, not both")
    if not is_model(model):
        fail(f"{model}: {NO_MODEL}")
    choice = _Choice(gpus=gpus or 0, resource=gpu_type, context=context_length, why="as the option says")
    if gpus is None:
        options = GpuOptions(Access(kubeconfig, context), namespace, nodes, gpu, model_config, fetch)
        choice = _sized_choice(model, options, engine=engine, context_length=context_length, gpu_type=gpu_type)
    licence = _licence(model) if choice.licence is None else choice.licence
    lines = _manifest(
        model,
        choice,
        name=name or _name_of(model),
        image=image,
        namespace=namespace,
        engine=engine,
        provider=provider,
        replicas=replicas,
        token_secret=token_secret,
        licence=licence,
    )
    click.echo("\n".join(lines))


_COPIED = ("context_length", "gpus", "gpu_type", "replicas", "token_secret", "nodes", "gpu", "model_config", "fetch")
"""Options of what is copied with ``--beside``."""


def _refuse_sizes() -> None:
    context = click.get_current_context()
    given = (each for each in _COPIED if context.get_parameter_source(each) is ParameterSource.COMMANDLINE)
    if (first := next(given, None)) is not None:
        name = f"--{first.replace('_', '-')}"
        raise click.BadParameter(f"{name} and --beside exclude each other: edit the manifest that is printed")


def _print_beside(target: str, changed: dict[str, str], *, namespace: str, access: Access) -> None:
    """Print the manifest of a second version, and on standard error what else is to be done."""
    from airunway.kinds import MODEL_DEPLOYMENT
    from airunway.resource import ObjectKey
    from airunway.tools.beside import Changes, beside, next_name

    async def read(client: Client, key: ObjectKey) -> tuple[Resource, str]:
        live, chosen = await client.get(MODEL_DEPLOYMENT, key), changed["name"] or next_name(key.name)
        while await client.find(MODEL_DEPLOYMENT, ObjectKey(key.namespace, chosen)) is not None:
            if changed["name"]:
                fail(f"--name: ModelDeployment {key.namespace}/{chosen} exists already")
            chosen = next_name(chosen)
        return live, chosen

    live, chosen = about_deployment([target], read, namespace=namespace, access=access)
    found = beside(live, Changes(**{**changed, "name": chosen}))
    for text in found.remarks:
        remark(f"airunway: {text}")
    click.echo(as_document([found.manifest], "yaml"), nl=False)


@dataclass(frozen=True, kw_only=True)
class _Choice:
    """What sizing chose, or what the options say."""

    gpus: int
    resource: str
    context: int | None
    why: str
    context_why: str = ""
    licence: str | None = None


def _sized_choice(
    model: str, options: GpuOptions, *, engine: str, context_length: int | None, gpu_type: str
) -> _Choice:
    """The fewest GPUs on one node; exits with 1 if that cannot be computed, or if no node has them."""
    from airunway.sizing.estimate import FitVerdict
    from airunway.sizing.report import unseen_text
    from airunway.tools.fit import asked_for

    with inputs.reporting():
        wanted = asked_for(model, namespace=options.namespace, engine=engine, context_length=context_length)
        (found,) = fitted([wanted], options, as_model=True, ask=False)
    best = _best(found, gpu_type)
    if best is None:
        why = "; ".join(map(unseen_text, found.unseen)) or "no node offers a GPU"
        fail(f"{model}: the number of GPUs cannot be computed: {why}. Use --gpus, --gpu or --nodes")
    estimate, resource = best
    if estimate.verdict is FitVerdict.UNKNOWN:
        fail(f"{model}: the number of GPUs cannot be computed: {estimate.why}. Use --gpus")
    if estimate.verdict in (FitVerdict.NOT, FitVerdict.IMPOSSIBLE):
        fail(f"{model}: it fits on no node: {estimate.why}. See airunway fit {model}")
    if estimate.verdict is FitVerdict.LESS and context_length is not None:
        fail(f"{model}: it fits on no node as asked for: {estimate.why}. See airunway fit {model}")
    longest, tokens, context_why = found.checkpoint.max_context, context_length, "as the option says"
    if tokens is None and estimate.verdict is FitVerdict.LESS:
        tokens = (estimate.max_context or 0) // 1024 * 1024 or estimate.max_context
        context_why = f"the model's own maximum of {longest or 0:,} tokens does not fit"
    layout = estimate.layout
    product = estimate.gpu.product or resource
    return _Choice(
        gpus=layout.gpus,
        resource=resource,
        context=tokens,
        why=f"the fewest of {product} on one node that fit: {estimate.why}",
        context_why=context_why,
        licence=found.checkpoint.licence,
    )


def _best(found: Sized, gpu_type: str) -> tuple[Estimate, str] | None:
    """The best estimate among nodes that take pods, with the resource name of its GPUs."""
    (_, result), *_ = found.roles
    rows = [
        (row.estimate, row.resource)
        for row in result.nodes
        if row.estimate is not None and not row.obstacles and gpu_type in ("", row.resource)
    ]
    return rows[0] if rows else None


def _licence(model: str) -> str:
    from airunway.sizing.catalogue import nearest

    entry = nearest(model)
    return str(entry.get("licence") or "") if entry is not None else ""


def _name_of(model: str) -> str:
    """A deployment's name out of the model's id."""
    name = re.sub(r"[^a-z0-9]+", "-", model.rpartition("/")[2].lower()).strip("-")
    return name[:52].rstrip("-") or "model"


def _manifest(
    model: str,
    choice: _Choice,
    *,
    name: str,
    namespace: str,
    engine: str,
    provider: str,
    replicas: int,
    token_secret: str,
    licence: str,
    image: str,
) -> Iterator[str]:
    """The lines of the manifest. Texts are written as JSON, which YAML reads as they are."""

    def text(value: str) -> str:
        return json.dumps(value)

    def comment(value: str) -> str:
        return f"# {printable(value)}"

    yield "apiVersion: airunway.ai/v1alpha1"
    yield "kind: ModelDeployment"
    yield "metadata:"
    yield f"  name: {name}"
    if namespace:
        yield f"  namespace: {text(namespace)}"
    yield "spec:"
    yield "  model:"
    yield f"    id: {text(model)}" + (f"  {comment(f'licence: {licence}')}" if licence else "")
    if provider:
        yield "  provider:"
        yield f"    name: {text(provider)}"
    else:
        yield "  # provider: selected among those that can run it; see airunway explain"
    if engine or choice.context is not None:
        yield "  engine:"
    if engine:
        yield f"    type: {text(engine)}"
    else:
        yield "  # engine.type: selected with the provider"
    if choice.context is not None:
        if choice.context_why:
            yield f"    {comment(choice.context_why)}"
        yield f"    contextLength: {choice.context}"
    if image:
        yield f"  image: {text(image)}"
    yield "  scaling:"
    yield f"    replicas: {replicas}"
    if choice.gpus:
        yield "  resources:"
        yield "    gpu:"
        yield f"      {comment(choice.why)}"
        yield f"      count: {choice.gpus}"
        if choice.resource:
            yield f"      type: {text(choice.resource)}"
    if token_secret:
        yield "  secrets:"
        yield f"    huggingFaceToken: {text(token_secret)}"
    elif licence.startswith(_GATED):
        yield "  # The model is gated: accept its licence, and name the Secret with your token (key HF_TOKEN):"
        yield "  # secrets:"
        yield "  #   huggingFaceToken: hf-token"
