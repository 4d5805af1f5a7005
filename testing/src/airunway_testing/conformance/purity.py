"""Whether hooks are functions: of their arguments alone, without a word to or from the world outside."""

from __future__ import annotations

import ast
import contextlib
import io
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from airunway.plugins.contract import Observed
from airunway.resource import canonical_json
from airunway_testing.conformance import rules
from airunway_testing.conformance.cases import judged
from airunway_testing.conformance.statuses import good_statuses, observation_of
from airunway_testing.conformance.subject import Fault, Subject

_WATCHED = ("open", "os.system", "os.exec", "os.posix_spawn", "os.listdir", "os.scandir", "subprocess.Popen", "shutil")
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_OTHERS: tuple[Mapping[str, str], ...] = (
    {"PYTHONHASHSEED": "1", "TZ": "Pacific/Kiritimati", "LC_ALL": "C", "HOSTNAME": "here", "HOME": "/", "USER": "a"},
    {"PYTHONHASHSEED": "2", "TZ": "Pacific/Pago_Pago", "LC_ALL": "C.UTF-8", "HOSTNAME": "there", "HOME": "/tmp"},
)

_PATIENCE = 300.0
"""Seconds for a whole process: its start takes most of them on a busy machine."""

_events: list[str] | None = None
"""What was noticed while a hook is watched; None while none is."""
_is_hooked = False


def no_io(subject: Subject) -> Iterator[Fault]:
    """All hooks once for each plain deployment, watched."""
    for base in subject.asked:  # what a first call imports has been imported then
        judged(subject.host, base, base.spec)
    with _watched() as events:
        for base in subject.asked:
            judged(subject.host, base, base.spec)
            for good in islice(good_statuses(subject, base), 1):
                observation_of(subject, base, Observed(primary=good[0], objects=tuple(good)))
    for event in dict.fromkeys(events):
        yield Fault(
            rule=rules.NO_IO,
            text=f"a hook {event}: take what is needed from its arguments, or from a setting",
        )


@contextlib.contextmanager
def _watched() -> Iterator[list[str]]:
    global _events, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_noticed)  # it cannot be removed: it does nothing while nothing is watched
        _is_hooked = True
    said, environ = io.StringIO(), os.environ
    events: list[str] = []
    os.environ = _Environment(environ)  # type: ignore[assignment]  # noqa: B003 - it behaves like one
    _events = events
    try:
        with contextlib.redirect_stdout(said):
            yield events
    finally:
        _events = None
        os.environ = environ  # noqa: B003 - the one of before, not a copy
    if said.getvalue():
        events.append("prints")


def _noticed(event: str, arguments: tuple[Any, ...]) -> None:
    if _events is None or not event.startswith((*_WATCHED, "socket.")):
        return
    what = str(arguments[0])[:100] if arguments else ""
    if event == "open" and (what.startswith(_LIBRARIES) or what.endswith((".py", ".pyc")) or what.isdigit()):
        return  # an import, a descriptor that is open already
    _events.append(f"does {event} {what!r}")


class _Environment:
    """The environment of the process; what is read by others than Python's own libraries is noted."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        _note_environment()
        return getattr(self._real, name)

    def __getitem__(self, key: str) -> str:
        _note_environment()
        return str(self._real[key])

    def __contains__(self, key: object) -> bool:
        _note_environment()
        return key in self._real

    def __iter__(self) -> Iterator[str]:
        _note_environment()
        return iter(self._real)

    def __len__(self) -> int:
        return len(self._real)


def _note_environment() -> None:
    """By the innermost frame outside of `os` and its like."""
    frame = sys._getframe(2)
    while frame.f_back is not None and Path(frame.f_code.co_filename).name in ("os.py", "_collections_abc.py"):
        frame = frame.f_back
    if _events is not None and not frame.f_code.co_filename.startswith(_LIBRARIES):
        _events.append(f"reads the environment, at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}")


@contextlib.contextmanager
def elsewhere(expression: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Two more processes with other environments, which ask the provider while the other checks run."""
    begun = [_begun(expression, given) for given in _OTHERS] if expression else []
    try:
        yield begun
    finally:
        for process in begun:
            process.kill()
            process.communicate()


def same_answer(subject: Subject) -> Iterator[Fault]:
    """The same objects twice in this process."""
    for base in subject.asked:
        if canonical_json(list(subject.written[base.name])) != canonical_json(
            list(judged(subject.host, base, base.spec).objects)
        ):
            yield Fault(
                rule=rules.SAME_ANSWER,
                text=f"{base.name}: translate_spec gave two answers to one deployment: it is to use its arguments "
                "alone",
            )
            return


def differing(processes: list[subprocess.Popen[str]]) -> Iterator[Fault]:
    """The same objects in other processes."""
    answers = set()
    for process in processes:
        out, error = process.communicate(timeout=_PATIENCE)
        answers.add(out)
        if process.returncode:
            last = (error.strip().splitlines() or ["it ended without a word"])[-1]
            yield Fault(rule=rules.SAME_ANSWER, text=f"the provider cannot be asked in another process: {last[:300]}")
            return
    if len(answers) > 1:
        yield Fault(
            rule=rules.SAME_ANSWER,
            text="translate_spec gives other objects in another process: sort what it goes through (a set has no "
            "order), and read no environment, time zone or folder",
        )


def _begun(expression: str, given: Mapping[str, str]) -> subprocess.Popen[str]:
    program = f"from airunway_testing.conformance.fingerprint import load, of; print(of({expression}))"
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **given, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def public_names(subject: Subject) -> Iterator[Fault]:
    """What the provider's modules import of ours."""
    for source in subject.sources:
        for name in _imported(ast.parse(source)):
            if name != "airunway.sdk" and not name.startswith("airunway.sdk."):
                yield Fault(
                    rule=rules.PUBLIC_NAMES,
                    text=f"the provider imports {name}, which changes without notice: import from airunway.sdk",
                )


def _imported(tree: ast.Module) -> Iterator[str]:
    ours = ("airunway", "airunway_testing")
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in ours)
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] in ours:
            if node.module == "airunway":
                yield from (f"airunway.{alias.name}" for alias in node.names)
            else:
                yield str(node.module)
