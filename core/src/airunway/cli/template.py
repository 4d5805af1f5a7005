"""``airunway template`` lists model templates, shows one, prints what it makes of a deployment, and says which one is
chosen for a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from airunway.cli import completers, inputs
from airunway.cli.cluster import Access, fail, on_cluster
from airunway.cli.manifests import in_namespace
from airunway.cli.options import cluster_options, namespace_option, output_option
from airunway.cli.parameters import PATH, Group, argument, option
from airunway.cli.printing import as_document, terminal_width
from airunway.redaction import bounded, printable
from airunway.resource import LAST_APPLIED, Resource, annotations_of, dig, filled, key_of
from airunway.table import format_table

if TYPE_CHECKING:
    from airunway.kube import Client
    from airunway.snapshots.reader import Listed
    from airunway.tools.expanded import Expanded
    from airunway.unseen import Unseen

NOT_CHOSEN = 3
"""Exit code of ``why``: no template would be chosen."""

template = Group(
    "template", help="List model templates, and show what they give and which one is chosen.", no_args_is_help=True
)

_files_option = option(
    "file",
    "--filename",
    "-f",
    multiple=True,
    type=PATH,
    help="Templates of a file instead of the cluster's; - for standard input; may be repeated. One without a "
    "status counts as Ready.",
)
_name_option = argument(
    "name",
    metavar="TEMPLATE",
    shell_complete=completers.templates,
    help="A template: of the namespace, else of the cluster; or mtpl/N, cmtpl/N.",
)


@template.command("list", short_help="List the templates of a namespace and of the cluster.")
@option("--all-namespaces", "-A", is_flag=True, help="ModelTemplates of all namespaces.")
@namespace_option()
@_files_option
@output_option("table", "json", "yaml", "name")
@cluster_options
def list_(
    *,
    all_namespaces: bool,
    namespace: str,
    file: tuple[Path, ...],
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """List the model templates that a deployment of the namespace can use: the namespace's own, and the cluster's.

    airunway template list -n ml

    What you have no right to is listed under "Not seen", with the right's name. Exits with 1 if nothing could be read.
    """
    from airunway.view.templates import LIST_HEADER, list_row

    if all_namespaces and namespace:
        raise click.BadParameter("--all-namespaces and --namespace exclude each other")
    found, _ = _read(file, namespace, Access(kubeconfig, context), everywhere=all_namespaces)
    templates = sorted(found.items, key=lambda each: (not key_of(each).namespace, key_of(each)))
    if output == "table":
        if templates:
            rows = [list_row(each) for each in templates]
            click.echo(format_table(LIST_HEADER, rows, width=terminal_width()))
        elif not found.unseen:
            click.echo("There are no templates.")
        _say_unseen(found.unseen, err=False)
    else:
        if output == "name":
            for each in templates:
                click.echo(_resource_name(each))
        else:
            click.echo(as_document([_stored(each) for each in templates], output), nl=False)
        _say_unseen(found.unseen, err=True)
    if not templates and len(found.unseen) > 1:
        raise click.exceptions.Exit(1)


@template.command(short_help="Show one template: its state, what it gives, and who uses it.")
@_name_option
@namespace_option()
@_files_option
@output_option("text", "json", "yaml", "name")
@cluster_options
def show(
    name: str, *, namespace: str, file: tuple[Path, ...], output: str, kubeconfig: Path | None, context: str | None
) -> None:
    """Show one template: its state and conditions, the values that it gives to a deployment, and who uses it.

    airunway template show fast -n ml

    Environment variables are shown by name only.
    """
    from airunway.cli.template_view import template_text
    from airunway.snapshots.followed import read_users
    from airunway.unseen import Unseen
    from airunway.view.templates import template_resource

    found, where = _read(file, namespace, Access(kubeconfig, context))
    wanted = _named(name, where, found)
    if file:
        users: Sequence[Resource] | Unseen = Unseen(what="users", why="the template is that of a file")
    else:
        users = on_cluster(lambda client: read_users(client, wanted), Access(kubeconfig, context)).found
    if output == "name":
        click.echo(_resource_name(wanted))
    elif output == "text":
        click.echo("\n".join(map(printable, template_text(wanted, users))))
    else:
        click.echo(as_document([template_resource(_stored(wanted), users)], output), nl=False)


@template.command(short_help="Print the ModelDeployment that a template makes.")
@argument(
    "name",
    default="",
    metavar="[TEMPLATE]",
    shell_complete=completers.templates,
    help="A template, as for show. Default: those of the deployments of -f.",
)
@option(
    "file",
    "--filename",
    "-f",
    multiple=True,
    type=PATH,
    help="Without NAME: deployments, and templates that count before the cluster's; with NAME: templates "
    "instead of the cluster's. - for standard input; may be repeated.",
)
@namespace_option()
@output_option("yaml", "json")
@cluster_options
def render(
    name: str, *, file: tuple[Path, ...], namespace: str, output: str, kubeconfig: Path | None, context: str | None
) -> None:
    """Print deployments with their effective spec: their own values over those of the template, without templateRef.

    airunway template render fast -n ml

    airunway template render -f llama.yaml

    NAME stands for a deployment that says nothing but the template's name. What is printed runs without the template.
    Exits with 1 if a template cannot be used, or what it gives makes an invalid spec.
    """
    from airunway.tools.expanded import expanded
    from airunway.validation import validate

    if not name and not file:
        raise click.BadParameter("name a template, or a file of deployments with -f")
    if name:
        found, where = _read(file, namespace, Access(kubeconfig, context))
        deployments = expanded([_minimal(_named(name, where, found), where)], found.items)
    else:
        deployments = _of_files(file or [], namespace, Access(kubeconfig, context))
    documents, refused = [], False
    for each in deployments:
        problems = [f"{each.problem} ({each.reason})"] if each.problem else []
        problems += [str(violation) for violation in validate(each.deployment)]
        for problem in problems:
            click.echo(printable(f"airunway template render: {key_of(each.own)}: {problem}"), err=True)
        refused = refused or bool(problems)
        if not each.problem:
            documents.append(_manifest(each.deployment))
    click.echo(as_document(documents, output), nl=False)
    if refused:
        raise click.exceptions.Exit(1)


@template.command(short_help="Show which template is chosen for a model, and what speaks against the others.")
@argument("model", metavar="MODEL", shell_complete=completers.models, help="A model, as in spec.templateRef.modelName.")
@option("--metric", type=click.Choice(["latency", "throughput"]), help="As spec.templateRef.metric. Default: either.")
@option("--precision", help="As spec.templateRef.precision. Default: any.")
@namespace_option()
@_files_option
@output_option("table", "json", "yaml")
@cluster_options
def why(
    model: str,
    *,
    metric: str | None,
    precision: str,
    namespace: str,
    file: tuple[Path, ...],
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show every template of a model in the order in which they are chosen, and what speaks against each.

    airunway template why meta-llama/Llama-3.1-8B-Instruct --metric latency -n ml

    A deployment that runs keeps its template: the answer is for a new one. Exits with 3 if none would be chosen.
    """
    from airunway.cli.template_view import choice_text
    from airunway.templates.choice import choose, request_of
    from airunway.templates.contribution import contribution_of
    from airunway.view.templates import choice_resource

    request = request_of({"templateRef": {"modelName": model, **filled(metric=metric, precision=precision)}})
    assert request is not None, "a reference is given"
    found, where = _read(file, namespace, Access(kubeconfig, context))
    own = [each for each in found.items if key_of(each).namespace == where]
    shared = [each for each in found.items if not key_of(each).namespace]
    choice = choose(
        request,
        namespaced=own,
        cluster=shared,
        unusable=lambda template: contribution_of(template).unusable,
        every=True,
    )
    if output == "table":
        click.echo("\n".join(choice_text(request, choice, namespace=where, width=terminal_width())))
        _say_unseen(found.unseen, err=False)
    else:
        click.echo(as_document([choice_resource(request, choice, found.unseen)], output), nl=False)
    if choice.chosen is None:
        raise click.exceptions.Exit(NOT_CHOSEN)


# ---------------------------------------------------------------------------------------------------------------- input


def _read(
    files: Sequence[Path] | None,
    namespace: str,
    access: Access,
    *,
    everywhere: bool = False,
) -> tuple[Listed, str]:
    """The templates of files, or those of the namespace and the cluster, and the namespace. Exits with 1 on errors."""
    from airunway.cli.manifests import templates_in
    from airunway.snapshots.followed import read_templates
    from airunway.snapshots.reader import Listed

    if files:
        with inputs.reporting():
            return Listed(items=tuple(templates_in(files, namespace=namespace))), namespace or "default"

    async def read(client: Client) -> tuple[Listed, str]:
        where = namespace or client.config.namespace
        return await read_templates(client, namespace="" if everywhere else where), where

    return on_cluster(read, access)


def _named(given: str, namespace: str, found: Listed) -> Resource:
    """The template of a name: that of the namespace, else that of the cluster. Exits with 1 if there is none."""
    from airunway.templates.choice import CLUSTER_KIND, KIND

    words = {"mtpl": KIND, "modeltemplate": KIND, "cmtpl": CLUSTER_KIND, "clustermodeltemplate": CLUSTER_KIND}
    word, separator, rest = given.partition("/")
    kind = words.get(word.lower().removesuffix(".airunway.ai").removesuffix("s")) if separator else None
    if separator and (kind is None or not rest):
        raise click.BadParameter(f"{bounded(given, 80)!r} is not a template: write NAME, mtpl/NAME or cmtpl/NAME")
    name = rest if separator else given
    visible = [
        each
        for each in found.items
        if key_of(each).namespace in ("", namespace) and (kind is None or each["kind"] == kind)
    ]
    named = sorted((each for each in visible if key_of(each).name == name), key=lambda each: not key_of(each).namespace)
    _say_unseen(found.unseen, err=True)
    if not named:
        _no_such(given, name, namespace, found, visible)
    return named[0]


def _no_such(given: str, name: str, namespace: str, found: Listed, visible: Sequence[Resource]) -> NoReturn:
    """Exit with 1, and the nearest name."""
    import difflib

    near = difflib.get_close_matches(name, [key_of(each).name for each in visible], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`airunway template list` shows those that there are"
    where = f"for {given.partition('/')[0]}" if "/" in given else f"in namespace {namespace} or of the cluster"
    seen = " among those that you may read" if found.unseen else ""
    fail(f"there is no template {bounded(name, 80)!r} {where}{seen}: {hint}")


def _of_files(files: Sequence[Path], namespace: str, access: Access) -> list[Expanded]:
    """The deployments of files with what their templates give: of the same files, else of the cluster."""
    from airunway.cli.manifests import objects_in, templates_among

    with inputs.reporting():
        objects = [each for file in files for each in objects_in(file)]
        deployments = [each for each in objects if each.get("kind") == "ModelDeployment"]
        if not deployments:
            fail(f"{', '.join(map(str, files))}: contains no ModelDeployment")
        return inputs.with_templates(
            [in_namespace(each, namespace) for each in deployments],
            templates_among(objects, namespace=namespace),
            access=access,
            on_cluster=False,
        )


def _minimal(wanted: Resource, namespace: str) -> Resource:
    """A deployment that names the template and says nothing else."""
    from airunway.api import names

    name = key_of(wanted).name
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"templateRef": {"name": name}},
    }


def _manifest(deployment: Resource) -> Resource:
    """What a user would apply: without status, and without the metadata that the API server writes."""
    from airunway.api import names

    metadata = deployment["metadata"]
    annotations = {key: text for key, text in annotations_of(deployment).items() if key != LAST_APPLIED}
    kept = filled(
        name=metadata.get("name"),
        namespace=metadata.get("namespace"),
        labels=metadata.get("labels"),
        annotations=annotations,
    )
    return {"apiVersion": names.API_VERSION, "kind": "ModelDeployment", "metadata": kept, "spec": deployment["spec"]}


def _stored(obj: Resource) -> Resource:
    """The object without the fields of managers, with group and kind first."""
    from airunway.api import names

    metadata = {key: value for key, value in (dig(obj, "metadata") or {}).items() if key != "managedFields"}
    return {"apiVersion": names.API_VERSION, "kind": obj.get("kind"), **obj, "metadata": metadata}


def _resource_name(obj: Resource) -> str:
    return printable(f"{str(obj['kind']).lower()}.airunway.ai/{key_of(obj).name}")


def _say_unseen(unseen: Iterable[Unseen], *, err: bool) -> None:
    for each in unseen:
        click.echo(printable(f"Not seen: {each}" if not err else f"airunway: not seen: {each}"), err=err)
