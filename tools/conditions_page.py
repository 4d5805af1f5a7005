"""Write the reference page of conditions, reasons and root causes from their registries.

python -m tools.conditions_page [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta

from tools.generated import write

from airunway.status.conditions import CONDITIONS
from airunway.status.reasons import CODES, PAGE, REASONS, Category
from airunway.status.remedies import TABLES
from airunway.status.rollup import CAPACITY_PATIENCE, DEPENDENCY_GRACE, Fault, parent_conditions, roll_up

__all__ = ["page"]

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_LONG_AGO = _NOW - timedelta(days=1)

_HEAD = """# Conditions, reasons, root causes

<!-- Generated: python -m tools.conditions_page -->

`kubectl get md` shows phase and message; `kubectl describe md NAME` all of what follows. `status.message` and
`status.rootCause` name one cause: its code, the object that shows it, the field of the deployment to look at, evidence
and remedy, and since when. Both are gone as soon as the fault is.
"""

_TOOLS = """## Generic tools

`observedGeneration`, `Ready`, `Reconciling` and `Stalled` follow
[kstatus](https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus): what uses it (Flux, `kpt`, cli-utils)
and `kubectl wait --for=condition=Ready` need no settings. A deployment that no controller has reconciled yet has the
status that the CRD gives it, phase Pending and `Ready=Unknown` with the reason `WaitingForController`: no tool takes
it for ready. Argo CD computes the health of kinds that it does not know only with a script of yours (else they count as
healthy), under
`resource.customizations.health.airunway.ai_ModelDeployment` in `argocd-cm`:

```lua
local health = { status = "Progressing", message = "Waiting for a status" }
if obj.status == nil or obj.status.conditions == nil then return health end
local seen = {}
for _, condition in ipairs(obj.status.conditions) do seen[condition.type] = condition end
local observed = obj.status.observedGeneration
if observed ~= nil and observed ~= obj.metadata.generation then return health end
if seen.Ready ~= nil then health.message = seen.Ready.message end
if obj.spec.suspend then health.status = "Suspended"
elseif seen.Ready ~= nil and seen.Ready.status == "True" then health.status = "Healthy"
elseif seen.Stalled ~= nil and seen.Stalled.status == "True" then health.status = "Degraded"
elseif obj.status.phase == "Degraded" then health.status = "Degraded" end
return health
```
"""


def page() -> str:
    """The page, as Markdown."""
    return "\n".join(
        [_HEAD, *_conditions(), "", *_categories(), "", *_reasons(), "", *_codes(), "", _TOOLS.rstrip(), ""]
    )


def _conditions() -> Iterator[str]:
    yield "## Conditions\n"
    yield from _table(
        ("condition", "written by", "when all is well", "meaning"),
        ((f"`{c.name}`", c.writer.value, c.good, c.meaning) for c in CONDITIONS),
    )
    yield (
        "\nThe owner of the phase is the core until a provider has taken the deployment over "
        "(`status.observedGeneration` is there), and the provider from then on. A provider may add `<Component>Ready` "
        "for further components."
    )


def _categories() -> Iterator[str]:
    grace, patience = DEPENDENCY_GRACE.total_seconds(), CAPACITY_PATIENCE.total_seconds() / 60
    yield "## What a reason does\n"
    yield (
        "Each reason belongs to a category, and the category decides. The worst phase of all faults counts; a fault "
        "that leaves others serving never makes it worse than Degraded. A reason that is not listed counts as "
        "Workload.\n"
    )
    rows = [
        (
            category.value,
            _parent(category),
            _phase(category, previous=None, created=False, age=_NOW),
            _phase(category, previous="Deploying", created=True, age=_NOW),
            _phase(category, previous="Running", created=True, age=_NOW),
            _phase(category, previous="Running", created=True, age=_LONG_AGO),
        )
        for category in Category
    ]
    yield from _table(
        ("category", "condition", "before anything exists", "while starting", "after it was Running", "when it lasts"),
        rows,
    )
    yield (
        f"\nIt lasts, for Connectivity, {grace:.0f} seconds after `DependenciesReachable` turned False; for Passing, "
        f"{grace:.0f} seconds from the first sight of the fault; for Capacity, {patience:.0f} minutes from it. All "
        "count across restarts of the controllers. A dependency counts as unreachable until it has answered: a new pod "
        "or a new try changes nothing."
    )
    yield (
        "\nWhat has served and has no ready pod is Degraded at once by Connectivity and Capacity too, and by lost "
        "pods. One that wakes from zero replicas only starts ([why](../decisions/0010-what-has-served-degrades.md))."
    )


def _phase(category: Category, *, previous: str | None, created: bool, age: datetime) -> str:
    fault = Fault(component="X", reason="X", category=category, since=age)
    return roll_up([fault], previous=previous, created=created, now=_NOW).phase.value


def _parent(category: Category) -> str:
    reason = next((reason.name for reason in REASONS.values() if reason.category is category), "")
    found = parent_conditions([{"type": "X", "status": "False", "reason": reason}])
    false = [f"`{parent.type}=False`" for parent in found if parent.status is False]
    return ", ".join(false) or "–"


def _reasons() -> Iterator[str]:
    yield "## Reasons\n"
    codes = {reason: code.name for code in reversed(CODES.values()) for reason in code.reasons}
    yield from _table(
        ("reason", "category", "meaning", "root cause"),
        (
            (
                f"`{reason.name}`",
                reason.category.value,
                _sentence(reason.meaning),
                _linked(codes, reason.name),
            )
            for reason in sorted(
                REASONS.values(), key=lambda reason: (list(Category).index(reason.category), reason.name)
            )
        ),
    )


def _sentence(text: str) -> str:
    return f"{text}." if text.startswith("spec.") else f"{text[0].upper()}{text[1:]}."


def _linked(codes: dict[str, str], reason: str) -> str:
    if reason not in codes:
        return ""
    code = CODES[codes[reason]]
    return f"[{code.name}](#{code.link.partition('#')[2]})"


def _codes() -> Iterator[str]:
    yield "## Root causes\n"
    yield (
        "Of several faults the most specific is named, of those the nearest to the pod, of those the oldest. The list "
        "goes from specific to general."
    )
    for code in sorted(CODES.values(), key=lambda code: code.tier):
        field = f" Look at `{code.field}`." if code.field else ""
        reasons = ", ".join(f"`{reason}`" for reason in code.reasons)
        remedy = " ".join(filter(None, (code.remedy, code.without_pod and f"Where no pod is left: {code.without_pod}")))
        yield f"\n### {code.name}\n"
        yield f"{code.meaning}{field}\n"
        yield f"**What to do:** {remedy.replace('<', '&lt;')} Reasons: {reasons}."
        if own := [row for table in TABLES for row in table if row.remedy and row.code == code.name]:
            yield ""
            yield from (f"* {row.source}: {row.remedy.replace('<', '&lt;')}" for row in own)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', '&#124;').replace('<', '&lt;') for cell in row)} |"


if __name__ == "__main__":
    sys.exit(write({PAGE: page()}))
