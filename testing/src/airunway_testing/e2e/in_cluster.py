"""The rules that need an API server: what is written is accepted, and deployments live by the provider's rights.

The provider runs as an account of its own, with the rights that follow from its manifest and behind its guard, as a
chart installs it. Its upstream is the real operator, where the cluster has its CRDs, and the author's simulator
elsewhere. What was made is taken away, whatever ends it.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

from airunway.api import names
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import (
    CUSTOM_RESOURCE_DEFINITION,
    NAMESPACE,
    Client,
    Kind,
    KubeError,
    NotFound,
    load_config,
    user_agent_of,
    wait_until_established,
)
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.rbac.admission_policies import provider_guard
from airunway.rbac.rights import provider_rights, roles
from airunway.resource import Resource, key_of, labels_of
from airunway_testing.acceptance import in_namespace, refusal, without_owner
from airunway_testing.conformance import rules
from airunway_testing.conformance.report import Outcome, Report, Result
from airunway_testing.conformance.rules import RULES, Checked
from airunway_testing.conformance.subject import Subject
from airunway_testing.controlplane.access import RunningCluster
from airunway_testing.e2e import report as e2e
from airunway_testing.e2e.ground import LABEL, MANAGER
from airunway_testing.e2e.run import end_to_end, new_report
from airunway_testing.e2e.survey import Survey, survey
from airunway_testing.operator import running_simulator

_FORBIDDEN = re.compile(r"forbidden|\b403\b|denied the request", re.IGNORECASE)
_READY = 60.0


class Refused(Exception):
    """The cluster is not one to try a provider in; one sentence says why. Nothing was written."""


def examine_in_cluster(
    report: Report,
    *,
    kubeconfig: Path | None,
    context: str,
    i_know: bool,
    patience: float,
    wanted: Collection[str] = (),
    skipped: Mapping[str, str] | None = None,
) -> None:
    """Add what a cluster says to the report of a provider. Raises Refused."""
    skipped = skipped or {}
    asked = [rule.id for rule in RULES.values() if rule.checked is Checked.CLUSTER]
    report.results += [
        Result(rule=rule, outcome=Outcome.SKIPPED, texts=(skipped[rule],)) for rule in asked if rule in skipped
    ]
    asked = [rule for rule in asked if rule not in skipped and (not wanted or rule in wanted)]
    if not asked:
        return
    try:
        found = asyncio.run(_examine(report, kubeconfig, context, i_know=i_know, patience=patience))
    except (KubeError, TimeoutError, LookupError) as error:
        raise Refused(f"the cluster cannot be used: {error or type(error).__name__}") from error
    report.results += [result for result in found if result.rule in asked]


async def _examine(
    report: Report, kubeconfig: Path | None, context: str, *, i_know: bool, patience: float
) -> list[Result]:
    host = load(report.provider)
    with tempfile.TemporaryDirectory(prefix="airunway-check-") as folder:
        config = load_config(kubeconfig=kubeconfig, context=context or None)
        async with Client(config, user_agent=user_agent_of("check")) as client:
            await _allow(client, config.server, i_know=i_know)
            there = await survey(client, names=(host.name,))
            _can_live(there, config.server)
            cluster = RunningCluster(
                _file(kubeconfig, config.server), level="cluster", folder=Path(folder), context=context or None
            )
            run = new_report()
            async with AsyncExitStack() as stack:
                simulated = await stack.enter_async_context(_upstream(client, cluster.kubeconfig, host, there, run.run))
                report.facts = replace(
                    report.facts, cluster=f"Kubernetes {there.kubernetes}, nodes: {there.nodes}; upstream: {simulated}"
                )
                accepted = await _accepted(client, host)
                account = None
                if not there.candidates[0].runs:
                    account = await stack.enter_async_context(_account(client, cluster, host, run.run))
                await end_to_end(
                    run,
                    kubeconfig=cluster.kubeconfig,
                    providers=(host.name,),
                    patience=patience,
                    say=lambda _: None,
                    account=account,
                )
    return [accepted, *_of_the_life(run)]


def _file(kubeconfig: Path | None, server: str) -> Path:
    if kubeconfig is None:
        raise Refused(
            f"name the kubeconfig of {server} with --kubeconfig: a provider is not tried in any cluster by chance"
        )
    return kubeconfig


async def _allow(client: Client, server: str, *, i_know: bool) -> None:
    """A cluster that has ModelDeployments of others is somebody's: Raises Refused."""
    found: Sequence[Resource] = []
    with suppress(NotFound):  # AI Runway has never been there
        found = await client.list_all(MODEL_DEPLOYMENT)
    namespaces = {key_of(each).name: labels_of(each) for each in await client.list_all(NAMESPACE)} if found else {}
    others = [key_of(each) for each in found if LABEL not in namespaces.get(key_of(each).namespace, {})]
    if others and not i_know:
        raise Refused(
            f"{server} has {len(others)} ModelDeployments that the kit has not made ({others[0]}): it may be "
            "somebody's production; use another cluster, or add --i-know. Nothing was written"
        )


def _can_live(there: Survey, server: str) -> None:
    if there.nodes.startswith("0 "):
        raise Refused(
            f"{server} has no nodes, so that no model can run: `airunway controlplane up --level cluster` starts a "
            "cluster with simulated ones. Nothing was written"
        )


@asynccontextmanager
async def _upstream(
    client: Client, kubeconfig: Path, host: ProviderHost, there: Survey, run: str
) -> AsyncIterator[str]:
    """The operator that is there, or the simulator with its CRDs. Raises LookupError if there is neither."""
    if not there.candidates[0].lacks and there.candidates[0].upstream:
        yield f"the cluster's own ({'; '.join(there.candidates[0].upstream)})"
        return
    definitions = list(Subject(host).definitions.values())
    if not definitions and all(kind.builtin for kind in host.manifest.upstream if kind.required):
        yield "Kubernetes itself"
        return
    made = []
    try:
        for crd in definitions:
            labelled = {**crd, "metadata": {**crd["metadata"], "labels": {LABEL: run}}}
            if await client.find(CUSTOM_RESOURCE_DEFINITION, key_of(crd)) is None:
                made.append(await client.create(CUSTOM_RESOURCE_DEFINITION, labelled, manager=MANAGER))
        await wait_until_established(client, (key_of(crd).name for crd in definitions), timeout=_READY)
        async with running_simulator(kubeconfig, host, level="cluster"):
            yield "the author's simulator"
    finally:
        for crd in made:
            with suppress(KubeError):
                await client.delete(CUSTOM_RESOURCE_DEFINITION, key_of(crd))


@asynccontextmanager
async def _account(client: Client, cluster: RunningCluster, host: ProviderHost, run: str) -> AsyncIterator[Path]:
    """A kubeconfig of an account with the provider's rights and behind its guard."""
    namespace, account = f"check-{run[:4]}", names.provider_manager(host.name)
    user = f"system:serviceaccount:{namespace}:{account}"
    subject = {"kind": "ServiceAccount", "namespace": namespace, "name": account}
    name = f"airunway-check-{run}"
    # What has a namespace goes with that of the run; the rights are the whole cluster's for as long as it is there.
    whole = roles(provider_rights(host.manifest), name=name, namespace="default", subject=subject)
    objects = [*whole, *provider_guard(host.manifest, user, own=namespace, name=name)]
    try:
        for obj in objects:
            await client.apply(_kind_of(obj), obj, manager=MANAGER, force=True)
        yield cluster.kubeconfig_for(user)
    finally:
        for obj in reversed(objects):
            with suppress(KubeError):
                await client.delete(_kind_of(obj), key_of(obj))


def _kind_of(obj: Resource) -> Kind:
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    kind = str(obj["kind"])
    plural = f"{kind[:-1].lower()}ies" if kind.endswith("y") else f"{kind.lower()}s"
    return Kind(group, version, kind, plural, namespaced=kind in ("Role", "RoleBinding"))


async def _accepted(client: Client, host: ProviderHost) -> Result:
    """The objects of plain deployments, in a dry run."""
    subject, texts = Subject(host), dict[str, None]()
    for base_name, objects in subject.written.items():
        for obj in objects:
            kind = subject.kind_of(obj)
            if kind.builtin and kind.kind == "ServiceAccount":
                continue
            where = Kind(kind.group, str(obj["apiVersion"]).rpartition("/")[2], kind.kind, kind.plural)
            said = await refusal(client, where, without_owner(in_namespace(obj, "default")), manager=MANAGER)
            if said:
                texts[f"{base_name}: {kind.kind}: {said}"] = None
    return Result(rule=rules.ACCEPTED, outcome=Outcome.FAILED if texts else Outcome.PASSED, texts=tuple(texts))


def _of_the_life(run: e2e.Report) -> list[Result]:
    """What the steps of the life say about rights, life and endpoint."""
    failed = [result for result in run.results if result.outcome is e2e.Outcome.FAILED]
    denied = [f"{each.what}: {each.text}" for each in failed if _FORBIDDEN.search(each.text)]
    reached = [each for each in run.results if each.what.endswith("reach")]
    others = [each for each in failed if each not in reached and not _FORBIDDEN.search(each.text)]
    seconds = sum(result.seconds for result in run.results)
    broken = [f"{each.what}: {each.text}" for each in others] + [f"left behind: {text}" for text in run.left]
    if run.ended_early and (run.results or not run.missing):  # without samples, or an upstream, nothing was tried
        broken.append(run.ended_early)
    missing = tuple(run.missing)

    def outcome(texts: Sequence[str], *, seen: bool) -> Outcome:
        return Outcome.FAILED if texts else Outcome.PASSED if seen else Outcome.NOT_COMPARED

    lived = any(result.outcome is e2e.Outcome.PASSED for result in run.results)
    unreached = [f"{each.what}: {each.text}" for each in reached if each.outcome is e2e.Outcome.FAILED]
    return [
        Result(
            rule=rules.ACCOUNT,
            outcome=outcome(denied, seen=lived),
            texts=tuple(denied) or (missing if not lived else ()),
        ),
        Result(
            rule=rules.LIFE,
            outcome=outcome(broken, seen=lived),
            texts=tuple(broken) or (missing if not lived else ()),
            seconds=seconds,
        ),
        Result(rule=rules.REACHED, outcome=outcome(unreached, seen=bool(reached)), texts=tuple(unreached)),
    ]
