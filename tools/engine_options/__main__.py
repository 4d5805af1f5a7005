"""Read the releases that are named, and write what is recorded: see the package's docstring."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.engine_options.reader import PROGRAMS

RECORDED = Path(__file__).parents[2] / "core" / "src" / "airunway" / "engines" / "recorded"


def _read(folder: Path, program: str) -> dict[str, str]:
    reader = Path(__file__).with_name("reader.py")
    done = subprocess.run(
        [sys.executable, str(reader), str(folder), program], stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))


BUILT_IN = {"dynamo.vllm": ("vllm", "vllm.engine"), "dynamo.sglang": ("sglang", "sglang")}
"""Package and program whose options a program reads as well, in the release that its own package pins."""


def _whole(folder: Path, program: str) -> dict[str, str]:
    """The options of a program with those of the engine that is built into it."""
    found = _read(folder, program)
    if program not in BUILT_IN:
        return found
    package, engine = BUILT_IN[program]
    (metadata,) = folder.glob("*.dist-info/METADATA")
    pin = re.search(
        rf"^Requires-Dist: {package}(\[.*?\])?==(\S+?);", metadata.read_text(encoding="utf-8"), re.MULTILINE
    )
    if pin is None:
        raise SystemExit(f"{folder} pins no release of {package}")
    return {**_read(folder.with_name(f"{package}-{pin[2]}"), engine), **found}


def _releases(path: Path) -> dict[str, dict[str, str]]:
    """What is recorded: by release the options with their kinds."""
    if not path.exists():
        return {}
    recorded = json.loads(path.read_text(encoding="utf-8"))
    releases = recorded["releases"]
    return {
        release: {
            option: kind
            for option, spans in recorded["options"].items()
            for kind, first, last in spans
            if first <= position <= last
        }
        for position, release in enumerate(releases)
    }


def _spans(kinds: Iterable[str | None]) -> list[tuple[str, int, int]]:
    """From which position until which an option is there, and of what kind."""
    spans: list[tuple[str, int, int]] = []
    for position, kind in enumerate(kinds):
        if kind is None:
            continue
        if spans and spans[-1][0] == kind and spans[-1][2] == position - 1:
            spans[-1] = (kind, spans[-1][1], position)
        else:
            spans.append((kind, position, position))
    return spans


def _write(path: Path, releases: dict[str, dict[str, str]]) -> None:
    order = sorted(releases, key=lambda release: [int(part) for part in release.split(".")])
    names = sorted({option for options in releases.values() for option in options})
    lines = (
        f"{json.dumps(name)}: {json.dumps(_spans(releases[release].get(name) for release in order))}" for name in names
    )
    text = ",\n".join(lines)
    path.write_text(f'{{"releases": {json.dumps(order)}, "options": {{\n{text}\n}}}}\n', encoding="utf-8")


def main(arguments: Iterable[str]) -> None:
    for argument in arguments:
        package, _, folder = argument.partition("=")
        release = folder.rpartition("-")[2]
        for program in (name for name in PROGRAMS if name.partition(".")[0] == package):
            path = RECORDED / f"{program}.json"
            _write(path, {**_releases(path), release: _whole(Path(folder), program)})
            sys.stderr.write(f"{program} {release}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
