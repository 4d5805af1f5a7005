"""What a cache may leave out of the objects it keeps."""

from __future__ import annotations

from collections.abc import Callable

from airunway.resource import Resource

__all__ = ["strip_managed_fields"]

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def strip_managed_fields(keep: str = "") -> Callable[[Resource], Resource]:
    """A projection that drops the managedFields entries of everybody but `keep`, and kubectl's copy of the object.

    Together they are often half of an object. With `keep` set to our field manager, `needs_apply` still works on what
    is left; `changed_fields` does not.
    """

    def project(obj: Resource) -> Resource:
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            return obj
        entries = metadata.get("managedFields")
        if isinstance(entries, list):
            kept = [e for e in entries if keep and isinstance(e, dict) and e.get("manager") == keep]
            if kept:
                metadata["managedFields"] = kept
            else:
                del metadata["managedFields"]
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict):
            annotations.pop(_LAST_APPLIED, None)
            if not annotations:
                del metadata["annotations"]
        return obj

    return project
