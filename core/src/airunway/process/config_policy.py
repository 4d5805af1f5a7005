"""Whether the policy lets a deployment or artifact follow its runtime config, and what each namespace may use.

Example: the policy has ``secrets: [hf-*]``, and the RuntimeConfig of a namespace names the Secret ``prod-db``. New
deployments wait (``RuntimeConfigReady=False/NotAllowed``); one that has followed this config before goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from airunway.configs.resolution import CONFIG_READY, EffectiveConfig, is_published
from airunway.resource import Resource, is_true
from airunway.validation.policy import Grants, config_violations


def not_allowed(user: Resource, config: EffectiveConfig | None, grants: Grants) -> str:
    """Returns why a deployment or artifact may not follow its config; empty if it may.

    Judged is what the RuntimeConfig of its namespace says; a ClusterRuntimeConfig is the administrator's. A config that
    the user was allowed to follow stays allowed as long as it has the same content.
    """
    if config is None or (is_published(user, config) and is_true(user, CONFIG_READY)):
        return ""
    found = "; ".join(map(str, config_violations(grants, config.own, namespace=config.namespace)))
    if not found:
        return ""
    return (
        f"RuntimeConfig '{config.name}' of namespace '{config.namespace}' is not allowed: {found}. "
        "Remove this from the config, follow another one (spec.runtimeConfigName), or have the policy list it"
    )


class NamespaceGrants:
    """What each namespace may use by the policy of the core, for its parts in the same process."""

    def __init__(self) -> None:
        self.of: Callable[[str], Grants | None] = lambda _: Grants()
        """Returns what a namespace may use; None: its labels have not been read yet, and a change will be announced."""
        self.listeners: dict[str, Callable[[str], None]] = {}
        """Called with the namespace for which something changed (empty: any), by the component that listens."""

    def announce(self, namespace: str) -> None:
        """Say that the policy, or the labels of a namespace, have changed."""
        for listener in self.listeners.values():
            listener(namespace)
