"""``airunway validate`` runs the checks of admission without a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli import inputs
from airunway.cli.manifests import opened
from airunway.cli.options import namespace_option
from airunway.cli.parameters import PATH, Command, argument, option
from airunway.redaction import printable
from airunway.resource import Resource, dig, key_of, labels_of
from airunway.tools.manifests import ManifestError, read_manifests

if TYPE_CHECKING:
    from airunway.validation.policy import Policy


@click.command(cls=Command)
@argument(
    "files", nargs=-1, required=True, type=PATH, metavar="FILE...", help="Manifests to check; - reads standard input."
)
@option(
    "--policy",
    type=PATH,
    help="The policy file of the controller (its --policy). Labels of namespaces come from Namespaces in the "
    "manifests. Default: only what is refused everywhere.",
)
@namespace_option("Namespace of objects that name none.", default="default")
def validate(files: tuple[Path, ...], *, policy: Path | None, namespace: str) -> None:
    """Check manifests as admission would, without a cluster. Each problem is a line FILE: OBJECT: PATH: MESSAGE.

    A deployment with a model template is also checked with what that gives, if it is in one of the files. Warnings go
    to standard error, unknown options of the engine among them. Objects of other kinds are skipped.
    Exits with 1 if there is a problem, with 2 if a file cannot be read.
    """
    from airunway.cli.manifests import templates_among
    from airunway.validation.policy import NAMESPACE_NAME, Policy

    with inputs.reporting():
        rules = inputs.policy_in(policy) if policy is not None else Policy()
    checked = problems = unreadable = 0
    read: list[tuple[Path, Resource]] = []
    for path in files:
        try:
            with opened(path) as stream:
                read += [(path, obj) for obj in read_manifests(stream)]
        except (OSError, UnicodeDecodeError, ManifestError) as error:
            click.echo(printable(f"{path}: {error}"), err=True)
            unreadable += 1
    labels = {key_of(obj).name: labels_of(obj) for _, obj in read if dig(obj, "kind") == "Namespace"}
    templates = templates_among((obj for _, obj in read if _is_ours(obj)), namespace=namespace)
    for path, obj in read:
        where = str(dig(obj, "metadata", "namespace") or namespace)
        found = _report(str(path), obj, rules, {**labels.get(where, {}), NAMESPACE_NAME: where}, templates)
        checked += found is not None
        problems += found or 0
    if unreadable:
        raise click.exceptions.Exit(2)
    if problems:
        raise click.exceptions.Exit(1)
    click.echo(f"{checked} valid")


def _is_ours(obj: object) -> bool:
    from airunway.api.names import GROUP

    return isinstance(obj, dict) and str(dig(obj, "apiVersion", default="")).split("/")[0] == GROUP


def _report(
    path: str, obj: object, policy: Policy, namespace_labels: Mapping[str, str], templates: Sequence[Resource]
) -> int | None:
    """Print the problems of `obj`; returns their number, or None if it is not of our kinds."""
    from airunway.api.modeldeployment import KIND
    from airunway.configs.canonical import stored
    from airunway.selection.choice import forbidden_by
    from airunway.validation import validate as violations_of
    from airunway.validation import warnings
    from airunway.validation.policy import NAMESPACE_NAME, config_violations

    if not isinstance(obj, dict) or not _is_ours(obj):
        return None
    label = f"{obj.get('kind')}/{dig(obj, 'metadata', 'name') or dig(obj, 'metadata', 'generateName') or '(no name)'}"
    found, origin = violations_of(obj), ""
    if not found and obj.get("kind") == KIND:
        obj, origin, unknown = _with_template(obj, namespace_labels[NAMESPACE_NAME], templates)
        if unknown:
            click.echo(printable(f"{path}: {label}: warning: {unknown}"), err=True)
        found = violations_of(obj) if origin else []
    for problem in _stored_problems(obj) if not found else ():
        click.echo(printable(f"{path}: {label}: warning: {problem}"), err=True)
    for warning in (*warnings(obj), *(_unknown_options(obj) if obj.get("kind") == KIND and not found else ())):
        click.echo(printable(f"{path}: {label}: warning: {warning}"), err=True)
    if not found and obj.get("kind") == KIND:
        found = forbidden_by(policy, obj, namespace_labels=namespace_labels)
    if not found and obj.get("kind") == "RuntimeConfig":
        grants = policy.grants(namespace_labels)
        found = config_violations(grants, stored(obj), namespace=namespace_labels[NAMESPACE_NAME])
    for violation in found:
        click.echo(printable(f"{path}: {label}: {violation}{origin}"))
    return len(found)


def _with_template(obj: Resource, namespace: str, templates: Sequence[Resource]) -> tuple[Resource, str, str]:
    """The deployment with what its template gives, where that is from, and why it is not known; both may be empty."""
    from airunway.tools.expanded import SpecError, expanded

    placed = {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
    try:
        (found,) = expanded([placed], templates)
    except SpecError as error:
        return obj, "", f"{error}: what its template gives is not checked"
    if found.problem:
        return obj, "", f"{found.problem}: what it gives is not checked"
    return (found.deployment, f" (with {found.origin})", "") if found.origin else (obj, "", "")


def _stored_problems(obj: Resource) -> Iterator[str]:
    """Warnings for what a runtime config or a template may have and cannot be used; the API server stores it all the
    same.
    """
    from airunway.templates.choice import CLUSTER_KIND, KIND

    if obj.get("kind") in (KIND, CLUSTER_KIND):
        from airunway.templates.contribution import contribution_of

        contribution = contribution_of(obj)
        yield from (f"{problem.field}: {problem.message}" for problem in contribution.problems)
        if contribution.unusable:
            yield f"no deployment can use it: {contribution.unusable}"
    if obj.get("kind") in ("RuntimeConfig", "ClusterRuntimeConfig"):
        from airunway.configs.resolution import check

        for problem in check(obj):
            yield f"{problem.field}: {problem.message}"


def _unknown_options(obj: Resource) -> Iterator[str]:
    """Warnings for unknown arguments of the engine. They are no errors, because an image may have another version."""
    from airunway.api.modeldeployment import parse_deployment
    from airunway.engines.options import unknown_options

    for remark in unknown_options(parse_deployment(obj)):
        yield f"{remark.path}: {remark.message}"
