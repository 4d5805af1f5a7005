"""The core's reconcile of one InferenceProviderConfig: are its selection rules valid (spec ruling 6), does it beat?"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from airunway.api import names
from airunway.api.defaults import defaulted_spec
from airunway.controller.decision import SILENT_AFTER
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import Client, MutationCache, StatusWriter
from airunway.resource import ObjectKey, Resource, condition_of, dig, format_time
from airunway.selection import AVAILABLE, STALE_AFTER, ProviderFacts, evaluate_rules, provider_facts
from airunway.status import Condition, as_word, written

__all__ = ["ProviderConfigReconciler", "availability"]

_SILENT = "HeartbeatMissing"
"""Reason of a provider that was not heard of for `STALE_AFTER`."""

_SPECIMEN: Resource = {"model": {"id": "organisation/model"}}
"""A minimal spec. A rule with an error on it is wrong for every deployment that sets no more: where it looks at what
may be absent, ``has()`` belongs before it."""


class ProviderConfigReconciler:
    """Writes the conditions ``SelectionRulesValid`` and ``Available``, and nothing else, on every config.

    `silence_of(name)` is how long a provider has not been heard of (None: it sends no heartbeats); when that is
    `SILENT_AFTER`, `on_silence(name)` is called.
    """

    def __init__(
        self,
        *,
        client: Client,
        configs: MutationCache,
        clock: Callable[[], datetime],
        silence_of: Callable[[str], timedelta | None],
        on_silence: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._silence_of = silence_of
        self._on_silence = on_silence
        self._configs = configs
        self._status = StatusWriter(
            client=client, kind=INFERENCE_PROVIDER_CONFIG, objects=configs, manager=names.CORE_MANAGER
        )
        self._clock = clock

    async def reconcile(self, key: ObjectKey) -> float | None:
        config = self._configs.get(key)
        if config is None:
            return None
        silence = self._silence_of(key.name)
        await self._publish(config, silence)
        if silence is None:
            return None
        for limit in (STALE_AFTER, SILENT_AFTER):
            if silence < limit:
                return (limit - silence).total_seconds()
        self._on_silence(key.name)
        return None

    async def _publish(self, config: Resource, silence: timedelta | None) -> None:
        conditions = [rules_condition(config), availability(config, silence=silence)]
        generation = config["metadata"].get("generation", 0)
        previous = [c for c in dig(config, "status", "conditions", default=[]) if isinstance(c, dict)]
        status = {"conditions": written(conditions, previous=previous, generation=generation, now=self._clock())}
        await self._status.write(config, status)


def rules_condition(config: Resource) -> Condition:
    """``SelectionRulesValid`` for a config: False names every rule that is wrong, with its error."""
    facts = provider_facts(config)
    engine = facts.engines[0].name if facts.engines else "vllm"
    results = evaluate_rules(facts.rules, defaulted_spec(_SPECIMEN, engine=engine))
    wrong = [result for result in results if result.value is None]
    if not wrong:
        return Condition(
            type="SelectionRulesValid",
            status=True,
            reason="RulesValid",
            message=f"{len(results)} rules can be evaluated",
        )
    message = "; ".join(f"rule '{rule.condition}' cannot be evaluated: {rule.error}" for rule in wrong)
    return Condition(type="SelectionRulesValid", status=False, reason="RuleError", message=message)


def availability(config: Resource, *, silence: timedelta | None) -> Condition:
    """``Available`` for a config: whether its provider is ready, and was heard of within `STALE_AFTER`.

    `silence` is how long it was not heard of, None for a provider that sends no heartbeats. Nothing in the condition
    changes while the provider beats, or while it does not.
    """
    facts = provider_facts(config)
    if missing := _missing_heartbeat(config, facts, silence):
        return Condition(type=AVAILABLE, status=False, reason=_SILENT, message=missing)
    if facts.ready:
        return Condition(type=AVAILABLE, status=True, reason="Ready")
    said = condition_of(config, "Ready") or {}
    return Condition(
        type=AVAILABLE,
        status=False,
        reason=as_word(str(said.get("reason") or "NotReady")),
        message=str(said.get("message") or "the provider says that it is not ready"),
    )


def _missing_heartbeat(config: Resource, facts: ProviderFacts, silence: timedelta | None) -> str:
    """That nothing is heard of the provider, and since when; empty where it is heard of.

    A core that has just started takes the last heartbeat for new (`airunway.first_seen`): what was said of that very
    heartbeat before stays said.
    """
    if silence is None or facts.heartbeat is None:
        return ""
    text = (
        f"the last heartbeat came at {format_time(facts.heartbeat)}, "
        f"and none in the {int(STALE_AFTER.total_seconds())} s after it"
    )
    before = condition_of(config, AVAILABLE) or {}
    known = (before.get("reason"), before.get("message")) == (_SILENT, text)
    return text if known or silence >= STALE_AFTER else ""
