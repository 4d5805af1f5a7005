"""Manages Helm releases through the helm program on PATH."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from airunway.install.bundled_charts import BundledChart

__all__ = ["Helm", "HelmError", "HelmRelease"]


_NEVER_THERE = ("pending-install", "uninstalling")
"""States of a release that has no earlier revision to roll back to."""


class HelmError(Exception):
    """helm failed; the message is from helm."""


class HelmRelease(NamedTuple):
    """A release of Helm."""

    status: str
    """For example ``deployed``."""
    chart: str
    """For example ``airunway-0.1.0``."""


@dataclass(frozen=True, kw_only=True)
class Helm:
    """helm 3.14 or newer for one namespace; each release has the name of its part.

    Every method raises HelmError.
    """

    program: str
    namespace: str
    kubeconfig: Path | None = None
    context: str | None = None
    images: str = ""
    """The registry of the images; empty: that of the charts."""

    async def releases(self) -> dict[str, HelmRelease]:
        """All releases in the namespace by name, those of other charts too."""
        states = ("--deployed", "--failed", "--pending", "--uninstalling")  # helm 3 and 4 have others by default
        listed = json.loads(await self._run("list", *states, "--output=json"))
        return {str(each["name"]): HelmRelease(str(each["status"]), str(each["chart"])) for each in listed}

    def foreign(self, releases: Mapping[str, HelmRelease], names: Iterable[str]) -> list[str]:
        """Messages about the named releases that have a chart of another name."""
        return [
            f"Helm's release {name} has the chart {releases[name].chart}, which is not ours: use helm directly"
            for name in names
            if name in releases and not re.match(rf"{re.escape(name)}-[0-9]", releases[name].chart)
        ]

    def unfinished(self, releases: Mapping[str, HelmRelease], names: Iterable[str]) -> list[str]:
        """Messages about the named releases that another helm command has left unfinished."""
        found = []
        for name in names:
            state = releases[name].status if name in releases else ""
            if state.startswith("pending") or state in _NEVER_THERE:
                verb = "uninstall" if state in _NEVER_THERE else "rollback"
                found.append(
                    f"Helm's release {name} is {state}: a helm command is still running or was interrupted. "
                    f"If none is running: helm {verb} {name} --namespace {self.namespace}"
                )
        return found

    async def rendered(self, part: BundledChart) -> str:
        """The manifests of the release with its present values, by a dry run.

        helm reports errors here, such as a cluster that is too old or foreign objects with the same names.
        """
        made = json.loads(await self._run(*self._upgrade(part), "--dry-run=server", "--output=json"))
        return str(made["manifest"])

    async def manifest(self, name: str) -> str:
        """The manifests that a release lists."""
        return await self._run("get", "manifest", name)

    async def apply(self, part: BundledChart, *, timeout: float) -> None:
        """Install the part, or upgrade it and keep its values.

        Waits up to `timeout` seconds until it is ready; 0: does not wait.
        """
        wait = ("--wait", f"--timeout={timeout:g}s") if timeout else ()
        try:
            await self._run(*self._upgrade(part), *wait)
        except HelmError as error:
            raise HelmError(f"{error}. `airunway doctor` shows what is wrong") from error

    async def remove(self, name: str) -> None:
        """Uninstall a release. Our charts have no hooks, so a hook in a release is from others."""
        await self._run("uninstall", name, "--no-hooks")

    def _upgrade(self, part: BundledChart) -> Iterable[str]:
        yield from ("upgrade", "--install", part.name, str(part.chart))
        yield from ("--create-namespace", "--reset-then-reuse-values")
        if self.images:
            yield f"--set-string=global.imageRegistry={self.images}"

    async def _run(self, *arguments: str) -> str:
        where = [f"--namespace={self.namespace}"]
        where += [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        where += [f"--kube-context={self.context}"] if self.context else []
        process = await asyncio.create_subprocess_exec(
            self.program, *arguments, *where, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, complaint = await process.communicate()
        if process.returncode:
            text = complaint.decode(errors="replace").strip()
            hint = " (this needs helm 3.14 or newer)" if "unknown flag" in text else ""
            raise HelmError(f"{self.program} {' '.join(arguments)}: {text}{hint}")
        return output.decode()
