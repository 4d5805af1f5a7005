"""Views as documents: JSON and YAML have the same content."""

from __future__ import annotations

import json

import yaml
from core.tests.view.test_views import deployment, owned, pod, snapshot

from airunway.cli.printing import as_document
from airunway.view import deployment_view


def test_a_view_is_plain_json_and_yaml() -> None:
    workload = owned("Deployment", "llama", "w", deployment(), spec={"replicas": 1}, status={"readyReplicas": 1})
    view = deployment_view(snapshot(objects=(workload,), pods=(pod(1, workload),))).as_resource()
    assert yaml.safe_load(as_document([view], "yaml")) == json.loads(as_document([view], "json"))
