"""SubjectAccessReview: could the user create the provider's resources directly? (004, 13.2)"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from time import monotonic

from airunway.kube import POD, Client, Kind, served_resources
from airunway.resource import canonical_json
from airunway.selection import UpstreamFacts

__all__ = ["AccessReviewer", "User"]

REMEMBERED = 10.0
"""Seconds for which an allowed answer is cached: long enough for an `apply` of many manifests."""

REFUSED = 2.0
"""Seconds for which a denied answer is cached: short, because a user who was just given a role tries again soon."""

CAPACITY = 4096
"""Maximum cached answers, separately for allowed and denied ones."""

QUESTIONS = 16
"""Maximum concurrent SubjectAccessReviews; others wait."""

VERB = "create"


@dataclass(frozen=True, kw_only=True)
class User:
    """The user who sent the reviewed request."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]]


class AccessReviewer:
    """Creates SubjectAccessReviews and caches their answers for a short time."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._clock = clock
        self._answered_at: dict[bool, OrderedDict[bytes, float]] = {True: OrderedDict(), False: OrderedDict()}
        self._questions = asyncio.Semaphore(QUESTIONS)
        self._plurals: dict[tuple[str, str, str], tuple[float, str]] = {}

    async def problem(self, user: User, upstream: UpstreamFacts, *, namespace: str, provider: str) -> str | None:
        """The refusal for a user who may not create the provider's kind in the namespace; None for one who may.

        Raises KubeError if the API server does not answer.
        """
        plural = await self._plural(upstream)
        if await self._allowed(user, Kind(upstream.group, upstream.version, upstream.kind, plural), namespace):
            return None
        resource = f"{plural}.{upstream.group}" if upstream.group else plural
        return (
            f"user '{user.name}' cannot {VERB} {resource} in namespace '{namespace}', which provider '{provider}' "
            f"does for a ModelDeployment: get a role that allows it, or name another provider"
        )

    async def pods_problem(self, user: User, *, namespace: str) -> str | None:
        """The refusal for a user who may not create pods in the namespace; None for one who may. Raises KubeError.

        In Kubernetes a user who may create pods may use every service account, Secret and claim of the namespace. So
        the ones that a deployment names need no check of their own.
        """
        if await self._allowed(user, POD, namespace):
            return None
        return (
            f"user '{user.name}' cannot {VERB} pods in namespace '{namespace}', which a ModelDeployment does: "
            "get a role that allows it"
        )

    async def _allowed(self, user: User, kind: Kind, namespace: str) -> bool:
        extra = {name: list(values) for name, values in user.extra.items()}
        about = [user.name, user.uid, sorted(user.groups), extra, kind.group, kind.version, kind.plural, namespace]
        key = sha256(canonical_json(about)).digest()  # a fixed size: the user chooses the length of the names
        if (known := self._known(key)) is not None:
            return known
        async with self._questions:
            if (known := self._known(key)) is not None:  # another review has had the same question answered
                return known
            allowed = await self._client.subject_access_review(
                user=user.name,
                uid=user.uid,
                groups=user.groups,
                extra=extra,
                verb=VERB,
                kind=kind,
                namespace=namespace,
            )
        self._answered_at[not allowed].pop(key, None)
        kept = self._answered_at[allowed]
        kept.pop(key, None)
        kept[key] = self._clock()
        while len(kept) > CAPACITY:
            kept.popitem(last=False)
        return allowed

    def _known(self, key: bytes) -> bool | None:
        """The cached answer, if it is still valid."""
        now = self._clock()
        for allowed, lifetime in ((True, REMEMBERED), (False, REFUSED)):
            answered = self._answered_at[allowed].get(key)
            if answered is not None and now - answered < lifetime:
                return allowed
        return None

    async def _plural(self, upstream: UpstreamFacts) -> str:
        """The resource name of the kind from discovery; an InferenceProviderConfig does not have it.

        If the kind is not served, it is guessed from the kind, which is right for nearly every CRD: a role can allow it
        already.
        """
        key = (upstream.group, upstream.version, upstream.kind)
        now = self._clock()
        known = self._plurals.get(key)
        if known is not None and now - known[0] < 6 * REMEMBERED:
            return known[1]
        plural = f"{upstream.kind.lower()}s"
        if upstream.version:
            served = await served_resources(self._client, upstream.group, upstream.version)
            if upstream.kind in served:
                plural = served[upstream.kind].plural
        self._plurals[key] = (now, plural)
        return plural
