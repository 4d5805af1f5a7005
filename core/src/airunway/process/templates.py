"""The model templates that a process has read: which one a deployment uses, and which deployments a change concerns.

Only the core reads them: it records on each deployment what its template gives (`airunway.templates`), and its model
cache part keeps their weights.
"""

from __future__ import annotations

from collections.abc import Hashable

from airunway.api import names
from airunway.api.bounds import EXCESS
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_TEMPLATE
from airunway.kube import AnyReflector, compact_objects
from airunway.process.caches import Caches, ScopedCaches, SharedCache
from airunway.process.runtime_configs import OnChange
from airunway.resource import ObjectKey, Resource, condition_of, dig, kept, key_of
from airunway.templates.choice import CLUSTER_KIND, KIND, USABLE, Choice, Request, choose, request_of
from airunway.templates.contribution import Contribution, contribution_of
from airunway.templates.expansion import own_spec
from airunway.templates.limits import bound

_METADATA = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "labels",
)
_STATUS = ("phase", "modelSources")
"""What the core reads of a template's status, which the catalogue writes."""
_AGAINST = ("reason", "message")
"""The same of a template that cannot be used."""
_HARDWARE = ("tier", "requirements")
"""The same of the hardware. How many nodes there are is no reason to look at the deployments of a template."""
_CONDITIONS = ("DiscoveryReady",)
"""The conditions of it that the core reads."""


class Templates(ScopedCaches):
    """ModelTemplates and ClusterModelTemplates for one reader.

    `deployments` is the reader's cache of deployments; its index finds the users of a template.
    """

    def __init__(self, caches: Caches, *, deployments: AnyReflector, on_change: OnChange) -> None:
        project = caches.one(TemplateProjection)
        kinds = (MODEL_TEMPLATE, CLUSTER_MODEL_TEMPLATE)
        super().__init__(*(caches.of(kind, project=project, optional=True) for kind in kinds))
        self._on_change = on_change
        self._users = deployments.add_index(_looked_up)
        self._models = {cache: cache.add_index(_model) for cache in (self.namespaced, self.cluster)}
        self._contributions: dict[ObjectKey, tuple[Resource, Contribution]] = {}
        for cache in (self.namespaced, self.cluster):
            cache.add_handler(self._on_template)

    # ------------------------------------------------------------------------------------------------ reading

    def choose(self, request: Request, *, namespace: str) -> Choice:
        """Returns the template that a deployment of `namespace` gets for its request, of those that have been read."""

        def candidates(cache: SharedCache, where: str) -> list[Resource]:
            if not request.name:
                return self._models[cache].get((where, request.model))
            named = cache.get(ObjectKey(where, request.name))
            return [named] if named else []

        return choose(
            request,
            namespaced=candidates(self.namespaced, namespace),
            cluster=candidates(self.cluster, ""),
            unusable=lambda template: self.contribution(template).unusable,
        )

    def find(self, key: ObjectKey) -> Resource | None:
        """Returns a ModelTemplate, or a ClusterModelTemplate for a key without namespace; None if there is none."""
        return (self.namespaced if key.namespace else self.cluster).get(key)

    def contribution(self, template: Resource) -> Contribution:
        """Returns what a template gives; computed once for each state of it."""
        key = key_of(template)
        known = self._contributions.get(key)
        if known is None or known[0] is not template:
            known = self._contributions[key] = (template, contribution_of(template))
        return known[1]

    # ---------------------------------------------------------------------------------------------- following

    def _on_template(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        if new is None:
            self._contributions.pop(key, None)
        if old and new and all(old.get(part) == new.get(part) for part in ("spec", "status", EXCESS)):
            return
        models = {dig(each, "spec", "modelName") for each in (old, new) if each is not None}
        self._on_change(("template", key), lambda: self._concerned(key, models))

    def _concerned(self, key: ObjectKey, models: set[object]) -> list[Resource]:
        """The cached deployments that name this template, use it, or ask for one of its models."""
        found = {}
        namespaces = {key.namespace}
        if not key.namespace:
            namespaces = {str(each[1]) for each in self._users.keys() if isinstance(each, tuple)}  # noqa: SIM118
        for namespace in namespaces:
            wanted: list[Hashable] = [("name", namespace, key.name), *(("model", namespace, each) for each in models)]
            for user in (user for each in wanted for user in self._users.get(each)):
                found[key_of(user)] = user
        return list(found.values())


class TemplateProjection:
    """Keeps of a template its spec, the part of its status that the core reads, and some metadata. One for the whole
    process.
    """

    def __init__(self) -> None:
        self._compact = compact_objects(names.CORE_MANAGER)

    def __call__(self, obj: Resource) -> Resource:
        metadata, status = obj.get("metadata"), obj.get("status")
        kind = obj.get("kind") or (KIND if dig(metadata, "namespace") else CLUSTER_KIND)
        found: Resource = {"kind": kind, "spec": obj.get("spec"), "metadata": kept(metadata, *_METADATA)}
        found["status"] = _status(status) if isinstance(status, dict) else {}
        if conditions := [each for type_ in _CONDITIONS if (each := condition_of(obj, type_)) is not None]:
            found["status"]["conditions"] = [
                {field: each.get(field) for field in ("type", "status")} for each in conditions
            ]
        # Only the catalogue writes the status, and the CRD limits it: what a user writes is limited here.
        return self._compact(bound(found))


def _status(status: Resource) -> Resource:
    fields = _STATUS if status.get("phase") in USABLE else (*_STATUS, *_AGAINST)
    found, hardware = kept(status, *fields), status.get("hardware")
    if isinstance(hardware, dict):
        found["hardware"] = kept(hardware, *_HARDWARE)
    return found


def _model(template: Resource) -> tuple[Hashable, ...]:
    model = dig(template, "spec", "modelName")
    return ((key_of(template).namespace, model),) if isinstance(model, str) else ()


def _looked_up(deployment: Resource) -> tuple[Hashable, ...]:
    """What of templates a deployment depends on: the name or the model that it asks for, and the one that it uses."""
    request, namespace = request_of(own_spec(deployment)), key_of(deployment).namespace
    if request is None:
        return ()
    found: list[Hashable] = (
        [("name", namespace, request.name)] if request.name else [("model", namespace, request.model)]
    )
    used = dig(deployment, "status", "effectiveTemplate", "ref", "name")
    if isinstance(used, str) and used != request.name:
        found.append(("name", namespace, used))
    return tuple(found)
