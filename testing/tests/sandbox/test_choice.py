"""Which providers a sandbox runs, and the samples that come with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from airunway.resource import dig
from airunway_testing.sandbox import choice
from airunway_testing.sandbox.choice import choose
from airunway_testing.sandbox.errors import SandboxError
from airunway_testing.sandbox.samples import TYPO, models_of, models_of_hub, samples_in, secrets_of


def provider_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, *, sample: str) -> None:
    """A second distribution with the toy's plugin as provider ``acme``, a simulator for nothing new, and a sample."""
    package = folder / "acme_provider"
    (package / "samples").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "import dataclasses\nfrom airunway import sdk\nfrom airunway_testing.toy import provider as toy\n"
        "provider = sdk.Provider(dataclasses.replace(toy.manifest, name='acme'), toy.transformers(),\n"
        "    translate_spec=toy._translate_spec, translate_status=toy._translate_status)\n"
    )
    (package / "samples" / "index.toml").write_text(f"[[sample]]\nfile = '{sample}.yaml'\nshows = 'x'")
    (package / "samples" / f"{sample}.yaml").write_text("{spec: {secrets: {huggingFaceToken: token-of-acme}}}")
    info = folder / "acme_provider-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-provider\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[airunway.providers]\nacme = acme_provider:provider\n")
    monkeypatch.syspath_prepend(folder)


def test_a_provider_without_samples_takes_part_only_if_named() -> None:
    assert "toy" not in [found.provider for found in choose()]
    (toy,) = choose(["toy"])
    assert [played.name for played in toy.simulators] == ["toy"]
    assert toy.missing == ""
    assert toy.samples == ()


def test_a_third_party_is_found_by_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider_on_path(tmp_path, monkeypatch, sample="acme-small")
    monkeypatch.delitem(sys.modules, "acme_provider", raising=False)
    found = {chosen.provider: chosen for chosen in choose()}
    assert [sample.name for sample in found["acme"].samples] == ["acme-small"]
    assert secrets_of(found["acme"].samples) == ["token-of-acme"]


def test_two_samples_of_one_name_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = next(sample.name for found in choose() for sample in found.samples)
    monkeypatch.delitem(sys.modules, "acme_provider", raising=False)
    provider_on_path(tmp_path, monkeypatch, sample=taken)
    with pytest.raises(SandboxError, match=f"two providers have a sample {taken}"):
        choose()


def test_an_unknown_provider_is_told_with_those_that_there_are() -> None:
    with pytest.raises(SandboxError, match=r"provider acme is not installed \(installed providers: .*toy"):
        choose(["acme"])


def test_without_any_that_can_be_played_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "discover", lambda **_: [])
    with pytest.raises(SandboxError, match="has both samples and a simulator"):
        choose()


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ("", r"tables \[\[sample\]\] are expected"),
        ("sample = 1", r"tables \[\[sample\]\] are expected"),
        ("a = 1\n[[sample]]\nfile = 'a.yaml'\nshows = 'x'", "and nothing else"),
        ("- file: a.yaml", "index.toml: Expected"),
        ("[[sample]]\nfile = 'a.yaml'", "entry 0 must have file and shows"),
        ("[[sample]]\nfile = 'a.yaml'\nshows = 'x'\nreason = 'y'", "entry 0 must have file and shows"),
        ("[[sample]]\nfile = 'gone.yaml'\nshows = 'x'", "gone.yaml, which is not there"),
    ],
)
def test_a_wrong_index_is_told(tmp_path: Path, index: str, says: str) -> None:
    (tmp_path / "index.toml").write_text(index)
    (tmp_path / "a.yaml").write_text("{}")
    with pytest.raises(SandboxError, match=says):
        samples_in(tmp_path)


def test_the_models_of_samples_are_those_that_come_from_the_hub(tmp_path: Path) -> None:
    models = {"a": "{id: acme/llama}", "b": "{id: acme/llama, source: huggingface}", "c": "{id: mine, source: custom}"}
    for name, model in models.items():
        (tmp_path / f"{name}.yaml").write_text(f"spec: {{model: {model}}}")
    index = "".join(f"[[sample]]\nfile = '{name}.yaml'\nshows = 'x'\n" for name in models)
    (tmp_path / "index.toml").write_text(index)
    assert models_of(samples_in(tmp_path)) == ["acme/llama"]


def test_the_hub_has_what_the_pages_about_the_model_cache_fetch() -> None:
    folder = Path(__file__).parents[3] / "samples" / "model-cache"
    specs = [dig(each, "spec") for path in folder.glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    pulled = [spec for spec in specs if dig(spec, "model", "source") == "oci"]  # by nodes, from a registry
    others = [spec for spec in specs if spec not in pulled]
    fetched = {dig(spec, "model", "id") for spec in others if not dig(spec, "model", "cache", "artifactName")}
    wanted = fetched | {dig(spec, "modelName") for spec in others}
    assert wanted - {None} <= set(models_of_hub([]))
    assert any(str(model).endswith(".gguf") for model in wanted)


def test_an_index_that_kubectl_would_apply_is_told(tmp_path: Path) -> None:
    (tmp_path / "index.yaml").write_text("[{file: a.yaml, shows: x}]")
    with pytest.raises(SandboxError, match=r"index.yaml: kubectl takes it for a manifest: write index.toml instead"):
        samples_in(tmp_path)


def test_every_sample_is_called_like_its_deployment() -> None:
    for sample in [TYPO, *(sample for found in choose() for sample in found.samples)]:
        assert yaml.safe_load(sample.path.read_text())["metadata"]["name"] == sample.name


def test_a_provider_of_kubernetes_own_kinds_takes_part_beside_the_others() -> None:
    chosen = {found.provider: found for found in choose()}
    assert {"kaito", "vllm"} <= set(chosen)
    assert chosen["vllm"].missing == ""
