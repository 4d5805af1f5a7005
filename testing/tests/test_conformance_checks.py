"""``airunway provider check`` where all is well, and where nothing is. Mistakes: test_tutorial.py."""

from dataclasses import replace

import pytest
from click.testing import CliRunner
from tests.support.toy_variants import toy_host

from airunway.cli.main import app
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import Resource
from airunway.sdk import Compatibility, Finding
from airunway_testing.conformance import subject
from airunway_testing.conformance.checks import _version, problems, uncompared
from airunway_testing.conformance.fingerprint import of
from airunway_testing.conformance.subject import Subject
from airunway_testing.conformance.works import capabilities
from airunway_testing.simulators import Simulator
from airunway_testing.toy.provider import MANIFEST, TRANSFORMERS

TOY, *OTHERS = MANIFEST.upstream


def test_the_toy_conforms() -> None:
    assert list(problems("toy")) == []
    assert list(uncompared(toy_host())) == []
    assert len(of(load("toy"))) == 64


def test_a_provider_that_is_not_there_is_one_sentence() -> None:
    done = CliRunner().invoke(app, ["provider", "check", "nosuch"])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert "no installed distribution provides 'nosuch'" in done.output


def without_schemas() -> ProviderHost:
    """A provider whose primary kind nobody plays."""
    kind = replace(TOY, kind="Unplayed", plural="unplayed")
    return toy_host(upstream=(kind, *OTHERS))


def test_a_kind_that_no_simulator_plays_is_said() -> None:
    """A false green of a stranger (review of an author, finding 5)."""
    (told,) = uncompared(without_schemas())
    assert told.startswith("no installed simulator plays Unplayed.testing.airunway.ai: its schema was compared with no")


def test_a_kind_that_the_simulator_s_crds_lack_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Simulator, "custom_resource_definitions", lambda self: [])
    subject._crds_of.cache_clear()
    (told,) = uncompared(toy_host())
    subject._crds_of.cache_clear()
    assert told.startswith("the CRDs of the simulator that plays Toy.testing.airunway.ai lack it")


def test_a_version_that_the_crd_does_not_serve_is_said() -> None:
    kind = replace(TOY, versions=(*TOY.versions, "v2"))
    newer = replace(TRANSFORMERS[-1], name="v2", api_version="testing.airunway.ai/v2")
    (told,) = uncompared(toy_host(upstream=(kind, *OTHERS), transformers=(*TRANSFORMERS, newer)))
    assert told == (
        "the CRD of Toy.testing.airunway.ai does not serve testing.airunway.ai/v2, which a transformer writes: it was "
        "not compared"
    )


def test_what_was_not_compared_is_told_with_a_provider_that_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: Simulator) -> list[Resource]:
        return []

    monkeypatch.setattr(Simulator, "custom_resource_definitions", read)
    subject._crds_of.cache_clear()
    done = CliRunner().invoke(app, ["provider", "check", "toy"])
    subject._crds_of.cache_clear()
    assert done.exit_code == 0, done.output
    assert "airunway provider check: AR-C-038 not compared: the CRDs of the simulator that plays Toy" in done.stderr
    assert "holds contract v1" in done.stdout


def test_a_version_that_is_not_the_distribution_s_is_said() -> None:
    (said,) = _version(Subject(toy_host(version="9.0")))
    assert said.text.startswith("manifest.version is '9.0', and the distribution airunway-testing has the version 0.")
    assert list(_version(Subject(toy_host()))) == []
    ours = toy_host().manifest.version
    assert list(_version(Subject(toy_host(version=f"{ours}-rc.1")))) == [], "builds write it as rc1"


def test_an_engine_of_which_everything_is_refused_says_why() -> None:
    blocker = Finding(path="spec.model.id", reason="IncompatibleConfiguration", message="never")
    host = toy_host(can_handle=lambda _deployment, _context: Compatibility(blockers=(blocker,)))
    (said, *_) = capabilities(Subject(host))
    assert "even plain deployments are refused (spec.model.id: never)" in said.text
