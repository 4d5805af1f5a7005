"""The command against the local hub and S3 of airunway-testing: in this process, and as processes that are killed."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airunway_downloader.cli import run
from airunway_testing.modelhub.hub import Hub, Repository, model_hub

ROOM = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a command ended."""

    code: int
    message: dict[str, Any]
    """The termination message."""

    @property
    def ok(self) -> dict[str, Any]:
        assert self.code == 0, self.message
        found: dict[str, Any] = self.message["ok"]
        return found

    @property
    def reason(self) -> str:
        return str(self.message["error"]["reason"])

    @property
    def words(self) -> str:
        return str(self.message["error"]["message"])


@dataclass
class Claim:
    """A folder that plays a claim, and the command with it."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    async def download(self, uri: str, *arguments: str, **environment: str) -> Outcome:
        return await self.command("download", uri, "--into", str(self.folder), *arguments, **environment)

    async def command(self, *arguments: str, **environment: str) -> Outcome:
        log = self.folder.parent / "termination-log"
        log.unlink(missing_ok=True)
        known = {**self.environment, **environment, "AIRUNWAY_TERMINATION_LOG": str(log)}
        code = await asyncio.to_thread(run, arguments, {"AIRUNWAY_PROGRESS_PORT": "0", **known})
        assert log.stat().st_size <= 4096
        return Outcome(code=code, message=json.loads(log.read_text()))

    def files(self) -> dict[str, bytes]:
        """What engines would see."""
        model = self.folder / "model"
        return {str(path.relative_to(model)): path.read_bytes() for path in model.rglob("*") if path.is_file()}

    def parts(self) -> list[Path]:
        return sorted((self.folder / ".airunway/parts").iterdir())


@pytest.fixture
def claim(tmp_path: Path) -> Claim:
    folder = tmp_path / "claim"
    folder.mkdir()
    return Claim(folder)


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


FILES: Mapping[str, bytes] = {
    "config.json": b'{"model_type": "llama"}',
    "empty.txt": b"",
    "model-00001-of-00002.safetensors": content(700_000, 1),
    "model-00002-of-00002.safetensors": content(300_000, 2),
    "tokenizer/vocab.json": content(3_000, 3),
}
LLAMA = "hf://acme/llama"


def tree_digest(files: Mapping[str, bytes]) -> str:
    """The digest as the contract has it (issue 22), computed without the downloader."""
    lines = [f"{path}\0{len(data)}\0{hashlib.sha256(data).hexdigest()}\n" for path, data in files.items()]
    return "sha256:" + hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


@pytest.fixture
async def hub(claim: Claim) -> AsyncIterator[Hub]:
    """A hub with one repository, which the claim's commands ask."""
    async with model_hub([Repository("acme/llama", FILES)], tokens={"hf_right": ["acme/gated"]}) as running:
        claim.environment["HF_ENDPOINT"] = running.endpoint
        yield running


async def start(claim: Claim, uri: str, **environment: str) -> asyncio.subprocess.Process:
    """The command as a process of its own."""
    known = {**os.environ, "AIRUNWAY_PROGRESS_PORT": "0", **claim.environment, **environment}
    log = {"AIRUNWAY_TERMINATION_LOG": str(claim.folder.parent / "termination-log")}
    command = [sys.executable, "-m", "airunway_downloader", "download", uri, "--into", str(claim.folder)]
    return await asyncio.create_subprocess_exec(
        *command, env={**known, **log}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
