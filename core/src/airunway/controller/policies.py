"""The policy that the core applies: its file, which is read again when it changes, and the labels of namespaces."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from airunway.kube import NAMESPACE, AnyReflector, Client, Reflector, UnionReflector
from airunway.resource import ObjectKey, Resource, labels_of
from airunway.validation.policy import NAMESPACE_NAME, Policy, PolicyError, parse_policy

__all__ = ["Policies", "PolicyFile"]

log = logging.getLogger(__name__)

REREAD = 5.0
"""Seconds between two looks at the file: a mounted ConfigMap changes without a signal."""


class PolicyFile:
    """A policy and where it comes from. Raises PolicyError, naming the file, if it cannot be read at the start."""

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
        """Look at the file again; whether the policy is another now. One that cannot be read leaves it as it was."""
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
    """The policy and the namespaces' labels; `on_change(namespace)` is called on a change (empty: of the policy)."""

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
            # Each by its own name: the right to list all namespaces is not needed then.
            self.reflector = UnionReflector(
                [
                    Reflector(client, NAMESPACE, field_selector=f"metadata.name={name}", project=_labels_only)
                    for name in dict.fromkeys(namespaces)
                ]
            )
        else:
            self.reflector = Reflector(client, NAMESPACE, project=_labels_only)
        self.reflector.add_handler(self._on_namespace)

    @property
    def policy(self) -> Policy:
        return self._file.policy

    def known_labels(self, namespace: str) -> Mapping[str, str] | None:
        """The labels of a namespace in the cache, its name always among them; None: not in the cache yet."""
        found = self.reflector.get(ObjectKey("", namespace))
        return None if found is None else {**labels_of(found), NAMESPACE_NAME: namespace}

    async def labels_of(self, namespace: str) -> Mapping[str, str]:
        """As `known_labels`, but reads what is not in the cache yet. Raises KubeError."""
        known = self.known_labels(namespace)
        if known is not None:
            return known
        return {**labels_of(await self._client.get(NAMESPACE, ObjectKey("", namespace))), NAMESPACE_NAME: namespace}

    async def run(self) -> None:
        """Follow namespaces and file until cancelled."""
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
