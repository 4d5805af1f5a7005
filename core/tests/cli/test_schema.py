"""``airunway provider schema``: what a manifest needs of a CRD file, or one sentence."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from airunway.cli.main import app
from airunway.resource import Resource, copy_of
from airunway.runtime.crd_versions import crd_facts
from airunway.upgrades.definitions import DefinitionError, chosen, definition_of

runner = CliRunner()


def kept(rule: str) -> Resource:
    return {"x-kubernetes-validations": [{"rule": rule}]}


SPEC: Resource = {
    "type": "object",
    "description": "What is asked for.",
    "properties": {
        "backend": {"type": "string", **kept("self == oldSelf")},
        "storage": {"type": "object", "properties": {"size": {"type": "string"}}, **kept("oldSelf == self")},
        "ports": {"type": "array", "items": {"type": "string", **kept("self == oldSelf")}},
        "mode": {"type": "string", **kept("oldSelf == '' || self == oldSelf")},
    },
    **kept("self.name == oldSelf.name && (self.storage.kind == oldSelf.storage.kind)"),
}
CRD: Resource = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "servers.acme.io"},
    "spec": {
        "group": "acme.io",
        "scope": "Namespaced",
        "names": {"kind": "Server", "plural": "servers"},
        "versions": [
            {"name": "v1alpha1", "served": True, "storage": False, "schema": {"openAPIV3Schema": {"type": "object"}}},
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}},
            },
        ],
    },
}


def changed(**spec: Any) -> Resource:
    crd = copy_of(CRD)
    crd["spec"].update(spec)
    return crd


def written(tmp_path: Path, *crds: Mapping[str, Any]) -> Path:
    path = tmp_path / "crd.yaml"
    path.write_text(yaml.safe_dump_all(crds))
    return path


def test_it_prints_group_versions_and_hashes(tmp_path: Path) -> None:
    done = runner.invoke(app, ["provider", "schema", str(written(tmp_path, CRD))])
    assert done.exit_code == 0, done.output
    old, new = (found[:12] for _, found in crd_facts(CRD).served)
    assert done.stdout.splitlines() == [
        "kind Server, plural servers, group acme.io",
        "VERSION   SCHEMA HASH   SERVED  STORED  IMMUTABLE",
        f"v1alpha1  {old}  yes     no      -",
        f"v1        {new}  yes     yes     spec.backend, spec.name, spec.storage.*, spec.storage.kind",
    ]


def test_it_prints_the_same_as_json(tmp_path: Path) -> None:
    done = runner.invoke(app, ["provider", "schema", str(written(tmp_path, CRD)), "-o", "json"])
    document = json.loads(done.stdout)
    assert (document["group"], document["kind"], document["plural"]) == ("acme.io", "Server", "servers")
    assert [version["schemaHash"] for version in document["versions"]] == [h[:12] for _, h in crd_facts(CRD).served]


def test_of_several_kinds_one_can_be_named(tmp_path: Path) -> None:
    other = changed(names={"kind": "Pool", "plural": "pools"})
    path = str(written(tmp_path, CRD, other))
    assert "kind Pool" in runner.invoke(app, ["provider", "schema", path]).stdout
    one = runner.invoke(app, ["provider", "schema", path, "--kind", "server"])
    assert "kind Server" in one.stdout
    assert "kind Pool" not in one.stdout
    none = runner.invoke(app, ["provider", "schema", path, "--kind", "Model"])
    assert none.exit_code == 1
    assert none.stderr == (
        f"airunway: {path}: there is no CustomResourceDefinition of the kind Model; found: Server, Pool\n"
    )


BOTH_STORED = [{**version, "storage": True} for version in CRD["spec"]["versions"]]
LARGE = [{**CRD["spec"]["versions"][1], "schema": {"openAPIV3Schema": {"description": "d" * 5_000_000}}}]
PASSED_OVER = {"kind": "Deployment", "metadata": {"name": "model"}}


@pytest.mark.parametrize(
    ("crd", "said"),
    [
        (PASSED_OVER, "contains no CustomResourceDefinition"),
        ({**CRD, "apiVersion": "apiextensions.k8s.io/v1beta1"}, "only apiextensions.k8s.io/v1 is served"),
        (changed(versions="v1"), "spec.versions is no list of versions"),
        (changed(group=None), "spec.group is None, but must be a name"),
        (changed(names=[]), "spec.names.kind is None, but must be a name"),
        (changed(scope="Galaxy"), "spec.scope is 'Galaxy', but must be Namespaced or Cluster"),
        (changed(versions=BOTH_STORED), "exactly one version must have storage: true, found v1alpha1 and v1"),
        (changed(scope="Cluster"), "servers.acme.io is cluster-scoped: providers can write only namespaced kinds"),
        (changed(versions=LARGE), "has 4.8 MiB as JSON, and an API server takes 3 MiB: remove the descriptions"),
    ],
    ids=["none", "v1beta1", "no versions", "no group", "no names", "no scope", "two stored", "cluster", "5 MB"],
)
def test_what_no_provider_can_write_is_one_sentence(tmp_path: Path, crd: Resource, said: str) -> None:
    path = written(tmp_path, crd)
    done = runner.invoke(app, ["provider", "schema", str(path)])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"airunway: {path}: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "{a: " * 20_000, "- " * 20_000 + "a", "a: b: c", "\x00", "just text", "[1, 2]"]
)
def test_what_is_no_document_is_one_sentence(tmp_path: Path, text: str) -> None:
    """Deep ones end the process of a parser in C: they are counted first."""
    path = tmp_path / "crd.yaml"
    path.write_text(text)
    done = runner.invoke(app, ["provider", "schema", str(path)])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"airunway: {path}: ")
    assert done.stderr.count("\n") <= 2  # what a parser says of a byte has two lines
    assert "Traceback" not in done.output


def test_a_kind_that_cannot_be_written_is_named_beside_the_others(tmp_path: Path) -> None:
    runtime = changed(scope="Cluster", names={"kind": "Runtime", "plural": "runtimes"})
    done = runner.invoke(app, ["provider", "schema", str(written(tmp_path, runtime, CRD))])
    assert done.exit_code == 0
    assert "kind Server" in done.stdout
    assert "runtimes.acme.io is cluster-scoped" in done.stderr


def test_a_version_is_asked_for_by_name() -> None:
    definition = chosen([definition_of(CRD)])
    assert definition.version().name == "v1" == definition.storage.name
    assert definition.version("v1alpha1").schema == {"type": "object"}
    with pytest.raises(DefinitionError, match="does not serve the version v2: it serves v1alpha1, v1"):
        definition.version("v2")
    with pytest.raises(
        DefinitionError, match=r"several CustomResourceDefinitions found \(servers.acme.io, servers.acme.io\)"
    ):
        chosen([definition, definition])


def test_recorded_crds_have_the_hashes_of_the_index(recordings: Path) -> None:
    """A CRD with 2.7 MB of text has 0.9 MB as JSON."""
    path = recordings / "upstream-crds/kserve/v0.20.0/llminferenceservices.yaml"
    done = runner.invoke(app, ["provider", "schema", str(path), "-o", "json"])
    assert {v["name"]: v["schemaHash"] for v in json.loads(done.stdout)["versions"]} == {
        "v1alpha1": "3f40df5c9b7a",
        "v1alpha2": "3f04f10a103a",
    }
