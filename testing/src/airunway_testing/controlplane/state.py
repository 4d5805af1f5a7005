"""What `airunway controlplane up` leaves for `down`, `status` and the next shell: one small file for each that runs."""

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from airunway_testing.controlplane.cache import cache_root
from airunway_testing.controlplane.versions import Level


@dataclass(frozen=True, kw_only=True)
class RunningState:
    """A running control plane. `born` tells the process from a later one with the same number."""

    name: str
    level: Level
    pid: int
    born: str
    kubeconfig: str
    audit_log: str

    @classmethod
    def of(cls, *, name: str, level: Level, kubeconfig: Path, audit_log: Path | None) -> Self:
        """The state of a control plane that this process runs."""
        return cls(
            name=name,
            level=level,
            pid=os.getpid(),
            born=_born(os.getpid()),
            kubeconfig=str(kubeconfig),
            audit_log=str(audit_log or ""),
        )

    def exports(self) -> dict[str, str]:
        """The variables that make tests use it."""
        variable = "AIRUNWAY_TEST_CLUSTER_KUBECONFIG" if self.level == "cluster" else "AIRUNWAY_TEST_KUBECONFIG"
        return {variable: self.kubeconfig}


def state_folder(environment: Mapping[str, str]) -> Path:
    """Where the state files are; it may not exist yet."""
    return cache_root(environment) / "controlplane" / "running"


def save_state(state: RunningState, environment: Mapping[str, str]) -> None:
    """Write the state file; it appears whole."""
    path = _path(state.name, environment)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_suffix(f".{state.pid}")
    partial.write_text(json.dumps(dataclasses.asdict(state)))
    partial.replace(path)


def read_states(environment: Mapping[str, str]) -> list[RunningState]:
    """The control planes that run, by name; files of those that do not are removed."""
    states = []
    for path in sorted(state_folder(environment).glob("*.json")):
        state = RunningState(**json.loads(path.read_text()))
        if alive(state):
            states.append(state)
        else:
            path.unlink(missing_ok=True)
    return states


def alive(state: RunningState) -> bool:
    """Whether that very process still runs."""
    return _born(state.pid) == state.born


def forget(state: RunningState, environment: Mapping[str, str]) -> None:
    """Remove the state file."""
    _path(state.name, environment).unlink(missing_ok=True)


def _path(name: str, environment: Mapping[str, str]) -> Path:
    return state_folder(environment) / f"{name}.json"


def _born(pid: int) -> str:
    """When a process started, in the kernel's ticks since boot; "" when there is none (or it is only waiting to be
    reaped).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]
