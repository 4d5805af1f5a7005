"""Manages Helm releases through the helm program on PATH, and finds what helm does not report about them.

helm does not report foreign objects in a release, nor what an uninstallation leaves.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from airunway.api import names
from airunway.install.bundled_charts import BundledChart
from airunway.kinds import MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.kube import Client, NotFound, served_resources
from airunway.resource import ObjectKey, Resource, annotations_of, dig, key_of

_RELEASE, _RELEASE_NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
_AT_ONCE = 16
"""Concurrent requests."""
_SHOWN = 20
"""ModelArtifacts that are named."""

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
    """helm 3.17 or newer for one namespace; each release has the name of its part.

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

    def foreign(self, releases: Mapping[str, HelmRelease], listed: Iterable[str]) -> list[str]:
        """Messages about the named releases that have a chart of another name."""
        return [
            f"Helm's release {name} has the chart {releases[name].chart}, which is not ours: use helm directly"
            for name in listed
            if name in releases and not re.match(rf"{re.escape(name)}-[0-9]", releases[name].chart)
        ]

    def unfinished(self, releases: Mapping[str, HelmRelease], listed: Iterable[str]) -> list[str]:
        """Messages about the named releases that another helm command has left unfinished."""
        found = []
        for name in listed:
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
            hint = " (this needs helm 3.17 or newer)" if "unknown flag" in text else ""
            raise HelmError(f"{self.program} {' '.join(arguments)}: {text}{hint}")
        return output.decode()


def named(obj: Resource) -> str:
    """An object as KIND/NAMESPACE/NAME, or KIND/NAME where the manifest gives no namespace."""
    key = key_of(obj)
    return "/".join(filter(None, (str(obj.get("kind")), key.namespace, key.name)))


async def not_of_release(client: Client, objects: Sequence[Resource], *, name: str, namespace: str) -> list[str]:
    """The objects of a release's manifest that helm would delete although it did not create them.

    helm deletes every object that the release's Secret lists, and that Secret can be forged. Objects that helm created
    have the release in their annotations, which only an account with rights on that object can write. Raises KubeError.
    """
    slots = asyncio.Semaphore(_AT_ONCE)

    async def foreign(obj: Resource) -> str:
        async with slots:
            group, _, version = str(obj.get("apiVersion")).rpartition("/")
            kind = (await served_resources(client, group, version)).get(str(obj.get("kind")))
            if kind is None:  # for example a List, which helm splits
                return f"{named(obj)} (the API server has no such kind)"
            key = ObjectKey((key_of(obj).namespace or namespace) if kind.namespaced else "", key_of(obj).name)
            try:
                notes = annotations_of(await client.get(kind, key))
            except NotFound:
                return ""
            except ValueError:  # an invalid name
                return named(obj)
        return "" if (notes.get(_RELEASE), notes.get(_RELEASE_NAMESPACE)) == (name, namespace) else named(obj)

    return list(filter(None, await asyncio.gather(*map(foreign, objects))))


async def what_stays(client: Client, *, namespace: str) -> list[str]:
    """Lines about what an uninstallation leaves, with the number of deployments per provider. Raises KubeError."""
    left = f"Namespace/{namespace}, with the Leases and the webhook's Secret in it"
    found: Counter[str] = Counter()
    try:
        async for row in client.rows(MODEL_DEPLOYMENT):
            found[str(row.get("Provider") or "")] += 1
    except NotFound:
        return [left]
    lines = [
        f"the CRDs of {MODEL_DEPLOYMENT.group}, with all their objects, the runtime configs too",
        "routes, InferencePools and endpoint pickers of ModelDeployments, and the ClusterRole "
        f"{names.ENDPOINT_PICKER_ROLE}, if routes were made",
        "claims of sized volumes, until their ModelDeployments are deleted",
    ]
    lines += await _weights(client)
    for provider, count in sorted(found.items()):
        of = f"of {provider}" if provider else "of no provider"
        lines.append(
            f"{count} ModelDeployment{'s' * (count > 1)} {of}"
            f"{' and their upstream objects; without the provider their deletion waits' * bool(provider)}"
        )
    return [*lines, left]


async def _weights(client: Client) -> list[str]:
    """Lines about ModelArtifacts, each with its claim and the claim's size."""
    artifacts = await client.list_if_served(MODEL_ARTIFACT)
    lines = []
    for artifact in artifacts[:_SHOWN]:
        key, status = key_of(artifact), artifact.get("status")
        claim, size = dig(status, "persistentVolumeClaim"), dig(status, "allocatedSize")
        held = f" with its claim {claim} ({size or 'size unknown'})" if claim else ""
        lines.append(f"ModelArtifact/{key.namespace}/{key.name}{held}")
    if (more := len(artifacts) - _SHOWN) > 0:
        lines.append(f"{more} more ModelArtifacts with their claims")
    return lines
