"""Admission: the checks that need the cluster, served to the API server (docs/admission.md).

Checks that need only the object are in the CRD. There is no mutating webhook: defaults are the CRD's own, and
everything else stays as the user wrote it.
"""

# `application` is not imported here, because it loads kopf.
from airunway.webhook.configuration import WebhookSettings, webhook_settings

__all__ = ["WebhookSettings", "webhook_settings"]
