"""A K3s container, for those who have Docker and ask for it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from airunway_testing.controlplane.errors import ControlPlaneError
from airunway_testing.controlplane.progress import Report

_DEFAULT_IMAGE = "rancher/k3s:latest"


@contextlib.contextmanager
def k3s_kubeconfig(folder: Path, *, report: Report) -> Iterator[Path]:
    """Run a K3s container (image AIRUNWAY_K3S_IMAGE) and give the kubeconfig of its administrator, written into
    `folder`.

    Raises ControlPlaneError when testcontainers is not installed or Docker does not answer.
    """
    try:
        import docker.errors  # type: ignore[import-untyped] # comes with testcontainers, without types
        import requests

        try:
            from testcontainers.community.k3s import K3SContainer
        except ImportError:  # testcontainers before it had a community folder
            from testcontainers.k3s import K3SContainer
    except ImportError as error:
        raise ControlPlaneError(
            f"a K3s container needs testcontainers ({error}): pip install 'airunway-testing[k3s]'"
        ) from error
    image = os.environ.get("AIRUNWAY_K3S_IMAGE", _DEFAULT_IMAGE)
    report(f"starting {image} with Docker")
    with contextlib.ExitStack() as stack:
        try:
            container = stack.enter_context(K3SContainer(image))
            content = container.config_yaml()
        except (docker.errors.DockerException, requests.RequestException, OSError, TimeoutError) as error:
            raise ControlPlaneError(
                f"a K3s container ({image}) was asked for, and Docker could not run it: {error}"
            ) from error
        path = folder / "k3s.kubeconfig"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            file.write(content)
        yield path
