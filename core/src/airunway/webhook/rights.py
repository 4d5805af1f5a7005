"""The RBAC rules of the webhook, beside those of the core."""

from __future__ import annotations

from airunway.process.rights import Rights
from airunway.resource import Resource
from airunway.webhook.configuration import CONFIGURATION_KIND, WebhookSettings
from airunway.webhook.secret import SECRET

__all__ = ["webhook_rights"]

_LOOK = ["get", "list", "watch"]


def webhook_rights(settings: WebhookSettings) -> Rights:
    """Its own Secret and its own configuration, both by name, and (with either access review) asking about users.

    Creating cannot be limited to a name. A chart that brings the configuration brings the Secret too, without data, so
    that the rights to create are needed with ``--webhook-manage-configuration`` only.
    """
    group = CONFIGURATION_KIND.group
    ours: Resource = {
        "apiGroups": [group],
        "resources": [CONFIGURATION_KIND.plural],
        "resourceNames": [settings.configuration],
        "verbs": [*_LOOK, "patch"],
    }
    secret: Resource = {
        "apiGroups": [SECRET.group],
        "resources": [SECRET.plural],
        "resourceNames": [settings.secret],
        "verbs": [*_LOOK, "update"],
    }
    cluster, own = [ours], [secret]
    if settings.manage_configuration:
        cluster.append({"apiGroups": [group], "resources": [CONFIGURATION_KIND.plural], "verbs": ["create"]})
        own.insert(0, {"apiGroups": [SECRET.group], "resources": [SECRET.plural], "verbs": ["create"]})
    if settings.access_review or settings.access_review_pods:
        reviews = {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]}
        cluster.append(reviews)
    return Rights(
        cluster=tuple(cluster),
        own=tuple(own),
    )
