"""`airunway preflight` of files, without a cluster: KAITO's recorded CRDs, and what is no CRD."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.console import ran_now

from airunway.api import names
from airunway.resource import Resource

pytestmark = pytest.mark.slow

CRD = "workspaces.kaito.sh"
ROOT = Path(__file__).resolve().parents[2]
MANIFEST: Resource = {
    "apiVersion": names.API_VERSION,
    "kind": "ModelDeployment",
    "metadata": {"name": "token"},
    "spec": {
        "model": {"id": "microsoft/phi-4"},
        "resources": {"gpu": {"count": 1}},
        "secrets": {"huggingFaceToken": "hf"},
        "provider": {"name": "kaito"},
    },
}


def test_deployments_of_a_file_need_no_cluster(recordings: Path, tmp_path: Path) -> None:
    path = tmp_path / "token.yaml"
    path.write_text(yaml.safe_dump_all([MANIFEST, {**MANIFEST, "metadata": {"name": "other"}}]))
    new = recordings / "upstream-crds/kaito/v0.12.0/workspaces.yaml"
    done = ran_now("preflight", "--upstream", f"kaito={new}", "-f", str(path), "-n", "ml")
    assert done.code == 0, done.err
    assert "ml/other    create  update     create Workspace 'other'" in done.out
    assert done.out.endswith("2 deployments: now 2 create; on change 2 update\n")
    old = recordings / "upstream-crds/kaito/v0.4.5"
    given = ("--upstream", f"kaito={old}", "-f", str(path))
    done = ran_now("preflight", *given, "--set", "instanceType=big", "-o", "json")
    assert done.code == 0, done.err
    assert {entry["now"] for entry in json.loads(done.out)["deployments"]} == {"create"}
    done = ran_now("preflight", *given)
    assert done.code == 3
    assert "set the provider setting instanceType" in done.out


@pytest.mark.parametrize(
    ("release", "used"),
    [("0.12", "v0.12.0"), ("v0.12.3", "v0.12.0"), ("0.10.1", "v0.10.0"), ("0.9", "v0.9.0"), ("1", "v0.12.0")],
)
def test_a_release_without_crds_of_its_own_has_those_of_the_one_before(
    recordings: Path, tmp_path: Path, release: str, used: str
) -> None:
    path = tmp_path / "token.yaml"
    path.write_text(yaml.safe_dump(MANIFEST))
    crds = ("--recordings", str(recordings / "upstream-crds"))
    done = ran_now("preflight", "--upstream", f"kaito={release}", *crds, "-f", str(path), "-o", "json")
    (change,) = [found for found in json.loads(done.out)["changes"] if found["crd"] == CRD]
    assert change["from"].endswith(f"/kaito/{used}")


@pytest.mark.parametrize(
    ("upstream", "code", "says"),
    [
        ("kaito", 2, "write PROVIDER=DIR, or PROVIDER=VERSION"),
        ("nobody=0.12", 1, "no installed distribution provides 'nobody'"),
        ("kaito=nowhere", 1, "no such file or folder, and not a release number"),
        ("kaito=0.12", 1, "give the folder that has them, or a folder of many releases with --recordings"),
        (
            "kaito=$EMPTY",
            1,
            "no CRD of provider kaito found "
            "(its CRDs: inferencesets.kaito.sh, scaledobjects.keda.sh, workspaces.kaito.sh)",
        ),
        ("kaito=$TWICE", 1, "more than one CustomResourceDefinition workspaces.kaito.sh"),
        ("kaito=$OLD", 1, "old.yaml: CustomResourceDefinition workspaces.kaito.sh: its apiVersion is 'apiextensions"),
        ("kaito=$BINARY", 1, "binary.yaml: not a manifest: 'utf-8' codec"),
        ("kaito=0.12 --recordings=$EMPTY", 1, "empty/kaito: --recordings must have CRDs as kaito/vX.Y.Z/*.yaml"),
    ],
)
def test_what_it_cannot_do_is_one_sentence(tmp_path: Path, upstream: str, code: int, says: str) -> None:
    (tmp_path / "empty").mkdir()
    twice = tmp_path / "twice"
    twice.mkdir()
    versions = [{"name": "v1", "served": True, "storage": True}]
    crd = {"kind": "CustomResourceDefinition", "metadata": {"name": CRD}, "spec": {"versions": versions}}
    for name in ("a.yaml", "b.json"):
        (twice / name).write_text(json.dumps({"apiVersion": "apiextensions.k8s.io/v1", **crd}))
    (tmp_path / "old.yaml").write_text(json.dumps({"apiVersion": "apiextensions.k8s.io/v1beta1", **crd}))
    (tmp_path / "binary.yaml").write_bytes(b"\xff" + CRD.encode())
    for name in ("empty", "twice", "old.yaml", "binary.yaml"):
        upstream = upstream.replace(f"${name.partition('.')[0].upper()}", str(tmp_path / name))
    done = ran_now("preflight", "--upstream", *upstream.split())
    assert done.code == code
    assert says in " ".join(done.err.split())
    assert "Traceback" not in done.err


def test_a_deployment_of_a_file_has_what_its_template_gives(tmp_path: Path) -> None:
    template: Resource = {
        "apiVersion": names.API_VERSION,
        "kind": "ModelTemplate",
        "metadata": {"name": "fast"},
        "spec": {"modelName": "microsoft/phi-4", "hardware": {"gpu": {"count": 1}}},
    }
    asking = {**MANIFEST, "spec": {"templateRef": {"name": "fast"}, "provider": {"name": "kaito"}}}
    path = tmp_path / "both.yaml"
    path.write_text(yaml.safe_dump_all([asking, template]))
    crds = ROOT / "providers" / "kaito" / "simulator" / "src" / "airunway_kaito_simulator" / "crds"
    done = ran_now("preflight", "--upstream", f"kaito={crds}", "-f", str(path), "-n", "ml")
    assert done.code == 0, done.err
    assert "create InferenceSet 'token'" in done.out
    path.write_text(yaml.safe_dump_all([asking]))
    nowhere = ("--kubeconfig", str(tmp_path / "kubeconfig"))
    alone = ran_now("preflight", "--upstream", f"kaito={crds}", "-f", str(path), "-n", "ml", *nowhere)
    assert alone.code == 1
    assert "ml/token: its template is in none of the files: the cluster's templates are read" in alone.err
