"""The simulated programs next to the recorded ones: how each picker's health went, and how each sidecar started.

Out of a recording come the starts (release and flags) and what others did (pool, CRDs, rights); what the program did
has to follow. Configurations were not recorded, only what is wrong with them: they are written here by that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.recorded import recorded_by

from airunway.resource import Resource
from airunway_llmd_simulator.picker import (
    PODS,
    POOLS,
    START,
    Cluster,
    Process,
    Readable,
    health,
    looked,
    started,
    terminated,
)
from airunway_llmd_simulator.programs import Ended, PickerProgram, picker_of, sidecar_of

RECORDINGS = recorded_by("llmd-lws")


NEW: frozenset[Readable] = frozenset({("llm-d.ai", "inferenceobjectives"), ("llm-d.ai", "inferencemodelrewrites")})
OLD: frozenset[Readable] = frozenset({("inference.networking.x-k8s.io", "inferenceobjectives")})
BOTH: frozenset[Readable] = frozenset({PODS, POOLS})

NOT_PLAYED = {
    "epp-d-leader-election": "nobody here asks for leader election",
}
LACKS: dict[str, frozenset[Readable]] = {
    "epp-c-rbac-none": BOTH | NEW,
    "epp-c-rbac-no-pods": frozenset({PODS}),
    "epp-c-rbac-no-pool": frozenset({POOLS}),
    "epp-c-rbac-no-rewrites": frozenset({("llm-d.ai", "inferencemodelrewrites")}),
    "epp-c-rbac-no-rewrites-150s": frozenset({("llm-d.ai", "inferencemodelrewrites")}),
    "epp-c-rbac-pods-and-pool-only": NEW,
    "epp-h-pool-crd-missing": NEW | OLD,
}
"""Rights that the account did not have, by recording."""

SERVED: dict[str, frozenset[Readable]] = {
    "epp-h-pool-crd-missing": frozenset({PODS}),
    "epp-h-legacy-objectives": BOTH,
}
"""What was served when the recording began; the pool and the new group where nothing else stands here."""

PLAIN = """\
apiVersion: {version}
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: prefix-cache-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
    weight: 2
"""
APART = """\
apiVersion: {version}
kind: EndpointPickerConfig
plugins:
- type: disagg-headers-handler
- type: always-disagg-pd-decider
- type: disagg-profile-handler
  parameters: {{deciders: {{prefill: always-disagg-pd-decider}}}}
- type: decode-filter
- type: prefill-filter
"""
CURRENT, FORMER = "llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"
CONFIGS = {
    "old apiVersion inference.networking.x-k8s.io/v1alpha1": PLAIN.format(version=FORMER),
    "empty file": "",
    "unknown plugin type": PLAIN.format(version=CURRENT).replace("queue-scorer", "no-such-scorer"),
    "unknown field in a plugin's parameters": PLAIN.format(version=CURRENT).replace(
        "- type: prefix-cache-scorer", "- type: prefix-cache-scorer\n  parameters: {foo: 1}"
    ),
    "unknown top-level field": PLAIN.format(version=CURRENT) + "foo: 1\n",
    "pluginRef to an undeclared plugin": PLAIN.format(version=CURRENT).replace(
        "pluginRef: queue-scorer", "pluginRef: load-aware-scorer"
    ),
    "no schedulingProfiles": PLAIN.format(version=CURRENT).partition("schedulingProfiles")[0],
    "kind misspelt": PLAIN.format(version=CURRENT).replace("PickerConfig", "PickerConfigs"),
    "weight as text": PLAIN.format(version=CURRENT).replace("weight: 2", 'weight: "2"'),
    "profile without plugins": PLAIN.format(version=CURRENT).partition("  plugins:")[0],
}


def read(recording: str) -> list[Resource]:
    text = (RECORDINGS / f"{recording}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


# ------------------------------------------------------------------------------------------------------------ pickers


@dataclass(kw_only=True)
class Run:
    """One process of a recording: what it was started with, and how its health went (seconds since its start)."""

    name: str
    image: str
    args: list[str]
    begin: float
    end: float = 0.0
    went: list[tuple[float, str]] = field(default_factory=list)


def runs(entries: list[Resource]) -> list[Run]:
    found: list[Run] = []
    for entry in entries:
        what = str(entry.get("what", ""))
        if entry["kind"] == "EPP" and what.startswith("start "):
            image = what.removeprefix("start ")
            found.append(Run(name=entry["name"], image=image, args=entry["args"], begin=entry["t"]))
        elif entry["kind"] == "EPP" and found:
            said = _said(entry)
            if said and said != (found[-1].went or [(0.0, "")])[-1][1]:
                found[-1].went.append((entry["t"] - found[-1].begin, said))
    for run, after in zip(found, [*(run.begin for run in found[1:]), entries[-1]["t"]], strict=True):
        run.end = after
    return found


def _said(entry: Resource) -> str:
    if (ended := re.search(r"exit code (\d+)", str(entry.get("what", "")))) is not None:
        return f"ended {ended[1]}"
    told = entry.get("health")
    told = told.get("inference-extension", "") if isinstance(told, dict) else str(told or "")
    return told.partition(" ")[0] if "SERVING" in told else ""


def cluster_at(recording: str, entries: list[Resource], seconds: float) -> Cluster:
    """What was there, by what the script did and the API server told."""
    served = set(SERVED.get(recording, BOTH | NEW))
    lacks = set(LACKS.get(recording, ()))
    pool = False
    bound = any("RoleBinding" in str(entry.get("what")) for entry in entries)
    for entry in entries:
        if entry["t"] > seconds:
            break
        what = str(entry.get("what", ""))
        if entry["kind"] == "InferencePool" and "event" in entry:
            pool = entry["event"] == "ADDED"
        elif "server-side apply" in what and "InferencePool" in what and entry.get("code") in (200, 201):
            pool = True
        elif "RoleBinding" in what:
            bound = False
        elif (crd := re.match(r"CRD (\w+)\.(\S+) .*(installed|deleted)|CRD (\w+)\.(\S+) deleted", what)) is not None:
            kind = (crd[2] or crd[5], crd[1] or crd[4])
            (served.discard if "deleted" in what else served.add)(kind)
    if bound:  # the binding comes only later
        lacks |= BOTH | NEW | OLD
    return Cluster(served=frozenset(served), readable=frozenset((BOTH | NEW | OLD) - lacks), pool=pool)


def played(recording: str, entries: list[Resource], run: Run) -> Iterator[tuple[float, str]]:
    """How the health of the simulated program goes in its place."""
    program = picker_of(run.image)
    assert program is not None, run.image
    state = _start(program, recording, entries, run)
    stop = next((e["t"] for e in entries if "SIGTERM" in str(e.get("what")) and e["t"] >= run.begin), None)
    before, now = "", run.begin + 0.2
    while now <= run.end:
        cluster = cluster_at(recording, entries, now)
        if isinstance(state, Process):
            state = looked(state, cluster, now)
        if isinstance(state, Process) and stop is not None and now >= stop:
            state = terminated(state, now)
        said = f"ended {state.code}" if isinstance(state, Ended) else health(state, cluster)
        if said != before:
            yield now - run.begin, said
        if isinstance(state, Ended):
            return
        before, now = said, now + 0.1


def _start(program: PickerProgram, recording: str, entries: list[Resource], run: Run) -> Process | Ended:
    config = CONFIGS.get(run.name, PLAIN.format(version=CURRENT))
    if "llmd-b" in recording or "-f-pd" in recording:
        config = APART.format(version=FORMER if run.name.startswith("old apiVersion") else CURRENT)
    ended = program.start(run.args, config if "--config-file" in run.args else None)
    return ended or started(program, cluster_at(recording, entries, run.begin), run.begin)


def names(told: list[tuple[float, str]]) -> list[str]:
    """The order of what was told. A start is NOT_SERVING for so short a time that a look at it can miss it."""
    found = [said for _, said in told]
    return found[1:] if found[:2] == ["NOT_SERVING", "SERVING"] else found


PICKERS = sorted(path.stem for path in RECORDINGS.glob("epp-*.jsonl") if path.stem not in NOT_PLAYED)


@pytest.mark.parametrize("recording", PICKERS)
def test_the_health_of_a_picker_goes_as_it_was_recorded(recording: str) -> None:
    entries = read(recording)
    found = runs(entries)
    assert found
    for run in found:
        told = list(played(recording, entries, run))
        assert names(told) == names(run.went), run.name
        # Rights are looked for with growing pauses, up to twelve seconds of them (fact 25).
        late = 12.5 if recording == "epp-c-rbac-later" else 0.7
        for (when, said), (recorded, _) in zip(reversed(told), reversed(run.went), strict=False):
            assert abs(when - recorded) < late, (run.name, said, when, recorded)


def test_every_recording_of_a_picker_is_played_or_said_not_to_be() -> None:
    every = {path.stem for path in RECORDINGS.glob("epp-*.jsonl")}
    assert every == set(PICKERS) | set(NOT_PLAYED)
    ends = [said for recording in PICKERS for run in runs(read(recording)) for _, said in run.went if "ended" in said]
    assert {"ended 0", "ended 1", "ended 2"} == set(ends), "the recordings have each way to end"
    assert START < 1


# ----------------------------------------------------------------------------------------------------------- sidecars


@pytest.mark.parametrize("version", ["v0.7.1", "v0.8.0", "v0.9.0", "v0.10.0"])
def test_a_sidecar_starts_as_it_was_recorded(version: str) -> None:
    program = sidecar_of(f"registry.example/sidecar:{version}")
    assert program is not None
    starts = [entry for entry in read(f"sidecar-{version}") if entry["kind"] == "Sidecar" and "args" in entry]
    assert len(starts) > 10
    for entry in starts:
        end = program.start(entry["args"])
        assert (end.code if end is not None else None) == entry["exit"], entry["what"]
        assert (end is None) is entry["running"]
        if end is not None and end.code == 0 and "Invalid" in end.words:
            assert end.words.rpartition(": ")[2] in " ".join(entry["log"]), "the choice that it names"
