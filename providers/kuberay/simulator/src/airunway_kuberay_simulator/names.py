"""KubeRay's labels, annotations and finalizers, and an annotation that controls the simulator."""

from __future__ import annotations

GROUP = "ray.io"
API_VERSION = f"{GROUP}/v1"
MANAGER = "kuberay-operator"
"""Field manager of the simulator's writes, the same as the real operator's and different from every manager of AI
Runway."""

FINALIZER = f"{GROUP}/rayservice-finalizer"
CLUSTER = f"{GROUP}/cluster"
"""Label with the RayCluster's name on its pods and Services."""
NODE_TYPE = f"{GROUP}/node-type"
GROUP_NAME = f"{GROUP}/group"
IDENTIFIER = f"{GROUP}/identifier"
IS_NODE = f"{GROUP}/is-ray-node"
SERVE = f"{GROUP}/serve"
"""Label of pods that belong to the serve Service once they are Ready."""
INDEX = f"{GROUP}/worker-group-replica-index"
ORIGIN_NAME = f"{GROUP}/originated-from-cr-name"
ORIGIN_KIND = f"{GROUP}/originated-from-crd"
HASH = f"{GROUP}/hash-without-replicas-and-workers-to-delete"
"""Annotation of a RayCluster with the hash of the configuration it was created for."""
WORKER_GROUPS = f"{GROUP}/num-worker-groups"
TIMEOUT = f"{GROUP}/initializing-timeout"
CREATED_BY = {"app.kubernetes.io/created-by": "kuberay-operator", "app.kubernetes.io/name": "kuberay"}

APPLICATION = "simulator.airunway.ai/application"
"""Annotation on a RayService that sets the state of its application: ``DEPLOY_FAILED:words`` or ``UNHEALTHY:words``.

``refused:words`` means that Ray Serve refuses the configuration, and ``silent`` that the dashboard does not answer.
"""
