"""What commands read beside a cluster: policies, and deployments of files with their templates."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airunway.cli import cluster
from airunway.cli.cluster import fail, remark
from airunway.resource import Resource, key_of
from airunway.tools.manifests import ManifestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airunway.tools.expanded import Expanded
    from airunway.validation.policy import Policy


@contextmanager
def reporting() -> Iterator[None]:
    """Turn errors of files, plugins and policies into one message and exit code 1, without a traceback."""
    from airunway.plugins.errors import PluginError
    from airunway.validation.policy import PolicyError

    try:
        yield
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except (ManifestError, PluginError, PolicyError, UnicodeDecodeError) as error:
        fail(str(error))


def with_templates(
    deployments: Sequence[Resource],
    given: Sequence[Resource],
    *,
    access: cluster.Access,
    on_cluster: bool,
) -> list[Expanded]:
    """Each deployment with what its template gives, found among those `given` and those of the cluster.

    With `on_cluster` the command reads a cluster anyway: templates of both are candidates, and those given replace
    those of the same name. Without it the cluster is read only for deployments whose template is not given. What may
    not be read is printed on standard error. Exits with 1 on other errors of the cluster.
    """
    from airunway.tools.expanded import SpecError, expanded, is_open

    asking = [each for each in deployments if is_open(each)]
    try:
        found = expanded(deployments, given)
    except SpecError as error:
        raise ManifestError(str(error)) from error
    if not asking:
        return found
    from airunway.snapshots.followed import read_for, with_given

    if not on_cluster:
        missing = next((each for each in found if each.reason == "TemplateNotFound"), None)
        if missing is None:
            return found
        text = f"{key_of(missing.own)}: its template is in none of the files: the cluster's templates are read"
        remark(f"airunway: {text}")
    read = cluster.on_cluster(lambda client: read_for(client, asking), access)
    for each in read.unseen:
        remark(f"airunway: {each}: they count as absent here")
    return expanded(deployments, with_given(read.items, given))


def policy_in(path: Path) -> Policy:
    """The policy of a file, as the controller reads it. Raises PolicyError and OSError."""
    from airunway.validation.policy import PolicyError, parse_policy

    try:
        return parse_policy(path.read_text(encoding="utf-8"))
    except PolicyError as error:
        raise PolicyError(f"{path}: {error}") from error
