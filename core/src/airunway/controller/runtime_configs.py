"""Reconciles a RuntimeConfig or ClusterRuntimeConfig: its status, and the waves in which deployments take its settings.

A key of this controller has a namespace for a RuntimeConfig and none for a ClusterRuntimeConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic

from airunway.api import names
from airunway.configs.resolution import EffectiveConfig, Problem, Rollout, check, is_refused, resolve
from airunway.controller.decision import has_grant
from airunway.controller.waves import CacheWaves, Member, TemplateWaves, Wave, next_wave, template_progress_of
from airunway.kinds import CLUSTER_RUNTIME_CONFIG, RUNTIME_CONFIG
from airunway.kube import Client, MutationCache, StatusWriter
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import (
    ObjectKey,
    Resource,
    condition_of,
    dig,
    filled,
    is_deleting,
    is_true,
    key_of,
    managed_by,
    parse_time,
)
from airunway.status.conditions import SERVED, Condition, is_dry_run, is_paused, written_on
from airunway.status.rollup import CAPACITY_PATIENCE, Phase

_USED_BY_EVERY = 5.0
"""Seconds between two writes of ``usedBy``: many deployments may be created at once (docs/runtime-configs.md)."""

PAUSE = 0.25
"""Seconds between two passes of one config: each looks at all its deployments."""


class RuntimeConfigReconciler:
    """Writes the status of both kinds, and decides which deployments are granted a config's pod settings.

    `on_grant(key)` is called for a deployment that was granted: its own pass publishes the grant. A core that watches
    only some namespaces (`everywhere` is false) does not know all users of a ClusterRuntimeConfig, and says nothing
    about them there. `newest_template(deployment)` is the hash of what its template gives now.
    """

    def __init__(
        self,
        *,
        client: Client,
        configs: RuntimeConfigs,
        everywhere: bool,
        clock: Callable[[], datetime],
        on_grant: Callable[[ObjectKey], None],
        newest_template: Callable[[Resource], str] = lambda _deployment: "",
    ) -> None:
        self._configs = configs
        self._everywhere = everywhere
        self._clock = clock
        self._on_grant = on_grant
        self._namespaced = MutationCache(configs.namespaced, project=configs.project)
        self._cluster = MutationCache(configs.cluster, project=configs.project)
        self._writers = {
            kind: StatusWriter(client=client, kind=kind, objects=objects, manager=names.CORE_MANAGER)
            for kind, objects in ((RUNTIME_CONFIG, self._namespaced), (CLUSTER_RUNTIME_CONFIG, self._cluster))
        }
        self.caches = CacheWaves()
        """Grants of claims with weights that were fetched anew."""
        self.templates = TemplateWaves(newest_template, allows=self._has_waves)
        """Grants of newer values of templates."""
        self._granted: dict[ObjectKey, tuple[str, dict[ObjectKey, _Grant]]] = {}
        self._counted: dict[ObjectKey, float] = {}

    def is_granted(self, deployment: Resource, config: EffectiveConfig | None) -> bool | None:
        """Whether the deployment may take the pod settings of `config` now; None until the first pass of the config."""
        known = self._granted.get(ObjectKey(config.namespace, config.name)) if config is not None else None
        if config is None or known is None:
            return None
        hash_, grants = known
        grant = grants.get(key_of(deployment))
        if grant is None or hash_ == config.hash:
            return grant is not None
        return not grant.done and not _is_done(deployment, hash_=hash_)  # one under way takes the newer settings

    async def reconcile(self, key: ObjectKey) -> float | None:
        """One pass; returns the seconds until the next one if time alone changes the result."""
        config = (self._namespaced if key.namespace else self._cluster).get(key)
        if config is None or is_deleting(config):
            self._granted.pop(key, None)
            self._counted.pop(key, None)
            return self._wave_without_config(key)
        effective = self._effective(key, config)
        users = self._configs.users(key)
        wave = self._waves(key, effective, users)
        due = await self._publish(key, config, effective, users=len(users), wave=wave)
        return min((seconds for seconds in (due, wave.wake_after) if seconds is not None), default=None)

    def _effective(self, key: ObjectKey, config: Resource) -> EffectiveConfig:
        if key.namespace:
            cluster = self._configs.cluster.get(ObjectKey("", key.name))
            found = resolve(key.name, namespaced=config, cluster=cluster).config
        else:
            found = resolve(key.name, namespaced=None, cluster=config).config
        assert found is not None
        return found

    # -------------------------------------------------------------------------------------------------- waves

    def _waves(self, key: ObjectKey, effective: EffectiveConfig, users: list[Resource]) -> Wave:
        """Grant the config's settings, lost claims and newer templates: together at most as many as the config allows
        at a time.
        """
        now, limit = self._clock(), effective.max_concurrent_rollouts
        patience = effective.status_policy.patience
        followers = {key_of(user): user for user in users if self._follows(user, key)}
        taking = self.caches.under_way(followers.values())
        renewed = self.templates.under_way(followers.values())
        settings = self._wave(key, effective, followers, limit=max(0, limit - taking - renewed), now=now)
        left = max(0, limit - settings.busy - renewed) if settings.stalled_by is None else 0
        weights = self.caches.next(followers.values(), member_of=_other_member, limit=left, patience=patience, now=now)
        left = max(0, limit - settings.busy - weights.busy)
        if settings.stalled_by is not None or weights.stalled_by is not None:
            left = 0
        granted, values = settings.granted | weights.granted, Wave()
        if _changes_what_serves(effective):
            values = self.templates.next(
                followers.values(),
                member_of=_other_member,
                together=granted,
                limit=left,
                patience=patience,
                now=now,
            )
        else:
            for each in followers:
                self.templates.forget(each)
        for each in granted | values.granted:
            self._on_grant(each)
        waves = (settings, weights, values)
        waits = [each.wake_after for each in waves if each.wake_after is not None]
        stalled = next((each for each in waves if each.stalled_by is not None), settings)
        return replace(stalled, wake_after=min(waits, default=None))

    def _has_waves(self, deployment: Resource) -> bool:
        """Whether the config of a deployment changes what serves without a change of the spec."""
        config = self._configs.resolve(deployment).config
        return config is not None and _changes_what_serves(config)

    def _wave_without_config(self, key: ObjectKey) -> float | None:
        """Grant claims to deployments of a namespace that follow no config, one at a time."""
        users = [user for user in self._configs.users(key) if self._configs.resolve(user).config is None]
        self.caches.under_way(users)
        wave = self.caches.next(users, member_of=_other_member, limit=1, patience=CAPACITY_PATIENCE, now=self._clock())
        for each in wave.granted:
            self._on_grant(each)
        return wave.wake_after

    def _wave(
        self,
        key: ObjectKey,
        effective: EffectiveConfig,
        followers: Mapping[ObjectKey, Resource],
        *,
        limit: int,
        now: datetime,
    ) -> Wave:
        if not _changes_what_serves(effective):
            self._granted.pop(key, None)
            return Wave()
        grants = self._grants(key, effective, followers, now=now)
        wave = next_wave(
            [_member(user, grants.get(each), hash_=effective.hash) for each, user in followers.items()],
            limit=limit,
            patience=effective.status_policy.patience,
            now=now,
        )
        self._granted[key] = effective.hash, {**grants, **dict.fromkeys(wave.granted, _Grant(at=now))}
        return wave

    def _grants(
        self, key: ObjectKey, effective: EffectiveConfig, followers: Mapping[ObjectKey, Resource], *, now: datetime
    ) -> dict[ObjectKey, _Grant]:
        """The grants of the followers that are known before this pass; after a restart, those in their statuses."""
        if key not in self._granted:
            return {
                each: _Grant(at=_granted_at(user, hash_=effective.hash, now=now))
                for each, user in followers.items()
                if has_grant(user, hash_=effective.hash)
            }
        hash_, known = self._granted[key]
        grants = {
            each: replace(grant, done=grant.done or _is_done(followers[each], hash_=hash_))
            for each, grant in known.items()
            if each in followers
        }
        if hash_ == effective.hash:
            return grants
        # Those that are still under way take the newer settings, and get as much time for them as the others.
        return {each: _Grant(at=now) for each, grant in grants.items() if not grant.done}

    def _follows(self, user: Resource, key: ObjectKey) -> bool:
        """Whether the effective config of a user is called so: a ClusterRuntimeConfig is also used through others."""
        config = self._configs.resolve(user).config
        return config is not None and (config.namespace, config.name) == key

    # ------------------------------------------------------------------------------------------------- status

    async def _publish(
        self, key: ObjectKey, config: Resource, effective: EffectiveConfig, *, users: int, wave: Wave
    ) -> float | None:
        """Write the status; returns the seconds until ``usedBy`` may be written, None if it is right."""
        kind = RUNTIME_CONFIG if key.namespace else CLUSTER_RUNTIME_CONFIG
        knows_users = bool(key.namespace) or self._everywhere
        before = dig(config, "status", "usedBy")
        due = 0.0
        if before != users and key in self._counted:
            due = max(0.0, self._counted[key] + _USED_BY_EVERY - monotonic())
        used_by = before if due else users
        conditions = _conditions(config, effective, wave if knows_users else Wave())
        status: Resource = {
            **filled(
                observedGeneration=dig(config, "metadata", "generation", default=0),
                storageClassName=effective.storage.class_name,
                usedBy=used_by if knows_users else None,
            ),
            "conditions": written_on(config, conditions, now=self._clock()),
        }
        if await self._writers[kind].write(config, status) and used_by != before:
            self._counted[key] = monotonic()
        return due if due and knows_users else None


def _changes_what_serves(config: EffectiveConfig) -> bool:
    """Whether the config is rolled out without a change of a deployment's spec."""
    return config.rollout is Rollout.IMMEDIATELY and not config.too_large


def progress_of(deployment: Resource | None) -> tuple[object, ...]:
    """What a rollout reads of a deployment."""
    return (
        dig(deployment, "metadata", "generation"),
        dig(deployment, "spec", "suspend"),
        dig(deployment, "status", "provider", "runtimeConfigHash"),
        dig(deployment, "status", "effectiveRuntimeConfig", "hash"),
        dig(deployment, "status", "phase"),
        *((condition_of(deployment or {}, type_) or {}).get("status") for type_ in ("Ready", SERVED, "Validated")),
        _is_held(deployment or {}),
        *template_progress_of(deployment),
    )


@dataclass(frozen=True, kw_only=True)
class _Grant:
    """That a deployment may take the pod settings of a config."""

    at: datetime
    """When it was granted."""
    done: bool = False
    """Whether the deployment has been Ready with these settings."""


def _is_done(deployment: Resource, *, hash_: str) -> bool:
    """Whether a deployment is Ready with the pod settings of the config with this hash."""
    return dig(deployment, "status", "provider", "runtimeConfigHash") == hash_ and is_true(deployment, "Ready")


def _granted_at(deployment: Resource, *, hash_: str, now: datetime) -> datetime:
    """When a deployment was granted the config with this hash, as far as its status says it; rather later."""
    if dig(deployment, "status", "effectiveRuntimeConfig", "hash") != hash_:
        return now
    return max(filter(None, (_last_written(deployment), _unready_since(deployment))), default=now)


def _unready_since(deployment: Resource) -> datetime | None:
    ready = condition_of(deployment, "Ready") or {}
    return parse_time(ready.get("lastTransitionTime")) if ready.get("status") == "False" else None


def _member(deployment: Resource, grant: _Grant | None, *, hash_: str) -> Member:
    key, since = key_of(deployment), grant.at if grant is not None else None
    if grant is not None and grant.done:  # it was Ready, and has its time from when it is not any more
        since = max(grant.at, _unready_since(deployment) or grant.at)
    held = _is_held(deployment)
    return Member(
        key=key,
        created=str(dig(deployment, "metadata", "creationTimestamp", default="")),
        current=str(dig(deployment, "status", "provider", "runtimeConfigHash", default="")) == hash_,
        granted_at=None if held else since,
        waits=not held and is_true(deployment, SERVED) and is_true(deployment, "Validated"),
        ready=is_true(deployment, "Ready"),
        failed=dig(deployment, "status", "phase") == Phase.FAILED.value,
    )


def _other_member(deployment: Resource, at: datetime | None) -> Member:
    """A member of a wave that is not about the settings of the config."""
    return _member(deployment, _Grant(at=at) if at is not None else None, hash_="")


def _is_held(deployment: Resource) -> bool:
    """Whether its provider would change nothing, however long a rollout waits for it."""
    held = dig(deployment, "spec", "suspend") is True or is_refused(deployment)
    return held or is_deleting(deployment) or is_paused(deployment) or is_dry_run(deployment)


def _last_written(deployment: Resource) -> datetime | None:
    """When the core wrote the status of a deployment last: at its grant, or later."""
    times = [
        parse_time(entry.get("time"))
        for entry in managed_by(deployment, names.CORE_MANAGER)
        if entry.get("subresource") == "status"
    ]
    return max(filter(None, times), default=parse_time(dig(deployment, "metadata", "creationTimestamp")))


def _conditions(config: Resource, effective: EffectiveConfig, wave: Wave) -> list[Condition]:
    own = check(config)
    known = {problem.field for problem in own}
    inherited = [problem for problem in effective.problems if problem.field not in known]
    texts = [
        *map(_sentence, own),
        *(f"with ClusterRuntimeConfig '{effective.name}': {_sentence(problem)}" for problem in inherited),
    ]
    if texts:
        text = "; ".join(texts)
        conditions = [
            Condition(type="ConfigValid", status=False, reason="InvalidSpec", message=text),
            Condition(type="Ready", status=False, reason="InvalidSpec", message=text),
        ]
    else:
        conditions = [
            Condition(type="ConfigValid", status=True, reason="ConfigurationValid"),
            Condition(type="Ready", status=True, reason="Ready"),
        ]
    if wave.stalled_by is not None:
        minutes = effective.status_policy.patience.total_seconds() / 60
        what = "has failed" if wave.failed else f"is not ready {minutes:g} minutes after it was allowed to change"
        conditions.append(
            Condition(
                type="RolloutStalled",
                status=True,
                reason="DeploymentFailed" if wave.failed else "DeploymentNotReady",
                message=f"ModelDeployment {wave.stalled_by} {what}: no other deployment takes the changed settings of "
                "this config or of a template, or weights that were fetched anew, until it is ready with them; mend it "
                "or set rollout: OnNextChange",
            )
        )
    return conditions


def _sentence(problem: Problem) -> str:
    return f"{problem.field}: {problem.message}"
