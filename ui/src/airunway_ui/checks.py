"""Whether a draft fits on the cluster's GPUs, and what every provider says to it."""

from __future__ import annotations

import asyncio
from typing import Any

from airunway.api.base import ParseError
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, KubeError
from airunway.plugins.errors import PluginError
from airunway.redaction import bounded
from airunway.resource import Resource, dig
from airunway.sizing.fit import Fit, NodeFit
from airunway.sizing.inventory import Inventory
from airunway.sizing.report import kv_sentence, layout_text, weights_sentence
from airunway.sizing.values import ModelConfigError, Unknown, gib
from airunway.snapshots.followed import read_for
from airunway.snapshots.model_files import facts_of
from airunway.tools.expanded import SpecError, expanded
from airunway.tools.fit import Sized, sized, verdicts
from airunway.unseen import Unseen

_MOST_ROWS = 50

_STATES = {"fits": "ok", "tight": "progress", "selected": "ok", "eligible": "unknown", "unknown": "unknown"}


async def sizing_of(client: Client, draft: Resource, around: Inventory, *, sequences: int) -> dict[str, Any]:
    """Returns the sizing of a draft (with what its template gives) as rows, or why there is none."""
    deployment = {**draft, "kind": MODEL_DEPLOYMENT.kind}
    unseen: list[Unseen] = []
    try:
        templates = await read_for(client, [deployment])
        unseen += templates.unseen
        (found,) = expanded([deployment], templates.items)
        if found.problem:
            return {"problem": found.problem, "unseen": unseen}
        if not dig(found.deployment, "spec", "model", "id"):
            return {"unseen": unseen}
        asks = bool(dig(found.deployment, "spec", "resources", "gpu", "count")) or bool(
            dig(found.deployment, "spec", "scaling", "decode")
        )
        result = await asyncio.to_thread(
            sized,
            found.deployment,
            around,
            facts_of=lambda model: facts_of(model, added=around.models),
            sequences=sequences,
            as_model=not asks,
        )
    except (KubeError, SpecError, ParseError, PluginError, ModelConfigError, OSError) as error:
        return {"problem": bounded(str(error), 500), "unseen": unseen}
    return {"sized": result, "rows": rows_of(result), "unseen": [*unseen, *result.unseen]}


def rows_of(found: Sized) -> dict[str, Any]:
    """Returns what the page shows of a sizing: all of it texts."""
    return {
        "model": found.checkpoint.model,
        "licence": found.checkpoint.licence or "",
        "weights": weights_sentence(found.checkpoint),
        "cache": kv_sentence(found.checkpoint),
        "engine": found.engine or f"none: {found.explanation.message}",
        "refused": found.refused,
        "as_model": found.as_model,
        "roles": [_role(role.name, role.workers, fit) for role, fit in found.roles],
        "providers": [
            (name, verdict, _STATES.get(verdict, "problem"), "yes" if name in found.spanning else "no", detail)
            for name, verdict, detail in verdicts(found.explanation)
        ],
    }


def _role(name: str, workers: int, found: Fit) -> dict[str, Any]:
    best = next((row.estimate for row in found.nodes if row.estimate is not None and not row.obstacles), None)
    pipeline = ""
    if found.pipeline is not None:
        estimate = found.pipeline.estimate
        pipeline = (
            f"Over nodes: {estimate.verdict.value} as {layout_text(estimate)}, one stage on each of "
            f"{estimate.layout.stages} nodes; only by a provider that spans nodes. {estimate.why}"
        )
        best = estimate if estimate.usable else best
    legal = found.legal
    terms = []
    about = ""
    if best is not None and best.terms:
        memory = best.gpu.memory
        about = f"On one GPU of {layout_text(best)}, {best.gpu.product or 'unnamed'}, " + (
            "unknown memory" if isinstance(memory, Unknown) else f"{gib(memory)} ({best.gpu.memory_source})"
        )
        terms = [(term.name, gib(term.size), term.source) for term in best.terms]
        if best.budget is not None:
            terms.insert(0, ("budget", gib(best.budget.size), best.budget.source))
        if best.pool is not None:
            terms.append(("left for KV cache", gib(best.pool), "budget less the above"))
    return {
        "name": name,
        "workers": workers,
        "legal": legal.why if isinstance(legal, Unknown) else f"{', '.join(map(str, legal))} GPUs of one node",
        "nodes": [_node(row) for row in found.nodes[:_MOST_ROWS]],
        "wanted": found.workload.resource,
        "pipeline": pipeline,
        "about": about,
        "terms": terms,
        "notes": list(found.workload.problems),
    }


def _node(row: NodeFit) -> tuple[str, str, str, str, str, str, str]:
    free = f"?/{row.allocatable}" if isinstance(row.free, Unseen) else f"{row.free}/{row.allocatable}"
    found = row.estimate
    verdict = found.verdict.value if found is not None else "no free GPUs"
    why = found.why if found is not None else row.why
    names = row.nodes[0] if len(row.nodes) == 1 else f"{row.nodes[0]} and {len(row.nodes) - 1} more"
    return (
        names,
        row.gpu.product or "unknown",
        free,
        layout_text(found) if found is not None else "–",
        verdict,
        "problem" if row.obstacles else _STATES.get(verdict, "problem"),
        "; ".join(filter(None, (*row.obstacles, why))),
    )
