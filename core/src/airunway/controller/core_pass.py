"""The state of one pass of the core over a deployment: what is decided so far, and what stays of the status."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from airunway.api import names
from airunway.resource import Resource, condition_of, dig, managed_by
from airunway.selection.facts import ProviderFacts, holder_of
from airunway.status.conditions import Condition
from airunway.status.events import Event
from airunway.status.rollup import Fault
from airunway.validation.policy import Grants


class CorePass:
    """The status, conditions and events of one pass, as far as they are decided."""

    def __init__(
        self,
        deployment: Resource,
        *,
        providers: Sequence[ProviderFacts],
        selector: bool,
        grants: Grants | None,
        now: datetime,
    ) -> None:
        self.deployment, self.providers, self.selector = deployment, providers, selector
        self.by_name = {provider.name: provider for provider in providers}
        self.grants, self.now = grants or Grants(), now
        self.knows_policy = grants is not None
        self.live: Resource = deployment.get("status") or {}
        self.status: Resource = {}
        self.own: list[Condition] = []
        """The core's conditions, but for the parents and those of the phase."""
        self.events: list[Event] = []
        self.config_fault: Fault | None = None
        """Set if no provider may work on the deployment because of its config."""

    def add_condition(self, type_: str, status: bool, reason: str, message: str) -> None:
        """Add a condition of the core."""
        self.own.append(Condition(type=type_, status=status, reason=reason, message=message))

    def copy_fields(self, *fields: str) -> None:
        """Copy what the core wrote earlier; of ``provider`` only the core's two fields."""
        for field in fields:
            value = self.live.get(field)
            if field == "provider" and isinstance(value, dict):
                value = {key: value[key] for key in ("name", "selectedReason") if key in value}
            if value and isinstance(value, dict):
                self.status[field] = dict(value)

    @property
    def chose(self) -> bool:
        """Whether the provider in the status is of the core's own choice, and not of a custom selector's."""
        return self.selector or chose_by_core(self.deployment)

    @property
    def before(self) -> str | None:
        """The provider that the deployment has already."""
        return dig(self.live, "provider", "name") or holder_of(self.deployment)

    def copy_provider(self) -> None:
        """Keep the provider; one that a custom selector wrote is left to the selector."""
        if self.chose:
            self.copy_fields("provider")
            if self.before and "provider" not in self.status:
                self.status["provider"] = {"name": self.before}


def chose_by_core(deployment: Resource) -> bool:
    """Whether the core itself wrote ``status.provider.name``, and no custom selector has confirmed it since, with words
    of its own.
    """
    confirmed = condition_of(deployment, "ProviderSelected") is not None and not owns_message(deployment)
    return not confirmed and _owns(deployment, "f:provider", "f:name")


def owns_message(deployment: Resource) -> bool:
    """Whether the message of ``ProviderSelected`` is the core's."""
    return _owns(deployment, "f:conditions", 'k:{"type":"ProviderSelected"}', "f:message")


def _owns(deployment: Resource, *path: str) -> bool:
    """Whether the core has applied a field of the status."""
    ours = managed_by(deployment, names.CORE_MANAGER)
    return any(dig(entry, "fieldsV1", "f:status", *path) is not None for entry in ours)
