"""What charts take from the code: rights, policies, the webhook's configuration.

What only a release knows is a mark in these files: ``@account@`` (the user name of the service account),
``@namespace@`` (the release's), ``@namespaces@`` (those that are watched, with commas between them), ``@pickers@``
(repositories of endpoint pickers), ``@downloaders@`` (of the model downloader), ``@name@`` (of what has no namespace),
``@configuration@`` (the webhook's), ``@secrets@`` (pull Secrets of ModelSources), ``@where@`` (in which namespaces
downloads run), ``@variables@`` (further variables of discovery Jobs).
"""

from __future__ import annotations

from airunway.api import names
from airunway.rbac.admission_policies import core_guard, gateway_guard, model_cache_guard, status_guard
from airunway.rbac.rights import (
    Rights,
    core_rights,
    gateway_rights,
    leader_election_rights,
    model_cache_rights,
    picker_role,
    webhook_rights,
)
from airunway.resource import Resource
from airunway.validation.uses import DIMENSIONS
from airunway.webhook import WebhookSettings, webhook_settings
from airunway.webhook.configuration import configuration_object
from airunway_catalogue.rights import catalogue_guard, catalogue_rules
from airunway_testing.conformance.chart import GUARD, as_text, plain_rights

__all__ = ["catalogue_files", "core_files", "policy_property"]


def core_files() -> dict[str, str]:
    """The files of the core's chart. Its rights are in parts, of which a release has those that it switches on."""
    printable, asking = (_webhook(access_review=review) for review in (False, True))
    parts = {
        "core": core_rights(),
        "leaderElection": leader_election_rights(names.CORE_MANAGER),
        "policy": _beyond(core_rights(policy=True), core_rights()),
        "webhook": webhook_rights(printable),
        "accessReview": _beyond(webhook_rights(asking), webhook_rights(printable)),
        "gateway": gateway_rights(),
        "modelCache": model_cache_rights(),
    }
    guard = [
        *core_guard("@account@", name=GUARD),
        *gateway_guard(
            "@account@",
            own="@namespace@",
            namespaces=["@namespaces@"],
            images=["@pickers@"],
            annotations=["@annotations@"],
            name=GUARD,
        ),
        *model_cache_guard(
            "@account@",
            own="@namespace@",
            namespaces=["@namespaces@"],
            images=["@downloaders@"],
            where="@where@",
            name=GUARD,
        ),
        *status_guard([], accounts_of="@namespace@", name=GUARD),
    ]
    configuration = configuration_object(printable, bundle=b"")
    for webhook in configuration["webhooks"]:
        del webhook["clientConfig"]["caBundle"]  # the process's own
    return {
        "files/rights.yaml": as_text([{name: plain_rights(rights) for name, rights in parts.items()}]),
        "files/guard.yaml": as_text(guard),
        "files/picker.yaml": as_text([picker_role()]),
        "files/webhook.yaml": as_text([{"webhooks": configuration["webhooks"]}]),
    }


def catalogue_files() -> dict[str, str]:
    """The files of the catalogue's chart."""
    guard = catalogue_guard(
        "@account@", own="@namespace@", namespaces=["@namespaces@"], variables=["@variables@"], name=GUARD
    )
    return {
        "files/rights.yaml": as_text([plain_rights(catalogue_rules(["@secrets@"]))]),
        "files/guard.yaml": as_text(guard),
    }


def policy_property() -> Resource:
    """The schema of an allow-list policy, as `airunway.validation.policy` reads it."""
    texts = {"type": "array", "items": {"type": "string"}}
    selector = {
        "type": "object",
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string"},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": texts,
                    },
                },
            },
        },
    }
    lists = ("providers", "engines", "images", "gpuTypes", *DIMENSIONS)
    rule = {"type": "object", "properties": {"namespaceSelector": selector, **dict.fromkeys(lists, texts)}}
    return {
        "default": {"type": "string", "enum": ["Allow", "Deny"]},
        "rules": {"type": "array", "items": rule},
    }


def _webhook(*, access_review: bool) -> WebhookSettings:
    made = webhook_settings(
        bind_address=":9443", service="webhook", configuration="@configuration@", access_review=access_review
    )
    assert made is not None
    return made


def _beyond(more: Rights, less: Rights) -> Rights:
    """The rules of `more` that `less` does not have."""
    return Rights(
        cluster=tuple(rule for rule in more.cluster if rule not in less.cluster),
        watched=tuple(rule for rule in more.watched if rule not in less.watched),
        own=tuple(rule for rule in more.own if rule not in less.own),
    )
