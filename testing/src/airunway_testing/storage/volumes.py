"""Folders that stand for volumes; one with a limit is a tmpfs in a mount namespace of its own, without root (Linux)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MOUNT = 'mount -t tmpfs -o "size=$1,mode=0777" volume "$2" && echo ready && exec cat'
_NAMESPACES = ("--user", "--mount")


def limits_work() -> bool:
    """Whether this machine lets a user mount a tmpfs in a namespace (user namespaces may be switched off)."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return False
    command = ["unshare", *_NAMESPACES, "--map-root-user", "mount", "-t", "tmpfs", "-o", "size=4k", "probe", "/tmp"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass
class _Volume:
    folder: Path
    holder: subprocess.Popen[bytes] | None


class Volumes:
    """The volumes below one folder, by name. What `close` or a lost process leaves is files in that folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._volumes: dict[str, _Volume] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._volumes))

    def __contains__(self, name: str) -> bool:
        return name in self._volumes

    def make(self, name: str, *, limit: int | None = None) -> None:
        """Make an empty volume; with a `limit` writes beyond so many bytes fail (ENOSPC). Harmless where it is there.

        Raises OSError where the machine has no namespaces for users (`limits_work`).
        """
        if name in self._volumes:
            return
        folder = self._root / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        holder = _hold(folder, limit) if limit is not None else None
        self._volumes[name] = _Volume(folder=folder, holder=holder)

    def resize(self, name: str, *, limit: int) -> None:
        """Move the limit of a volume that has one."""
        volume = self._volumes[name]
        if volume.holder is not None:
            remount = ["mount", "-o", f"remount,size={limit}", str(volume.folder)]
            subprocess.run([*self.entering(name), *remount], check=True, capture_output=True)

    def folder(self, name: str) -> Path:
        """Where a process that was started with `entering` finds the volume."""
        return self._volumes[name].folder

    def files(self, name: str) -> Path:
        """Where this process finds the volume's files."""
        volume = self._volumes[name]
        return Path(f"/proc/{volume.holder.pid}/root{volume.folder}") if volume.holder else volume.folder

    def entering(self, name: str) -> list[str]:
        """What a command line must begin with to find the volume; empty for one without a limit."""
        holder = self._volumes[name].holder
        if holder is None:
            return []
        return ["nsenter", *_NAMESPACES, "--preserve-credentials", f"--target={holder.pid}", "--"]

    def remove(self, name: str) -> None:
        """Delete a volume and its files; harmless where there is none."""
        volume = self._volumes.pop(name, None)
        if volume is not None:
            _release(volume)
            shutil.rmtree(volume.folder, ignore_errors=True)

    def close(self) -> None:
        """End what holds volumes with limits; their files go."""
        for volume in self._volumes.values():
            _release(volume)
        self._volumes.clear()


def _hold(folder: Path, limit: int) -> subprocess.Popen[bytes]:
    """A process that keeps the namespace, until its standard input closes: at the latest when this process ends."""
    command = ["unshare", *_NAMESPACES, "--map-root-user", "sh", "-c", _MOUNT, "sh", str(limit), str(folder)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stderr is not None
    if holder.stdout.readline() != b"ready\n":
        text = holder.stderr.read().decode(errors="replace")
        _release(_Volume(folder=folder, holder=holder))
        raise OSError(f"no volume with a limit at {folder}: {text.strip()}")
    return holder


def _release(volume: _Volume) -> None:
    if volume.holder is not None:
        volume.holder.communicate()
