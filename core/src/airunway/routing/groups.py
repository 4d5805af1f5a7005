"""Decides which deployments of a group get which share of what they claim in common (docs/side-by-side.md).

Example: `chat-v1` with weight 9 and `chat-v2` with weight 1 both claim ``/ml/chat``. Once both serve, the route of the
holder leads to both Services, and the shares are 90 and 10 percent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from airunway.resource import Resource, condition_of, dig, mapping_at, number_at, text_at
from airunway.routing.backends import Backend, BackendKind
from airunway.routing.claims import Claimant, ClaimKind
from airunway.status.conditions import SERVED
from airunway.status.rollup import Verdict

MOST_MEMBERS = 16
"""Backends that a rule of an HTTPRoute may have (Gateway API)."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """A deployment of a group, as far as shares depend on it."""

    claimant: Claimant
    weight: int = 1
    answers: bool = False
    """It has served, and has a ready replica, or its endpoint picker holds requests until it has one."""
    at_zero: bool = False
    """It answers although no replica runs: only through its pool."""
    backend: Backend | None = None
    """What a route to it alone leads to; None: it is not known yet."""
    path_to_service: bool = False
    """A path rule leads to its Service although the backend is a pool."""


class Why(StrEnum):
    """Why a member has no share."""

    WEIGHT = "weight 0"
    NOT_READY = "not ready yet"
    AT_ZERO = "it is scaled to zero, and a rule for several deployments leads to Services, which hold no request"
    NO_SERVICE = "it has no Service, and a rule for several deployments leads to Services"
    TOO_MANY = f"a group has at most {MOST_MEMBERS} members, and this one is younger: remove another one"


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a member of a group gets."""

    member: Member
    percent: int = 0
    """Whole percent of the requests; of all members together 100, or 0 if none can answer."""
    weight: int = 0
    """Its weight in the rule; 0: the rule does not lead to it."""
    backend: Backend | None = None
    """What the rule leads to; None: not to this member."""
    why: Why | None = None
    """Why it has no share; None: it has one."""


def shares(
    members: Iterable[Member], holder: Claimant, *, pools: bool = False, path: bool = False
) -> tuple[Share, ...]:
    """The share of each member, in the order of their age.

    A member with a weight has a share once it has served and has a ready replica: a rule that led to one without
    endpoints would answer its part of the requests with 503. If none can answer, the rule leads to all that have a
    weight and waits for them; if none has a weight, to the holder. A rule leads to several Services or to one backend
    of any kind, because gateways do not agree on several pools. With `pools` (``routing.split: Pool``) it leads to
    several pools if each member that has a share has one, and for a `path` one that understands it: a rule never leads
    to pools and Services.
    """
    ordered = sorted(members, key=lambda member: member.claimant)
    known, too_many = ordered[:MOST_MEMBERS], ordered[MOST_MEMBERS:]
    weighted = [member for member in known if member.weight > 0]
    answering = [member for member in weighted if member.answers and member.backend is not None]
    pools = pools and all(_pool_problem(member, path=path) == "" for member in answering)
    asleep = [member for member in answering if member.at_zero] if len(answering) > 1 and not pools else []
    if asleep and len(asleep) == len(answering):
        asleep = asleep[1:]  # the first request wakes one
    answering = [member for member in answering if member not in asleep]
    chosen = answering or [member for member in weighted if member.backend is not None]
    if not weighted:
        chosen = [member for member in known if member.claimant == holder and member.backend is not None]
    pools = pools and all(_pool_problem(member, path=path) == "" for member in chosen)
    lacking = [member for member in chosen if len(chosen) > 1 and not pools and not _service_of(member)]
    if lacking and len(lacking) == len(chosen):
        lacking = lacking[1:]
    led_to = [member for member in chosen if member not in lacking]
    parts = _percents([max(member.weight, 1) if member.answers else 0 for member in led_to])
    percents = dict(zip((member.claimant for member in led_to), parts, strict=True))
    found = []
    for member in ordered:
        percent, why = percents.get(member.claimant), None
        if member in too_many:
            why = Why.TOO_MANY
        elif member in asleep:
            why = Why.AT_ZERO
        elif member in lacking:
            why = Why.NO_SERVICE
        elif not percent:
            why = Why.WEIGHT if member.weight <= 0 else Why.NOT_READY
        if percent is None or member.backend is None:
            found.append(Share(member=member, why=why))
            continue
        found.append(
            Share(
                member=member,
                percent=percent,
                weight=max(member.weight, 1),
                backend=member.backend if pools or len(led_to) == 1 else member.backend.as_service,
                why=why if not (percent == 0 and member.answers) else None,
            )
        )
    return tuple(found)


def _pool_problem(member: Member, *, path: bool) -> str:
    """Why a rule cannot lead to a member's InferencePool; empty if it can."""
    if member.backend is None or member.backend.kind is not BackendKind.POOL:
        return "has no InferencePool"
    return "has an endpoint picker that takes no path" if path and member.path_to_service else ""


def _service_of(member: Member) -> str:
    return member.backend.service if member.backend is not None else ""


def _percents(weights: Sequence[int]) -> list[int]:
    """Whole percents that add up to 100 (the largest remainders are rounded up); all 0 if the weights are."""
    whole = sum(weights)
    if not whole:
        return [0] * len(weights)
    percents = [100 * weight // whole for weight in weights]
    rest = sorted(range(len(weights)), key=lambda place: (-(100 * weights[place] % whole), place))
    for place in rest[: 100 - sum(percents)]:
        percents[place] += 1
    return percents


@dataclass(frozen=True, kw_only=True)
class SharedRule:
    """One path or model name that several deployments of a group claim."""

    value: str
    holder: Claimant
    shares: tuple[Share, ...]
    route: Verdict = field(default_factory=lambda: Verdict(ready=False, reason="WaitingForGateway", message=""))
    """The verdict on the holder's route."""
    pools: bool = False
    """It shall lead to several pools (``routing.split: Pool`` of the holder's config)."""
    is_path: bool = False
    held_still: bool = False
    """The holder is paused or in a dry run: its route stays as it is."""

    @property
    def weightless(self) -> bool:
        """Whether no member has a weight."""
        return all(share.member.weight <= 0 for share in self.shares)

    @property
    def backends(self) -> tuple[Share, ...]:
        """The shares with what the rule leads to."""
        return tuple(share for share in self.shares if share.backend is not None)

    def of(self, claimant: Claimant) -> Share | None:
        """The share of a member."""
        return next((share for share in self.shares if share.member.claimant.key == claimant.key), None)


@dataclass(frozen=True, kw_only=True)
class Group:
    """What a deployment and others of its group claim in common."""

    me: Claimant
    rules: Mapping[ClaimKind, SharedRule] = field(default_factory=dict)
    elsewhere: str = ""
    """An older deployment of the group that is on another Gateway or listener, with where it is."""

    @property
    def main(self) -> SharedRule | None:
        """The rule that the status tells of: the path's, else the model name's."""
        return next(iter(self.rules.values()), None)

    def holds(self, kind: ClaimKind) -> bool:
        """Whether the deployment's own route has the shared rule of a kind."""
        rule = self.rules.get(kind)
        return rule is not None and rule.holder.key == self.me.key

    @property
    def held(self) -> Mapping[ClaimKind, SharedRule]:
        """The shared rules of the deployment's own route."""
        return {kind: rule for kind, rule in self.rules.items() if self.holds(kind)}

    @property
    def lent(self) -> Mapping[ClaimKind, SharedRule]:
        """The shared rules that another deployment's route has."""
        return {kind: rule for kind, rule in self.rules.items() if not self.holds(kind)}


def weight_of(deployment: Resource) -> int:
    """``spec.gateway.weight``; 1 if it is not set."""
    weight = dig(deployment, "spec", "gateway", "weight")
    return max(0, min(weight, 1000)) if isinstance(weight, int) and not isinstance(weight, bool) else 1


def answers(deployment: Resource) -> bool:
    """Whether a deployment can take requests: it has served, and has a ready replica or holds them at zero."""
    served = (condition_of(deployment, SERVED) or {}).get("status") == "True"
    return served and (number_at(deployment, "status", "replicas", "ready") > 0 or at_zero(deployment))


def at_zero(deployment: Resource) -> bool:
    """Whether it is scaled to zero, and its endpoint picker holds requests."""
    desired, holds = (
        dig(deployment, "status", "replicas", "desired"),
        dig(deployment, "status", "gateway", "holdsRequests"),
    )
    return desired == 0 and not isinstance(desired, bool) and holds is True


def answers_in_group(deployment: Resource) -> tuple[bool, bool] | None:
    """That and whether it is at zero, for a deployment of a group; None for any other, whose routes do not depend on
    it.
    """
    return (answers(deployment), at_zero(deployment)) if text_at(deployment, "spec", "gateway", "group") else None


def recorded_group(deployment: Resource) -> str:
    """The group whose shared rules the deployment's route was last written for."""
    return text_at(deployment, "status", "gateway", "group", "name")


def group_status(group: Group, deployment: Resource) -> Resource:
    """``status.gateway.group``; while the holder is paused, what was published."""
    rule = group.main
    if rule is None:
        return {}
    published = mapping_at(deployment, "status", "gateway", "group")
    if rule.held_still and (published.get("name"), published.get("holder")) == (group.me.group, rule.holder.name):
        return dict(published)
    share = rule.of(group.me)
    percent = share.percent if share is not None else 0
    return {"name": group.me.group, "holder": rule.holder.name, "share": percent}


def told(group: Group) -> str:
    """What a member gets, as a sentence."""
    parts = []
    for kind, rule in group.rules.items():
        share = rule.of(group.me)
        what = rule.value if kind is ClaimKind.PATH else f"model {rule.value}"
        if share is not None and share.why is not None and not share.percent:
            parts.append(f"takes no share of {what}: {share.why}")
        else:
            parts.append(f"{share.percent if share is not None else 0} % of {what}")
    text = " and ".join(parts)
    if (main := group.main) is None:
        return ""
    if main.holder.key != group.me.key:
        text += f", by the route of ModelDeployment {main.holder.name}"
    if main.held_still:
        text += (
            f"; ModelDeployment {main.holder.name} is paused or in a dry run: its route and the shares stay as they are"
        )
    return text + _price(main)


def _price(rule: SharedRule) -> str:
    """What requests lack while several members have a share."""
    led_to = rule.backends
    if len(led_to) < 2 or not any(_pool_problem(share.member, path=False) == "" for share in led_to):
        return ""
    if led_to[0].backend is not None and led_to[0].backend.kind is BackendKind.POOL:
        return "; while several have a share the rule leads to several InferencePools, as routing.split says"
    text = "; while several have a share the rule leads to Services, and no endpoint picker chooses the pod"
    if rule.pools:
        problems = ((share.member, _pool_problem(share.member, path=rule.is_path)) for share in led_to)
        name, why = next((member.claimant.name, problem) for member, problem in problems if problem)
        text += f": ModelDeployment {name} {why}"
    return text


def mismatch(group: Group) -> str:
    """Why the deployment cannot share requests with its group; empty if it can."""
    for rule in group.rules.values():
        share = rule.of(group.me)
        if share is not None and share.why in (Why.NO_SERVICE, Why.TOO_MANY):
            return f"group {group.me.group}: {share.why}"
    if group.elsewhere:
        return (
            f"group {group.me.group}: {group.elsewhere}; deployments of a group share requests at one Gateway "
            "and listener: set the same spec.gateway.gatewayRef, or another group"
        )
    return ""
