"""What a run found out, as Markdown for people and as JUnit for machines. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from xml.etree import ElementTree

from airunway.redaction import printable


class Outcome(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    MISSING = "missing"
    """The cluster lacks what it would have needed: no verdict on AI Runway."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One thing that was done with a deployment of a provider, how long it took, and what there is to say of it."""

    provider: str
    what: str
    outcome: Outcome
    text: str = ""
    seconds: float = 0.0


@dataclass(kw_only=True)
class Report:
    """Everything about a run. `facts` are about the cluster, `missing` what it lacks, `left` what could not be cleaned
    up; `ended_early` says why not everything was done."""

    run: str
    facts: dict[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    ended_early: str = ""

    @property
    def ok(self) -> bool:
        """Nothing failed, nothing is left behind, and something was done at all."""
        counts = Counter(result.outcome for result in self.results)
        return not (counts[Outcome.FAILED] or self.left or self.ended_early) and counts[Outcome.PASSED] > 0


def as_markdown(report: Report) -> str:
    """The report as a page."""
    counts = Counter(result.outcome for result in report.results)
    lines = [f"# End to end: {report.run}", "", ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome), ""]
    if report.ended_early:
        lines += [f"**Ended early**: {printable(report.ended_early)}", ""]
    lines += [
        *_of_providers(report),
        "| the cluster | |",
        "|---|---|",
        *(f"| {name} | {_cell(text)} |" for name, text in report.facts.items()),
    ]
    lines += ["", "## What was missing", "", *_listed(report.missing)]
    lines += ["", "## What was done", "", "| provider | what | outcome | seconds | |", "|---|---|---|---|---|"]
    lines += [f"| {r.provider} | {r.what} | {r.outcome} | {r.seconds:.1f} | {_cell(r.text)} |" for r in report.results]
    lines += ["", "## What is left behind", "", *_listed(report.left), ""]
    return "\n".join(lines)


def _of_providers(report: Report) -> list[str]:
    """How each provider did, in a line; nothing where nothing was done."""
    counts = Counter((result.provider, result.outcome) for result in report.results)
    lines = [
        f"| {provider} | {' | '.join(str(counts[provider, outcome]) for outcome in Outcome)} |"
        for provider in dict.fromkeys(result.provider for result in report.results)
    ]
    return [f"| | {' | '.join(Outcome)} |", f"|---{'|---' * len(Outcome)}|", *lines, ""] if lines else []


def as_junit(report: Report) -> str:
    """The report as JUnit: a suite for each provider; what was missing is skipped."""
    root = ElementTree.Element("testsuites", name=report.run)
    for provider in dict.fromkeys(result.provider for result in report.results):
        of = [result for result in report.results if result.provider == provider]
        counts = Counter(result.outcome for result in of)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=provider,
            tests=str(len(of)),
            failures=str(counts[Outcome.FAILED]),
            skipped=str(counts[Outcome.MISSING]),
            time=f"{sum(result.seconds for result in of):.3f}",
        )
        for result in of:
            case = ElementTree.SubElement(
                suite, "testcase", classname=provider, name=result.what, time=f"{result.seconds:.3f}"
            )
            text = printable(result.text)
            if result.outcome is Outcome.FAILED:
                ElementTree.SubElement(case, "failure", message=text)
            elif result.outcome is Outcome.MISSING:
                ElementTree.SubElement(case, "skipped", message=text)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _listed(texts: Iterable[str]) -> Sequence[str]:
    return [f"- {printable(text)}" for text in texts] or ["Nothing."]


def _cell(text: str) -> str:
    return printable(text).replace("|", r"\|").replace("<", "&lt;")
