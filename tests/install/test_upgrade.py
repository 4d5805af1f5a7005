"""Core, CRDs and providers are upgraded from the release before, and rolled back, while models run: no model moves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal

import pytest
import yaml
from tests.install.fleet import TEAM, Fleet, fleet_of
from tests.install.helm import NAMESPACE, Helm, Major
from tests.install.installation import CHARTS_OF, Installation
from tests.install.kept import NotKept, Release, archived

from airunway.resource import Resource
from airunway_testing.controlplane.stages import OUTCOME

pytestmark = [pytest.mark.chart, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(580)]

MODELS = 20
PARTS = ("crds", *CHARTS_OF)
MOVES = {"crds": ("crds",), "core": ("core",), "providers": ("kaito", "vllm")}
"""Parts that are moved one right after the other: providers do not depend on each other."""


def models(number: int) -> Iterator[Resource]:
    """Models on both providers in turn."""
    for index in range(number):
        vllm = index % 2 == 0
        yield {
            "apiVersion": "airunway.ai/v1alpha1",
            "kind": "ModelDeployment",
            "metadata": {"name": f"model-{index}", "namespace": TEAM},
            "spec": {
                "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
                "engine": {"type": "llamacpp"},
                "provider": {"name": "vllm" if vllm else "kaito"},
                "resources": {"memory": "1Gi", "cpu": "1"},
                "image": "registry.example/llama-cpp:1",
            },
        }


@pytest.fixture(scope="module")
def fleet(helms: dict[Major, Helm], before: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    # Of a part's pods one program runs at a time here: a second pod is one more start of the same, twice a step.
    with fleet_of(helms[4], before, tmp_path_factory.mktemp("fleet"), CHARTS_OF, pods=1) as fleet:
        made = fleet.made
        made.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(models(MODELS)))
        fleet.running()
        yield fleet


def webhook_answers(made: Installation) -> bool:
    probe = yaml.safe_dump({**next(models(1)), "metadata": {"name": "probe", "namespace": TEAM}})
    return "created" in made.kubectl("create", "--dry-run=server", "-f", "-", stdin=probe)


def steps(moves: Sequence[str], *, directions: Literal[1, 2]) -> Iterator[str]:
    """What to move, one after the other: between any two neighbouring mixes of old and new, once in each of so many
    directions, and home again. (In one direction, an odd number of moves has the first of them in both.)

    Mixes are the corners of a cube; the walk along its edges is an Eulerian circuit, found by Hierholzer's algorithm.
    """
    again = moves[:1] if directions == 1 and len(moves) % 2 else ()
    mixes = (frozenset(mix) for size in range(len(moves) + 1) for mix in combinations(moves, size))
    ways = {mix: [*moves, *again] for mix in mixes}
    trail: list[tuple[frozenset[str], str]] = [(frozenset(), "")]
    walk: list[str] = []
    while trail:
        mix, arrived_by = trail[-1]
        if ways[mix]:
            move = ways[mix].pop()
            if directions == 1:
                ways[mix ^ {move}].remove(move)
            trail.append((mix ^ {move}, move))
        else:
            trail.pop()
            walk.append(arrived_by)
    return iter([move for move in reversed(walk) if move])


def test_a_checkout_without_the_history_says_what_to_do(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    with pytest.raises(NotKept, match="git fetch --unshallow"):
        archived(tmp_path)


@pytest.mark.parametrize(
    ("moves", "directions", "twice"),
    [(tuple(MOVES), 1, {"crds"}), (PARTS, 1, set()), (PARTS, 2, set(PARTS))],
    ids=["every-day", "once", "soak"],
)
def test_the_walk_has_every_step_of_every_order(
    moves: Sequence[str], directions: Literal[1, 2], twice: set[str]
) -> None:
    mix: frozenset[str] = frozenset()
    seen = []
    for move in steps(moves, directions=directions):
        seen.append((mix if move in twice else mix | {move}, move))
        mix ^= {move}
    assert not mix
    assert len(set(seen)) == len(seen)
    assert len(seen) == 2 ** (len(moves) - 1) * (len(moves) + len(twice))


def test_upgrades_and_back_in_any_order_leave_every_model_as_it_is(fleet: Fleet) -> None:
    """Between any two neighbouring mixes once, with one pod of each part."""
    lives_through(fleet, (part for move in steps(tuple(MOVES), directions=1) for part in MOVES[move]))


@pytest.mark.soak
def test_every_step_of_every_order_leaves_every_model_as_it_is(fleet: Fleet) -> None:
    lives_through(fleet, steps(PARTS, directions=2))


def lives_through(fleet: Fleet, walk: Iterable[str]) -> None:
    """Move the parts one after the other; no model may be changed by that."""
    before, authority = fleet.identities(), fleet.made.authority()
    assert authority
    assert len([name for name in before if name.startswith("Pod/")]) >= MODELS
    fleet.upstream_writes()
    new: set[str] = set()
    for number, part in enumerate(walk):
        if part in new:
            fleet.back(part)
        else:
            fleet.move(part)
        new ^= {part}
        if number % 8 == 7:  # the processes do work in between
            fleet.settled()
            assert fleet.identities() == before, (number, part, new)
    fleet.settled()
    assert fleet.identities() == before
    assert fleet.made.authority() == authority
    assert fleet.upstream_writes() == []
    assert len(fleet.made.objects("md", "-n", TEAM, "--field-selector=status.phase=Running")) == MODELS


def test_a_release_that_does_not_get_ready_leaves_the_old_one_serving(fleet: Fleet) -> None:
    """An image that nobody has: the pods of before stay, and the webhook answers."""
    made = fleet.made
    fleet.upstream_writes()
    broken = ("--set=image.tag=absent", f"--set-json=podAnnotations={json.dumps({OUTCOME: 'ImagePullBackOff'})}")
    before = {pod["metadata"]["uid"] for pod in made.objects("pods", "-n", NAMESPACE)}
    made.install("upgrade", "core", *broken)
    said = made.kubectl(
        "rollout", "status", "deployment/airunway-controller", "-n", NAMESPACE, "--timeout=5s", check=False
    )
    assert "timed out" in said
    assert before <= {pod["metadata"]["uid"] for pod in made.objects("pods", "-n", NAMESPACE)}
    assert webhook_answers(made)
    made.helm("rollback", CHARTS_OF["core"], "-n", NAMESPACE)
    fleet.settled()
    assert fleet.upstream_writes() == []


def test_by_helm_3_upgrades_and_back_leave_every_model_as_it_is(fleet: Fleet, helms: dict[Major, Helm]) -> None:
    """Helm 3 applies in another way, but in no other order: each part there and back once, with two pods of each."""
    fleet.upstream_writes()
    before = fleet.identities()
    again = fleet.reinstalled(helms[3], pods=2)
    assert again.identities() == before
    assert again.upstream_writes() == []
    lives_through(again, (*PARTS, *PARTS))
    again.made.uninstall()
    assert again.identities() == before
