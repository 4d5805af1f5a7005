"""Each wrong copy of a right provider is rejected by the rule that it breaks, and by no other."""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from tests.mutants.table import MUTANTS, Mutant

from airunway.plugins.errors import PluginError
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import host_of
from airunway.resource import Resource
from airunway.runtime.crd_versions import SHORT_HASH, schema_hash
from airunway_testing.conformance import rules
from airunway_testing.conformance.checks import CHECKS, examine, unloadable
from airunway_testing.conformance.report import Outcome, Report
from airunway_testing.conformance.rules import RULES, Checked
from airunway_testing.conformance.subject import Subject
from airunway_testing.toy import provider as toy

HERE = Path(__file__).parent
ASKED = ("vllm", "vllm on CPU", "llamacpp on CPU")
"""Fewer than the kit asks: a mutant is wrong with each of them."""
NO_HUB = {"rule": "!self.model.startsWith('hf://')", "message": "a toy takes the id alone"}


@cache
def definitions() -> dict[tuple[str, str], Resource]:
    """The toy's CRDs, with a rule more."""
    found = deepcopy(dict(Subject(host_of("toy", toy)).definitions))
    (crd,) = (crd for (_, kind), crd in found.items() if kind == "Toy")
    for version in crd["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = [NO_HUB]
    return found


@cache
def source(name: str) -> str:
    if name == "right":
        return (HERE / "right.py").read_text(encoding="utf-8")
    return inspect.getsource(sys.modules["airunway_testing.toy.provider"])


def with_hashes(text: str) -> str:
    """A source of the toy with the hashes of `definitions`."""
    (crd,) = (crd for (_, kind), crd in definitions().items() if kind == "Toy")
    for version, known in zip(crd["spec"]["versions"], ("6eaefffca1aa", "0670d7d5317e"), strict=True):
        found = schema_hash(version["schema"]["openAPIV3Schema"])[:SHORT_HASH]
        text = text.replace(known, found)
    return text


def patched(mutant: Mutant | None, of: str = "toy") -> str:
    text = source(mutant.of if mutant else of)
    if mutant is None:
        return with_hashes(text)
    assert text.count(mutant.old) == 1, f"{mutant.defect}: {mutant.old!r} stands {text.count(mutant.old)} times"
    return with_hashes(text.replace(mutant.old, mutant.new))


def loaded(text: str, name: str) -> ProviderHost:
    """What the source makes, as it is loaded from an entry point of that name."""
    module = sys.modules["mutant"] = ModuleType("mutant")  # dataclasses look their module up
    exec(compile(text, "mutant.py", "exec"), vars(module))
    return host_of(name, module.provider, origin="a mutant")


def examined(text: str, name: str, *, elsewhere: str = "") -> Report:
    try:
        subject = Subject(loaded(text, name), sources=(text,), elsewhere=elsewhere)
    except PluginError as error:
        return unloadable(name, error)
    subject.__dict__["definitions"] = definitions()
    with suppress(PluginError):  # of one that fails for a plain deployment
        subject.__dict__["asked"] = tuple(base for base in subject.asked if base.name in ASKED)
    return examine(subject)


def broken(report: Report) -> list[str]:
    return [result.rule for result in report.results if result.outcome is Outcome.FAILED]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no defect of a mutant: the rule about time is broken by processor time."""
    monkeypatch.setattr("airunway.plugins.host.LONG_WAIT", 300.0)


@pytest.mark.parametrize("name", ["toy", "right"])
def test_the_right_providers_keep_every_rule(name: str) -> None:
    report = examined(patched(None, name), name)
    assert [result for result in report.results if result.outcome is not Outcome.PASSED] == []


def elsewhere(mutant: Mutant) -> str:
    """The same mutant in another process."""
    here = "__import__('tests.mutants.test_mutants', fromlist=['x'])"
    return f"{here}.loaded({here}.patched({here}.MUTANTS[{MUTANTS.index(mutant)}]), 'toy')"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.rule}: {mutant.defect}")
def test_a_mutant_is_rejected_by_its_rule_and_by_no_other(mutant: Mutant) -> None:
    name = "Toy_1" if "Toy_1" in mutant.new else mutant.of
    processes = elsewhere(mutant) if mutant.defect == "the order of a set" else ""
    report = examined(patched(mutant), name, elsewhere=processes)
    assert broken(report) == [mutant.rule], [result.texts for result in report.results if result.rule in broken(report)]


def test_a_cel_rule_that_the_kit_cannot_evaluate_is_reported() -> None:
    subject = Subject(loaded(patched(None), "toy"), sources=(patched(None),))
    found = deepcopy(definitions())
    (crd,) = (crd for (_, kind), crd in found.items() if kind == "Toy")
    for version in crd["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["x-kubernetes-validations"] = [{"rule": "isCIDR(self.model)", "message": "a network"}]
    subject.__dict__["definitions"] = found
    report = examine(subject, wanted=(rules.CEL,))
    (result,) = report.results
    assert result.outcome is Outcome.NOT_COMPARED
    assert "Toy: isCIDR(self.model) cannot be evaluated here" in result.texts[0]


def test_every_rule_of_the_kit_has_a_mutant() -> None:
    pure = {rule.id for rule in RULES.values() if rule.checked is not Checked.CLUSTER}
    assert pure == {mutant.rule for mutant in MUTANTS}
    assert len(MUTANTS) >= 50
    assert Counter((mutant.of, mutant.old, mutant.new) for mutant in MUTANTS).most_common(1)[0][1] == 1


def test_every_check_names_rules_of_the_table() -> None:
    named = {rule for check in CHECKS for rule in check.rules} | {rules.SAME_ANSWER}
    assert named == {rule.id for rule in RULES.values() if rule.checked is not Checked.CLUSTER}
