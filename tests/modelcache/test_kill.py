"""Kills of the part, of downloads and of both, from a seed: every artifact ends Ready and verified (issue 22, X2, X3).

The part is ended as a crash would: in the middle of a write that the API server has carried out and whose answer never
comes, with all that it remembers; the next one starts with another client and empty caches. Downloads are processes
that are killed (SIGKILL) or whose pods are evicted.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest
from tests.modelcache.conftest import Ground, running_part
from tests.support.faultproxy import Fault, FaultProxy, ProxiedRequest

from airunway.kube import PERSISTENT_VOLUME_CLAIM, Client, load_config
from airunway.modelcache.application import ModelCacheSettings
from airunway.resource import dig, key_of, labels_of
from airunway_testing.modelhub.hub import Repository
from airunway_testing.modelhub.serving import Slow
from airunway_testing.storage.pod_runner import PlayedPod

pytestmark = pytest.mark.cluster

SIZE = 40_000
WRITES = {"apply", "create", "patch", "update", "delete"}


def files_of(number: int) -> dict[str, bytes]:
    """One model: a large file of its own name, which is sent slowly, and a small one."""
    return {"config.json": b"{}", f"m{number}.safetensors": random.Random(number).randbytes(SIZE)}


def tree_digest(files: Mapping[str, bytes]) -> str:
    """The digest of an undisturbed download, computed without the downloader."""
    lines = [f"{path}\0{len(data)}\0{hashlib.sha256(data).hexdigest()}\n" for path, data in files.items()]
    return "sha256:" + hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


class Crashes:
    """The part behind a proxy. `crash` ends it at its next write but `skip`, once that has been carried out."""

    def __init__(self, ground: Ground, proxy: FaultProxy) -> None:
        self._ground, self._proxy = ground, proxy
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        client = await self._stack.enter_async_context(Client(load_config(kubeconfig=self._proxy.kubeconfig)))
        settings = ModelCacheSettings(max_downloads=100)
        namespace = self._ground.namespace
        await self._stack.enter_async_context(running_part(client, namespace=namespace, settings=settings))

    async def stop(self) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def crash(self, skip: int) -> bool:
        """Whether there was such a write; then another part runs."""

        def ours(request: ProxiedRequest) -> bool:
            return request.verb in WRITES and request.resource != "events"

        self._proxy.inject(Fault("late", seconds=3600, where=ours, skip=skip))
        with suppress(AssertionError):
            await self._ground.eventually(lambda: not self._proxy.pending)
        struck = not self._proxy.pending
        self._proxy.clear()
        if struck:
            await self.stop()
            await self.start()
        return struck


async def kill_download(ground: Ground, chance: random.Random, killed: Counter[str]) -> bool:
    """Kill or evict one download at a random byte; none more than twice, since a Job gives up after three failures."""

    def candidates() -> list[PlayedPod]:
        found = [each for each in ground.pods() if each.running and "-download-" in each.key.name]
        return [each for each in found if killed[artifact_of(each)] < 2]

    with suppress(AssertionError):
        await ground.eventually(candidates)
    await asyncio.sleep(chance.uniform(0, 1))
    running = candidates()
    if not running:
        return False
    played = chance.choice(running)
    killed[artifact_of(played)] += 1
    if chance.random() < 0.5:
        await ground.runner.evict(played.key)
    else:
        await ground.runner.kill(played.key)
    return True


def artifact_of(played: PlayedPod) -> str:
    return played.key.name.rsplit("-download-", 1)[0]


@asynccontextmanager
async def watched(ground: Ground) -> AsyncIterator[set[str]]:
    """The artifacts of which two downloads ran at once, until the context ends."""
    twice: set[str] = set()

    async def look() -> None:
        while True:
            running = Counter(
                artifact_of(each) for each in ground.pods() if each.running and "-download-" in each.key.name
            )
            twice.update(name for name, count in running.items() if count > 1)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(look())
    try:
        yield twice
    finally:
        task.cancel()


async def live_through(ground: Ground, *, seed: int, models: int, crashes: int, kills: int) -> tuple[int, int]:
    """`models` deployments with a cache of their own each, disturbed; returns the crashes and kills that happened."""
    chance = random.Random(seed)
    for number in range(models):
        ground.hub.add(Repository(f"acme/m{number}", files_of(number)))
        ground.hub.inject(Slow(bytes_per_second=SIZE // 3), path=f"m{number}.safetensors", times=None)
    killed: Counter[str] = Counter()
    done = Counter(crashes=0, kills=0)
    async with FaultProxy(ground.kubeconfig) as proxy, watched(ground) as twice:
        part = Crashes(ground, proxy)
        await part.start()
        try:
            for number in range(models):
                await ground.deploy(f"d{number}", model={"id": f"acme/m{number}", "cache": {"mode": "Shared"}})

            async def crash() -> None:
                for _ in range(crashes):
                    done["crashes"] += await part.crash(chance.randint(0, 5))

            async def kill() -> None:
                for _ in range(kills):
                    done["kills"] += await kill_download(ground, chance, killed)

            await asyncio.gather(crash(), kill())
            for number in range(models):
                await ground.until("Ready", f"d{number}")
        finally:
            await part.stop()
    assert twice == set(), "two downloads of one artifact ran at once"
    await verify(ground, models)
    return done["crashes"], done["kills"]


async def verify(ground: Ground, models: int) -> None:
    """One claim and one download for each model, the tree of an undisturbed run, and few bytes fetched twice."""
    claims = await ground.all_of(PERSISTENT_VOLUME_CLAIM)
    artifacts = await ground.artifacts()
    jobs = Counter(labels_of(job)["airunway.ai/artifact"] for job in await ground.downloads())
    assert len(artifacts) == len(claims) == models
    assert set(jobs.values()) <= {1}, jobs
    volumes = {key_of(claim).name: claim["spec"]["volumeName"] for claim in claims}
    for artifact in artifacts:
        number = int(dig(artifact, "spec", "modelId").removeprefix("acme/m"))
        files, status = files_of(number), artifact["status"]
        assert status["completed"]["digest"] == tree_digest(files), number
        folder = ground.provisioner.volumes.folder(volumes[status["persistentVolumeClaim"]]) / "model"
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == files, number
        assert status["download"]["attempts"] == 1, (number, status["download"])
        sent = ground.hub.bytes_sent(f"m{number}.safetensors")
        assert sent <= 1.2 * SIZE, f"model {number}: {sent} bytes for {SIZE}"


@pytest.mark.slow
async def test_x2_x3_the_part_and_its_downloads_are_killed(ground: Ground) -> None:
    crashes, kills = await live_through(ground, seed=1, models=3, crashes=4, kills=3)
    assert crashes >= 3
    assert kills >= 2


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_x2_a_hundred_kills(ground: Ground) -> None:
    crashes, kills = await live_through(ground, seed=2, models=30, crashes=50, kills=50)
    assert crashes + kills >= 80, (crashes, kills)


@pytest.mark.parametrize("seed", [1, 2])
async def test_x1_a_life_behind_a_proxy_that_breaks_things_ends_the_same(ground: Ground, seed: int) -> None:
    ground.hub.add(Repository("acme/m0", files_of(0)))
    async with FaultProxy(ground.kubeconfig) as proxy:
        part = Crashes(ground, proxy)
        proxy.unleash(seed=seed, rate=0.1)
        await part.start()
        try:
            for name in ("one", "two"):
                await ground.deploy(name, model={"id": "acme/m0", "cache": {"mode": "Shared"}})
            for name in ("one", "two"):
                await ground.until("Ready", name)
            assert any(request.fault for request in proxy.requests)
        finally:
            await part.stop()
    await verify(ground, 1)
