"""Both majors of helm, and what they work on."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import yaml

from airunway.resource import Resource

__all__ = ["APPLICATIONS", "CHARTS", "MONITORING", "NAMESPACE", "Helm", "Major"]

CHARTS = Path(__file__).resolve().parents[2] / "charts"
APPLICATIONS = sorted(path.parent.name for path in CHARTS.glob("*/values.yaml"))
NAMESPACE = "airunway-system"
MONITORING = "monitoring.coreos.com/v1"

Major: TypeAlias = Literal[3, 4]


@dataclass(frozen=True, kw_only=True)
class Helm:
    """One helm; `folder` has the charts, `kubeconfig` is the administrator's, where there is a cluster."""

    program: Path
    folder: Path
    major: Major
    kubeconfig: Path | None = None

    def __call__(self, *arguments: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.program, *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, **({"KUBECONFIG": str(self.kubeconfig)} if self.kubeconfig else {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0 or not check, f"helm {arguments}: {done.stderr}{done.stdout}"
        return done

    def render(self, chart: str, *options: str | Path) -> list[Resource]:
        """The objects that a release called `runway` would have."""
        arguments = ["template", "runway", chart, "-n", NAMESPACE, "--api-versions", MONITORING, *options]
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return [obj for obj in yaml.load_all(self(*arguments).stdout, Loader=loader) if obj]
