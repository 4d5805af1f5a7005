"""JSON merge patches (RFC 7386), and those that an operator writes onto its objects."""

from __future__ import annotations

from collections.abc import Sequence

from airunway.resource import Resource, dig, uid_of


def status_patch(obj: Resource, status: Resource) -> Resource:
    """The patch of the status subresource that gives `obj` this status: what is no longer there becomes null.

    It is refused (409) over any other version, and so over another object of that name: for a subresource the API
    server compares no `uid`.
    """
    gone = {field: None for field in obj.get("status") or {} if field not in status}
    version = dig(obj, "metadata", "resourceVersion")
    return {"metadata": {"resourceVersion": version}, "status": {**gone, **status}}


def finalizers_patch(obj: Resource, finalizers: Sequence[str]) -> Resource:
    """The patch that sets all finalizers. A list is written whole: it is refused (409) over any other version."""
    version = dig(obj, "metadata", "resourceVersion")
    return {"metadata": {"uid": uid_of(obj), "resourceVersion": version, "finalizers": list(finalizers)}}


def merged(target: Resource, patch: Resource) -> Resource:
    """What the patch makes of `target`."""
    outcome = {key: value for key, value in target.items() if key not in patch or patch[key] is not None}
    for key, value in patch.items():
        if isinstance(value, dict):
            outcome[key] = merged(target[key] if isinstance(target.get(key), dict) else {}, value)
        elif value is not None:
            outcome[key] = value
    return outcome
