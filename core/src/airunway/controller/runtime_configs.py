"""Reconciles a RuntimeConfig or ClusterRuntimeConfig: its status, and the waves in which deployments take what waits.

A key of this controller has a namespace for a RuntimeConfig and none for a ClusterRuntimeConfig.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from time import monotonic

from airunway.api import names
from airunway.configs.resolution import EffectiveConfig, Problem, check, resolve
from airunway.controller.decision import rolled_out_by
from airunway.controller.waves import Rollouts, Wave
from airunway.kinds import CLUSTER_RUNTIME_CONFIG, RUNTIME_CONFIG
from airunway.kube import Client, MutationCache, StatusWriter
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import ObjectKey, Resource, dig, filled, is_deleting, key_of
from airunway.status.conditions import Condition, written_on
from airunway.status.rollup import CAPACITY_PATIENCE

_USED_BY_EVERY = 5.0
"""Seconds between two writes of ``usedBy``: many deployments may be created at once (docs/runtime-configs.md)."""

PAUSE = 0.25
"""Seconds between two passes of one config: each looks at all its deployments."""


class RuntimeConfigReconciler:
    """Writes the status of both kinds, and lets deployments take what is pending for them, wave by wave.

    `on_grant(key)` is called for a deployment that was granted something: its own pass takes it. A core that watches
    only some namespaces (`everywhere` is false) does not know all users of a ClusterRuntimeConfig, and says nothing
    about them there.
    """

    def __init__(
        self,
        *,
        client: Client,
        configs: RuntimeConfigs,
        rollouts: Rollouts,
        everywhere: bool,
        clock: Callable[[], datetime],
        on_grant: Callable[[ObjectKey], None],
    ) -> None:
        self._configs = configs
        self._rollouts = rollouts
        self._everywhere = everywhere
        self._clock = clock
        self._on_grant = on_grant
        self._namespaced = MutationCache(configs.namespaced, project=configs.project)
        self._cluster = MutationCache(configs.cluster, project=configs.project)
        self._writers = {
            kind: StatusWriter(client=client, kind=kind, objects=objects, manager=names.CORE_MANAGER)
            for kind, objects in ((RUNTIME_CONFIG, self._namespaced), (CLUSTER_RUNTIME_CONFIG, self._cluster))
        }
        self._counted: dict[ObjectKey, float] = {}

    async def reconcile(self, key: ObjectKey) -> float | None:
        """One pass; returns the seconds until the next one if time alone changes the result."""
        config = (self._namespaced if key.namespace else self._cluster).get(key)
        if config is None or is_deleting(config):
            self._counted.pop(key, None)
            return self._wave(None, key).wake_after
        effective = self._effective(key, config)
        wave = self._wave(effective, key)
        due = await self._publish(key, config, effective, users=len(self._configs.users(key)), wave=wave)
        return min((seconds for seconds in (due, wave.wake_after) if seconds is not None), default=None)

    def _effective(self, key: ObjectKey, config: Resource) -> EffectiveConfig:
        if key.namespace:
            cluster = self._configs.cluster.get(ObjectKey("", key.name))
            found = resolve(key.name, namespaced=config, cluster=cluster).config
        else:
            found = resolve(key.name, namespaced=None, cluster=config).config
        assert found is not None
        return found

    def _wave(self, effective: EffectiveConfig | None, key: ObjectKey) -> Wave:
        """Let those take what waits that follow the config (None: that have this name in vain, one at a time)."""
        users = {key_of(user): user for user in self._configs.users(key) if self._follows(user, effective)}
        wave = self._rollouts.next(
            users,
            parts=rolled_out_by(effective),
            limit=effective.max_concurrent_rollouts if effective is not None else 1,
            patience=effective.status_policy.patience if effective is not None else CAPACITY_PATIENCE,
            now=self._clock(),
        )
        for each in wave.granted:
            self._on_grant(each)
        return wave

    def _follows(self, user: Resource, effective: EffectiveConfig | None) -> bool:
        """Whether this is the effective config of a user: a ClusterRuntimeConfig is also used through others."""
        config = self._configs.resolve(user).config
        if config is None or effective is None:
            return config is effective
        return (config.namespace, config.name) == (effective.namespace, effective.name)

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
