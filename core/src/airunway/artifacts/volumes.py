"""Decides which claims a deployment's volumes need, and what its StorageReady says (docs/model-cache.md). Pure.

Example: ``llama`` has a volume ``kernels`` with ``size: 20Gi``. The decision has the claim ``llama-kernels`` of 20Gi,
and ``StorageReady=False/PvcPending`` until the claim is bound. A volume with `claimName` only is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from airunway.api.modeldeployment import volume_claim_name
from airunway.artifacts.claims import Wish, claim_of, claim_verdict, is_smaller, possible
from airunway.artifacts.deployments import is_left_alone
from airunway.configs.resolution import BUILT_IN, EffectiveConfig
from airunway.resource import (
    Resource,
    controller_owner,
    dig,
    is_deleting,
    key_of,
    list_at,
    uid_of,
)
from airunway.status.conditions import Condition, is_dry_run
from airunway.status.reasons import Category, category_of
from airunway.status.rollup import Verdict
from airunway.status.rootcause import RootCause

STORAGE = "StorageReady"
"""The condition that this part writes on deployments with volumes."""


@dataclass(frozen=True, kw_only=True)
class VolumeFacts:
    """Everything that the decision depends on."""

    deployment: Resource
    """The deployment."""
    config: EffectiveConfig | None = None
    """The runtime config that it follows; None: there is none."""
    config_unusable: bool = False
    """Whether its runtime config does not exist, or is not allowed."""
    claims: Mapping[str, Resource] = field(default_factory=dict)
    """The claims with the names of `claims_named` that exist, with any owner."""
    ours: frozenset[str] = frozenset()
    """Names of those that were made for exactly this deployment."""
    classes: Mapping[str, Resource] = field(default_factory=dict)
    """The StorageClasses of the cluster, by name."""
    causes: Mapping[str, RootCause] = field(default_factory=dict)
    """What the events about a claim show, by its name."""
    refused: Mapping[str, Verdict] = field(default_factory=dict)
    """What kept the last pass from writing a claim, by its name."""


@dataclass(frozen=True, kw_only=True)
class VolumeDecision:
    """What to make and what to say."""

    write_status: bool = True
    """False: the condition stays as it is."""
    claims: tuple[Resource, ...] = ()
    """The claims that must exist; others stay as they are."""
    condition: Condition | None = None
    """``StorageReady``; None: it is withdrawn."""


@dataclass(frozen=True, kw_only=True)
class _Volume:
    """One volume of a deployment."""

    field: str
    """Its path in the spec."""
    claim: str
    """Name of its claim."""
    wish: Wish | None
    """The claim to make; None: the volume names an existing one."""


def has_volumes(deployment: Resource) -> bool:
    """Whether a deployment has volumes whose claims this part makes or checks."""
    return next(_volumes(deployment, None), None) is not None


def claims_named(deployment: Resource) -> tuple[str, ...]:
    """The names of the claims of a deployment's volumes."""
    return tuple(dict.fromkeys(volume.claim for volume in _volumes(deployment, None)))


def decide_volumes(facts: VolumeFacts) -> VolumeDecision:
    """The decision for one deployment. Total for any JSON."""
    deployment = facts.deployment
    if is_left_alone(deployment):
        return VolumeDecision(write_status=False)
    volumes = list(_volumes(deployment, facts.config))
    if not volumes:
        return VolumeDecision()
    if not dig(deployment, "status", "provider", "name"):
        return VolumeDecision(write_status=False)
    if facts.config_unusable:
        text = "The runtime config cannot be used (condition RuntimeConfigReady); claims of volumes wait for it"
        waiting = Verdict(ready=False, reason="WaitingForConfig", message=text)
        return VolumeDecision(condition=waiting.condition(STORAGE))
    absent = [volume.claim for volume in volumes if volume.wish is not None and volume.claim not in facts.ours]
    if absent and (held := _held_back(facts, volumes, absent)) is not None:
        return VolumeDecision(condition=held.condition(STORAGE))
    made = (claim for volume in volumes if (claim := _claim(facts, volume)) is not None)
    claims = () if is_dry_run(deployment) else tuple(made)
    verdict = _worst([_verdict(facts, volume) for volume in volumes])
    return VolumeDecision(claims=claims, condition=verdict.condition(STORAGE))


def _volumes(deployment: Resource, config: EffectiveConfig | None) -> Iterator[_Volume]:
    for position, volume in enumerate(list_at(deployment, "spec", "model", "storage", "volumes")):
        name, claim, size = (dig(volume, key) for key in ("name", "claimName", "size"))
        path = f"spec.model.storage.volumes[{position}]"
        if size not in (None, "") and isinstance(name, str):
            own = claim if isinstance(claim, str) and claim else volume_claim_name(key_of(deployment).name, name)
            yield _Volume(field=path, claim=own, wish=_wish(volume, str(size), config))
        elif isinstance(claim, str) and claim:
            yield _Volume(field=path, claim=claim, wish=None)


def _wish(volume: object, size: str, config: EffectiveConfig | None) -> Wish:
    """Class and access mode: of the volume, else of the config, else the cluster's class and ReadWriteMany."""
    class_name, mode = dig(volume, "storageClassName"), dig(volume, "accessMode")
    usual = (config or BUILT_IN).storage
    return Wish(
        size=size,
        class_name=class_name if isinstance(class_name, str) else usual.class_name or None,
        access_mode=mode if isinstance(mode, str) and mode else usual.access_mode,
    )


def _held_back(facts: VolumeFacts, volumes: list[_Volume], absent: list[str]) -> Verdict | None:
    """Why claims that are missing are not made."""
    deployment = facts.deployment
    if is_dry_run(deployment):
        would = [f"would create the claims {', '.join(absent)}"]
        would += [text for volume in volumes if (text := _expansion(facts, volume))]
        return Verdict(ready=False, reason="DryRun", message="; ".join(would))
    if dig(deployment, "spec", "suspend") is True:
        text = "The deployment is suspended; the claims of its volumes are created when it is resumed"
        return Verdict(ready=False, reason="Suspended", message=text)
    return None


def _claim(facts: VolumeFacts, volume: _Volume) -> Resource | None:
    """The claim that must exist; None for one that others own, that is going away, or that the volume only names."""
    live = facts.claims.get(volume.claim)
    if volume.wish is None or (live is not None and (volume.claim not in facts.ours or is_deleting(live))):
        return None
    return claim_of(volume.claim, possible(volume.wish, live, _class_of(facts, volume)))


def _expansion(facts: VolumeFacts, volume: _Volume) -> str:
    """What a dry run says of a claim that would grow; empty if it would not."""
    live, made = facts.claims.get(volume.claim), _claim(facts, volume)
    if live is None or made is None:
        return ""
    before, after = (dig(each, "spec", "resources", "requests", "storage") for each in (live, made))
    return f"would expand claim {volume.claim} from {before} to {after}" if is_smaller(before, after) else ""


def _class_of(facts: VolumeFacts, volume: _Volume) -> Resource | None:
    return facts.classes.get(_class_name(facts, volume))


def _class_name(facts: VolumeFacts, volume: _Volume) -> str:
    """Name of the claim's StorageClass; empty: the cluster's default class, or none."""
    live = facts.claims.get(volume.claim)
    name = dig(live, "spec", "storageClassName")
    if not isinstance(name, str):
        name = volume.wish.class_name if volume.wish is not None else None
    return name or ""


def _verdict(facts: VolumeFacts, volume: _Volume) -> Verdict:
    live, class_name = facts.claims.get(volume.claim), _class_name(facts, volume)
    if volume.wish is None and live is None:
        text = (
            f"{volume.field}.claimName: there is no PersistentVolumeClaim {volume.claim} in namespace "
            f"{key_of(facts.deployment).namespace}; create it, name another one, or set size to have one made"
        )
        return Verdict(ready=False, reason="ReferenceNotFound", message=text)
    if volume.wish is not None and live is not None and volume.claim not in facts.ours:
        return _foreign(facts.deployment, volume, live)
    if live is not None and is_deleting(live):
        after = "another one is made when it is gone" if volume.wish is not None else "create it anew, or name another"
        text = f"claim {volume.claim} is being deleted, and pods that start now cannot mount it: {after}"
        return Verdict(ready=False, reason="PvcLost", message=text)
    found = claim_verdict(
        live,
        class_name=class_name,
        classes=facts.classes,
        first_user="the model's pod",
    )
    cause = facts.causes.get(volume.claim)
    if found.ready is not True and found.reason == "PvcPending" and cause is not None:
        found = Verdict(ready=False, reason=cause.reason, message=cause.message)
    refused = facts.refused.get(volume.claim)
    if refused is not None and live is None:
        return refused
    return _with_difference(found, facts, volume, live) if found.ready else found


def _foreign(deployment: Resource, volume: _Volume, live: Resource) -> Verdict:
    """A claim with the name of ours: one of an earlier deployment of this name goes, any other one is a conflict."""
    owner = controller_owner(live)
    mine = (dig(owner, "kind"), dig(owner, "name")) == ("ModelDeployment", key_of(deployment).name)
    if is_deleting(live) or (mine and dig(owner, "uid") != uid_of(deployment)):
        text = f"claim {volume.claim} of an earlier owner is being deleted; a new one is made when it is gone"
        return Verdict(ready=False, reason="Starting", message=text)
    text = (
        f"PersistentVolumeClaim {volume.claim} exists and does not belong to this deployment: to use it, name it in "
        f"{volume.field}.claimName and take size out; else rename the volume, or delete the claim"
    )
    return Verdict(ready=False, reason="ResourceConflict", message=text)


def _with_difference(found: Verdict, facts: VolumeFacts, volume: _Volume, live: Resource | None) -> Verdict:
    """The verdict, with what of the wish a claim that exists cannot be, or is not yet."""
    if volume.wish is None or live is None:
        return found
    wish = volume.wish
    can_be = possible(wish, live, _class_of(facts, volume))
    differs = []
    if is_smaller(can_be.size, wish.size):
        differs.append(f"it stays at {can_be.size} of {wish.size}, because its StorageClass cannot expand volumes")
    elif is_dry_run(facts.deployment) and (would := _expansion(facts, volume)):
        differs.append(f"dry run: {would}")
    elif is_smaller(dig(live, "status", "capacity", "storage"), can_be.size):
        differs.append(f"its volume is being expanded to {can_be.size}")
    if wish.class_name is not None and wish.class_name != (can_be.class_name or ""):
        differs.append(f"it keeps the StorageClass {can_be.class_name}")
    if wish.access_mode != can_be.access_mode:
        differs.append(f"it keeps the access mode {can_be.access_mode}")
    refused = facts.refused.get(volume.claim)
    if refused is not None:
        differs.append(f"a change was refused: {refused.message}")
    return replace(found, message=f"{found.message}; {'; '.join(differs)}") if differs else found


def _worst(verdicts: list[Verdict]) -> Verdict:
    """One verdict for all claims: faults first, then what is on its way."""
    waiting = [verdict for verdict in verdicts if verdict.ready is not True]
    if not waiting:
        return Verdict(ready=True, reason="Bound", message="; ".join(verdict.message for verdict in verdicts))
    waiting.sort(key=lambda verdict: category_of(verdict.reason) is Category.PROGRESS)
    first, *others = waiting
    return replace(first, message="; ".join([first.message, *(verdict.message for verdict in others)]))
