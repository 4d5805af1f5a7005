"""A pure world for decisions on one template: what is recorded, its Jobs, and a clock."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airunway.configs.resolution import Resolution
from airunway.resource import Resource, condition_of, dig, format_time, key_of
from airunway.status.conditions import Condition
from airunway.status.rootcause import RootCause
from airunway_catalogue.discovery import TTL, Entrypoint
from airunway_catalogue.hardware import HardwareFit
from airunway_catalogue.template_state import Decision, Facts, decide_template

START = datetime(2026, 1, 1, tzinfo=UTC)
OUTPUT = json.dumps({"profile": {"precision": "fp8"}, "models": [{"name": "acme/tiny", "source": "hf://acme/tiny"}]})
NO_GPU = HardwareFit(available=True, reason="NotRequested", message="no GPU is asked for")
MISSING = HardwareFit(
    available=False,
    reason="GPUNotAvailable",
    message="no node has 2 x amd.com/gpu",
    resource="amd.com/gpu",
    summary="0 of 2 x amd.com/gpu",
)
PRESENT = HardwareFit(
    available=True,
    reason="GPUAvailable",
    message="1 node has 2 x MI300X",
    resource="amd.com/gpu",
    nodes=1,
    models=("MI300X",),
    tier=53,
    requirements=({"key": "amd.com/gpu.device-id", "operator": "In", "values": ["74a1"]},),
    summary="2 x MI300X",
)
NO_CONFIG = Resolution(name="default", config=None)


class Killed(Exception):
    """The process ended after a write."""


def template_of(*, name: str = "tiny", namespace: str = "team", **spec: Any) -> Resource:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": 1, "creationTimestamp": format_time(START)}
    if namespace:
        metadata["namespace"] = namespace
    kind = "ModelTemplate" if namespace else "ClusterModelTemplate"
    return {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": {"modelName": "acme/tiny", **spec},
    }


@dataclass(kw_only=True)
class World:
    """A template and what exists for it."""

    template: Resource
    now: datetime = START
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts that differ from the usual ones."""
    jobs: dict[str, Resource] = field(default_factory=dict)
    pods: dict[str, Resource] = field(default_factory=dict)
    created: list[str] = field(default_factory=list)
    """Names of the Jobs that were ever created."""
    writes: int = 0
    kill_at: int | None = None
    """The number of the write after which the process ends."""

    def decide(self) -> Decision:
        usual = Facts(
            template=copy.deepcopy(self.template),
            resolution=NO_CONFIG,
            hardware=NO_GPU,
            jobs=tuple(self.jobs.values()),
            pods=tuple(self.pods.values()),
            entrypoint=Entrypoint(words=("model",)),
            now=self.now,
        )
        return decide_template(replace(usual, **self.facts))

    def step(self) -> Decision:
        """One pass of the reconciler: status, deletions, creation, until nothing is left to do."""
        for _ in range(4):
            decision = self.decide()
            wrote = decision.status is not None and decision.status != self.template.get("status")
            if wrote:
                self.template["status"] = decision.status
                self._wrote()
            for job in decision.delete:
                if self.jobs.pop(key_of(job).name, None) is not None:
                    self.pods.pop(key_of(job).name, None)
                    self._wrote()
            if decision.create is not None and self.facts.get("slot", True):
                name = decision.create["metadata"]["name"]
                assert name not in self.jobs
                self.jobs[name] = copy.deepcopy(decision.create)
                self.created.append(name)
                self._wrote()
            elif not wrote:
                break
        return decision

    def _wrote(self) -> None:
        self.writes += 1
        if self.writes == self.kill_at:
            raise Killed

    def pass_time(self, **duration: float) -> None:
        """Let time pass; finished Jobs go after their time to live."""
        self.now += timedelta(**duration)
        for name, job in list(self.jobs.items()):
            ended = dig(job, "status", "ended")
            if ended is not None and ended + TTL <= self.now:
                del self.jobs[name]
                self.pods.pop(name, None)

    def end(
        self, *, output: str | None = OUTPUT, code: int = 0, reason: str = "", parts: dict[str, Resource] | None = None
    ) -> None:
        """The Job that runs ends; `parts` are the states of the containers after the first one."""
        (name,) = [name for name, job in self.jobs.items() if "status" not in job]
        moment = format_time(self.now)
        others = {"part-2": {"exitCode": 0}, "part-3": {"exitCode": 0}} if parts is None and code == 0 else parts or {}
        codes = [code, *(each["exitCode"] for each in others.values())]
        type_ = "Failed" if any(codes) else "Complete"
        self.jobs[name]["status"] = {
            "ended": self.now,
            "conditions": [{"type": type_, "status": "True", "lastTransitionTime": moment}],
        }
        terminated: Resource = {"exitCode": code, "finishedAt": moment, "reason": reason or "Completed"}
        if output is not None:
            terminated["message"] = output
        ends = {"discovery": terminated, **others}
        self.pods[name] = {
            "metadata": {"name": f"{name}-x", "labels": {"batch.kubernetes.io/job-name": name}},
            "status": {
                "initContainerStatuses": [_state(each, ends[each]) for each in ("discovery", "part-2") if each in ends],
                "containerStatuses": [_state(each, ends[each]) for each in ("part-3",) if each in ends],
            },
        }

    @property
    def status(self) -> Resource:
        found: Resource = self.template["status"]
        return found

    @property
    def record(self) -> Resource:
        """``status.discovery``."""
        found: Resource = self.status.get("discovery") or {}
        return found

    @property
    def phase(self) -> str:
        return str(self.status["phase"])

    def condition(self, type_: str) -> tuple[str, str]:
        found = condition_of(self.template, type_) or {}
        return str(found.get("status")), str(found.get("reason"))

    def message(self, type_: str) -> str:
        return str((condition_of(self.template, type_) or {}).get("message"))


def _state(name: str, terminated: Resource) -> Resource:
    return {"name": name, "state": {"terminated": terminated}}


def cause_of(reason: str, code: str = "ImagePull.NotFound") -> RootCause:
    return RootCause(
        code=code,
        object="Pod/team/x",
        field="spec.image",
        message=f"{reason} it is",
        since=START,
        remedy="",
        reason=reason,
    )


def refused(reason: str = "QuotaExceeded") -> Condition:
    return Condition(type="DiscoveryReady", status=False, reason=reason, message="exceeded quota: pods")
