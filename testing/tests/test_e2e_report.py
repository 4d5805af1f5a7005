"""The report of an end-to-end run: what it says, as Markdown and as JUnit."""

from xml.etree import ElementTree

from airunway_testing.e2e.report import Outcome, Report, Result, as_junit, as_markdown


def report(*results: Result, **changes: object) -> Report:
    found = Report(run="r1", facts={"nodes": "1 with no GPU"}, results=list(results))
    for name, value in changes.items():
        setattr(found, name, value)
    return found


GOOD = Result(provider="a", what="sample x", outcome=Outcome.PASSED, text="Running", seconds=1.25)
BAD = Result(provider="a", what="x: edit", outcome=Outcome.FAILED, text='no <way> | "at\x1b[31m all"', seconds=2)
LACK = Result(provider="b", what="sample y", outcome=Outcome.MISSING, text="no GPU")


def test_a_run_is_well_if_something_passed_and_nothing_failed_or_was_left() -> None:
    assert report(GOOD, LACK).ok
    assert not report(GOOD, BAD).ok
    assert not report(LACK).ok
    assert not report(GOOD, left=["Namespace x"]).ok
    assert not report(GOOD, ended_early="it was interrupted").ok


def test_junit_has_a_suite_for_each_provider_and_skips_what_was_missing() -> None:
    root = ElementTree.fromstring(as_junit(report(GOOD, BAD, LACK)))
    first, second = root
    assert (first.get("name"), first.get("tests"), first.get("failures"), first.get("time")) == ("a", "2", "1", "3.250")
    assert (second.get("name"), second.get("skipped")) == ("b", "1")
    failure = first[1].find("failure")
    assert failure is not None
    assert failure.get("message") == 'no <way> | "at all"'


def test_the_page_says_what_was_missing_done_and_left_and_nothing_breaks_its_tables() -> None:
    page = as_markdown(report(GOOD, BAD, LACK, missing=["b: no upstream"], left=["Namespace n"]))
    assert "1 passed, 1 failed, 1 missing" in page
    assert "| a | 1 | 1 | 0 |\n| b | 0 | 0 | 1 |\n" in page
    assert "- b: no upstream" in page
    assert "- Namespace n" in page
    assert '| a | x: edit | failed | 2.0 | no &lt;way> \\| "at all" |' in page
    assert "Nothing." in as_markdown(report(GOOD))
