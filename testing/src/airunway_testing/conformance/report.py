"""A report on a provider: which rules it keeps, which it breaks, with which words; as JSON, JUnit and a page. Pure."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

import orjson

from airunway import __version__
from airunway.plugins.host import ProviderHost
from airunway.redaction import printable
from airunway.resource import Resource
from airunway.runtime.crd_versions import crd_facts
from airunway_testing.conformance.rules import RULES


class Outcome(StrEnum):
    """What became of a rule."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True, kw_only=True)
class Result:
    """One rule. `texts` are the faults, the reason of a skip, or what there was nothing to compare with."""

    rule: str
    outcome: Outcome
    texts: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What was examined, and by what. `upstream` has the kinds with their versions, schemas and releases."""

    contract: str = ""
    kit: str = __version__
    version: str = ""
    origin: str = ""
    engines: tuple[str, ...] = ()
    primary: str = ""
    upstream: tuple[str, ...] = ()
    cluster: str = ""


@dataclass(kw_only=True)
class Report:
    provider: str
    facts: Facts = field(default_factory=Facts)
    results: list[Result] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(result.outcome is Outcome.FAILED for result in self.results)

    def counts(self) -> Mapping[Outcome, int]:
        return Counter(result.outcome for result in self.results)


def facts_of(host: ProviderHost, definitions: Mapping[tuple[str, str], Resource]) -> Facts:
    """What is known of a loaded provider, and of the CRDs that it was compared with."""
    return Facts(
        contract=host.contract_version,
        version=host.manifest.version,
        origin=host.origin,
        engines=tuple(engine.name for engine in host.manifest.engines),
        primary=host.primary_kind.key,
        upstream=tuple(_releases(host, definitions)),
    )


def _releases(host: ProviderHost, definitions: Mapping[tuple[str, str], Resource]) -> Sequence[str]:
    """Each CRD, by version and schema, with the releases that its transformer is for."""
    found = []
    for kind in host.manifest.upstream:
        crd = definitions.get((kind.group, kind.kind))
        for version, schema in crd_facts(crd).served if crd is not None else ():
            for transformer in host.transformers_of(kind):
                if transformer.api_version == f"{kind.group}/{version}" and any(
                    schema.startswith(known) for known in transformer.schema_hashes
                ):
                    releases = f", releases {transformer.since or '…'} to {transformer.until or 'the newest'}"
                    known = releases if transformer.since or transformer.until else ""
                    found.append(f"{kind.key} {version}, schema {schema[:12]}, transformer {transformer.name}{known}")
    return found


def as_json(report: Report) -> bytes:
    """The report for programs; its keys do not change within a contract version."""
    results = [{**asdict(result), **_sentence(result.rule)} for result in report.results]
    content = {"provider": report.provider, "ok": report.ok, **asdict(report.facts), "results": results}
    return orjson.dumps(content, option=orjson.OPT_INDENT_2)


def _sentence(rule: str) -> dict[str, str]:
    return {"of": RULES[rule].of, "sentence": RULES[rule].sentence, "reason": RULES[rule].reason}


def as_junit(report: Report) -> str:
    """One suite, one case for each rule; what was not compared counts as skipped."""
    counts = report.counts()
    root = ElementTree.Element("testsuites", name="airunway provider check")
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=report.provider,
        tests=str(len(report.results)),
        failures=str(counts[Outcome.FAILED]),
        skipped=str(counts[Outcome.SKIPPED] + counts[Outcome.NOT_COMPARED]),
        time=f"{sum(result.seconds for result in report.results):.3f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in asdict(report.facts).items():
        text = value if isinstance(value, str) else "; ".join(value)
        ElementTree.SubElement(properties, "property", name=name, value=printable(text))
    for result in report.results:
        name = f"{result.rule} {RULES[result.rule].of}: {RULES[result.rule].sentence}"
        case = ElementTree.SubElement(
            suite, "testcase", classname=report.provider, name=name, time=f"{result.seconds:.3f}"
        )
        if result.outcome is Outcome.FAILED:
            failure = ElementTree.SubElement(case, "failure", message=printable(result.texts[0]))
            failure.text = "\n".join(map(printable, result.texts))
        elif result.outcome is not Outcome.PASSED:
            message = f"{result.outcome}: {printable('; '.join(result.texts))}"
            ElementTree.SubElement(case, "skipped", message=message)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .4rem .6rem; border-bottom: 1px solid #8884; }
.failed { color: #c62828; font-weight: 600; } .passed { color: #2e7d32; }
.skipped, .not { color: #b26a00; }
ul { margin: .3rem 0; padding-left: 1.2rem; } small { opacity: .75; }
"""


def as_html(report: Report) -> str:
    """One page without scripts and without anything from elsewhere."""
    counts = report.counts()
    summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    facts = [
        ("contract", report.facts.contract),
        ("kit", report.facts.kit),
        ("provider", f"{report.facts.version} ({report.facts.origin})" if report.facts.origin else ""),
        ("engines", ", ".join(report.facts.engines)),
        ("primary kind", report.facts.primary),
        ("upstream", "\n".join(report.facts.upstream)),
        ("cluster", report.facts.cluster),
    ]
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{_text(report.provider)}: conformance</title><style>{_STYLE}</style></head><body>",
            f"<h1>{_text(report.provider)}: {'conforms' if report.ok else 'does not conform'}</h1><p>{summary}</p>",
            "<table>",
            *(f"<tr><th>{name}</th><td>{_text(value)}</td></tr>" for name, value in facts if value),
            "</table><h2>Rules</h2><table><tr><th>rule</th><th>outcome</th><th>what it asks for</th></tr>",
            *(_row(result) for result in sorted(report.results, key=lambda each: each.outcome is not Outcome.FAILED)),
            "</table></body></html>",
            "",
        )
    )


def _row(result: Result) -> str:
    rule = RULES[result.rule]
    texts = "".join(f"<li>{_text(text)}</li>" for text in result.texts)
    return (
        f'<tr id="{rule.id}"><td>{rule.id}</td><td class="{result.outcome}">{result.outcome}</td><td>'
        f"<b>{_text(rule.of)}</b> {_text(rule.sentence)}<br><small>because {_text(rule.reason)}</small>"
        f"{f'<ul>{texts}</ul>' if texts else ''}</td></tr>"
    )


def _text(text: str) -> str:
    return html.escape(printable(text)).replace("\n", "<br>").replace("`", "")


def lines_of(report: Report) -> tuple[list[str], str]:
    """The report for a terminal: what is broken, skipped and not compared, and a line about the whole (empty: the
    provider could not be loaded)."""
    loaded = bool(report.facts.contract)
    lines = [
        f"{result.rule}{'' if result.outcome is Outcome.FAILED else f' {result.outcome}'}: {printable(text)}"
        for result in report.results
        if result.outcome is Outcome.FAILED or (loaded and result.outcome is not Outcome.PASSED)
        for text in result.texts
    ]
    if not loaded:
        return lines, ""
    counts = report.counts()
    summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    return lines, (
        f"{report.provider} ({report.facts.origin}) {'holds' if report.ok else 'does not hold'} contract "
        f"{report.facts.contract}: engines {', '.join(report.facts.engines)}; primary kind {report.facts.primary}; "
        f"rules: {summary}"
    )


def written(report: Report, folder: Path) -> None:
    """Write report.json, junit.xml and report.html into the folder, which is made. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_bytes(as_json(report))
    (folder / "junit.xml").write_text(as_junit(report), encoding="utf-8")
    (folder / "report.html").write_text(as_html(report), encoding="utf-8")
