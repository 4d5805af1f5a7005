"""A10: killed at any byte of any file and between any two changes of the claim, the tree is the same in the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from downloader.tests.conftest import FILES, LLAMA, Claim, start, tree_digest

from airunway_testing.modelhub.hub import Hub
from airunway_testing.modelhub.serving import Slow, Stall

SIZE = sum(map(len, FILES.values()))
LARGE = "model-00001-of-00002.safetensors"
SEEDS = 60
SOAK_SEEDS = 400


@dataclass
class Zygote:
    """The process that forks."""

    process: asyncio.subprocess.Process

    async def start(self, claim: Claim, *, kill_before: int = 0) -> int:
        """Start a download; returns its pid."""
        environment = {
            **claim.environment,
            "AIRUNWAY_PROGRESS_PORT": "0",
            "AIRUNWAY_TERMINATION_LOG": str(claim.folder.parent / f"{claim.folder.name}.log"),
        }
        arguments = ["download", LLAMA, "--into", str(claim.folder)]
        order = {"arguments": arguments, "environment": environment, "kill_before": kill_before}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        return await self.number()

    async def number(self) -> int:
        """The next answer: a pid, or how the fork ended."""
        assert self.process.stdout is not None
        return int(await self.process.stdout.readline())


@pytest.fixture
async def zygote() -> AsyncIterator[Zygote]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(Path(__file__).with_name("zygote.py"))),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    yield Zygote(process)
    assert process.stdin is not None
    process.stdin.close()
    assert await process.wait() == 0


async def kill(zygote: Zygote, hub: Hub, claim: Claim, chance: random.Random) -> bool:
    """Start a download and kill it as the seed says; returns whether it was killed."""
    if chance.random() < 0.5:
        await zygote.start(claim, kill_before=chance.randint(1, 60))
        return await zygote.number() == -signal.SIGKILL
    path = chance.choice([path for path, data in FILES.items() if data])
    at = chance.randrange(len(FILES[path]))
    hub.inject(Stall(after=at), path=path)
    before = len(hub.requests)
    pid = await zygote.start(claim)
    ended = asyncio.create_task(zygote.number())
    while not ended.done():
        await asyncio.sleep(0.001)
        if any(each.path == path and each.route == "file" and each.sent >= at for each in hub.requests[before:]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            break
    hub.clear_faults()
    return await ended == -signal.SIGKILL


async def once(zygote: Zygote, hub: Hub, claim: Claim, seed: int) -> int:
    """One seed: up to three kills, then a run to the end. Returns the number of kills."""
    chance = random.Random(seed)
    kills, fetched = 0, 0
    for _ in range(chance.randint(1, 3)):
        before = kept(claim)
        kills += await kill(zygote, hub, claim, chance)
        fetched += max(0, kept(claim) - before)
        for path, data in claim.files().items():
            assert data == FILES[path], f"seed {seed}: {path} is in the tree and is not whole"
    sent = hub.bytes_sent()
    await zygote.start(claim)
    assert await zygote.number() == 0, f"seed {seed}"
    fetched += hub.bytes_sent() - sent
    message = json.loads((claim.folder.parent / f"{claim.folder.name}.log").read_text())
    assert message["ok"]["digest"] == tree_digest(FILES), f"seed {seed}"
    assert claim.files() == FILES, f"seed {seed}"
    assert claim.parts() == [], f"seed {seed}"
    assert fetched <= 1.2 * SIZE, f"seed {seed}: {fetched} bytes for {SIZE}"
    return kills


def kept(claim: Claim) -> int:
    """Bytes of files and parts that are on the disk."""
    found = [path for path in claim.folder.rglob("*") if path.is_file() and ".json" not in path.name]
    return sum(path.stat().st_size for path in found)


async def test_a10_killed_anywhere(zygote: Zygote, hub: Hub, tmp_path: Path) -> None:
    kills = 0
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        kills += await once(zygote, hub, Claim(folder, {"HF_ENDPOINT": hub.endpoint}), seed)
    assert kills >= SEEDS * 0.8


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_a10_killed_anywhere_for_long(zygote: Zygote, hub: Hub, tmp_path: Path) -> None:
    for seed in range(SEEDS, SEEDS + SOAK_SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        await once(zygote, hub, Claim(folder, {"HF_ENDPOINT": hub.endpoint}), seed)


async def test_a_kill_between_the_last_rename_and_the_marker_fetches_nothing(hub: Hub, claim: Claim) -> None:
    first = await claim.download(LLAMA)
    (claim.folder / ".airunway/complete.json").unlink()
    before = hub.bytes_sent()
    assert (await claim.download(LLAMA)).ok == first.ok
    assert hub.bytes_sent() == before


async def test_a9_two_writers_at_once(hub: Hub, claim: Claim) -> None:
    hub.inject(Slow(bytes_per_second=2_000_000), path=LARGE, times=None)
    both = await asyncio.gather(*(start(claim, LLAMA) for _ in range(2)))
    for process in both:
        _, errors = await process.communicate()
        assert process.returncode == 0, errors
    assert claim.files() == FILES
    assert claim.parts() == []
    assert (await claim.download(LLAMA)).ok["digest"] == tree_digest(FILES)


async def test_a9_a_writer_that_wakes_up_later_damages_nothing(hub: Hub, claim: Claim) -> None:
    """Stopped in the middle of a file, as a node that is cut off; it goes on when the other has finished."""
    hub.inject(Stall(after=300_000), path=LARGE)
    asleep = await start(claim, LLAMA)
    while not any(each.path == LARGE and each.sent >= 300_000 for each in hub.requests):
        await asyncio.sleep(0.01)
    asleep.send_signal(signal.SIGSTOP)
    done = await claim.download(LLAMA)
    assert done.ok["digest"] == tree_digest(FILES)
    asleep.send_signal(signal.SIGCONT)
    await asyncio.sleep(0)
    assert claim.files() == FILES
    asleep.terminate()
    await asleep.communicate()
    assert claim.files() == FILES
    assert (await claim.download(LLAMA)).ok == done.ok
