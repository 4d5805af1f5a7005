"""What a process caches of a ModelDeployment, with bounded memory for any size of object.

Every process caches all deployments once, including those of other providers. An unusually large spec within the limits
is kept as JSON beside an outline (`airunway.api.bounds.outline`); the pass that needs it decodes it. Of an object over
the limits only the outline and the exceeded limits are kept. Such an object is validated only against these limits, so
that missing fields are not taken for the user's input.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Any

import orjson

from airunway.api.bounds import (
    EXCESS,
    MAX_FINALIZERS,
    MAX_SPEC,
    excess,
    is_modest,
    is_over,
    limit_texts,
    outline,
    size_of,
)
from airunway.api.names import provider_finalizer, provider_of_finalizer, provider_of_manager
from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client, compact_objects
from airunway.kube.packing import packed
from airunway.resource import LAST_APPLIED, Resource, dig, finalizers_of, key_of, uid_of
from airunway.selection.facts import REFUSED_BY, refused_by
from airunway.selection.provider import is_denied
from airunway.templates.expansion import OWN_SPEC, effective

_AT_HAND = 24 * 2**10
"""Approximate bytes of memory that a spec may take as objects; a larger one is packed."""
_PER_VALUE = 96
"""Approximate bytes of memory per value, besides its text."""

_MAX_STATUS = 96 * 2**10
"""Maximum bytes of a status. Ours has 3 to 12 KiB: at most 8 for the selection and 1 for each message; the revision has
up to 32 for the settings of a runtime config and 32 for the values of a template.
"""
_MAX_ENTRY = 16 * 2**10
"""Maximum bytes of one manager's field entry; ours have 2 KiB."""
_MAX_CANDIDATES = 64
"""Number of different lists of candidates that are remembered, 8 KiB each; beyond that all are dropped."""
_MAX_VARIANTS = 4
_MAX_OWNERS = 16

_OWN_STATUS = (
    "phase",
    "reason",
    "observedGeneration",
    "provider",
    "engine",
    "revision",
    "effectiveTemplate",
    "message",
    "replicas",
    "conditions",
    "selection",
    "rootCause",
)
"""Fields that are kept first if a status is too large; all of them are small if we wrote them."""


class DeploymentProjection:
    """The projection for a cache of deployments: the union of what its readers need.

    `managers` are the field managers of the readers. If `providers` is None, the core is a reader and
    ``status.selection`` stays. Otherwise only providers read the cache, and they need only know which of them the
    policy denies (`is_denied`): a minimal selection with the allowed providers is kept, or none if all are allowed.
    """

    def __init__(self, managers: Collection[str], *, providers: Collection[str] | None = None) -> None:
        self._managers = tuple(managers)
        self._finalizers = {provider_finalizer(name) for name in map(provider_of_manager, managers) if name}
        self._providers = providers
        self._compact = compact_objects(self._managers)
        self._outlines: dict[tuple[str, ...], Resource] = {}
        self._candidates: dict[bytes, list[Any]] = {}
        self._parts: dict[tuple[str, str], list[Resource]] = {}

    def __call__(self, obj: Resource) -> Resource:
        metadata = obj.get("metadata")
        if isinstance(metadata, dict):
            annotations = metadata.get("annotations")
            if isinstance(annotations, dict):
                annotations.pop(LAST_APPLIED, None)
        self._share_parts(dig(obj, "status", "revision"))
        self._expand(obj)
        spec = obj.get("spec")
        size = size_of(spec, limit=MAX_SPEC)
        found = [tuple(entry) for entry in excess(obj, measured=size)]
        if found:
            obj[EXCESS] = found
            obj["spec"] = outline(spec)
            if OWN_SPEC in obj:
                obj[OWN_SPEC] = outline(obj[OWN_SPEC])
        elif size.length + _PER_VALUE * size.values > _AT_HAND:
            obj = packed({**obj, "spec": outline(spec)}, {"spec": spec})
        # Which manager refused stands in fields of other managers, which are not kept.
        refusing = refused_by(obj) if self._providers is None else ()
        if isinstance(metadata, dict):
            self._trim_metadata(metadata)
        status = obj.get("status")
        if isinstance(status, dict):
            if self._providers is not None:
                self._outline_selection(obj, status, self._providers)
            elif refusing:
                obj["metadata"][REFUSED_BY] = refusing
            obj["status"] = _trimmed_status(status)
        compact = self._compact(obj)
        self._share_candidates(dig(compact, "status", "selection"))
        return compact

    def _expand(self, obj: Resource) -> None:
        """Give the object its effective spec, and keep its own, where it names a template."""
        spec = obj.get("spec")
        if not isinstance(spec, dict) or "templateRef" not in spec:
            return
        obj[OWN_SPEC] = spec
        obj["spec"] = effective(obj)["spec"]

    def _share_parts(self, revision: Any) -> None:
        """Keep equal parts of revisions once: a config and a template have many users."""
        if not isinstance(revision, dict):
            return
        for part in ("template", "settings", "provider"):
            value = revision.get(part)
            if not isinstance(value, dict):
                continue
            name = part, str(value.get("hash") or value.get("configHash") or value.get("name"))
            if len(self._parts) >= _MAX_CANDIDATES:
                self._parts.clear()
            # Those of one source may differ: in what nodes must have, in the labels of a deployment.
            known = self._parts.setdefault(name, [])
            shared = next((each for each in known if each == value), None)
            if shared is None and len(known) < _MAX_VARIANTS:
                known.append(value)
            revision[part] = value if shared is None else shared

    def _share_candidates(self, selection: Any) -> None:
        """Keep equal lists of candidates once: deployments with the same requirements have the same list."""
        candidates = selection.get("candidates") if isinstance(selection, dict) else None
        if not isinstance(candidates, list):
            return
        try:
            text = orjson.dumps(candidates)
        except TypeError:  # nested too deeply for orjson: not written by us
            return
        if len(self._candidates) >= _MAX_CANDIDATES:
            self._candidates.clear()
        selection["candidates"] = self._candidates.setdefault(text, candidates)

    def _outline_selection(self, obj: Resource, status: Resource, providers: Collection[str]) -> None:
        allowed = tuple(provider for provider in providers if not is_denied(obj, provider))
        if len(allowed) == len(providers):
            status.pop("selection", None)
            return
        outline = {"candidates": [{"name": provider} for provider in allowed]}
        status["selection"] = self._outlines.setdefault(allowed, outline)

    def _trim_metadata(self, metadata: Resource) -> None:
        limit_texts(metadata)
        finalizers, owners = metadata.get("finalizers"), metadata.get("ownerReferences")
        if isinstance(finalizers, list) and len(finalizers) > MAX_FINALIZERS:
            # A user could put many finalizers before ours: ours are always kept.
            finalizers.sort(key=lambda each: (each not in self._finalizers, not provider_of_finalizer(each)))
            metadata["finalizers"] = finalizers[:MAX_FINALIZERS]
        if isinstance(owners, list) and len(owners) > _MAX_OWNERS:
            metadata["ownerReferences"] = owners[:_MAX_OWNERS]
        entries = metadata.get("managedFields")
        if isinstance(entries, list):
            # A manager without its entry rewrites what is already there; the API server treats that as no change.
            kept = [entry for entry in entries if isinstance(entry, dict) and entry.get("manager") in self._managers]
            if not is_modest(kept, limit=_MAX_ENTRY):  # one check of all is nearly always enough
                kept = [entry for entry in kept if not is_over(entry, _MAX_ENTRY)]
            metadata["managedFields"] = kept


def to_validate(obj: Resource) -> Resource:
    """The object as the API server could have it: with its effective spec, and with its user's own while it names a
    template that is not resolved.
    """
    if OWN_SPEC not in obj:
        return obj
    kept = {key: value for key, value in obj.items() if key != OWN_SPEC}
    return {**kept, "spec": obj[OWN_SPEC]} if dig(obj, "spec", "templateRef") is not None else kept


async def with_all_finalizers(client: Client, deployment: Resource) -> Resource:
    """A cached deployment with all its finalizers in their order; the cache does not keep very many.

    Raises KubeError. A deployment that is gone or was recreated is returned as cached: a write to it fails.
    """
    if len(finalizers_of(deployment)) < MAX_FINALIZERS:
        return deployment
    live = await client.find(MODEL_DEPLOYMENT, key_of(deployment))
    return live if live is not None and uid_of(live) == uid_of(deployment) else deployment


def _trimmed_status(status: Resource) -> Resource:
    """The status; of one over the limit, which is not ours, as many fields as fit, those that we read first."""
    if not is_over(status, _MAX_STATUS):
        return status
    left = _MAX_STATUS
    kept: Resource = {}
    others = (name for name in islice(status, 256) if name not in _OWN_STATUS)
    for name in (*(name for name in _OWN_STATUS if name in status), *others):
        value: Any = status[name]
        if name == "conditions" and isinstance(value, list):
            value = [condition for condition in value[:256] if not is_over(condition, 4096)]
        size = size_of(value, limit=left)
        if not size.exceeds:
            kept[name] = value
            left -= size.length
    return kept
