"""Records which fields of a deployment a translation reads, and reports the others as ignored.

`tracked` gives a view of a deployment that records every field that is read. The runtime itself reports fields that a
user set and the provider did not read (`ignored_fields`), so no field is dropped silently. A field that was read is not
necessarily honoured; the toggle test of each provider checks that. `ignored_pod_settings` does the same for what comes
from outside of the deployment (its runtime config, the model cache), by what stands in the translated objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Any, cast

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from airunway.api.modeldeployment import ModelDeployment
from airunway.plugins.contract import Context, Finding, RuntimeSettings
from airunway.resource import Resource, copy_of
from airunway.sdk.findings import gpus_of

CORE_FIELDS = (
    "spec.gateway",
    "spec.provider",
    "spec.runtimeConfigName",
    "spec.serving",
    "spec.suspend",
    "spec.templateRef",
    "spec.workload",
)
"""Fields that the core and the runtime handle, independent of the provider."""

_ACTED_ON = ("spec.engine.type",)
"""Fields that always reach a provider through its context."""


class Reads:
    """The paths that were read, such as ``spec.engine.args``, or ``spec.tolerations[]`` for the items of a list."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    @property
    def metadata(self) -> set[str]:
        """Which of the deployment's own ``labels`` and ``annotations`` were read."""
        maps = {"labels", "annotations"}
        return maps if self.paths & {"", "metadata"} else {name for name in maps if f"metadata.{name}" in self.paths}


def tracked(deployment: ModelDeployment) -> tuple[ModelDeployment, Reads]:
    """A view that behaves like `deployment`, and the record of what is read through it."""
    reads = Reads()
    return cast(ModelDeployment, _View(deployment, "", reads)), reads


def ignored_fields(deployment: ModelDeployment, reads: Reads, *, provided: tuple[str, ...] = ()) -> Iterator[Finding]:
    """A warning for each field of the spec that was never read and differs from its default.

    `provided` are further fields that reached the provider in another way: ``spec.model.cache`` as a claim to mount.
    """
    for path in _set_fields(deployment.spec, "spec"):
        if path in reads.paths or path.startswith(CORE_FIELDS) or path.startswith((*_ACTED_ON, *provided)):
            continue
        field = path.replace("[]", "")
        text = f"{field} has no effect in this deployment: the provider does not use it here; remove it"
        yield Finding(path=field, reason="FieldIgnored", message=text)


class PodSetting(StrEnum):
    """What reaches pods from outside of a deployment, as messages name it."""

    ENV = "env of the runtime config"
    LABELS = "propagated labels"
    PULL_SECRETS = "imagePullSecrets of the runtime config"
    TOKEN = "secrets.huggingFaceToken of the runtime config"
    CACHE = "the claim of the model cache"
    WEIGHTS = "the image with the weights"
    RUNTIME_CLASS = "runtimeClassName of the runtime config"


_SETTING_PATHS = {PodSetting.CACHE: "spec.model.cache", PodSetting.WEIGHTS: "spec.model.uri"}
"""The field of the deployment by which a setting comes to it; `_CONFIG` for the others."""
_CONFIG = "spec.runtimeConfigName"


def ignored_pod_setting(setting: PodSetting, because: str) -> Finding:
    """The warning that a setting reaches no pod; `because` says why, and what to do."""
    path = _SETTING_PATHS.get(setting, _CONFIG)
    return Finding(path=path, reason="FieldIgnored", message=f"{setting}: {because}")


def ignored_pod_settings(
    deployment: ModelDeployment, context: Context[Any], objects: Iterable[Resource], *, named: Iterable[Finding] = ()
) -> Iterator[Finding]:
    """A warning for each setting of the context that no pod of the translated `objects` has.

    Whatever stands below an object's metadata counts, since upstreams have their own places for the fields of a pod.
    Settings that a finding of `named` is about (`ignored_pod_setting`) are left out.
    """
    runtime, spec = context.runtime, deployment.spec
    if runtime == RuntimeSettings() and context.cache is None:
        return
    words = _Words(objects)
    messages = [finding.message for finding in named if finding.reason == "FieldIgnored"]
    own = {entry.name for entry in spec.env}
    token = (
        "" if spec.secrets.hugging_face_token or "HF_TOKEN" in own else runtime.token
    )  # the deployment's own is used
    # Pods without GPUs need none, and the deployment's own wins.
    has_gpus = any(gpu.count for _, gpu in gpus_of(deployment) if gpu is not None)
    wanted = runtime.runtime_class if has_gpus and not spec.runtime_class_name else ""
    missing = {
        PodSetting.ENV: [
            str(entry.get("name")) for entry in runtime.env if not words.has_variable(str(entry.get("name")))
        ],
        PodSetting.LABELS: [key for key in runtime.labels if key not in words.keys],
        PodSetting.PULL_SECRETS: [name for name in runtime.image_pull_secrets if name not in words.texts],
        PodSetting.TOKEN: [token] if token and token not in words.texts else [],
        PodSetting.RUNTIME_CLASS: [wanted] if wanted and wanted not in words.texts else [],
        PodSetting.CACHE: [context.cache.claim] if context.cache and not words.has_claim(context.cache.claim) else [],
    }
    if context.cache is not None and (image := context.cache.image):
        # An upstream may have a form of its own for the reference, such as an address.
        missing[PodSetting.CACHE] = []
        missing[PodSetting.WEIGHTS] = [] if any(image in text for text in words.texts) else [image]
    for setting, left in missing.items():
        if left and not any(message.startswith(f"{setting}: ") for message in messages):
            yield ignored_pod_setting(setting, f"no pod of this provider has {', '.join(sorted(left))}")


class _Words:
    """What stands in objects below their metadata: keys of maps, names of list entries, and texts."""

    def __init__(self, objects: Iterable[Resource]) -> None:
        self.keys: set[str] = set()
        self.named: set[str] = set()
        self.texts: set[str] = set()
        for obj in objects:
            self._take({key: value for key, value in obj.items() if key != "metadata"})

    def has_variable(self, name: str) -> bool:
        """Whether it is the name of an entry of a list, or a key of a map (KubeAI's ``spec.env``)."""
        return name in self.named or name in self.keys

    def has_claim(self, claim: str) -> bool:
        """Whether a text is the claim, or an address in which it is a part (``pvc://CLAIM/path``)."""
        return claim in self.texts or any("://" in text and claim in text.split("/") for text in self.texts)

    def _take(self, node: object) -> None:
        if isinstance(node, dict):
            self.keys.update(node)
            if isinstance(name := node.get("name"), str):
                self.named.add(name)
            for value in node.values():
                self._take(value)
        elif isinstance(node, list | tuple):
            for value in node:
                self._take(value)
        elif isinstance(node, str):
            self.texts.add(node)


def _set_fields(model: BaseModel, path: str) -> Iterator[str]:
    """The leaf fields that differ from their defaults."""
    for name, step in _steps(type(model)).items():
        value = getattr(model, name)
        here = f"{path}.{step}" if path else step
        if isinstance(value, BaseModel):
            yield from _set_fields(value, here)
        elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
            yield from dict.fromkeys(found for item in value for found in _set_fields(item, f"{here}[]"))
        elif value not in (None, [], {}, "") and value != _defaults(type(model))[name]:
            yield here


@cache
def _defaults(model: type[BaseModel]) -> dict[str, object]:
    """The defaults of a type's fields; PydanticUndefined, which equals nothing, for a required field."""
    return {name: info.get_default(call_default_factory=True) for name, info in model.model_fields.items()}


@cache
def _steps(model: type[BaseModel]) -> dict[str, str]:
    """JSON names of a type's fields by their Python names."""
    return {name: to_camel(name) for name in model.model_fields}


_SCALARS = frozenset((str, int, float, bool, type(None)))


class _View:
    """A read-recording view of one API model; it behaves like the model except for `type`.

    Immutable values become attributes after the first read, because a translation reads the same few fields often.
    """

    def __init__(self, model: BaseModel, path: str, reads: Reads) -> None:
        object.__setattr__(self, "_model", model)
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_reads", reads)

    # isinstance checks see the model's class.
    __class__ = property(lambda self: type(self._model))

    def __getattr__(self, name: str) -> Any:
        model, path, reads = self._model, self._path, self._reads
        value = getattr(model, name)
        kind: type[BaseModel] = model.__class__
        step = _steps(kind).get(name)
        if step is None:
            if callable(value):  # a method may read all fields
                reads.paths.update((path, *_set_fields(model, path)))
            return value
        here = f"{path}.{step}" if path else step
        if value.__class__ in _SCALARS:  # most are: read without a further call
            reads.paths.add(here)
            found = value
        else:
            found = _seen(value, here, reads)
            if isinstance(value, dict | list):
                return found
        object.__setattr__(self, name, found)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a deployment is not to be changed: {self._path}.{name}")

    def __eq__(self, other: object) -> bool:
        self._reads.paths.update((self._path, *_set_fields(self._model, self._path)))
        return bool(self._model == (other._model if isinstance(other, _View) else other))

    def __hash__(self) -> int:
        return id(self._model)

    def __repr__(self) -> str:
        return repr(self._model)


def _seen(value: Any, path: str, reads: Reads) -> Any:
    if isinstance(value, BaseModel):
        return _View(value, path, reads)
    reads.paths.add(path)
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        return [_View(item, f"{path}[]", reads) for item in value]
    if not isinstance(value, dict | list):
        return value
    # A deep copy, so a plugin cannot change the deployment through a map or list.
    return copy_of({"value": value})["value"] if value else type(value)()


def as_json(value: object) -> Any:
    """A field of a deployment as JSON for a manifest, for an upstream without a pod template.

    API types (``deployment.spec.tolerations``) lose fields that were not set; texts, numbers and maps are unchanged.
    Raises TypeError with the path for a value that JSON cannot express.
    """
    return _as_json(value, "")


def _as_json(value: object, path: str) -> Any:
    if isinstance(value, BaseModel):  # also the tracked view of one
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    if isinstance(value, Mapping):
        return {str(key): _as_json(each, f"{path}.{key}") for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(each, f"{path}[{i}]") for i, each in enumerate(value)]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{path.lstrip('.') or 'the value'} is a {type(value).__name__}, which JSON cannot say")
