"""Kinds of Kubernetes objects with their URL paths, and the built-in kinds that several packages use."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from airunway.resource import Resource, dig


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind in one version of its API group."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of `apiVersion` (``apps/v1``, ``v1``)."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def base_path(self) -> str:
        """The path of the group version, without a trailing slash (``/apis/apps/v1``, ``/api/v1``)."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Returns the URL path of one object, of a collection in a namespace, or of the whole cluster's collection.

        Names are percent-encoded. Raises ValueError for a name that no Kubernetes object can have because it would
        change the path (``.``, ``..``, or one with ``/`` or ``%``), and for one object of a namespaced kind without its
        namespace.
        """
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.kind} {name!r} needs a namespace")
        path = self.base_path
        if namespace and self.namespaced:
            path += f"/namespaces/{_segment(namespace)}"
        path += f"/{self.plural}"
        if name:
            path += f"/{_segment(name)}"
            if subresource:
                path += f"/{subresource}"
        return path

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _segment(name: str) -> str:
    if name in (".", "..") or "/" in name or "%" in name:
        raise ValueError(f"{name!r} is not a name that a Kubernetes object can have")
    return quote(name, safe="")


def kind_of_crd(crd: Resource, version: str) -> Kind:
    """Returns the kind that a CustomResourceDefinition defines, in that version.

    Raises ValueError if the definition has no such version.
    """
    if version not in (v.get("name") for v in dig(crd, "spec", "versions", default=[])):
        raise ValueError(f"CustomResourceDefinition {dig(crd, 'metadata', 'name')} has no version {version}")
    spec = crd["spec"]
    names = spec["names"]
    return Kind(spec["group"], version, names["kind"], names["plural"], spec.get("scope") == "Namespaced")


POD = Kind("", "v1", "Pod", "pods")
SERVICE = Kind("", "v1", "Service", "services")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
PERSISTENT_VOLUME_CLAIM = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
NAMESPACE = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
NODE = Kind("", "v1", "Node", "nodes", namespaced=False)
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
STATEFUL_SET = Kind("apps", "v1", "StatefulSet", "statefulsets")
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")
JOB = Kind("batch", "v1", "Job", "jobs")
STORAGE_CLASS = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)
ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
EVENT = Kind("events.k8s.io", "v1", "Event", "events")
CLUSTER_ROLE = Kind("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = Kind(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
CUSTOM_RESOURCE_DEFINITION = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)
SUBJECT_ACCESS_REVIEW = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False
)
