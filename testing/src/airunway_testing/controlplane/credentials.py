"""What a process needs to use a running control plane by its folder: its description, and credentials for further
users.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from airunway_testing.controlplane.certificates import load_authority
from airunway_testing.controlplane.errors import ControlPlaneError
from airunway_testing.controlplane.kubeconfigs import file_name, write_kubeconfig
from airunway_testing.controlplane.versions import Level

_FILE = "control-plane.json"


@dataclass(frozen=True, kw_only=True)
class Description:
    """A running control plane, as written beside its kubeconfig."""

    level: Level
    url: str
    audit: bool


def save_description(directory: Path, description: Description) -> None:
    """Write the description into the control plane's folder."""
    (directory / _FILE).write_text(json.dumps(dataclasses.asdict(description)))


def load_description(directory: Path) -> Description | None:
    """Read the description; None when the folder is not a control plane's (somebody's own kubeconfig lies there)."""
    path = directory / _FILE
    if not path.is_file():
        return None
    try:
        return Description(**json.loads(path.read_text()))
    except (ValueError, TypeError) as error:
        raise ControlPlaneError(f"{path} was not written by this version of airunway: {error}") from error


def issue_kubeconfig(directory: Path, *, url: str, user: str, groups: Sequence[str] = ()) -> Path:
    """Make a client certificate and a kubeconfig for a user; the same user and groups again give the same file."""
    folder = directory / "users"
    folder.mkdir(mode=0o700, exist_ok=True)
    name = file_name(user, groups)
    path = folder / f"{name}.kubeconfig"
    if not path.exists():
        authority = load_authority(directory / "certificates" / "ca")
        client = authority.client(folder / name, user=user, groups=groups)
        write_kubeconfig(path, server=url, authority=authority.files.certificate, client=client, user=user)
    return path
