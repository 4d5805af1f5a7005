"""How fast does the downloader fetch, verification included, and with how much memory?

A local hub in a process of its own serves one repository of N files from the page cache (sendfile, so that it leaves
the processors to the client). They are fetched once by a plain client (as many files at a time, read and written,
nothing else) and once by `airunway-download`, in turns. Then a download is killed half-way, and the bytes are counted
that the next one reads of the claim and fetches. Prints JSON.

    uv run python -m benchmarks.download --gib 10 --files 8 --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import heading, say

from airunway_testing.modelhub.hub import Repository, model_hub
from airunway_testing.modelhub.serving import OnDisk, Pattern

RATIO_BUDGET = 0.7
"""Least throughput against the plain copy (issue 22)."""
MEMORY_BUDGET_MIB = 200
"""Most resident memory (issue 22)."""
FETCHED_BUDGET = 1.2
"""Most bytes fetched over one kill, as a factor of the size (issue 22)."""
PARALLEL = 4
"""As many files at a time as the downloader fetches."""


def names(count: int) -> list[str]:
    return [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]


async def serve(size: int, count: int, folder: Path) -> None:
    """The hub, until standard input ends; prints its address, then a line with the bytes sent for every line read.

    All files have the same bytes: they take the memory of one.
    """
    source = folder / "source"
    with source.open("wb") as file:
        file.writelines(Pattern(size // count).read(0, size // count))
    same = OnDisk(source)
    files = dict.fromkeys(names(count), same)
    async with model_hub([Repository("bench/model", files)]) as hub:
        print(hub.endpoint, flush=True)
        loop = asyncio.get_running_loop()
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(hub.bytes_sent(), flush=True)


class Server:
    """The hub as a process."""

    def __init__(self, size: int, count: int, folder: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.download", "--serve", str(size), "--files", str(count)]
        command += ["--folder", str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.endpoint = self._line()

    def sent(self) -> int:
        """Bytes of files that it sent so far."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._line())

    def stop(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@dataclass(frozen=True)
class Cost:
    """What a transfer took."""

    seconds: float
    cpu: float


@dataclass(frozen=True)
class Round:
    """One comparison."""

    plain: Cost
    downloader: Cost
    memory: float


def compare(server: Server, count: int, folder: Path) -> Round:
    """Both, one after the other."""
    say("a plain copy, then a download")
    plain = copy(server, count, folder / "plain")
    shutil.rmtree(folder / "plain")
    (folder / "claim").mkdir()
    downloader, memory = fetch(server, folder / "claim")
    shutil.rmtree(folder / "claim")
    return Round(plain=plain, downloader=downloader, memory=memory)


def copy(server: Server, count: int, folder: Path) -> Cost:
    """The plain copy, synced at its end as a claim's files are."""

    def one(name: str) -> None:
        address = f"{server.endpoint}/bench/model/resolve/main/{name}"
        with urllib.request.urlopen(address) as answer, (folder / name).open("wb") as file:
            shutil.copyfileobj(answer, file, 1 << 18)
            file.flush()
            os.fsync(file.fileno())

    folder.mkdir()
    started, cpu = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(one, names(count)))
    return Cost(time.monotonic() - started, time.process_time() - cpu)


def begin(server: Server, folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "HF_ENDPOINT": server.endpoint, "AIRUNWAY_PROGRESS_PORT": "0"}
    command = [sys.executable, "-m", "airunway_downloader", "download", "hf://bench/model", "--into", str(folder)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env=environment, **quiet)  # type: ignore[call-overload,no-any-return]


def fetch(server: Server, folder: Path) -> tuple[Cost, float]:
    """A download, and its peak of resident memory in MiB."""
    started = time.monotonic()
    process = begin(server, folder)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"the download ended with {os.waitstatus_to_exitcode(status)}")
    return Cost(time.monotonic() - started, usage.ru_utime + usage.ru_stime), usage.ru_maxrss / 1024


def resume(server: Server, size: int, folder: Path) -> dict[str, Any]:
    """Kill a download half-way; what the next one reads again and fetches, as factors of the size."""
    before = server.sent()
    process = begin(server, folder)
    while _kept(folder) < size // 2 and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    kept = _kept(folder)
    second = begin(server, folder)
    read = 0
    while second.poll() is None:  # rchar: files only, since sockets are read with recv
        try:
            lines = Path(f"/proc/{second.pid}/io").read_text().splitlines()
        except OSError:
            break
        read = max(read, next(int(line.split()[1]) for line in lines if line.startswith("rchar")))
        time.sleep(0.02)
    if second.returncode:
        sys.exit(f"the resumed download ended with {second.returncode}")
    fetched = server.sent() - before
    return {"kept": round(kept / size, 3), "reread_of_kept": round(read / kept, 3), "fetched": round(fetched / size, 3)}


def _kept(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=10)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=None, help="where files are written (default: the system's)")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.serve, arguments.files, arguments.folder))
        return 0
    size = int(arguments.gib * (1 << 30)) // arguments.files * arguments.files
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder = Path(temporary)
        server = Server(size, arguments.files, folder)
        try:
            copy(server, arguments.files, folder / "plain")  # warm: the first writer of a machine's memory pays for it
            shutil.rmtree(folder / "plain")
            rounds = [compare(server, arguments.files, folder) for _ in range(arguments.rounds)]
            say("a kill half-way")
            (folder / "claim").mkdir()
            resumed = resume(server, size, folder / "claim")
        finally:
            server.stop()
    ratios = [each.plain.seconds / each.downloader.seconds for each in rounds]
    ratio, memory = statistics.median(ratios), max(each.memory for each in rounds)
    result = {
        **heading("download"),
        "bytes": size,
        "files": arguments.files,
        "seconds": [
            {"plain": round(each.plain.seconds, 2), "downloader": round(each.downloader.seconds, 2)} for each in rounds
        ],
        "cpu_seconds": [
            {"plain": round(each.plain.cpu, 2), "downloader": round(each.downloader.cpu, 2)} for each in rounds
        ],
        "ratio": {"median": round(ratio, 2), "each": [round(each, 2) for each in ratios], "budget": RATIO_BUDGET},
        "cpu_ratio": round(statistics.median(each.plain.cpu / each.downloader.cpu for each in rounds), 2),
        "memory_mib": {"peak": round(memory, 1), "budget": MEMORY_BUDGET_MIB},
        "resume": {**resumed, "budget": FETCHED_BUDGET},
    }
    print(json.dumps(result, indent=2))
    kept_budget = resumed["fetched"] <= FETCHED_BUDGET and resumed["reread_of_kept"] <= 1.1
    return 0 if ratio >= RATIO_BUDGET and memory <= MEMORY_BUDGET_MIB and kept_budget else 1


if __name__ == "__main__":
    sys.exit(main())
