"""A backup that is restored has no status. Whatever restarts meanwhile, and whatever is missing by then, what serves is
neither deleted nor made anew.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.support.audit import AuditReader
from tests.support.toy_variants import toy_host

from airunway.api import names
from airunway.controller.application import CoreSettings
from airunway.kinds import MODEL_DEPLOYMENT, MODEL_TEMPLATE
from airunway.kube import Client
from airunway.resource import ObjectKey, Resource, uid_of
from airunway.sdk import SelectionMode, SelectionRule
from airunway_testing.expectations import condition_is, reason_is, running_at
from airunway_testing.operator import (
    deployments,
    install_definitions,
    remove_leftovers,
    running_core,
    running_provider,
    running_simulator,
    until,
)
from airunway_testing.simulators import load_simulator
from airunway_testing.toy.names import TOY

pytestmark = [pytest.mark.apiserver, pytest.mark.slow]

ENGINE: Resource = {"engine": {"type": "vllm"}, "resources": {"gpu": {"count": 1}}}
MODEL: Resource = {"model": {"id": "org/model"}, **ENGINE}
TOYS: Resource = {"provider": {"name": "toy"}}


async def test_a_lost_status_deletes_nothing_while_core_and_provider_restart(
    kubeconfig: Path, client: Client, namespace: str, audit_log: Path
) -> None:
    await install_definitions(client, load_simulator("toy").custom_resource_definitions())
    await remove_leftovers(client)
    rules = (SelectionRule(condition="true", priority=10),)
    host = toy_host(selection=SelectionMode.AUTO, selection_rules=rules)
    template = ObjectKey(namespace, "tiny")
    metadata: Resource = {"name": template.name, "namespace": namespace}
    body = {"apiVersion": names.API_VERSION, "kind": MODEL_TEMPLATE.kind, "metadata": metadata}
    await client.create(MODEL_TEMPLATE, {**body, "spec": {"modelName": "org/model", "defaults": ENGINE}})
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running_simulator(kubeconfig, host, level="api"))
        # The last to be left: the deployments are deleted while core and provider run.
        core = await stack.enter_async_context(AsyncExitStack())
        provider = await stack.enter_async_context(AsyncExitStack())
        create = await stack.enter_async_context(deployments(client, namespace, {}))

        async def start(*, provider_first: bool, selector: bool = True) -> None:
            settings = CoreSettings(selector=selector)
            both = [
                core.enter_async_context(running_core(kubeconfig, settings=settings)),
                provider.enter_async_context(running_provider(kubeconfig, host)),
            ]
            for each in reversed(both) if provider_first else both:
                await each

        async def lose() -> None:
            for key in keys:
                lost = {"status": None}
                await client.merge_patch(MODEL_DEPLOYMENT, key, lost, subresource="status", manager="restore")

        await start(provider_first=False)
        plain = [await create(f"plain-{number}", **MODEL, **TOYS) for number in range(6)]
        chosen = [await create(f"chosen-{number}", **MODEL) for number in range(3)]
        keys = [*plain, *chosen, await create("templated", **TOYS, templateRef={"name": "tiny"})]
        for key in keys:
            await until(client, key, running_at(1))
        made = {key: uid_of(await client.get(TOY, key)) for key in keys}
        log = AuditReader(audit_log)

        for provider_first in (True, False):
            async with asyncio.TaskGroup() as both_end:
                both_end.create_task(core.aclose())
                both_end.create_task(provider.aclose())
                both_end.create_task(lose())
            await lose()
            await start(provider_first=provider_first)
            await lose()  # once more, while they work
            for key in keys:
                await until(client, key, running_at(1))

        await client.delete(MODEL_TEMPLATE, template)
        await provider.aclose()
        await core.aclose()
        await lose()
        await start(provider_first=False, selector=False)
        await until(client, keys[-1], reason_is("TemplateReady", "TemplateNotFound"))
        for key in plain:
            await until(client, key, running_at(1))
        for key in chosen:  # a custom selector has not answered yet
            await until(client, key, condition_is("Validated", "True"))
        await provider.aclose()  # what it would have deleted, it has by now
        await provider.enter_async_context(running_provider(kubeconfig, host))
        answer = {"apiVersion": names.API_VERSION, "kind": MODEL_DEPLOYMENT.kind}
        for key in chosen:
            body = {**answer, "metadata": {"name": key.name, "namespace": namespace}}
            body["status"] = TOYS
            await client.apply(MODEL_DEPLOYMENT, body, manager="selector", subresource="status")
        for key in chosen:
            await until(client, key, running_at(1))
        assert {key: uid_of(await client.get(TOY, key)) for key in keys} == made
        deleted = [each for each in log.read() if each.verb == "delete" and each.namespace == namespace]
        assert [f"{each.agent}: {each.resource} {each.name}" for each in deleted if each.resource == "toys"] == []
