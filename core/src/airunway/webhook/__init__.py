"""Admission: the checks that need the cluster, served to the API server (spec ruling 22, spec/core.md "Process").

What the object alone can tell is in the CRD. There is no mutating webhook: the defaults that belong into the object are
the CRD's own, and everything else stays as the user wrote it.
"""

# The server itself (`application`) is imported by who serves it: it brings kopf along.
from airunway.webhook.configuration import WebhookSettings, webhook_settings

__all__ = ["WebhookSettings", "webhook_settings"]
