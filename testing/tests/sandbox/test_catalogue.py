"""The catalogue of a sandbox: when it has one, and the manifests for its registry."""

from __future__ import annotations

from importlib.metadata import EntryPoints
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from airunway.cli.main import app
from airunway_testing.sandbox import stack
from airunway_testing.sandbox.errors import SandboxError
from airunway_testing.sandbox.program import IMAGE, images
from airunway_testing.sandbox.samples import MODEL, write_registry_samples


def test_the_catalogue_needs_storage() -> None:
    with (
        pytest.raises(SandboxError, match="the catalogue needs storage"),
        stack.sandbox(level="api", say=print, catalogue=True),
    ):
        pass


def test_where_it_is_not_installed_it_cannot_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stack.has_catalogue()
    monkeypatch.setattr(stack, "entry_points", lambda **_: EntryPoints())
    assert not stack.has_catalogue()
    done = CliRunner().invoke(app, ["sandbox", "--catalogue"])
    assert done.exit_code == 2
    assert "pip install airunway-catalogue" in done.output


def test_manifests_have_the_address_of_the_registry_and_its_image(tmp_path: Path) -> None:
    write_registry_samples(tmp_path / "samples", "127.0.0.1:5000")
    found = {path.stem: yaml.safe_load(path.read_text()) for path in (tmp_path / "samples").iterdir()}
    assert set(found) == {"source", "template", "assistant", "batch"}
    assert found["source"]["spec"]["registry"] == "127.0.0.1:5000"
    (image,) = images()
    assert found["template"]["spec"]["discovery"]["image"] == f"127.0.0.1:5000/{IMAGE}:{image.tag}"
    assert found["template"]["spec"]["modelName"] == MODEL
    assert found["batch"]["spec"]["templateRef"]["modelName"] == MODEL
    assert found["assistant"]["spec"]["templateRef"]["name"] == found["template"]["metadata"]["name"]
