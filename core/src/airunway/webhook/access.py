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
"""Seconds for which a yes is remembered: long enough for an `apply` of many manifests."""

REFUSED = 2.0
"""Seconds for which a no is remembered: short, because a user who was just given a role tries again soon."""

CAPACITY = 4096
"""Answers that are kept: so many yes, and so many no, so that neither pushes out the other."""

QUESTIONS = 16
"""Asked of the API server at a time; the others wait."""

VERB = "create"


@dataclass(frozen=True, kw_only=True)
class User:
    """Who sent the request that is admitted."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]]


class AccessReviewer:
    """Asks, and remembers for a moment who is allowed what."""

    def __init__(self, client: Client, *, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._clock = clock
        self._answered_at: dict[bool, OrderedDict[bytes, float]] = {True: OrderedDict(), False: OrderedDict()}
        self._questions = asyncio.Semaphore(QUESTIONS)
        self._plurals: dict[tuple[str, str, str], tuple[float, str]] = {}

    async def problem(self, user: User, upstream: UpstreamFacts, *, namespace: str, provider: str) -> str | None:
        """What to tell a user who may not create the provider's kind in the namespace; None for one who may.

        Raises KubeError when the API server does not answer.
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
        """What to tell a user who may not create pods in the namespace; None for one who may. Raises KubeError.

        A user who may create pods may use every service account, Secret and claim of the namespace by Kubernetes' own
        rules: nothing more needs to be asked about those that a deployment names.
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
        key = sha256(canonical_json(about)).digest()  # the user chooses how long the names are
        if (known := self._known(key)) is not None:
            return known
        async with self._questions:
            if (known := self._known(key)) is not None:  # another review asked the same meanwhile
                return known
            decision = await self._client.subject_access_review(
                user=user.name,
                uid=user.uid,
                groups=user.groups,
                extra=extra,
                verb=VERB,
                kind=kind,
                namespace=namespace,
            )
        self._answered_at[not decision.allowed].pop(key, None)
        kept = self._answered_at[decision.allowed]
        kept.pop(key, None)
        kept[key] = self._clock()
        while len(kept) > CAPACITY:
            kept.popitem(last=False)
        return decision.allowed

    def _known(self, key: bytes) -> bool | None:
        """The answer to an earlier question, as long as it holds."""
        now = self._clock()
        for allowed, lifetime in ((True, REMEMBERED), (False, REFUSED)):
            answered = self._answered_at[allowed].get(key)
            if answered is not None and now - answered < lifetime:
                return allowed
        return None

    async def _plural(self, upstream: UpstreamFacts) -> str:
        """The resource name of the kind, which an InferenceProviderConfig does not have, from discovery.

        Where the kind is not served, the name that almost every CRD has: rights on it can be granted all the same.
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
