"""The core with its webhook beside a test: the whole process, kopf included, in a thread with a loop of its own.

kopf owns the loop that it runs in (at its end it cancels every task it finds there), so the test's own loop is not it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

from airunway.api import names
from airunway.controller.application import CoreApplication, CoreSettings
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, Invalid, NotFound, ServerError, load_config
from airunway.process.caches import Caches
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.manager import Factories, ManagerSettings, serve
from airunway.process.metric_catalogue import MetricsRole
from airunway.process.metrics import Metrics
from airunway.resource import ObjectKey
from airunway.webhook import WebhookSettings, webhook_settings
from airunway.webhook.application import Webhook
from airunway.webhook.configuration import CONFIGURATION_KIND
from airunway.webhook.server import Limits
from airunway_testing.controlplane.ports import reserved_ports

PATIENCE = 60.0
"""Seconds that anything here waits at most: a safety net for hung tests, not a measurement."""


@contextmanager
def local_settings(
    *,
    namespace: str,
    manage_configuration: bool = True,
    access_review: bool = True,
    access_review_pods: bool = False,
    access_review_routes: bool = True,
    client_ca: Path | None = None,
) -> Iterator[WebhookSettings]:
    """Settings of a webhook that the API server of this machine reaches by URL; its Secret is in `namespace`."""
    with reserved_ports(1) as (port,):
        settings = webhook_settings(
            bind_address=f"127.0.0.1:{port}",
            url=f"https://127.0.0.1:{port}",
            namespace=namespace,
            configuration=f"airunway-webhook-{namespace}",
            manage_configuration=manage_configuration,
            access_review=access_review,
            access_review_pods=access_review_pods,
            access_review_routes=access_review_routes,
            client_ca=client_ca,
        )
        assert settings is not None
        yield settings


@contextmanager
def running_webhook(
    kubeconfig: Path,
    webhook: WebhookSettings,
    *,
    settings: CoreSettings | None = None,
    clock: Callable[[], datetime] | None = None,
    limits: Limits | None = None,
    on_made: Callable[[Webhook, Metrics], None] | None = None,
) -> Iterator[CoreApplication]:
    """Core and webhook, ready, for as long as the context lasts; then the configuration goes too.

    `on_made` gets the webhook and what the process counts. Raises what ends the process early.
    """
    core_settings = settings or CoreSettings()
    made: list[CoreApplication] = []
    metrics = Metrics(names.CORE_MANAGER, role=MetricsRole.CORE)

    def make(client: Client) -> Factories:
        project = DeploymentProjection([names.CORE_MANAGER])
        caches = Caches(client, project=project, metrics=metrics, namespaces=core_settings.namespaces)
        core = CoreApplication(client=client, settings=core_settings, caches=caches)
        part = Webhook(
            client,
            core,
            webhook,
            namespaces=core_settings.namespaces,
            clock=clock,
            settle=0.2,
            on_review=metrics.on_review,
            on_turned_away=metrics.on_turned_away(),
            limits=limits,
        )
        core.add(part)
        if on_made is not None:
            on_made(part, metrics)
        made.append(core)
        return {names.CORE_MANAGER: lambda: core}

    async def main() -> None:
        process = asyncio.current_task()
        assert process is not None
        running.append((asyncio.get_running_loop(), process))
        config = load_config(kubeconfig=kubeconfig)
        await serve(config, make, ManagerSettings(component=names.CORE_MANAGER), metrics=metrics)

    async def called() -> None:
        """Return once the API server, which hears of its configurations by watch, calls the webhook."""
        where = next(iter(core_settings.namespaces), "default")
        probe = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": "probe", "namespace": where},
            "spec": {"model": {"id": "a"}, "provider": {"name": "nobody-at-all"}},
        }
        async with Client(load_config(kubeconfig=kubeconfig)) as client, asyncio.timeout(PATIENCE):
            while True:
                try:
                    await client.create(MODEL_DEPLOYMENT, probe, dry_run=True)
                except Invalid:
                    return
                except ServerError:
                    pass  # the bundle that it knows is not the last one yet
                await asyncio.sleep(0.02)

    async def clean_up() -> None:
        async with Client(load_config(kubeconfig=kubeconfig)) as client:
            with suppress(NotFound):
                await client.delete(CONFIGURATION_KIND, ObjectKey("", webhook.configuration))

    def work() -> None:
        try:
            with suppress(asyncio.CancelledError):
                asyncio.run(main())
            asyncio.run(clean_up())
        except BaseException as error:  # noqa: BLE001 - of another thread: it is raised in the test's
            failed.append(error)
        finally:
            ended.set()

    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []
    failed: list[BaseException] = []
    ended = threading.Event()
    thread = threading.Thread(target=work, name="webhook", daemon=True)
    thread.start()
    waited = 0.0
    try:
        while not made or made[0].unready() is not None:
            if ended.wait(0.02):
                raise failed[0] if failed else AssertionError("the process ended before it was ready")
            waited += 0.02
            if waited > PATIENCE:
                raise TimeoutError(f"not ready: {made[0].unready() if made else 'nothing was made'}")
        if webhook.manage_configuration:
            probing = threading.Thread(target=lambda: asyncio.run(called()), name="webhook-probe", daemon=True)
            probing.start()
            probing.join(PATIENCE)
        yield made[0]
    finally:
        if running and not ended.is_set():
            loop, task = running[0]
            loop.call_soon_threadsafe(task.cancel)
        thread.join(PATIENCE)
    if failed:
        raise failed[0]
