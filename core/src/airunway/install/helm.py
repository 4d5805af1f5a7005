"""Parts as releases of Helm, by the helm program of the machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from airunway.install.carried import Carried

__all__ = ["Helm", "HelmError"]


_NEVER_THERE = ("pending-install", "uninstalling")
"""States of a release to which no release before it can be put back."""


class HelmError(Exception):
    """helm could not do it; the message is its own."""


@dataclass(frozen=True, kw_only=True)
class Helm:
    """helm 3.14 or newer for one namespace; each release is called like its part.

    `images` is the registry of the images (empty: that of the charts). Every method raises HelmError.
    """

    program: str
    namespace: str
    kubeconfig: Path | None = None
    context: str | None = None
    images: str = ""

    async def releases(self) -> dict[str, str]:
        """All releases in the namespace by name, whoever made them, and the status of each, as ``deployed``."""
        states = ("--deployed", "--failed", "--pending", "--uninstalling")  # helm 3 and 4 have others by default
        listed = json.loads(await self._run("list", *states, "--output=json"))
        return {str(each["name"]): str(each["status"]) for each in listed}

    def unfinished(self, releases: Mapping[str, str], names: Iterable[str]) -> list[str]:
        """Those of the releases on which another command of helm is at work, or was when it ended, as sentences."""
        found = []
        for name in names:
            state = releases.get(name, "")
            if state.startswith("pending") or state in _NEVER_THERE:
                verb = "uninstall" if state in _NEVER_THERE else "rollback"
                found.append(
                    f"Helm's release {name} is {state}: a helm command still runs, or was interrupted. "
                    f"Where none runs: helm {verb} {name} --namespace {self.namespace}"
                )
        return found

    async def rendered(self, part: Carried) -> str:
        """The manifests of which a release that is there would consist, with its values. Nothing is written."""
        made = json.loads(await self._run(*self._upgrade(part), "--dry-run=server", "--output=json"))
        return str(made["manifest"])

    async def bring(self, part: Carried) -> None:
        """Install the part, or upgrade it; values that somebody gave to its release stay."""
        await self._run(*self._upgrade(part))

    async def remove(self, name: str) -> None:
        """Uninstall a release."""
        await self._run("uninstall", name)

    def _upgrade(self, part: Carried) -> Iterable[str]:
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
        said, complaint = await process.communicate()
        if process.returncode:
            told = complaint.decode(errors="replace").strip()
            hint = " (this needs helm 3.14 or newer)" if "unknown flag" in told else ""
            raise HelmError(f"{self.program} {' '.join(arguments)}: {told}{hint}")
        return said.decode()
