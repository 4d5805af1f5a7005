"""Write the page that says what each provider makes of each field of a deployment.

python -m tools.fields_page [--check]
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tools.generated import ROOT, write

from airunway.plugins import hookspecs
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway_testing.conformance.cases import OF_THE_CORE, SETTINGS, TOGGLES, bases
from airunway_testing.conformance.fields import Answer, Outcome, outcomes, setting_outcomes

__all__ = ["PAGE", "cell", "page", "providers"]

PAGE = "docs/providers/fields.md"

_HEAD = """# What each provider makes of each field

<!-- Generated: python -m tools.fields_page -->

Found by changing each field of a deployment and looking at what comes of it, for the newest release of each upstream
and the default settings of each provider. **honoured**: other objects are written. **warned**: it has no effect, or
another one than one might think, and `status.warnings` says so. **refused**: nothing is created, and the status says
why. No field is dropped without a word: a test fails for one that is (`airunway_testing.conformance.fields`).

Several answers: it depends on the deployment. The messages, and where they appear, are below the table.
"""

_SETTINGS = """What comes from outside of the deployment: its runtime config, a model cache, a gateway's InferencePool.
A pool is asked about only where the provider makes it (`managesInferencePool`). The deployment's own `env`,
`imagePullSecrets` and `secrets` win over a runtime config's.
"""


def providers() -> list[str]:
    """The names under which the distributions in ``providers/`` register."""
    found: list[str] = []
    for path in sorted((ROOT / "providers").glob("*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        found += project.get("entry-points", {}).get(hookspecs.PROVIDERS, {})
    return found


def page() -> str:
    """The page, as Markdown."""
    hosts = [load(name) for name in providers()]
    found = {host.name: [*outcomes(host), *setting_outcomes(host)] for host in hosts}
    lines = [_HEAD, *_matrix("field", TOGGLES, found), "", _SETTINGS, *_matrix("setting", SETTINGS, found), ""]
    lines += _of_the_core()
    for host in hosts:
        lines += ["", *_words(host, found[host.name])]
    return "\n".join([*lines, ""])


def _matrix(what: str, toggled: Iterable[str], found: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    yield f"| {what} | {' | '.join(found)} |"
    yield f"|---|{'---|' * len(found)}"
    for field in toggled:
        cells = [_answers(outcome.answer for outcome in of if outcome.field == field) for of in found.values()]
        yield f"| {_code(field)} | {' | '.join(cells)} |"


def _answers(answers: Iterable[Answer]) -> str:
    there = set(answers)
    return ", ".join(answer for answer in Answer if answer in there) or "not asked"


def _of_the_core() -> Iterator[str]:
    yield "Not a provider's, with everything below it:"
    yield ""
    for field, why in OF_THE_CORE.items():
        yield f"- `{field}`: {why}"


def _words(host: ProviderHost, found: Sequence[Outcome]) -> Iterator[str]:
    asked = [base.name for base in bases(host)]
    yield f"## {host.name}"
    yield ""
    yield f"Asked with: {'; '.join(asked)}."
    yield ""
    yield "| field | answer | where | words |"
    yield "|---|---|---|---|"
    for field in (*TOGGLES, *SETTINGS):
        said: dict[tuple[Answer, str], list[str]] = {}
        for outcome in found:
            if outcome.field == field and outcome.words:
                said.setdefault((outcome.answer, outcome.words[0].message), []).append(outcome.base)
        for (answer, message), where in said.items():
            everywhere = "everywhere" if where == asked else "; ".join(where)
            yield f"| {_code(field)} | {answer} | {everywhere} | {cell(message)} |"


def _code(field: str) -> str:
    """The name of a field or setting; what has a path is code."""
    return f"`{field}`" if "spec." in field else field


def cell(text: str) -> str:
    """Text as it can stand in a table."""
    return text.replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(write({PAGE: page()}))
