"""The folder where binaries are kept between runs, and between projects of one user."""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from airunway_testing.controlplane.errors import ControlPlaneError
from airunway_testing.controlplane.progress import Report
from airunway_testing.controlplane.versions import cache_key


def cache_root(environment: Mapping[str, str]) -> Path:
    """``$AIRUNWAY_CACHE``, else ``airunway`` in the user's cache folder."""
    if environment.get("AIRUNWAY_CACHE"):
        return Path(environment["AIRUNWAY_CACHE"])
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "airunway"


def control_plane_cache(environment: Mapping[str, str]) -> Path:
    """The folder for the binaries of exactly these versions on this kind of machine; it may not exist yet."""
    return cache_root(environment) / "controlplane" / cache_key()


def is_program(path: Path) -> bool:
    """Whether there is an executable file. Programs appear in the cache by rename, so one that is there is whole."""
    return path.is_file() and os.access(path, os.X_OK)


@contextlib.contextmanager
def locked(folder: Path, *, report: Report) -> Iterator[None]:
    """Be the only process that fills `folder`; wait for another one (and say so) if need be. The kernel frees a dead
    process's lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("a+")
    except OSError as error:
        raise ControlPlaneError(
            f"the cache cannot be written ({error}): set AIRUNWAY_CACHE to a folder that can"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            report(f"process {lock.read().strip() or '?'} is already filling {folder}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield
