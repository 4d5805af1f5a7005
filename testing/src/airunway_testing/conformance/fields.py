"""The toggle test: a deployment with and without one field; the difference is what the provider does about it.

A view notes which fields a translation reads (`airunway.sdk.fields`), but reading is not honouring. This is the proof.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from airunway.api.modeldeployment import KIND, parse_deployment
from airunway.api.names import API_VERSION
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource, copy_of
from airunway.runtime.judgement import Judgement, assumed_context, judge

__all__ = ["FIELDS", "NOW", "Outcome", "judged", "outcome", "plain"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of day in every context that is made here."""

_IMAGE = "registry.example/engine:1"
_ROLE = {"replicas": 2, "gpu": {"count": 1}, "memory": "1Gi", "cpu": "1"}
_VOLUME = {"name": "v", "claimName": "c", "mountPath": "/v"}
_VARIABLE = {"name": "A", "value": "1"}

FIELDS: Mapping[str, tuple[Resource, Resource]] = {
    "spec.model.id": ({}, {"model": {"id": "org/other/other.gguf"}}),
    "spec.model.servedName": ({}, {"model": {"servedName": "other"}}),
    "spec.model.source": ({}, {"model": {"source": "custom"}}),
    **{
        f"spec.model.storage.volumes[].{name}": (
            {"model": {"storage": {"volumes": [_VOLUME]}}},
            {"model": {"storage": {"volumes": [{**_VOLUME, name: value}]}}},
        )
        for name, value in (
            ("name", "w"),
            ("claimName", "d"),
            ("mountPath", "/w"),
            ("purpose", "modelCache"),
            ("readOnly", True),
            ("size", "1Gi"),
            ("storageClassName", "s"),
            ("accessMode", "ReadOnlyMany"),
        )
    },
    "spec.engine.image": ({}, {"engine": {"image": "registry.example/engine:2"}}),
    "spec.engine.contextLength": ({}, {"engine": {"contextLength": 8192}}),
    "spec.engine.trustRemoteCode": ({}, {"engine": {"trustRemoteCode": True}}),
    "spec.engine.enablePrefixCaching": ({}, {"engine": {"enablePrefixCaching": False}}),
    "spec.engine.enforceEager": ({}, {"engine": {"enforceEager": True}}),
    "spec.engine.args": ({}, {"engine": {"args": {"seed": "1"}}}),
    "spec.engine.extraArgs": ({}, {"engine": {"extraArgs": ["--seed", "1"]}}),
    "spec.scaling.replicas": ({}, {"scaling": {"replicas": 3}}),
    "spec.scaling.prefill": ({}, {"scaling": {"prefill": _ROLE}}),
    "spec.scaling.decode": ({}, {"scaling": {"decode": _ROLE}}),
    "spec.resources.gpu.count": ({}, {"resources": {"gpu": {"count": 2}}}),
    "spec.resources.gpu.type": (
        {"resources": {"gpu": {"count": 1}}},
        {"resources": {"gpu": {"count": 1, "type": "amd.com/gpu"}}},
    ),
    "spec.resources.memory": ({}, {"resources": {"memory": "32Gi"}}),
    "spec.resources.cpu": ({}, {"resources": {"cpu": "7"}}),
    "spec.image": ({}, {"image": "registry.example/engine:3"}),
    "spec.env[].name": ({"env": [_VARIABLE]}, {"env": [{**_VARIABLE, "name": "B"}]}),
    "spec.env[].value": ({"env": [_VARIABLE]}, {"env": [{**_VARIABLE, "value": "2"}]}),
    "spec.env[].valueFrom": (
        {"env": [_VARIABLE]},
        {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
    ),
    "spec.podTemplate.metadata.labels": ({}, {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}),
    "spec.podTemplate.metadata.annotations": ({}, {"podTemplate": {"metadata": {"annotations": {"a": "b"}}}}),
    "spec.secrets.huggingFaceToken": ({}, {"secrets": {"huggingFaceToken": "t"}}),
    "spec.nodeSelector": ({}, {"nodeSelector": {"a": "b"}}),
    "spec.tolerations": ({}, {"tolerations": [{"key": "a", "operator": "Exists"}]}),
    "spec.affinity": ({}, {"affinity": {"nodeAffinity": {}}}),
    "spec.topologySpreadConstraints": ({}, {"topologySpreadConstraints": [{"maxSkew": 1}]}),
    "spec.serviceAccountName": ({}, {"serviceAccountName": "s"}),
    "spec.imagePullSecrets": ({}, {"imagePullSecrets": [{"name": "p"}]}),
    "spec.priorityClassName": ({}, {"priorityClassName": "p"}),
    "spec.serving.mode": ({}, {"serving": {"mode": "disaggregated"}}),
}
"""Each field that a provider has to do something about: what the spec says besides, and what it says with the field.

Not among them is what the core and the runtime act on whatever the provider does (`airunway.sdk.CORE_FIELDS`), and the
model cache, which reaches a provider as ``context.cache``.
"""


class Outcome(StrEnum):
    """What a provider does about a field. `LOST` is the one that must not be."""

    HONOURED = "honoured"
    REFUSED = "refused"
    NAMED = "named as without effect"
    LOST = "lost without a word"


def plain(host: ProviderHost, engine: str) -> Resource:
    """The spec of a small deployment for one of a provider's engines: on a GPU if it runs there, else on CPU."""
    capability = next(found for found in host.manifest.engines if found.name == engine)
    gpus = {"gpu": {"count": 1}} if capability.gpu_support else {"cpu": "4"}
    return {
        "model": {"id": "org/model/model.gguf" if engine == "llamacpp" else "org/model"},
        "engine": {"type": engine},
        "image": _IMAGE,
        "resources": {**gpus, "memory": "16Gi"},
    }


def judged(host: ProviderHost, spec: Resource) -> Judgement:
    """What the provider makes of a deployment with this spec, as its runtime would ask. Raises PluginFault."""
    metadata = {"name": "model", "namespace": "default", "uid": "00000000-0000-0000-0000-000000000000"}
    deployment: Resource = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": copy_of(spec)}
    engine = str(spec["engine"]["type"])
    context = assumed_context(host, engine=engine, now=NOW)
    return judge(host, {**deployment, "status": {"engine": {"type": engine}}}, parse_deployment(deployment), context)


def outcome(host: ProviderHost, field: str, *, engine: str, base: Resource | None = None) -> Outcome:
    """What becomes of a field of `FIELDS` in a deployment like `base` (default: `plain`).

    Raises KeyError for an unknown field, ValueError if the provider refuses `base` itself.
    """
    base = base or plain(host, engine)
    if blockers := judged(host, base).blockers:
        raise ValueError(f"{host.name} refuses the plain deployment: {blockers[0].path}: {blockers[0].message}")
    without, with_ = (judged(host, _with(base, more)) for more in FIELDS[field])
    if without.blockers or with_.blockers:
        return Outcome.REFUSED
    if _shown(without) != _shown(with_):
        return Outcome.HONOURED
    return Outcome.NAMED if any(_covers(warning.path, field) for warning in with_.warnings) else Outcome.LOST


def _covers(path: str, field: str) -> bool:
    """Whether a finding is about the field, a part of it or what it is part of; positions in lists and keys aside."""
    path, field = (re.sub(r"\[[^]]*\]", "", text) for text in (path, field))
    return f"{field}.".startswith(f"{path}.") or path.startswith(f"{field}.")


def _shown(found: Judgement) -> list[Any]:
    """The objects without what the runtime adds: its hash of the deployment changes with fields nobody looked at."""
    return [{**obj, "metadata": {"name": obj["metadata"]["name"]}} for obj in found.objects]


def _with(spec: Resource, more: Resource) -> Resource:
    """The spec with other fields put in; maps are merged, everything else is replaced."""
    merged = dict(spec)
    for key, value in more.items():
        before = merged.get(key)
        merged[key] = _with(before, value) if isinstance(before, dict) and isinstance(value, dict) else value
    return merged
