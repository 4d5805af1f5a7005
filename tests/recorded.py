"""What real operators did, recorded by us: the archives of `recordings/`, unpacked once beside the virtual environment.

Each archive has one file of JSON lines for each scenario: what was watched of the upstream's objects, pods and events,
with the second of its arrival. ``recordings/README.md`` has the list.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
from pathlib import Path

from tools.archives import unpack

_FOLDER = Path(__file__).parent / "recordings"
_UNPACKED = _FOLDER.parents[1] / ".airunway" / "recordings"


def recorded_by(name: str) -> Path:
    """Returns the folder with the recordings of an upstream, for example ``kaito-v0.12.0``.

    Raises FileNotFoundError if there is no such archive. Several processes may ask at once.
    """
    archive = _FOLDER / f"{name}.tar.xz"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    folder = _UNPACKED / f"{name}-{digest}"
    if not folder.is_dir():
        _UNPACKED.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_UNPACKED) as scratch:
            with tarfile.open(archive) as packed:
                unpack(packed, Path(scratch) / "new")
            try:
                os.rename(Path(scratch) / "new", folder)
            except OSError:
                if not folder.is_dir():  # another process was faster
                    raise
    return folder
