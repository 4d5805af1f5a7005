"""The objects that the tests of server-side apply write: a Deployment, a Service, and a Widget."""

from __future__ import annotations

from core.tests.kube.objects import ME

from airunway.kube import DEPLOYMENT, SERVICE, Client, Kind
from airunway.resource import Resource, copy_of, key_of

DEPLOY: Resource = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d", "labels": {"team": "x"}},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "d"}},
        "strategy": {"type": "Recreate"},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {
                "nodeSelector": {"gpu": "a100", "zone": "1"},
                "securityContext": {},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}}],
                "containers": [
                    {
                        "name": "main",
                        "image": "example/main:1",
                        "command": ["serve"],
                        "args": ["--port", "8000"],
                        "ports": [{"containerPort": 8000}, {"containerPort": 8000, "protocol": "UDP", "name": "u"}],
                        "env": [
                            {"name": "A", "value": "1"},
                            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                        ],
                        "resources": {
                            "limits": {"cpu": "1000m", "memory": "1024Mi", "nvidia.com/gpu": 1},
                            "requests": {"cpu": 1},
                        },
                        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
                        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
                    },
                    {"name": "side", "image": "example/side:1", "resources": {}},
                ],
            },
        },
    },
}
SERVE: Resource = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "s"},
    "spec": {
        "selector": {"app": "d"},
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}, {"name": "dns", "port": 80, "protocol": "UDP"}],
    },
}
WIDGET: Resource = {
    "metadata": {"name": "w", "labels": {"a": "b"}, "finalizers": ["tests.airunway.ai/hold"]},
    "spec": {
        "free": {"list": [1, {"a": "b"}, [2]], "text": "x", "number": 1.5, "yes": True, "empty": {}, "none": []},
        "typed": {
            "ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}, {"port": 2}],
            "steps": [{"port": 1}, {"port": 2, "weight": 5}],
            "tags": ["a", "b"],
            "selector": {"x": "y", "z": "w"},
            "limits": {"cpu": "1000m", "memory": "1Gi"},
        },
    },
}


def placed(obj: Resource, namespace: str, kind: Kind) -> Resource:
    placed = copy_of(obj) | {"apiVersion": kind.api_version, "kind": kind.kind}
    placed["metadata"]["namespace"] = namespace
    return placed


class Subjects:
    """The three objects that the tests apply, by a short name."""

    def __init__(self, client: Client, namespace: str, widget: Kind) -> None:
        self.client = client
        self.kinds = {"deployment": DEPLOYMENT, "service": SERVICE, "widget": widget}
        self.desired = {
            name: placed(obj, namespace, self.kinds[name])
            for name, obj in (("deployment", DEPLOY), ("service", SERVE), ("widget", WIDGET))
        }

    async def apply(self, name: str, desired: Resource | None = None) -> Resource:
        return await self.client.apply(self.kinds[name], desired or self.desired[name], manager=ME, force=True)

    async def live(self, name: str) -> Resource:
        return await self.client.get(self.kinds[name], key_of(self.desired[name]))

    async def edit(self, name: str, patch: Resource | list[Resource]) -> Resource:
        key, kind = key_of(self.desired[name]), self.kinds[name]
        if isinstance(patch, list):
            return await self.client.json_patch(kind, key, patch, manager="editor")
        return await self.client.merge_patch(kind, key, patch, manager="editor")
