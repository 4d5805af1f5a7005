"""What a run makes in the cluster and on this machine, and how all of it goes again, whatever happens."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from airunway.api import names
from airunway.api.crds import custom_resource_definitions
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import (
    CUSTOM_RESOURCE_DEFINITION,
    NAMESPACE,
    AlreadyExists,
    Client,
    Kind,
    KubeError,
    NotFound,
    wait_until_established,
)
from airunway.resource import ObjectKey, Resource, key_of, uid_of
from airunway_testing.controlplane.processes import Processes, log_tail
from airunway_testing.sandbox.samples import Sample, secrets_of

LABEL = "e2e.airunway.ai/run"
"""On everything that a run makes in the cluster: what a run that was killed left is found by it."""

MANAGER = "airunway-e2e"
_SECRET = Kind("", "v1", "Secret", "secrets")
_READY = 180.0
_GONE = 600.0
"""Seconds until what was made is gone: a deployment that nobody cleans up is let go after five minutes."""


class GroundError(Exception):
    """What has to be there cannot be made."""


class Ground:
    """One run's namespace, and what it needed beside it. `close` takes away what has its label, and nothing else."""

    def __init__(self, client: Client, *, kubeconfig: Path, context: str, run: str) -> None:
        self._client, self._kubeconfig, self._context, self._run = client, kubeconfig, context, run
        self.namespace = f"airunway-e2e-{run}"
        self._registered: set[str] = set()
        self._parts: Processes | None = None
        self._folder: Path | None = None

    async def make_namespace(self, samples: list[Sample]) -> None:
        """The namespace, and the Secrets that samples name: with the token of ``HF_TOKEN``, else one that is none."""
        labels = {LABEL: self._run, names.MODEL_CACHE_LABEL: "allowed"}
        metadata = {"name": self.namespace, "labels": labels}
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        await self._client.create(NAMESPACE, namespace, manager=MANAGER)
        for name in secrets_of(samples):
            secret = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name, "namespace": self.namespace},
                "stringData": {"HF_TOKEN": os.environ.get("HF_TOKEN", "no-real-token")},
            }
            await self._client.create(_SECRET, secret, manager=MANAGER)

    async def install_definitions(self) -> None:
        """Our CRDs, as far as the cluster has none of that name."""
        definitions = custom_resource_definitions()
        for crd in definitions:
            labelled = {**crd, "metadata": {**crd["metadata"], "labels": {LABEL: self._run}}}
            with suppress(AlreadyExists):
                await self._client.create(CUSTOM_RESOURCE_DEFINITION, labelled, manager=MANAGER)
        await wait_until_established(self._client, (key_of(crd).name for crd in definitions), timeout=_READY)

    async def start(self, providers: list[str], *, settings: Sequence[str] = (), account: Path | None = None) -> None:
        """The core as one process and these providers as another, for our namespace alone. Raises GroundError.

        `settings` are ``PROVIDER.KEY=VALUE``. The providers use the kubeconfig of `account`, if there is one.
        """
        known = {key_of(config).name for config in await self._client.list_all(INFERENCE_PROVIDER_CONFIG)}
        self._registered = set(providers) - known
        self._folder = Path(tempfile.mkdtemp(prefix="airunway-e2e-"))
        self._parts = Processes(self._folder, keep=False)
        where = ["--kubeconfig", str(self._kubeconfig), *(["--context", self._context] if self._context else [])]
        programs = {
            "core": ["controller", *(["--guard-parameters"] if account is not None else [])],
            "providers": ["provider", "run", *providers, *_settings_of(providers, settings)],
        }
        for name, arguments in programs.items():
            ready = ["--watch-namespaces", self.namespace, "--ready-file", str(self._folder / f"{name}.ready")]
            own = ["--kubeconfig", str(account)] if account is not None and name == "providers" else where
            command = [sys.executable, "-m", "airunway", *arguments, *own, *ready]
            self._parts.start(name, command, environment={**os.environ, "PYTHONUNBUFFERED": "1"})
        try:
            async with asyncio.timeout(_READY):
                while waiting := [name for name in programs if not (self._folder / f"{name}.ready").exists()]:
                    if self._parts.exited():
                        break
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pass
        if waiting:
            how = "has ended" if waiting[0] in self._parts.exited() else f"is not ready after {_READY:.0f} s"
            raise GroundError(f"the process of {waiting[0]} {how}\n{log_tail(self._parts.log(waiting[0]))}")

    async def close(self) -> list[str]:
        """Take everything away; what is still there after ten minutes, or cannot be deleted, is named.

        What goes wrong in one step keeps no other from being done.
        """
        left: list[str] = []
        # Deployments first, while somebody is there who can let them go.
        for step in (self._delete_deployments, self._remove_namespace, self._stop, self._unregister, self._undefine):
            try:
                left += await step()
            except KubeError as error:
                left.append(f"cleaning up, {step.__name__.strip('_').replace('_', ' ')}: {error}")
        return left

    async def _delete_deployments(self) -> list[str]:
        with suppress(NotFound):
            for deployment in await self._client.list_all(MODEL_DEPLOYMENT, namespace=self.namespace):
                await self._client.delete(MODEL_DEPLOYMENT, key_of(deployment))
        return []

    async def _remove_namespace(self) -> list[str]:
        return [text for obj in await self._labelled(NAMESPACE) for text in await self._remove(NAMESPACE, obj)]

    async def _stop(self) -> list[str]:
        if self._parts is not None:
            await asyncio.to_thread(self._parts.close, grace=10.0)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        return []

    async def _unregister(self) -> list[str]:
        left = []
        for name in self._registered:
            with suppress(NotFound):
                config = await self._client.get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", name))
                left += await self._remove(INFERENCE_PROVIDER_CONFIG, config)
        return left

    async def _undefine(self) -> list[str]:
        """Our CRDs go, but for one that somebody has begun to use: their objects would go with it."""
        left = []
        for crd in await self._labelled(CUSTOM_RESOURCE_DEFINITION):
            spec = crd["spec"]
            kind = Kind(spec["group"], spec["versions"][-1]["name"], spec["names"]["kind"], spec["names"]["plural"])
            used: list[Resource] = []
            with suppress(NotFound):  # one that was not served yet
                used = await self._client.list_all(kind)
            if used:
                left.append(f"CustomResourceDefinition {key_of(crd).name}: kept, since there is {key_of(used[0])}")
            else:
                left += await self._remove(CUSTOM_RESOURCE_DEFINITION, crd)
        return left

    async def _labelled(self, kind: Kind) -> Sequence[Resource]:
        return list(await self._client.list_all(kind, label_selector=f"{LABEL}={self._run}"))

    async def _remove(self, kind: Kind, obj: Resource) -> list[str]:
        key = key_of(obj)
        try:
            await self._client.delete(kind, key, uid=uid_of(obj))
            async with asyncio.timeout(_GONE):
                while True:
                    await self._client.get(kind, key)
                    await asyncio.sleep(0.2)
        except NotFound:
            return []
        except (KubeError, TimeoutError) as error:
            return [f"{kind.kind} {key.name}: {error or 'it does not go'}"]


def _settings_of(providers: Sequence[str], settings: Sequence[str]) -> list[str]:
    """The words that give these providers their settings; one alone is told them without its name."""
    own = [setting for setting in settings if setting.partition(".")[0] in providers]
    alone = len(providers) == 1
    return [word for setting in own for word in ("--set", setting.partition(".")[2] if alone else setting)]
