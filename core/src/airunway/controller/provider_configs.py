"""The core's pass over one InferenceProviderConfig: do its selection rules hold up? (spec ruling 6)"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from airunway.api import names
from airunway.api.defaults import defaulted_spec
from airunway.controller.decision import SILENT_AFTER
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import Client, Overlay, StatusWriter
from airunway.resource import ObjectKey, Resource, dig
from airunway.selection import evaluate_rules, provider_facts
from airunway.status import Condition, written

__all__ = ["ProviderConfigReconciler"]

_SPECIMEN: Resource = {"model": {"id": "organisation/model"}}
"""A minimal spec. A rule with an error on it is wrong for every deployment that sets no more: where it looks at what
may be absent, ``has()`` belongs before it."""


class ProviderConfigReconciler:
    """Writes the condition ``SelectionRulesValid``, and nothing else, on every config.

    `silence_of(name)` is how long a provider has not been heard of (None: it sends no heartbeats); when that is
    `SILENT_AFTER`, `on_silence(name)` is called.
    """

    def __init__(
        self,
        *,
        client: Client,
        configs: Overlay,
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
        await self._publish(config)
        silence = self._silence_of(key.name)
        if silence is None:
            return None
        if silence < SILENT_AFTER:
            return (SILENT_AFTER - silence).total_seconds()
        self._on_silence(key.name)
        return None

    async def _publish(self, config: Resource) -> None:
        condition = rules_condition(config)
        generation = config["metadata"].get("generation", 0)
        previous = [c for c in dig(config, "status", "conditions", default=[]) if isinstance(c, dict)]
        status = {"conditions": written([condition], previous=previous, generation=generation, now=self._clock())}
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
