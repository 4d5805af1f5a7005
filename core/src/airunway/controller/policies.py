"""Loads the policy that the core applies and reloads it when its file changes; caches the labels of namespaces."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from airunway.kube import NAMESPACE, AnyReflector, Client, Reflector, UnionReflector
from airunway.process.base_controller import not_synced
from airunway.resource import ObjectKey, Resource, labels_of
from airunway.validation.policy import NAMESPACE_NAME, Grants, Policy, PolicyError, parse_policy

log = logging.getLogger(__name__)

REREAD = 5.0
"""Seconds between two reads of the file: a mounted ConfigMap changes without a signal."""


class PolicyFile:
    """A policy and its file. Raises PolicyError, naming the file, if it cannot be read at the start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = ""
        self._problem = ""
        self.policy = Policy()
        try:
            self._take(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, PolicyError) as error:
            raise PolicyError(f"{path}: {error}") from error

    def _take(self, text: str) -> None:
        if text != self._text:
            self.policy = parse_policy(text)
            self._text = text

    def reread(self) -> bool:
        """Read the file again; returns whether the policy has changed. An unreadable file leaves it as it was."""
        before, problem = self.policy, ""
        try:
            self._take(self._path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, PolicyError) as error:
            problem = str(error)
        if problem and problem != self._problem:  # logged once, not at every attempt
            log.error("the policy stays as it was (%s), %s: %s", self.policy, self._path, problem)
        elif self._problem and not problem:
            log.info("the policy can be read again, %s", self._path)
        self._problem = problem
        return self.policy != before


class Policies:
    """The policy and the namespaces' labels; a change calls `on_change(namespace)` (empty: the policy has changed)."""

    def __init__(
        self,
        client: Client,
        file: PolicyFile,
        *,
        namespaces: Sequence[str],
        on_change: Callable[[str], None],
    ) -> None:
        self._client = client
        self._file = file
        self._on_change = on_change
        self.reflector: AnyReflector
        if namespaces:
            # One watch per name: listing all namespaces needs a right that we may not have.
            self.reflector = UnionReflector(
                [
                    Reflector(client, NAMESPACE, field_selector=f"metadata.name={name}", project=_labels_only)
                    for name in dict.fromkeys(namespaces)
                ]
            )
        else:
            self.reflector = Reflector(client, NAMESPACE, project=_labels_only)
        self.reflector.add_handler(self._on_namespace)

    def unready(self) -> str | None:
        """Why the labels of namespaces are not known yet, or None."""
        return not_synced([self.reflector])

    async def read(self) -> None:
        """Wait until all namespaces have been read."""
        await self.reflector.synced.wait()

    @property
    def policy(self) -> Policy:
        return self._file.policy

    def known_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The cached labels of a namespace, including its name; None: the namespace is not in the cache yet."""
        found = self.reflector.get(ObjectKey("", namespace))
        return None if found is None else {**labels_of(found), NAMESPACE_NAME: namespace}

    def grants_of(self, namespace: str) -> Grants | None:
        """What a namespace may use; None: it is not in the cache yet."""
        labels = self.known_labels(namespace)
        return None if labels is None else self.policy.grants(labels)

    async def labels_of(self, namespace: str) -> Mapping[str, str]:
        """Like `known_labels`, but reads a namespace that is not in the cache yet. Raises KubeError."""
        known = self.known_labels(namespace)
        if known is not None:
            return known
        return {**labels_of(await self._client.get(NAMESPACE, ObjectKey("", namespace))), NAMESPACE_NAME: namespace}

    async def run(self) -> None:
        """Watch namespaces and the file until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reflector.run(), name="namespaces")
            await self.reflector.synced.wait()
            self._tell("the policy is in force")
            while True:
                await asyncio.sleep(REREAD)
                if self._file.reread():
                    self._tell("the policy has changed")
                    self._on_change("")

    def _tell(self, what: str) -> None:
        log.info("%s: %s", what, self.policy)
        namespaces = [{**labels_of(obj), NAMESPACE_NAME: key.name} for key, obj in self.reflector.items()]
        for number in self.policy.idle_rules(namespaces):
            log.warning("rules[%d] of the policy matches no namespace: is its selector right?", number)

    def _on_namespace(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if new is not None and (old is None or labels_of(old) != labels_of(new)):
            self._on_change(key.name)


def _labels_only(namespace: Resource) -> Resource:
    metadata = namespace.get("metadata") or {}
    return {"metadata": {field: metadata.get(field) for field in ("name", "uid", "resourceVersion", "labels")}}
