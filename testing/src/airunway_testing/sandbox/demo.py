"""The demonstration: samples are applied, and what becomes of each is compared with what it is there to show."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Reflector, load_config, user_agent_of
from airunway.resource import ObjectKey, Resource, dig
from airunway_testing.kubetools import kubectl_path
from airunway_testing.sandbox.samples import Sample, secrets_of

NAMESPACE = "default"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one sample came to. `deployment` is None for one that was refused; `text` is then kubectl's answer."""

    sample: Sample
    ok: bool
    deployment: Resource | None
    text: str


async def demonstrate(
    kubeconfig: Path,
    samples: Sequence[Sample],
    *,
    patience: float,
    show: Callable[[list[Resource]], None],
    say: Callable[[str], None],
) -> list[Outcome]:
    """Apply every sample with kubectl and wait until each has shown what it is there for, or `patience` seconds.

    Those that want a node alone come first, and are waited for before the others.
    """
    refusals: dict[str, Outcome] = {}
    for secret in secrets_of(samples):
        say(f"$ kubectl create secret generic {secret} --from-literal=HF_TOKEN=…    # what a gated model needs")
        done = await asyncio.to_thread(
            _kubectl, kubeconfig, "create", "secret", "generic", secret, "--from-literal=HF_TOKEN=no-real-token"
        )
        say(f"  {(done.stderr or done.stdout).strip()}")

    async def apply(sample: Sample) -> None:
        say(f"$ kubectl apply -f {sample.path.name}    # {sample.shows}")
        done = await asyncio.to_thread(_kubectl, kubeconfig, "apply", "-f", str(sample.path))
        answer = (done.stderr or done.stdout).strip()
        say(f"  {answer}")
        if sample.refused or done.returncode:
            ok = sample.refused and done.returncode != 0
            refusals[sample.name] = Outcome(sample=sample, ok=ok, deployment=None, text=answer)

    async with Client(load_config(kubeconfig=kubeconfig), user_agent=user_agent_of("sandbox")) as client:
        deployments = Reflector(client, MODEL_DEPLOYMENT, namespace=NAMESPACE)
        following = asyncio.create_task(follow(deployments, show))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    for alone in (True, False):
                        group = [sample for sample in samples if sample.alone is alone]
                        for sample in group:
                            await apply(sample)
                        await _until_shown(deployments, [sample for sample in group if sample.name not in refusals])
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        return [refusals.get(sample.name) or _outcome(sample, deployments) for sample in samples]


async def follow(deployments: Reflector, show: Callable[[list[Resource]], None]) -> None:
    """Call `show` with all deployments, by name, whenever one changes; at most twenty times a second."""
    changed = asyncio.Event()
    deployments.add_handler(lambda _key, _old, _new: changed.set())
    reading = asyncio.create_task(deployments.run())
    try:
        while True:
            await changed.wait()
            changed.clear()
            show([obj for _, obj in sorted(deployments.items())])
            await asyncio.sleep(0.05)
    finally:
        reading.cancel()


async def _until_shown(deployments: Reflector, samples: list[Sample]) -> None:
    changed = asyncio.Event()
    deployments.add_handler(lambda _key, _old, _new: changed.set())
    while not all(_outcome(sample, deployments).ok for sample in samples):
        await changed.wait()
        changed.clear()


def _outcome(sample: Sample, deployments: Reflector) -> Outcome:
    deployment = deployments.get(ObjectKey(NAMESPACE, sample.name))
    ok = deployment is not None and sample.is_shown_by(deployment)
    return Outcome(
        sample=sample, ok=ok, deployment=deployment, text=dig(deployment, "status", "message", default="nothing yet")
    )


def _kubectl(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [kubectl_path(), "--kubeconfig", kubeconfig, "--namespace", NAMESPACE, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
