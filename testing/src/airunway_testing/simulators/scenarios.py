"""The words by which a test or a user tells a simulator what to show, where there are no pods that would.

``instant`` (ready at once), ``never-ready`` (pending for ever), ``silent`` (no status at all), ``no-nodes`` (no node
matches), ``lingers`` (ready at once, and its deletion never ends), ``fails:REASON`` (pending, with that reason),
``degrades:REASON`` (was ready, now is not, with that reason) or ``error:TEXT`` (the operator's own error). What each
looks like in a status is the simulator's to say.
"""

from __future__ import annotations

from dataclasses import dataclass

from airunway.resource import Resource, annotations_of
from airunway_testing.simulators.registry import ScenarioError

ANNOTATION = "simulator.airunway.ai/scenario"
"""Annotation on the upstream's object: what the simulator shall do with this one."""

INSTANT = "instant"
_PLAIN = (INSTANT, "never-ready", "silent", "no-nodes", "lingers")
_WITH_ARGUMENT = ("fails", "degrades", "error")


@dataclass(frozen=True)
class Scenario:
    kind: str
    argument: str = ""

    @property
    def lingers(self) -> bool:
        """Whether a finalizer is to hold the object for ever."""
        return self.kind == "lingers"

    @property
    def silent(self) -> bool:
        return self.kind == "silent"


def parse_scenario(text: str) -> Scenario:
    """The scenario that `text` names. Raises ScenarioError, naming the text and what would be understood."""
    kind, _, argument = text.partition(":")
    if (kind in _PLAIN and not argument) or (kind in _WITH_ARGUMENT and argument):
        return Scenario(kind, argument)
    known = [*_PLAIN, *(f"{name}:…" for name in _WITH_ARGUMENT)]
    raise ScenarioError(f"{text!r} is not a scenario of the simulators; use one of {', '.join(known)}")


def scenario_of(obj: Resource, default: Scenario) -> Scenario:
    """What the object's annotation asks for, else `default`; an unknown word is an error that the object shows."""
    text = annotations_of(obj).get(ANNOTATION)
    if text is None:
        return default
    try:
        return parse_scenario(text)
    except ScenarioError as error:
        return Scenario("error", str(error))
