"""What a deployment's status would have said in the run of real Ray behind the real KubeRay: its findings, by number.

What was recorded is listed in tests/recordings/ray-2.56.md.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.kuberay.replayed import statuses
from tests.recorded import recorded_by

from airunway.cli.main import app
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource


@pytest.fixture(scope="session")
def traces() -> Path:
    return recorded_by("ray-2.56")


def told(traces: Path, name: str, host: ProviderHost) -> list[tuple[float, Resource]]:
    found = list(statuses(traces / f"{name}.jsonl", host))
    assert len(found) > 2
    return found


def running(path: Path) -> list[tuple[float, int]]:
    """How many replicas of the model ran when the real Ray was asked."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["kind"] == "RealRay" and isinstance(row.get("answer"), dict) and "llm" in row["answer"]:
            parts = row["answer"]["llm"][2]
            model = next((part for name, part in parts.items() if name.startswith("LLMServer")), None)
            if model is not None:
                found.append((row["t"], sum(state == "RUNNING" for state in model[3])))
    return found


def test_real_kuberay_4_no_replica_is_available_that_ray_does_not_have(traces: Path, kuberay: ProviderHost) -> None:
    """The old count was 1/1 for the whole of a failed engine change, and while the only replica loaded anew."""
    story, seen = told(traces, "real", kuberay), running(traces / "real.jsonl")
    nothing = [moment for moment, replicas in seen if not replicas]
    assert len(nothing) > 10
    for moment in nothing:
        # KubeRay writes what it has been told a moment later; what stands then must not claim a replica.
        after = next((s for t, s in story if t > moment + 0.3), None)
        before = [s for t, s in story if t <= moment + 0.3][-1]
        assert 0 in (before["replicas"]["available"], (after or before)["replicas"]["available"]), moment


def test_real_kuberay_5_no_replica_is_ready_without_a_ready_pod(traces: Path, kuberay: ProviderHost) -> None:
    """The operator was down while the only worker, and then the head, was lost: KubeRay's last word was 1."""
    lost = [s for _, s in told(traces, "opd", kuberay) if s["message"].startswith("No pod is ready")]
    assert lost
    assert {s["replicas"]["summary"] for s in lost} == {"0/1"}


def test_real_kuberay_6_a_missing_service_account_is_the_reason(traces: Path, kuberay: ProviderHost) -> None:
    """It was "the Ray cluster starts", for ever."""
    *_, (_, last) = [(t, s) for t, s in told(traces, "noacct", kuberay) if s["reason"] != "Terminating"]
    assert last["reason"] == "InvalidSpec"
    assert "does-not-exist is not found" in last["message"]
    assert last["rootCause"]["code"] == "Provider.Rejected"


def test_real_kuberay_10_the_root_cause_stands_at_the_first_failed_try(traces: Path, kuberay: ProviderHost) -> None:
    """Of three, with a model load each: it stood after the third."""
    story = told(traces, "real", kuberay)
    first = next(t for t, s in story if s.get("rootCause", {}).get("code") == "Engine.OutOfMemory")
    given_up = next(t for t, s in story if "DEPLOY_FAILED" in s["message"])
    assert given_up - first > 10


def test_real_kuberay_11_a_repair_does_not_show_the_old_failure_again(traces: Path, kuberay: ProviderHost) -> None:
    """Deploying, Degraded with the old error for two seconds, Deploying: the middle is gone."""
    story = told(traces, "real", kuberay)
    repaired = [(t, s) for t, s in story if 265.7 < t < 284]
    assert repaired
    assert {s["phase"] for _, s in repaired} == {"Deploying"}


def test_real_kuberay_13_what_is_stopped_reads_scaled_to_zero(traces: Path, kuberay: ProviderHost) -> None:
    """It was "RayService one is ready", beside 0/0."""
    story = [s for _, s in statuses(recorded_by("kuberay-v1.7.0") / "h-suspend.jsonl", kuberay)]
    stopped = [s for s in story if s["phase"] == "Running" and s["replicas"]["desired"] == 0]
    assert stopped
    assert all(s["message"].endswith(" is scaled to zero") for s in stopped)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        ({}, "provider 'kuberay' requires GPU (set resources.gpu.count > 0)"),
        ({"type": "vllm"}, "vLLM engine requires GPU (set resources.gpu.count > 0)"),
    ],
    ids=["engine open", "engine named"],
)
def test_real_kuberay_13_without_gpus_the_provider_is_said_to_need_them(engine: Resource, says: str) -> None:
    """It was "no engines available from registered providers", of which a user of one provider knows nothing."""
    spec = {"model": {"id": "o/m"}, "provider": {"name": "kuberay"}, "engine": engine}
    deployment = {
        "apiVersion": MODEL_DEPLOYMENT.api_version,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": {"name": "llama", "namespace": "ml"},
        "spec": spec,
    }
    words = ["explain", "-f", "-", "--providers", "installed"]
    assert says in CliRunner().invoke(app, words, input=yaml.safe_dump(deployment)).output
