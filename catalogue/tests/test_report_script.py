"""The script as a process of the shells that are here: what arrives in the termination messages."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from airunway_catalogue.discovery import MAX_MESSAGE, MAX_OUTPUT, PARTS, PROBLEM, command_of
from airunway_catalogue.outcomes import read_report

SHELLS = {
    name: [found, *more]
    for name, more in (("sh", []), ("dash", []), ("bash", ["--posix"]), ("busybox", ["sh"]))
    if (found := shutil.which(name)) is not None
}
TOOLS = ("base64", "cat", "gzip", "head", "printf", "rm", "sh", "sleep", "tail", "tr", "wc", "yes")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How the containers ended."""

    codes: list[int]
    messages: list[bytes]
    stderr: str

    @property
    def text(self) -> str:
        return b"".join(self.messages).decode()


@pytest.fixture(params=sorted(SHELLS))
def shell(request: pytest.FixtureRequest) -> list[str]:
    found: list[str] = SHELLS[request.param]
    return found


@pytest.fixture
def pod(shell: list[str], tmp_path: Path) -> Pod:
    return Pod(shell=shell, folder=tmp_path)


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod in which the containers run one after the other, with a folder in common."""

    shell: list[str]
    folder: Path

    def run(self, *program: str, path: str = os.defpath) -> Ended:
        """Run the containers; those after one that fails do not run."""
        codes, messages, stderr = [], [], ""
        for part in PARTS:
            log = self.folder / f"log-{part}"
            log.touch()
            command = [*self.shell, *command_of(part)[1:], *(program if part == PARTS[0] else ())]
            environment = {"PATH": path, "HOME": str(self.folder), "AIRUNWAY_TERMINATION_LOG": str(log)}
            done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
            assert done.stdout == b""
            codes.append(done.returncode)
            messages.append(log.read_bytes())
            stderr += done.stderr.decode()
            if done.returncode:
                break
        return Ended(codes=codes, messages=messages, stderr=stderr)

    def path_without(self, *missing: str) -> str:
        """A folder with all programs but these."""
        folder = self.folder / "bin"
        folder.mkdir()
        for tool in TOOLS:
            if tool not in missing and (found := shutil.which(tool)) is not None:
                (folder / tool).symlink_to(found)
        return str(folder)


def printing(content: bytes, folder: Path) -> tuple[str, str]:
    """A program that prints this."""
    file = folder / "content"
    file.write_bytes(content)
    return "cat", str(file)


@pytest.mark.parametrize("size", [0, 1, MAX_MESSAGE - 1, MAX_MESSAGE])
def test_what_fits_is_reported_as_it_is(pod: Pod, size: int) -> None:
    content = bytes(random.Random(size).choices(range(256), k=size))
    ended = pod.run(*printing(content, pod.folder))
    assert ended.codes == [0, 0, 0]
    assert ended.messages == [content, b"", b""]


@pytest.mark.parametrize("values", [40, 300, 550])
def test_what_does_not_fit_is_compressed_into_as_many_messages_as_it_needs(pod: Pod, values: int) -> None:
    chance = random.Random(values)
    profile = {f"option-{number}": chance.getrandbits(64) for number in range(values)}
    report = json.dumps({"profile": profile, "padding": "x" * 5000}, indent=2)
    ended = pod.run(*printing(b"INFO starting\n" + report.encode(), pod.folder))
    assert ended.codes == [0, 0, 0]
    assert all(len(each) <= MAX_MESSAGE for each in ended.messages)
    assert [bool(each) for each in ended.messages] == [True, values > 200, values > 500]
    assert read_report(ended.text).profile == profile


def test_too_much_is_a_problem_with_its_numbers(pod: Pod) -> None:
    content = random.Random(1).randbytes(20_000)
    ended = pod.run(*printing(content, pod.folder))
    assert ended.codes == [0, 0, 0]
    first, second, third = ended.messages
    word, size, packed = first.decode().removeprefix(PROBLEM).split()
    assert (word, size, second, third) == ("large", "20000", b"", b"")
    assert 26_000 < int(packed) < 28_000


@pytest.mark.parametrize("program", [["yes"], [sys.executable, "-c", "while True: print('x' * 1000)"]])
def test_an_endless_output_is_ended_and_fills_nothing(pod: Pod, program: list[str]) -> None:
    ended = pod.run(*program)
    assert ended.codes == [0, 0, 0]
    assert ended.text == f"{PROBLEM}endless {MAX_OUTPUT}"
    assert sum(file.stat().st_size for file in pod.folder.iterdir()) < 2 * MAX_OUTPUT


def test_a_failure_keeps_its_code_and_shows_both_outputs_in_the_log(pod: Pod) -> None:
    ended = pod.run("sh", "-c", "yes out | head -n 1000; echo err >&2; exit 7")
    assert ended.codes == [7]
    assert ended.messages == [b""], "the kubelet takes the end of the log"
    assert ended.stderr.startswith("err\n")
    assert ended.stderr.endswith("out\n")
    assert len(ended.stderr) < 400


def test_a_program_that_is_not_there_has_the_code_of_a_shell(pod: Pod) -> None:
    ended = pod.run("no-such-program", "dry-run")
    assert ended.codes == [127]
    assert "no-such-program" in ended.stderr


def test_a_program_that_is_killed_has_the_code_of_its_signal(pod: Pod) -> None:
    assert pod.run("sh", "-c", "kill -9 $$").codes == [137]


def test_arguments_arrive_as_they_are(pod: Pod) -> None:
    words = ["a b", "$HOME", "`id`", "'", '"', "", "*", "\\"]
    program = "import json, sys; print(json.dumps(sys.argv[1:]))"
    assert json.loads(pod.run(sys.executable, "-c", program, *words).text) == words


def test_a_program_may_write_its_report_itself(pod: Pod) -> None:
    ended = pod.run("sh", "-c", 'printf mine >"$AIRUNWAY_TERMINATION_LOG"; yes log | head -n 5000')
    assert (ended.codes, ended.messages) == ([0, 0, 0], [b"mine", b"", b""])


@pytest.mark.parametrize(
    ("missing", "size", "problem"),
    [
        ("gzip", 5000, f"{PROBLEM}tool gzip 5000"),
        ("base64", 5000, f"{PROBLEM}tool base64 5000"),
        ("gzip", 4000, ""),
        ("head", 10, f"{PROBLEM}tool head"),
        ("wc", 10, f"{PROBLEM}tool wc"),
    ],
)
def test_an_image_without_a_tool_says_which(pod: Pod, missing: str, size: int, problem: str) -> None:
    if "busybox" in pod.shell[0]:
        pytest.skip("busybox finds its own programs")
    program = printing(b"x" * size, pod.folder)
    ended = pod.run(*program, path=pod.path_without(missing))
    assert ended.codes == [0, 0, 0]
    assert ended.text == (problem or "x" * size)
