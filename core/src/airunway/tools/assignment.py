"""Who would serve a deployment: provider and engine as the core selects them, and what installed plugins say to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from airunway.api.modeldeployment import parse_deployment
from airunway.api.names import MODEL_CACHE_PART
from airunway.plugins.errors import PluginError, PluginFault
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.plugins.provider_config import config_object
from airunway.plugins.registry import discover, load
from airunway.resource import Resource, dig
from airunway.runtime.gate import assumed_cache
from airunway.runtime.report import located, warning_text
from airunway.runtime.translate import TranslationResult, translate
from airunway.selection.explanation import explain
from airunway.selection.facts import ProviderRefusal, provider_facts
from airunway.validation.policy import Policy


def installed_configs(names: list[str] | None = None) -> list[Resource]:
    """The config of each installed provider plugin (or of `names`), as if it were ready. Raises PluginError."""
    if names is None:
        names = [distribution.name for distribution in discover()]
    return ready_configs([load(name) for name in names])


def installed_plugin(name: str) -> ProviderHost | None:
    """The plugin of a provider; None if it is not installed here. Raises PluginError."""
    return load(name) if any(found.name == name for found in discover(on_request=True)) else None


def ready_configs(hosts: Sequence[ProviderHost]) -> list[Resource]:
    """The config of each provider, as if it were ready. Raises PluginError."""
    configs = [config_object(host.manifest) for host in hosts]
    return [{**config, "status": {"ready": True}} for config in configs]


@dataclass(frozen=True, kw_only=True)
class Assigned:
    """The provider and engine selected for a deployment of a file."""

    deployment: Resource
    provider: str
    engine: str


class Unchosen(Exception):
    """No provider can be selected; `reasons` has one sentence for each problem."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


def asking_plugins(deployment: Resource, *, now: datetime) -> Callable[[str, str], ProviderRefusal | None]:
    """A function that returns why an installed plugin refuses the deployment, by names of provider and engine.

    It returns None if the plugin accepts it or is not installed.
    """

    def asked(name: str, engine: str) -> ProviderRefusal | None:
        try:
            judged = _judged(deployment, name, engine, now=now)
        except (PluginError, PluginFault) as error:
            return ProviderRefusal(generation=0, reason="ProviderError", message=str(error))
        if judged is None or not judged.blockers:
            return None
        text = "; ".join(located(finding) for finding in judged.blockers)
        return ProviderRefusal(generation=0, reason=judged.blockers[0].reason, message=text)

    return asked


def warnings_of(deployment: Resource, provider: str, engine: str, *, now: datetime) -> tuple[str, ...]:
    """The warnings of a provider: from the status if it is the selected one, else from its installed plugin."""
    if dig(deployment, "status", "provider", "name") == provider:
        return tuple(map(str, dig(deployment, "status", "warnings") or ()))
    try:
        judged = _judged(deployment, provider, engine, now=now)
    except (PluginError, PluginFault):
        return ()  # the refusal reports it
    return tuple(dict.fromkeys(warning_text(finding) for finding in judged.warnings)) if judged is not None else ()


def _judged(deployment: Resource, name: str, engine: str, *, now: datetime) -> TranslationResult | None:
    """The translation by an installed plugin, with default settings and the newest upstream that it knows.

    None if it is not installed. Raises PluginError, PluginFault.
    """
    host = installed_plugin(name)
    if host is None:
        return None
    chosen = with_engine(deployment, engine)
    context = assumed_context(host, engine=engine, now=now, cache=assumed_cache(chosen, None, host))
    return translate(host, chosen, parse_deployment(deployment), context)


def with_engine(deployment: Resource, engine: str) -> Resource:
    """The deployment as a provider gets it for an engine, from a core whose model cache part is on."""
    return {**deployment, "status": {"engine": {"type": engine}, "parts": [MODEL_CACHE_PART]}}


def choose(
    deployment: Resource,
    configs: Sequence[Resource] | None = None,
    *,
    provider: str = "",
    now: datetime,
    policy: Policy | None = None,
    namespace_labels: Mapping[str, str] | None = None,
) -> Assigned:
    """Selects provider and engine as the core does, among InferenceProviderConfigs; None: those of the installed
    plugins, which all count as ready.

    `provider`, or otherwise the provider of the spec, counts as the user's choice. Raises Unchosen and PluginError.
    """
    spec, named = deployment.get("spec"), provider or dig(deployment, "spec", "provider", "name") or ""
    if configs is None:
        configs = installed_configs([named] if named else None)
    if named and isinstance(spec, dict):
        deployment = {**deployment, "spec": {**spec, "provider": {**(dig(spec, "provider") or {}), "name": named}}}
    asked = None if named else asking_plugins(deployment, now=now)
    facts = [provider_facts(config) for config in configs]
    explanation = explain(deployment, facts, now=now, policy=policy, namespace_labels=namespace_labels, asked=asked)
    if explanation.violations:
        raise Unchosen([str(violation) for violation in explanation.violations])
    if explanation.provider is None or explanation.engine is None or explanation.engine.engine is None:
        raise Unchosen([f"no provider: {explanation.message}"])
    return Assigned(deployment=deployment, provider=explanation.provider, engine=explanation.engine.engine)


def provider_among(configs: Sequence[Resource], deployment: Resource) -> str:
    """The provider that a new deployment gets, where plugins that are installed here refuse it too; empty if none."""
    try:
        return choose(deployment, configs, now=datetime.now(UTC)).provider
    except Unchosen:
        return ""  # the core's verdict is in the plan
