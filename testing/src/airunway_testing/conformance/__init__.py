"""What every provider is held against, whoever wrote it: tests of a provider call it, ``airunway provider check`` too.

* `provider`: an installed provider, loaded and held against the contract;
* `problems`: what is wrong with an installed provider, in sentences;
* `FIELDS` and `outcome`: what becomes of a field of a deployment: honoured, refused, named, or lost without a word;
* module `roles`: the roles of a provider as the template of a chart.
"""

from airunway.plugins.registry import load as provider
from airunway_testing.conformance.checks import problems
from airunway_testing.conformance.fields import FIELDS, Outcome, outcome, plain

__all__ = ["FIELDS", "Outcome", "outcome", "plain", "problems", "provider"]
