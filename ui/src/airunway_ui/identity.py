"""Whose rights: a client of the API server with somebody's credentials, what they may do, and whether it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic

from airunway.kube import ApiError, Client, ClusterConfig, Kind, KubeError, user_agent_of
from airunway.resource import dig

REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)
_WHO = Kind("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False)

_FRESH = 30.0
"""Seconds for which an answer about a right is kept."""

_MOST_ANSWERS = 1000


class Signal:
    """Something that changes: its version grows, and who waits for that goes on."""

    def __init__(self) -> None:
        self.version = 0
        self._changed = asyncio.Event()

    def set(self) -> None:
        """Say that it has changed."""
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def after(self, version: int) -> int:
        """Wait for a later version, and return it."""
        while self.version == version:
            await self._changed.wait()
        return self.version


@dataclass(frozen=True, kw_only=True)
class Right:
    """What a button needs."""

    verb: str
    kind: Kind
    namespace: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        resource = f"{self.kind.plural}{f'.{self.kind.group}' if self.kind.group else ''}"
        resource += f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb} {resource}" + (f" in namespace {self.namespace}" if self.namespace else "")


class Identity:
    """A person before the page, with the connection to the API server that has their credentials."""

    def __init__(self, config: ClusterConfig) -> None:
        self.client = Client(config, user_agent=user_agent_of("ui"), on_request=self._on_request)
        self.lost: datetime | None = None
        """Since when the API server does not answer; None: it does."""
        self.connection = Signal()
        self.name = ""
        """What the API server calls this person; empty if it does not say it."""
        self._answers: dict[Right, tuple[float, bool]] = {}

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context."""
        return self.client.config.namespace

    async def open(self) -> None:
        """Connect, and ask who this is. Raises KubeError, also Unauthorized, if the API server does not answer."""
        await self.client.__aenter__()
        try:
            who = await self.client.create(_WHO, {"apiVersion": _WHO.api_version, "kind": _WHO.kind})
        except ApiError as error:
            if error.status == 401:
                raise
            return  # an API server before 1.28, or one that forbids the question
        found = dig(who, "status", "userInfo", "username")
        self.name = found if isinstance(found, str) else ""

    async def close(self) -> None:
        """End all connections."""
        await self.client.__aexit__()

    def on_error(self, error: KubeError) -> None:
        """Take note of an error after which a watch is tried again."""
        if (not isinstance(error, ApiError) or error.status >= 500) and self.lost is None:
            self.lost = datetime.now(UTC)
            self.connection.set()

    def _on_request(self, _verb: str, _resource: str, status: int, _seconds: float) -> None:
        if self.lost is not None and 0 < status < 500:
            self.lost = None
            self.connection.set()

    async def may(self, rights: Iterable[Right]) -> dict[Right, bool]:
        """Which of these rights this person has. One that cannot be asked about counts as had: the API server decides
        when it is used.
        """
        wanted = list(dict.fromkeys(rights))
        now = monotonic()
        open_ = [each for each in wanted if each not in self._answers or now - self._answers[each][0] > _FRESH]
        if len(self._answers) > _MOST_ANSWERS:
            self._answers.clear()
            open_ = wanted
        answers = await asyncio.gather(*(self._ask(each) for each in open_))
        for right, answer in zip(open_, answers, strict=True):
            self._answers[right] = (now, answer)
        return {right: self._answers[right][1] for right in wanted}

    async def _ask(self, right: Right) -> bool:
        attributes = {
            "verb": right.verb,
            "group": right.kind.group,
            "resource": right.kind.plural,
            **({"namespace": right.namespace} if right.namespace else {}),
            **({"subresource": right.subresource} if right.subresource else {}),
        }
        review = {
            "apiVersion": REVIEW.api_version,
            "kind": REVIEW.kind,
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = await self.client.create(REVIEW, review)
        except KubeError:
            return True
        return dig(answer, "status", "allowed") is True
