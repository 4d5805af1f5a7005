"""Writing the skeleton: names, then all files or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path
from string import Template

import yaml

from airunway import __version__
from airunway.plugins.host import with_autoscaler
from airunway.resource import Resource, annotations_of, key_of
from airunway.runtime.crd_versions import comparable
from airunway.upgrades.definitions import Definition, chosen, definition_of
from airunway_testing.conformance.chart import provider_files
from airunway_testing.scaffold.shape import shape_of
from airunway_testing.scaffold.texts import manifest_of, texts_of

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST = 30
"""Letters of a name: what is built of it (plural, label, Service) stays within 63."""

_SUFFIX = ".template"
_TEMPLATES = "airunway_testing.scaffold"


class ScaffoldError(Exception):
    """There can be no skeleton; one sentence says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """What is filled in: `module` for Python, `title` for people, the rest for Kubernetes.

    `since` and `below` bound the releases of AI Runway that the skeleton is for.
    """

    name: str
    module: str
    kind: str
    singular: str
    plural: str
    group: str
    version: str
    title: str
    since: str
    below: str


def names_of(name: str, definition: Definition | None = None, *, version: str = "") -> Names:
    """The names that follow from a provider's, and from the kind that it writes (default: one that is invented).

    Raises ScaffoldError for a name that no provider can have, DefinitionError for a version that is not served.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ScaffoldError(
            f"{name!r} cannot be the name of a provider: write small letters and digits, beginning with a letter, with "
            f"single '-' between words, at most {_LONGEST} characters in all"
        )
    module = f"airunway_{name.replace('-', '_')}"
    if find_spec(module) is not None:
        raise ScaffoldError(f"{module} is installed here already: choose another name, or uninstall it first")
    words = [word.capitalize() for word in name.split("-")]
    kind = definition.kind if definition else f"{''.join(words)}Server"
    major, minor = __version__.split(".")[:2]
    return Names(
        name=name,
        module=module,
        kind=kind,
        singular=kind.lower(),
        plural=definition.plural if definition else f"{kind.lower()}s",
        group=definition.group if definition else f"{name}.example.com",
        version=definition.version(version).name if definition else "v1",
        title=" ".join(words),
        since=f"{major}.{minor}",
        below=f"{major}.{int(minor) + 1}",
    )


def write_skeleton(name: str, folder: Path, *, crd: Resource | None = None, version: str = "") -> list[Path]:
    """Write the skeleton of provider `name` into `folder`; returns the files.

    It is one for the kind of the `crd`, in its `version` (default: the stored one), or for an invented one. The folder
    is made; one that has something in it is left alone. Raises ScaffoldError, DefinitionError, OSError.
    """
    found = chosen([definition_of(crd)]) if crd else None
    names = names_of(name, found, version=version)
    if folder.exists() and not folder.is_dir():
        raise ScaffoldError(f"{folder} is a file: name a folder with --directory")
    if folder.is_dir() and any(folder.iterdir()):
        raise ScaffoldError(f"{folder} is not empty: name another folder with --directory, or empty this one")
    crd = _without_descriptions(_of_one_version(crd, names.version)) if crd else _invented(names)
    texts = {folder / path: text for path, text in _files(names, crd)}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def _invented(names: Names) -> Resource:
    """The CRD of an operator that does not exist: replicas and a pod template."""
    text = (resources.files(_TEMPLATES) / "invented.yaml").read_text(encoding="utf-8")
    found: Resource = yaml.safe_load(Template(text).substitute(asdict(names)))
    return found


def _of_one_version(crd: Resource, version: str) -> Resource:
    """The CRD with one version, the one that is written: no webhook has to convert, and it is not heavy."""
    spec = {key: value for key, value in crd["spec"].items() if key != "conversion"}
    (kept,) = [each for each in spec["versions"] if each["name"] == version]
    # The API server asks for the approval where the group is one of Kubernetes' own.
    approved = {key: text for key, text in annotations_of(crd).items() if key.startswith("api-approved.")}
    metadata = {"name": key_of(crd).name, **({"annotations": approved} if approved else {})}
    spec["versions"] = [{**kept, "served": True, "storage": True}]
    return {"apiVersion": crd["apiVersion"], "kind": crd["kind"], "metadata": metadata, "spec": spec}


def _without_descriptions(crd: Resource) -> Resource:
    """What a schema's hash leaves out too."""
    versions = [
        {**version, "schema": {"openAPIV3Schema": comparable(version["schema"]["openAPIV3Schema"])}}
        for version in crd["spec"]["versions"]
    ]
    return {**crd, "spec": {**crd["spec"], "versions": versions}}


def _files(names: Names, crd: Resource) -> Iterator[tuple[str, str]]:
    """Relative path and text of every file."""
    definition = definition_of(crd)
    shape = shape_of(definition)
    values = {**asdict(names), **texts_of(shape, definition.version())}
    for path, file in _templates(resources.files(_TEMPLATES) / "template"):
        # A path says MODULE and NAME: a file name with `$` in it would be a nuisance.
        where = path.removesuffix(_SUFFIX).replace("MODULE", names.module).replace("NAME", names.name)
        yield where, Template(file.read_text(encoding="utf-8")).substitute(values)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # some upstreams' CRDs have megabytes
    text = yaml.dump(crd, Dumper=dumper, sort_keys=False, width=2**16)
    yield f"simulator/src/{names.module}_simulator/crds/{names.name}.yaml", text
    manifest = manifest_of(shape, name=names.name, group=names.group, kind=names.kind, plural=names.plural)
    for path, text in provider_files(with_autoscaler(manifest)).items():
        yield f"chart/{path}", text


def _templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _templates(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield f"{prefix}{entry.name}", entry
