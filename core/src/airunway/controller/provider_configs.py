"""Reconciles an InferenceProviderConfig: checks its selection rules and its heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from airunway.api import names
from airunway.api.modeldeployment import defaulted_spec
from airunway.controller.decision import SILENT_AFTER
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import Client, MutationCache, StatusWriter
from airunway.resource import ObjectKey, Resource, condition_of, format_time
from airunway.selection.facts import AVAILABLE, STALE_AFTER, ProviderFacts, provider_facts, request_of
from airunway.selection.provider import evaluate_rules
from airunway.status.conditions import Condition, as_word, written_on

_SILENT = "HeartbeatMissing"
"""Reason for a provider without a heartbeat for `STALE_AFTER`."""

_SPECIMEN: Resource = {"model": {"id": "organisation/model"}}
"""A minimal spec. A rule that fails on it fails for every deployment that sets no more fields: the rule must guard
optional fields by ``has()``.
"""


class ProviderConfigReconciler:
    """Writes the conditions ``SelectionRulesValid`` and ``Available`` on every config, and nothing else.

    `silence_of(name)` is the time since a provider's last heartbeat (None: it sends none); when it reaches
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
        await self._status.write(config, {"conditions": written_on(config, conditions, now=self._clock())})


def rules_condition(config: Resource) -> Condition:
    """The condition ``SelectionRulesValid``: False names every rule that fails, with its error."""
    facts = provider_facts(config)
    engine = facts.engines[0].name if facts.engines else "vllm"
    results = evaluate_rules(facts.rules, request_of(defaulted_spec(_SPECIMEN, engine=engine)))
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
    """The condition ``Available``: whether the provider is ready and has sent a heartbeat within `STALE_AFTER`.

    `silence` is the time since the last heartbeat, None for a provider that sends none. The condition stays the same
    while heartbeats come, and while they do not.
    """
    facts = provider_facts(config)
    if missing := _missing_heartbeat(config, facts, silence):
        return Condition(type=AVAILABLE, status=False, reason=_SILENT, message=missing)
    if facts.ready:
        return Condition(type=AVAILABLE, status=True, reason="Ready")
    ready = condition_of(config, "Ready") or {}
    return Condition(
        type=AVAILABLE,
        status=False,
        reason=as_word(str(ready.get("reason") or "NotReady")),
        message=str(ready.get("message") or "the provider says that it is not ready"),
    )


def _missing_heartbeat(config: Resource, facts: ProviderFacts, silence: timedelta | None) -> str:
    """A message that the heartbeat is missing, and since when; empty if it is not.

    A core that has just started treats the last heartbeat as new (`airunway.first_seen`). So an earlier report about
    the same heartbeat is kept.
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
