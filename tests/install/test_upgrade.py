"""Core, CRDs and providers are upgraded from the release before, and rolled back, while models run: no model moves."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
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


@pytest.fixture(scope="module", params=[3, 4], ids=["helm3", "helm4"])
def fleet(
    request: pytest.FixtureRequest,
    helms: dict[Major, Helm],
    before: Release,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    helm = helms[request.param]
    # Of a part's pods one program runs at a time here: a second pod is one more start of the same, twice a step.
    with fleet_of(helm, before, tmp_path_factory.mktemp("fleet"), CHARTS_OF, pods=1 if helm.major == 4 else 2) as fleet:
        made = fleet.made
        made.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(models(MODELS)))
        fleet.running()
        yield fleet


def webhook_answers(made: Installation) -> bool:
    probe = yaml.safe_dump({**next(models(1)), "metadata": {"name": "probe", "namespace": TEAM}})
    return "created" in made.kubectl("create", "--dry-run=server", "-f", "-", stdin=probe)


def steps(*, directions: Literal[1, 2]) -> Iterator[str]:
    """Parts to be moved, one after the other: between any two neighbouring mixes of old and new, once in each of so
    many directions, and home again.

    Mixes are the corners of a cube; the walk along its edges is an Eulerian circuit, found by Hierholzer's algorithm.
    """
    ways = {frozenset(mix): list(PARTS) for size in range(len(PARTS) + 1) for mix in combinations(PARTS, size)}
    trail: list[tuple[frozenset[str], str]] = [(frozenset(), "")]
    walk: list[str] = []
    while trail:
        mix, arrived_by = trail[-1]
        if ways[mix]:
            part = ways[mix].pop()
            if directions == 1:
                ways[mix ^ {part}].remove(part)
            trail.append((mix ^ {part}, part))
        else:
            trail.pop()
            walk.append(arrived_by)
    return iter([part for part in reversed(walk) if part])


def tour() -> Iterator[str]:
    """Parts to be moved, one after the other: through every mix of old and new once, and back (a Gray code)."""
    for number in range(1, 2 ** len(PARTS)):
        yield PARTS[(number & -number).bit_length() - 1]
    yield PARTS[-1]


def test_a_checkout_without_the_history_says_what_to_do(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    with pytest.raises(NotKept, match="git fetch --unshallow"):
        archived(tmp_path)


def test_the_tour_sees_every_mix() -> None:
    mix: frozenset[str] = frozenset()
    seen = [mix := mix ^ {part} for part in tour()]
    assert len(set(seen)) == len(seen) == 2 ** len(PARTS)
    assert not seen[-1]


@pytest.mark.parametrize("directions", [1, 2])
def test_the_walk_has_every_step_of_every_order(directions: Literal[1, 2]) -> None:
    mix: frozenset[str] = frozenset()
    seen = []
    for part in steps(directions=directions):
        seen.append((mix if directions == 2 else mix | {part}, part))
        mix ^= {part}
    assert not mix
    assert len(set(seen)) == len(seen) == directions * 2 ** len(PARTS) * len(PARTS) // 2


def test_upgrades_and_back_in_any_order_leave_every_model_as_it_is(fleet: Fleet) -> None:
    """By helm 4 between any two neighbouring mixes once, with one pod of each part; by helm 3, which applies in another
    way but in no other order, every mix, with two.
    """
    lives_through(fleet, steps(directions=1) if fleet.made.helm.major == 4 else tour())


@pytest.mark.soak
def test_every_step_of_every_order_leaves_every_model_as_it_is(fleet: Fleet) -> None:
    lives_through(fleet, steps(directions=2))


def lives_through(fleet: Fleet, walk: Iterator[str]) -> None:
    """Move the parts one after the other; no model may be changed by that."""
    before = fleet.identities()
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
