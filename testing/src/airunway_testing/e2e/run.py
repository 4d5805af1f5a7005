"""All of it, in order: look, make ground, live through every provider, clean up, say what was found."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from airunway import __version__
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import ApiError, Client, KubeError, load_config, user_agent_of
from airunway.resource import ObjectKey, condition_of, format_time
from airunway.webhook.configuration import WEBHOOK
from airunway_testing.e2e.ground import MANAGER, Ground, GroundError
from airunway_testing.e2e.life import STEPS, Failed, Life, Missing
from airunway_testing.e2e.report import Outcome, Report, Result
from airunway_testing.e2e.survey import Candidate, Survey, kinds_of, survey
from airunway_testing.sandbox.samples import Sample

Say = Callable[[str], None]

_ANSWER = 15.0
"""Seconds in which a core that runs says something of a new deployment."""


async def end_to_end(
    report: Report,
    *,
    kubeconfig: Path,
    context: str = "",
    providers: tuple[str, ...] = (),
    settings: tuple[str, ...] = (),
    patience: float,
    say: Say,
    account: Path | None = None,
) -> None:
    """Fill in `report`; the providers use the kubeconfig of `account`, if there is one.

    Whatever ends it, cancellation too, what was made in the cluster is taken away first.

    Raises KubeError if there is no talking to the cluster.
    """
    config = load_config(kubeconfig=kubeconfig, context=context or None)
    async with Client(config, user_agent=user_agent_of("e2e")) as client:
        found = await survey(client, names=providers)
        chosen = _chosen(found, report, providers)
        ground = Ground(client, kubeconfig=kubeconfig, context=context, run=report.run)
        try:
            chosen = await _prepare(client, ground, chosen, report, settings=settings, say=say, account=account)
            for candidate in chosen:
                await _live_through(client, ground, candidate, found, report, patience=patience, say=say)
        except asyncio.CancelledError:
            report.ended_early = "it was interrupted"
            raise
        except (GroundError, KubeError, TimeoutError) as error:
            report.ended_early = str(error) or type(error).__name__
        finally:
            say(f"Cleaning up: namespace {ground.namespace}.")
            report.left = await _to_its_end(ground.close())


def new_report() -> Report:
    """An empty one, of a run that nobody else has the name of."""
    return Report(run=uuid.uuid4().hex[:8])


def _chosen(found: Survey, report: Report, providers: tuple[str, ...]) -> list[Candidate]:
    """The providers that have samples and an upstream; what the others lack is noted."""
    report.facts |= {
        "begun": format_time(datetime.now(UTC)),
        "Kubernetes": found.kubernetes,
        "nodes": found.nodes + (", simulated" if found.simulated else ""),
    }
    known = {candidate.name for candidate in found.candidates}
    report.missing += [f"{name}: no such provider is installed here" for name in providers if name not in known]
    chosen = []
    for candidate in found.candidates:
        of = f"{candidate.name} {candidate.host.manifest.version}"
        report.facts[f"upstream of {of}"] = "; ".join(candidate.upstream) or "Kubernetes itself"
        if candidate.lacks:
            report.missing.append(f"{candidate.name}: the cluster does not serve {candidate.lacks}")
        elif not candidate.samples:
            report.missing.append(f"{candidate.name}: the provider comes without samples")
        else:
            chosen.append(candidate)
    return chosen


async def _prepare(
    client: Client,
    ground: Ground,
    chosen: list[Candidate],
    report: Report,
    *,
    settings: tuple[str, ...],
    say: Say,
    account: Path | None,
) -> list[Candidate]:
    """A namespace, and somebody who answers in it; the providers that do."""
    if not chosen:
        raise GroundError("no installed provider has samples and its upstream in this cluster")
    say(f"Namespace {ground.namespace}; providers: {', '.join(candidate.name for candidate in chosen)}.")
    await ground.make_namespace([sample for candidate in chosen for sample in candidate.samples])
    await ground.install_definitions()
    if await _core_answers(client, ground.namespace):
        report.facts["AI Runway"] = "runs in the cluster"
        for candidate in chosen:
            if not candidate.runs:
                report.missing.append(
                    f"{candidate.name}: the provider does not run in the cluster, although the core does"
                )
        return [candidate for candidate in chosen if candidate.runs]
    say("AI Runway does not answer there: starting it on this machine, for this namespace alone.")
    report.facts["AI Runway"] = f"did not answer in the cluster; {__version__} ran on this machine for this namespace"
    await ground.start([candidate.name for candidate in chosen], settings=settings, account=account)
    return chosen


async def _core_answers(client: Client, namespace: str) -> bool:
    """Whether a core that is responsible for the namespace runs: it judges a deployment that no provider can run.

    With its webhook it refuses the deployment, else it writes a condition.
    """
    key = ObjectKey(namespace, "is-anybody-there")
    spec = {"model": {"id": "none"}, "provider": {"name": "nobody"}}
    body = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.kind, "spec": spec}
    try:
        await client.create(
            MODEL_DEPLOYMENT, {**body, "metadata": {"name": key.name, "namespace": namespace}}, manager=MANAGER
        )
    except ApiError as error:
        if error.status < 500 and f'"{WEBHOOK}" denied the request' in str(error):
            return True
        raise  # 500 is what the API server says of a webhook that it does not reach
    try:
        async with asyncio.timeout(_ANSWER):
            while condition_of(await client.get(MODEL_DEPLOYMENT, key), "Validated") is None:
                await asyncio.sleep(0.2)
    except TimeoutError:
        return False
    finally:
        await client.delete(MODEL_DEPLOYMENT, key)
    return True


async def _live_through(
    client: Client, ground: Ground, candidate: Candidate, found: Survey, report: Report, *, patience: float, say: Say
) -> None:
    """Every sample; the first that runs is lived with."""
    lived = False
    for sample in candidate.samples:
        life = Life(
            client=client,
            key=ObjectKey(ground.namespace, sample.name),
            provider=candidate.name,
            kinds=kinds_of(candidate),
            patience=patience,
        )
        shown = await _step(report, candidate.name, f"sample {sample.name}", life.begin(sample), say)
        if shown and not lived and _serves(sample):
            lived = True
            for step in STEPS:
                await _step(report, candidate.name, f"{sample.name}: {step.__name__}", step(life), say)
        await _step(report, candidate.name, f"{sample.name}: delete", life.delete(), say)


def _serves(sample: Sample) -> bool:
    return sample.phase == "Running" and not sample.refused


async def _step(report: Report, provider: str, what: str, doing: Awaitable[str], say: Say) -> bool:
    """Wait for it and note how it ended; whether well."""
    begun = time.monotonic()
    result = Result(provider=provider, what=what.replace("_", " "), outcome=Outcome.PASSED)
    try:
        result = replace(result, text=await doing)
    except Missing as lack:
        result = replace(result, outcome=Outcome.MISSING, text=str(lack))
        report.missing.append(f"{provider}, {result.what}: {lack}")
    except (Failed, KubeError) as error:
        result = replace(result, outcome=Outcome.FAILED, text=str(error))
    result = replace(result, seconds=time.monotonic() - begun)
    report.results.append(result)
    say(f"{provider}: {result.what}: {result.outcome} ({result.seconds:.1f} s) {result.text}"[:400])
    return result.outcome is Outcome.PASSED


async def _to_its_end(cleaning: Awaitable[list[str]]) -> list[str]:
    """Cleaning up is not interrupted by a second Ctrl-C."""
    task = asyncio.ensure_future(cleaning)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
        except KubeError as error:
            return [f"cleaning up failed: {error}"]
    return task.result()
