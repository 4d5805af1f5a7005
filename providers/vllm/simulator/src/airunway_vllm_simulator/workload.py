"""Builds the objects that the controller creates for a LeaderWorkerSet (facts 1 to 4, objects of recording a-happy)."""

from __future__ import annotations

from collections.abc import Iterable

from airunway.resource import Resource, annotations_of, copy_of, dig, digest, key_of, labels_of, owner_reference
from airunway_vllm_simulator import names
from airunway_vllm_simulator.groups import group_index, size_of

_POD_INDEX = "metadata.labels['apps.kubernetes.io/pod-index']"


def revision_hash(lws: Resource) -> str:
    """Hash of the fields whose change creates a new revision: templates and size, not replicas (facts 16 to 18)."""
    return digest(_revised(lws), length=10)


def _revised(lws: Resource) -> Resource:
    group = dict(dig(lws, "spec", "leaderWorkerTemplate", default={}))
    group.pop("restartPolicy", None)
    return {"leaderWorkerTemplate": group, "networkConfig": dig(lws, "spec", "networkConfig")}


def newest_of(revisions: Iterable[Resource]) -> Resource | None:
    """The revision with the highest number."""
    return max(revisions, key=lambda revision: int(revision["revision"]), default=None)


def controller_revision(lws: Resource, revisions: Iterable[Resource]) -> Resource:
    """The revision of the present templates, with the next free number."""
    newest = newest_of(revisions)
    number = int(newest["revision"]) + 1 if newest else 1
    digits, key = revision_hash(lws), key_of(lws)
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": f"{key.name}-{digits}-{number}",
            "namespace": key.namespace,
            "labels": {names.NAME: key.name, names.REVISION: digits},
            "ownerReferences": [owner_reference(lws)],
        },
        "revision": number,
        "data": {"spec": _revised(lws)},
    }


def service(lws: Resource) -> Resource:
    """The headless Service through which the pods of a group find each other; it has the LeaderWorkerSet's name."""
    key = key_of(lws)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {names.NAME: key.name},
            "ownerReferences": [owner_reference(lws)],
        },
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {names.NAME: key.name}},
    }


def leader_stateful_set(lws: Resource, *, revision: str) -> Resource:
    """The StatefulSet of the leaders, one pod per group."""
    key = key_of(lws)
    selector = {names.NAME: key.name, names.WORKER_INDEX: "0"}
    annotations = {**annotations_of(lws), names.REPLICAS: str(dig(lws, "spec", "replicas", default=1))}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {**labels_of(lws), names.NAME: key.name, names.REVISION: revision},
            "annotations": annotations,
            "ownerReferences": [owner_reference(lws)],
        },
        "spec": {
            "replicas": dig(lws, "spec", "replicas", default=1),
            "serviceName": key.name,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "selector": {"matchLabels": selector},
            "template": leader_template(lws, revision=revision),
        },
    }


def leader_template(lws: Resource, *, revision: str) -> Resource:
    """The leaders' pod template; without one, the workers' template (fact 3)."""
    group = dig(lws, "spec", "leaderWorkerTemplate", default={})
    name = key_of(lws).name
    labels = {names.NAME: name, names.WORKER_INDEX: "0", names.REVISION: revision}
    template = group.get("leaderTemplate") or group.get("workerTemplate") or {}
    made = _template(template, labels, {names.SIZE: str(size_of(lws))})
    address = f"$(LWS_LEADER_NAME).{name}.{key_of(lws).namespace}"
    _put_first(
        made,
        [
            _from_field("LWS_LEADER_NAME", "metadata.name"),
            {"name": "LWS_LEADER_ADDRESS", "value": address},
            {"name": "LWS_GROUP_SIZE", "value": str(size_of(lws))},
            {"name": "LWS_WORKER_INDEX", "value": "0"},
        ],
    )
    return made


def group_key(leader: Resource) -> str:
    """Identifies a group across namespaces."""
    key = key_of(leader)
    return digest(f"{key.namespace}/{key.name}", length=40)


def worker_stateful_set(lws: Resource, leader: Resource, data: Resource) -> Resource:
    """The StatefulSet of one leader's workers, owned by the leader pod; `data` belongs to the leader's revision."""
    key, name = key_of(leader), key_of(lws).name
    revision = labels_of(leader).get(names.REVISION, "")
    group = dig(data, "spec", "leaderWorkerTemplate", default={})
    size = int(group.get("size", 1))
    known = {
        names.NAME: name,
        names.GROUP_INDEX: str(group_index(leader)),
        names.GROUP_KEY: labels_of(leader).get(names.GROUP_KEY) or group_key(leader),
    }
    template = _template(
        group.get("workerTemplate") or {},
        {**known, names.REVISION: revision},
        {names.SIZE: str(size), names.LEADER_NAME: key.name},
    )
    _put_first(
        template,
        [
            {"name": "LWS_LEADER_ADDRESS", "value": f"{key.name}.{name}.{key.namespace}"},
            {"name": "LWS_GROUP_SIZE", "value": str(size)},
            _from_field("LWS_WORKER_INDEX", _POD_INDEX),
        ],
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "labels": {**labels_of(lws), **known, names.REVISION: revision},
            "annotations": annotations_of(lws),
            "ownerReferences": [owner_reference({"apiVersion": "v1", "kind": "Pod", **leader})],
        },
        "spec": {
            "replicas": size - 1,
            "serviceName": name,
            "ordinals": {"start": 1},
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "selector": {"matchLabels": known},
            "template": template,
        },
    }


def pod_labels(pod: Resource) -> dict[str, str]:
    """The labels that the real controller's webhook adds to a new pod and that the pod still lacks."""
    labels = labels_of(pod)
    if labels.get(names.WORKER_INDEX) == "0":
        wanted = {names.GROUP_INDEX: str(group_index(pod)), names.GROUP_KEY: group_key(pod)}
    else:
        wanted = {names.WORKER_INDEX: key_of(pod).name.rpartition("-")[2]}
    return {key: value for key, value in wanted.items() if key not in labels}


def _template(template: Resource, labels: dict[str, str], annotations: dict[str, str]) -> Resource:
    made = copy_of(template)
    metadata = made.setdefault("metadata", {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    return made


def _put_first(template: Resource, env: list[Resource]) -> None:
    """Insert the variables first, so that arguments and later variables can refer to them (fact 4)."""
    for field in ("initContainers", "containers"):
        for container in dig(template, "spec", field, default=[]):
            container["env"] = [*copy_of({"env": env})["env"], *(container.get("env") or [])]


def _from_field(name: str, path: str) -> Resource:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
