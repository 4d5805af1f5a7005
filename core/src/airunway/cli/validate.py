"""``airunway validate``: what the API server would refuse, without an API server."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer
import yaml

from airunway.gc_tuning import gc_paused
from airunway.redaction import printable
from airunway.resource import Resource, dig, key_of, labels_of

if TYPE_CHECKING:
    from airunway.validation.policy import Policy

__all__ = ["ManifestError", "read_manifests", "validate"]


class ManifestError(ValueError):
    """A file is not what Kubernetes takes as a manifest; the message says where."""


_FREE_EXPANSION = 2**20
"""Characters by which aliases may make any document larger."""


_DEPTH = 250
"""Levels of lists and maps in each other. Schemas of upstreams have fewer than 100; the parser ends the process at
some ten thousand."""

# libyaml, as far as PyYAML was built with it: the CRDs of some upstreams have megabytes.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """YAML as kubectl reads it: what looks like a date is text, 2.0 is 2, and no key may be there twice."""

    def construct_yaml_float(self, node: Any) -> float:
        value: float = super().construct_yaml_float(node)
        return int(value) if value.is_integer() else value

    def construct_document(self, node: Any) -> Any:
        once, expanded = _sizes(node)
        if expanded > 10 * once + _FREE_EXPANSION:
            text = "its aliases (*name) make it more than ten times as large: write it out, or use fewer"
            raise yaml.constructor.ConstructorError(None, None, text, node.start_mark)
        return super().construct_document(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [str(key.value) for key, _ in node.value if key.tag != "tag:yaml.org,2002:merge"]
        if len(set(keys)) < len(keys):
            twice = next(key for index, key in enumerate(keys) if key in keys[:index])
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _sizes(root: Any) -> tuple[int, int]:
    """The size of a document (characters, and some for each node) as it is written, and with its aliases expanded.

    Every node is looked at once, whatever points to it: the expanded size of eight lists of nine is nine to the eighth.
    """
    known: dict[int, int] = {}

    def size(node: Any) -> int:
        if id(node) not in known:
            known[id(node)] = 0  # of a node inside itself nothing can be made: that is told when it is tried
            value = node.value
            parts = (part for entry in value for part in (entry if isinstance(entry, tuple) else (entry,)))
            below = len(value) if isinstance(value, str) else sum(size(part) for part in parts)
            own[id(node)] = 8 + (len(value) if isinstance(value, str) else 0)
            known[id(node)] = 8 + below
        return known[id(node)]

    own: dict[int, int] = {}
    expanded = size(root)
    return sum(own.values()), expanded


def read_manifests(stream: TextIO) -> Iterator[Resource]:
    """The objects of a YAML or JSON stream, those inside a List one by one. Raises ManifestError."""
    try:
        text = stream.read()
        with gc_paused():
            _refuse_depth(text)
            documents = list(yaml.load_all(text, Loader=_Loader))
        for document in documents:
            if document is None:
                continue
            obj = json.loads(json.dumps(document))  # keys become text, as in Kubernetes
            if not isinstance(obj, dict):
                raise ManifestError("a document is not an object")
            items = obj.get("items") if obj.get("kind") == "List" else None
            for item in items if isinstance(items, list) else [obj]:
                if not isinstance(item, dict):
                    raise ManifestError("an item of a List is not an object")
                yield item
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ManifestError(f"{where}{getattr(error, 'problem', None) or error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise ManifestError(f"not a manifest: {error}") from error


def _refuse_depth(text: str) -> None:
    """Raises ManifestError for a document that is deeper than anybody writes one, YAMLError for what is none."""
    depth = 0
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _DEPTH:
                where = f"line {event.start_mark.line + 1}: " if event.start_mark else ""
                raise ManifestError(f"{where}more than {_DEPTH} lists and maps in each other")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Manifests to check; - reads standard input.")],
    *,
    policy: Annotated[
        Path | None,
        typer.Option(
            help="The policy file of the controller (its --policy). Labels of namespaces come from Namespaces in the "
            "manifests. Default: what is refused everywhere."
        ),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", help="Namespace of objects that name none.")
    ] = "default",
) -> None:
    """Check manifests as admission would, without a cluster. Each problem is a line FILE: OBJECT: PATH: MESSAGE.

    Warnings go to standard error: options that no parser of the engine knows are among them. Objects of other kinds are
    passed over. Ends with 1 if there is a problem, with 2 if a file cannot be read.
    """
    from airunway.cli import inputs
    from airunway.validation.policy import NAMESPACE_NAME, Policy

    with inputs.reporting():
        rules = inputs.policy_in(policy) if policy is not None else Policy()
    checked = problems = unreadable = 0
    read: list[tuple[Path, Resource]] = []
    for path in files:
        try:
            with _opened(path) as stream:
                read += [(path, obj) for obj in read_manifests(stream)]
        except (OSError, UnicodeDecodeError, ManifestError) as error:
            typer.echo(printable(f"{path}: {error}"), err=True)
            unreadable += 1
    labels = {key_of(obj).name: labels_of(obj) for _, obj in read if dig(obj, "kind") == "Namespace"}
    for path, obj in read:
        where = str(dig(obj, "metadata", "namespace") or namespace)
        found = _report(str(path), obj, rules, {**labels.get(where, {}), NAMESPACE_NAME: where})
        checked += found is not None
        problems += found or 0
    if unreadable:
        raise typer.Exit(2)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{checked} valid")


def _opened(path: Path) -> TextIO:
    return sys.stdin if str(path) == "-" else path.open(encoding="utf-8")


def _report(path: str, obj: object, policy: Policy, namespace_labels: Mapping[str, str]) -> int | None:
    """Print what is wrong with `obj`; the number of problems, or None if it is not of our kinds."""
    from airunway.api.modeldeployment import KIND
    from airunway.api.names import GROUP
    from airunway.selection import forbidden_by
    from airunway.validation import validate as violations_of
    from airunway.validation import warnings

    api_version = dig(obj, "apiVersion", default="")
    if not isinstance(obj, dict) or str(api_version).split("/")[0] != GROUP:
        return None
    label = f"{obj.get('kind')}/{dig(obj, 'metadata', 'name') or dig(obj, 'metadata', 'generateName') or '(no name)'}"
    found = violations_of(obj)
    for warning in (*warnings(obj), *(_unknown_options(obj) if obj.get("kind") == KIND and not found else ())):
        typer.echo(printable(f"{path}: {label}: warning: {warning}"), err=True)
    if not found and obj.get("kind") == KIND:
        found = forbidden_by(policy, obj, namespace_labels=namespace_labels)
    for violation in found:
        typer.echo(printable(f"{path}: {label}: {violation}"))
    return len(found)


def _unknown_options(obj: Resource) -> Iterator[str]:
    """Arguments of the engine that its parser does not know: no reason to refuse, as an image may hold another one."""
    from airunway.api.modeldeployment import parse_deployment
    from airunway.engines import unknown_options

    for remark in unknown_options(parse_deployment(obj)):
        yield f"{remark.path}: {remark.message}"
