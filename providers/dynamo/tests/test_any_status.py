"""Whatever stands in an upstream's status gives a state, never an exception: made out of the CRDs' own schemas, and out
of real statuses with something in them replaced. Seeded: a number of the seed replays a failure.
"""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.plugins.contract import Observed
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, copy_of

ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    2**63,
    1.5,
    "",
    "x",
    "True",
    "2026-13-99T99:99:99Z",
    [],
    {},
    [[]],
    {"": 0},
)
STATES = ("initializing", "pending", "successful", "failed", "", "deploying")
REASONS = ("all_resources_are_ready", "some_resources_are_not_ready", "insufficient_capacity", "rolling_update_failed")
SEEDED, SOAKED = 4_000, 100_000

FIXTURE: Resource = {
    "kind": "DynamoGraphDeployment",
    "metadata": {"name": "llama-8b", "generation": 3, "labels": {}, "annotations": {}},
    "spec": {
        "services": {
            "Frontend": {"componentType": "frontend", "replicas": 1},
            "worker": {"componentType": "worker", "replicas": 2, "multinode": {"nodeCount": 2}},
        },
        "components": [{"name": "prefill", "type": "prefill", "replicas": 1}, {"name": "decode", "type": "decode"}],
    },
    "status": {
        "state": "pending",
        "observedGeneration": 2,
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "some_resources_are_not_ready",
                "message": "Resources not ready: llama-8b-worker: desired=2, ready=1",
                "lastTransitionTime": "2026-03-06T13:33:50Z",
            }
        ],
        "services": {"worker": {"componentKind": "PodClique", "componentName": "a", "replicas": 2, "readyReplicas": 1}},
        "components": {"decode": {"componentKind": "Deployment", "replicas": 1, "availableReplicas": 1}},
        "rollingUpdate": {"phase": "InProgress"},
    },
}


def made_of(schema: Resource, chance: random.Random, depth: int = 0) -> Any:
    """Anything that the schema allows, and now and then something that it does not."""
    if chance.random() < 0.08:
        return chance.choice(ODD)
    if schema.get("enum"):
        return chance.choice([*schema["enum"], "Other"])
    match schema.get("type"):
        case "object":
            known = schema.get("properties") or {}
            found = {key: made_of(value, chance, depth + 1) for key, value in known.items() if chance.random() < 0.7}
            if isinstance(others := schema.get("additionalProperties"), dict):
                names = ("Frontend", "worker", "prefill", "decode", "x")
                found |= {name: made_of(others, chance, depth + 1) for name in names if chance.random() < 0.5}
            return found
        case "array":
            return [made_of(schema.get("items") or {}, chance, depth + 1) for _ in range(chance.randrange(4))]
        case "integer":
            return chance.randrange(-1, 5)
        case "boolean":
            return chance.random() < 0.5
        case "string":
            return chance.choice([*STATES, *REASONS, "Ready", "True", "False", "worker", "2026-03-06T13:33:50Z"])
    return chance.choice(ODD)


def mutated(node: Any, chance: random.Random) -> Any:
    """The same with a few things replaced, left out or doubled."""
    node = copy_of({"node": node})["node"]
    for _ in range(chance.randrange(1, 5)):
        at = node
        while isinstance(at, dict | list) and at:
            key = chance.choice(list(at)) if isinstance(at, dict) else chance.randrange(len(at))
            if chance.random() < 0.4 or not isinstance(at[key], dict | list):
                _spoil(at, key, chance)
                break
            at = at[key]
    return node


def _spoil(at: Any, key: Any, chance: random.Random) -> None:
    match chance.randrange(3):
        case 0:
            del at[key]
        case 1:
            at[key] = chance.choice([*ODD, *STATES, *REASONS])
        case _:
            at[key] = [at[key], at[key]]


def has_a_state(host: ProviderHost, deployment: Any, context: Any, observed: Observed, seed: int) -> None:
    found = host.translate_status(deployment, observed, context)
    (component,) = found.components
    assert isinstance(component.ready, bool), seed
    assert found.replicas is not None
    assert 0 <= found.replicas.ready <= found.replicas.desired, seed


def attempts(count: int) -> pytest.MarkDecorator:
    """So many by default, all of them if asked for."""
    return pytest.mark.parametrize(
        "seeds",
        [range(count), pytest.param(range(count, SOAKED // 2), marks=[pytest.mark.soak, pytest.mark.timeout(3600)])],
        ids=["some", "all"],
    )


@attempts(SEEDED // 2)
def test_mutated_statuses(host: ProviderHost, deployment: Any, context: Any, seeds: range) -> None:
    asked, contexts = deployment(), (context(), context(written="v1alpha1-0.4.1"))
    for seed in seeds:
        chance = random.Random(seed)
        graph = mutated(FIXTURE, chance)
        made = tuple(mutated({**FIXTURE, "kind": "PodClique"}, chance) for _ in range(chance.randrange(3)))
        objects = tuple(obj for obj in (graph, *made) if isinstance(obj, dict))
        applied = contexts[0].now if seed % 2 else None
        observed = Observed(primary=graph, objects=objects, applied=applied)
        has_a_state(host, asked, contexts[seed % 2], observed, seed)


@attempts(SEEDED // 2)
def test_statuses_out_of_the_schemas(
    upstream_crds: Path, host: ProviderHost, deployment: Any, context: Any, seeds: range
) -> None:
    schemas = []
    for release in ("v0.4.1", "v1.0.0", "v1.4.0-cut"):
        text = (upstream_crds / release / "dynamographdeployments.yaml").read_text()
        versions = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]["versions"]
        schemas += [version["schema"]["openAPIV3Schema"]["properties"]["status"] for version in versions]
    asked, ctx = deployment(), context()
    for seed in seeds:
        chance = random.Random(seed)
        graph = {**FIXTURE, "status": made_of(chance.choice(schemas), chance)}
        has_a_state(host, asked, ctx, Observed(primary=graph, objects=(graph,)), seed)
