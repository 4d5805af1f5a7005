"""The report of ``airunway provider check``, and what the command makes of bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from airunway.cli.main import app
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Kind
from airunway.resource import Resource
from airunway_testing.conformance.report import Outcome, Report, as_html, as_junit
from airunway_testing.conformance.report import Result as OfARule
from airunway_testing.e2e import report as e2e
from airunway_testing.e2e.ground import LABEL
from airunway_testing.e2e.in_cluster import Refused, _allow, _of_the_life


def check(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["provider", "check", *arguments])


def test_a_report_names_contract_kit_provider_and_upstream(tmp_path: Path) -> None:
    done = check("toy", "--rule", "AR-C-053", "--rule", "AR-C-038", "--report", str(tmp_path / "new" / "folder"))
    assert done.exit_code == 0, done.output
    folder = tmp_path / "new" / "folder"
    found = json.loads((folder / "report.json").read_text())
    assert (found["provider"], found["contract"], found["ok"]) == ("toy", "v1", True)
    assert found["kit"]
    assert found["origin"].startswith("airunway-testing ")
    assert (
        "Toy.testing.airunway.ai v1beta1, schema 0670d7d5317e, transformer v1beta1, releases 2.0 to the newest"
        in found["upstream"]
    )
    assert {result["rule"]: result["outcome"] for result in found["results"]} == {
        "AR-C-038": "passed",
        "AR-C-053": "passed",
    }
    suite = ElementTree.fromstring((folder / "junit.xml").read_text()).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("2", "0")
    assert "<h1>toy: conforms</h1>" in (folder / "report.html").read_text()


def test_a_skipped_rule_has_its_reason_in_the_report(tmp_path: Path) -> None:
    done = check("toy", "--rule", "AR-C-053", "--skip", "AR-C-053=the schema is a draft", "--report", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "AR-C-053 skipped: the schema is a draft" in done.stderr
    for name in ("report.json", "junit.xml", "report.html"):
        assert "the schema is a draft" in (tmp_path / name).read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--rule", "AR-C-999"), "'AR-C-999' is no rule of the contract"),
        (("--skip", "AR-C-053"), "write RULE=REASON"),
        (("--skip", "AR-C-053= "), "write RULE=REASON"),
        (("--i-know",), "need --cluster"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_done(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    done = check("toy", *arguments, "--report", str(tmp_path / "none"))
    assert done.exit_code == 2
    assert says in done.output
    assert not (tmp_path / "none").exists()


AWAY = """
apiVersion: v1
kind: Config
contexts: [{name: away, context: {cluster: away, user: away}}]
clusters: [{name: away, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: away, user: {token: none}}]
"""


@pytest.mark.parametrize(
    ("context", "says"), [("away", "127.0.0.1:1"), ("nowhere", "has no context 'nowhere'")], ids=("away", "nowhere")
)
def test_a_cluster_that_cannot_be_asked_is_one_sentence(context: str, says: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(AWAY)
    where = ("--cluster", "--kubeconfig", str(kubeconfig), "--context", context)
    done = check("toy", *where, "--rule", "AR-C-060")
    assert done.exit_code == 2, done.output
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("options", "meant"),
    [((), (False, 180.0)), (("--i-know",), (True, 180.0)), (("--patience", "5"), (False, 5.0))],
    ids=("neither", "i-know", "patience"),
)
def test_the_examination_in_a_cluster_is_given_what_the_author_knows_and_the_patience(
    options: tuple[str, ...], meant: tuple[bool, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[bool, float]] = []

    async def examine(*_: object, i_know: bool, patience: float) -> list[OfARule]:
        asked.append((i_know, patience))
        return []

    monkeypatch.setattr("airunway_testing.e2e.in_cluster._examine", examine)
    check("toy", "--cluster", *options, "--rule", "AR-C-060")
    assert asked == [meant]


def test_a_report_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = check("toy", "--rule", "AR-C-023", "--report", str(tmp_path / "file" / "below"))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "the report cannot be written" in done.stderr


def test_texts_of_a_provider_are_data_in_every_format() -> None:
    hostile = "<script>alert(1)</script> \x1b[31m & \x00"
    report = Report(provider="<b>", results=[OfARule(rule="AR-C-001", outcome=Outcome.FAILED, texts=(hostile,))])
    page = as_html(report)
    assert "<script>" not in page
    assert "<b>:" not in page
    assert "\x1b" not in page
    assert ElementTree.fromstring(as_junit(report)).find(".//failure") is not None


def test_a_provider_without_samples_is_not_compared_and_a_broken_life_is_a_fault() -> None:
    nothing = e2e.Report(run="1", missing=["toy: the provider comes without samples"], ended_early="no provider")
    assert {result.outcome for result in _of_the_life(nothing)} == {Outcome.NOT_COMPARED}
    stopped = e2e.Report(run="1", ended_early="the process of providers has ended")
    assert Outcome.FAILED in {result.outcome for result in _of_the_life(stopped)}
    step = e2e.Result(provider="acme", what="sample a: reach", outcome=e2e.Outcome.FAILED, text="no ready address")
    by_rule = {result.rule: result.outcome for result in _of_the_life(e2e.Report(run="1", results=[step]))}
    assert by_rule["AR-C-063"] is Outcome.FAILED
    assert by_rule["AR-C-062"] is not Outcome.FAILED


class Cluster:
    """A cluster with one ModelDeployment in a namespace with these labels; it refuses every write."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels

    async def list_all(self, kind: Kind, **_: Any) -> list[Resource]:
        if kind == MODEL_DEPLOYMENT:
            return [{"metadata": {"name": "chat", "namespace": "team"}}]
        return [{"metadata": {"name": "team", "labels": self.labels}}]


async def test_a_cluster_with_deployments_of_others_is_refused_unless_the_author_knows() -> None:
    theirs = cast(Client, Cluster({}))
    with pytest.raises(Refused, match=r"https://prod has 1 ModelDeployments that the kit has not made \(team/chat\)"):
        await _allow(theirs, "https://prod", i_know=False)
    await _allow(theirs, "https://prod", i_know=True)
    await _allow(cast(Client, Cluster({LABEL: "1"})), "https://prod", i_know=False)
