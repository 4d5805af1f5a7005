"""``airunway provider new``: all files or none, with names that fit wherever they are used."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from airunway.cli.main import app
from airunway.plugins.registry import host_of
from airunway.resource import Resource, copy_of
from airunway.upgrades.definitions import definition_of
from airunway_testing.conformance.fields import Answer, outcomes
from airunway_testing.scaffold import ScaffoldError, write_skeleton
from airunway_testing.scaffold.shape import shape_of
from airunway_testing.scaffold.skeleton import names_of

ROOT = Path(__file__).parents[3]
MOST_LINES = 150
"""Lines of a provider for a simple upstream (docs/providers/contract.md)."""


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["provider", "new", *arguments])
    return done.exit_code, done.output


def test_it_goes_where_it_is_told_to_and_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = run("acme", "--directory", "there/acme")
    assert code == 0
    assert "there/acme/README.md" in said
    assert run("acme")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["airunway-acme", "there"]
    assert (tmp_path / "airunway-acme" / "src" / "airunway_acme" / "provider.py").is_file()


@pytest.mark.parametrize("name", ["Acme", "9lives", "my_provider", "a b", "-x", "x-", "a--b", "a" * 31, "../up", ""])
def test_a_name_that_is_none_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = run("--directory", "there", "--", name)
    assert code == 1
    assert said.count("\n") == 1
    assert f"{name!r} cannot be the name of a provider: write small letters" in said
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_taken_here_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ScaffoldError, match="airunway_testing is installed here already: choose another name"):
        write_skeleton("testing", tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_empty_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    code, said = run("acme", "--directory", str(tmp_path))
    assert (code, said.count("\n")) == (1, 1)
    assert f"{tmp_path} is not empty" in said
    code, said = run("acme", "--directory", str(tmp_path / "mine.txt"))
    assert (code, said.count("\n")) == (1, 1)
    assert "is a file" in said
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("mine.txt", "mine")]


WHATEVER: Resource = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TEXT: Resource = {"type": "string", "minLength": 1}
LABELS: Resource = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT: Resource = {"type": "integer", "minimum": 0}
LIST: Resource = {"type": "array", "items": WHATEVER}


def of(required: list[str] | None = None, **properties: Resource) -> Resource:
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


PODS = of(["containers"], containers=LIST, schedulerName=TEXT)
READY = of(conditions=LIST, observedGeneration=COUNT)
SHAPES: dict[str, tuple[Resource, Resource]] = {
    "a pod template": (of(replicas=COUNT, template=of(spec=PODS)), READY),
    "a pod template that has to be there twice": (
        of(["group"], replicas=COUNT, group=of(["a", "b"], a=of(spec=PODS), b=of(spec=PODS), c=of(spec=PODS))),
        READY,
    ),
    "bare pods, labels beside them": (
        of(replicas=COUNT, template=PODS, worker=PODS, labels=LABELS, annotations=LABELS),
        of(conditions=LIST, url=TEXT),
    ),
    "bare pods with their number in them": (
        of(["predictor"], predictor=of(containers=LIST, minReplicas=COUNT, maxReplicas=COUNT, labels=LABELS)),
        of(conditions=LIST),
    ),
    "bare pods without labels": (of(server=PODS), READY),
    "fields": (
        of(
            ["image", "authSecret"],
            image=of(["repository", "tag"], repository=TEXT, tag=TEXT),
            authSecret=TEXT,
            replicas=COUNT,
            args={"type": "array", "items": {"type": "string"}},
            env=LIST,
            resources=WHATEVER,
            nodeSelector=LABELS,
            tolerations=LIST,
        ),
        of(state=TEXT, availableReplicas=COUNT),
    ),
    "fields without resources": (
        of(
            ["model", "image"],
            model=TEXT,
            image=TEXT,
            replicas=COUNT,
            args={"type": "array", "items": {"type": "string"}},
            env=LIST,
        ),
        READY,
    ),
    "nothing of a server": (of(["size"], size={"type": "integer", "minimum": 2}), of(phase=TEXT)),
}
"""What a spec takes, and what a status says, by what is to be known of it."""


def crd(shape: str = "a pod template", *, scope: str = "Namespaced", **second: object) -> Resource:
    spec, status = SHAPES[shape]
    schema = {**of(["spec"], spec=spec, status=status), "description": "Told at length."}
    version = {"served": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}
    versions = [{**version, "name": "v1", "storage": True}, {**version, "name": "v1beta1", "storage": False, **second}]
    names = {"kind": "LargeModelInferenceService", "plural": "largemodelinferenceservices"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.serving.example.io", "uid": "1"},
        "spec": {
            "group": "serving.example.io",
            "names": {**names, "listKind": f"{names['kind']}List", "singular": "largemodelinferenceservice"},
            "scope": scope,
            "conversion": {"strategy": "Webhook"},
            "versions": versions,
        },
        "status": {"storedVersions": ["v1"]},
    }


def kept(tmp_path: Path, *crds: Resource) -> str:
    """A file of them."""
    file = tmp_path / "crds.yaml"
    file.write_text(yaml.safe_dump_all(crds, sort_keys=False))
    return str(file)


def test_every_place_that_can_carry_pods_and_is_not_written_is_unused() -> None:
    """The guard of the provider's account refuses what stands there: lists, maps, deep places and single containers."""
    container = of(image=TEXT, args={"type": "array", "items": TEXT})
    spec = of(
        replicas=COUNT,
        template=of(spec=PODS),
        groups={"type": "array", "items": of(size=COUNT, template=of(spec=PODS))},
        services={"type": "object", "additionalProperties": of(pod=PODS)},
        a=of(b=of(c=of(d=of(spec=PODS)))),
        sidecar=container,
        helpers={"type": "array", "items": container},
        router=of(gateway=of(container=container, host=TEXT)),
        size=COUNT,
    )
    crd_ = copy_of(crd())
    crd_["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = spec
    assert sorted(".".join(path) for path in shape_of(definition_of(crd_)).unused) == [
        "spec.a.b.c.d",
        "spec.groups",
        "spec.helpers",
        "spec.router.gateway.container",
        "spec.services",
        "spec.sidecar",
    ]


@pytest.mark.parametrize(
    ("shape", "hardened"), [("a pod template", True), ("bare pods without labels", True), ("fields", False)]
)
def test_the_pods_of_a_skeleton_are_hardened(tmp_path: Path, shape: str, hardened: bool) -> None:
    write_skeleton("acme", tmp_path, crd=crd(shape))
    text = (tmp_path / "src" / "airunway_acme" / "provider.py").read_text()
    assert ("features=frozenset({HARDENED})" in text) is hardened
    assert ("HARDENED,\n" in text) is hardened


def test_a_crd_says_what_the_skeleton_is_of(tmp_path: Path) -> None:
    other = copy_of(crd())
    other["spec"]["names"] |= {"kind": "Other", "plural": "others"}
    other["metadata"]["name"] = "others.serving.example.io"
    wanted = ("--kind", "largemodelinferenceservice", "--version", "v1beta1", "--directory", str(tmp_path / "it"))
    code, said = run("acme", "--crd", kept(tmp_path, other, crd()), *wanted)
    assert (code, said.splitlines()[-1].startswith("Wrote ")) == (0, True), said
    provider = (tmp_path / "it" / "src" / "airunway_acme" / "provider.py").read_text()
    assert 'GROUP, KIND, PORT = "serving.example.io", "LargeModelInferenceService", 8000' in provider
    assert 'versions=("v1beta1",)' in provider
    (played,) = (tmp_path / "it" / "simulator").rglob("crds/*.yaml")
    found = yaml.safe_load(played.read_text())
    assert [(each["name"], each["storage"]) for each in found["spec"]["versions"]] == [("v1beta1", True)]
    assert "conversion" not in found["spec"]
    assert "Told at length" not in played.read_text()
    hashes = {digest_of.schema_hash for digest_of in definition_of(crd()).versions}
    assert [word for word in hashes if f'schema_hashes=("{word}",)' in provider], "descriptions change no hash"


@pytest.mark.parametrize(
    ("crds", "options", "says"),
    [
        ([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}], [], "no CustomResourceDefinition"),
        ([crd(storage=True)], [], "exactly one version must have storage: true, found v1 and v1beta1"),
        ([crd(scope="Cluster")], [], "is cluster-scoped: providers can write only namespaced kinds"),
        ([crd(description="x" * 5 * 2**20)], [], "remove the descriptions"),
        ([crd()], ["--version", "v2"], "does not serve the version v2: it serves v1, v1beta1"),
        ([crd()], ["--kind", "Other"], "no CustomResourceDefinition of the kind Other"),
    ],
    ids=["no CRD", "two stored versions", "cluster-scoped", "5 MB", "no such version", "no such kind"],
)
def test_a_crd_that_none_can_be_written_for_is_one_sentence(
    tmp_path: Path, crds: list[Resource], options: list[str], says: str
) -> None:
    code, said = run("acme", "--crd", kept(tmp_path, *crds), "--directory", str(tmp_path / "it"), *options)
    assert (code, said.count("\n")) == (1, 1), said
    assert says in said
    assert not (tmp_path / "it").exists()


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    code, said = run("acme", "--crd", str(tmp_path / "none.yaml"), "--directory", str(tmp_path / "it"))
    assert (code, said.count("\n")) == (1, 1)
    assert not (tmp_path / "it").exists()


def test_a_kind_is_chosen_from_a_crd(tmp_path: Path) -> None:
    code, said = run("acme", "--kind", "Server", "--directory", str(tmp_path / "it"))
    assert code == 2
    assert "name its file with --crd" in said


def test_no_module_shadows_another(tmp_path: Path) -> None:
    """Author-review, finding 6: `from airunway_acme import provider` is the module."""
    write_skeleton("acme", tmp_path)
    for package in tmp_path.rglob("__init__.py"):
        modules = {path.stem for path in package.parent.iterdir()} - {"__init__"}
        assert not modules & set(_names_in(package))
    assert 'acme = "airunway_acme.provider:provider"' in (tmp_path / "pyproject.toml").read_text()


def _names_in(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom | ast.Import):
            yield from (each.asname or each.name for each in node.names)


@pytest.mark.parametrize(
    ("name", "shape"),
    [*((name, "") for name in ("acme", "x", "four-words-of-a-name", "a" * 30)), *(("a" * 30, s) for s in SHAPES)],
)
def test_what_is_written_is_whole(tmp_path: Path, name: str, shape: str) -> None:
    write_skeleton(name, tmp_path / "it", crd=crd(shape) if shape else None)
    written = {
        str(path.relative_to(tmp_path / "it")): path.read_text()
        for path in (tmp_path / "it").rglob("*")
        if path.is_file()
    }
    for path, text in written.items():
        assert not re.search(r"\$\{|\$\$", text), path
        assert not re.search(r"MODULE|NAME|template$", path)
        if path.endswith(".py"):
            ast.parse(text)
        elif path.endswith(".toml"):
            tomllib.loads(text)
        elif path.endswith(".yaml") and not path.startswith("chart/templates/"):
            list(yaml.safe_load_all(text))
    names = names_of(name)
    assert {f"src/{names.module}/provider.py", "simulator/pyproject.toml", "chart/Chart.yaml", "README.md"} <= set(
        written
    )
    (provider,) = [text for path, text in written.items() if path.endswith("/provider.py")]
    assert len(provider.splitlines()) <= MOST_LINES
    assert len(names.plural) <= 63


def test_what_is_written_is_clean(tmp_path: Path) -> None:
    """By the linters of this repository; imports in the order of a project in which ours are foreign. One run of each
    linter for the skeletons of all shapes, which takes an eighth of the time of a run for each.
    """
    named = {f"acme-{number}": shape for number, shape in enumerate(["", *SHAPES])}
    for name, shape in named.items():
        write_skeleton(name, tmp_path / name, crd=crd(shape) if shape else None)

    def clean(*command: str | Path, cwd: Path = tmp_path, **env: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=cwd, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout

    for check in (["check"], ["format", "--check"]):
        clean("ruff", *check, "--no-cache", "--config", ROOT / "pyproject.toml")
    types = ("mypy", "--strict", "--cache-dir", ROOT / ".mypy_cache" / "skeleton")
    clean(*types, *(f"{name}/{folder}" for name in named for folder in ("src", "simulator/src")))
    for name in ("acme-0", "acme-1"):  # their modules have one name in all skeletons
        clean(*types, "tests", cwd=tmp_path / name, MYPYPATH=f"{tmp_path / name}/src")


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "nothing of a server"])
def test_it_loses_no_field_without_a_word(tmp_path: Path, shape: str) -> None:
    write_skeleton("acme", tmp_path, crd=crd(shape))
    file = tmp_path / "src/airunway_acme/provider.py"
    spec = importlib.util.spec_from_file_location("skeleton_of_acme", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, spec.name, module)  # dataclasses look there
        spec.loader.exec_module(module)
        host = host_of("acme", module.provider, origin=shape)
        assert [found for found in outcomes(host) if found.answer is Answer.IGNORED] == []


def test_what_only_the_author_knows_is_marked(tmp_path: Path) -> None:
    write_skeleton("acme", tmp_path, crd=crd("fields without resources"))
    lines = (tmp_path / "src/airunway_acme/provider.py").read_text().splitlines()
    (marked,) = [line.strip() for line in lines if "the CRD requires it" in line]
    assert marked == '"model": "x",  # the CRD requires it: write what belongs here'


def test_it_imports_the_sdk_and_nothing_else_of_ours(tmp_path: Path) -> None:
    """A simulator knows objects and the API server alone (docs/providers/simulators.md)."""
    write_skeleton("acme", tmp_path)
    for folder, allowed in (
        ("src", r"airunway\.sdk(\.|$)|airunway_acme\."),
        ("simulator", r"airunway\.(kube|resource)$|airunway_testing\.simulators(\.|$)|airunway_acme_simulator\."),
    ):
        for path in (tmp_path / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airunway"):
                    assert re.match(allowed, node.module or ""), f"{path}: {node.module}"
