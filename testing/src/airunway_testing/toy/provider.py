"""The provider of the toy upstream: data, and three pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airunway import sdk
from airunway.sdk import Component, Context, Finding, ModelDeployment, Observation, Observed, Resource, conditions, dig
from airunway.sdk.overrides import TEXT, keys
from airunway.sdk.workloads import CONFIG_MAP, SERVICE, pod_selector, service

GROUP, TOY_LABEL = "testing.airunway.ai", "testing.airunway.ai/toy"
PORT = 8000
MOST_REPLICAS = 4
BROKEN = "ToyBroken"
"""Reason of the Warning events that are shown as warnings of the deployment."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    box: bool = sdk.setting(True, "Make a ToyBox for each Toy, where the cluster serves that kind.")
    greeting: str = sdk.setting("hello", "What the ConfigMap of each Toy says.")


MANIFEST = sdk.ProviderManifest(
    name="toy",
    version="0.1.0",
    display_name="Toy",
    description="Runs nothing: for AI Runway's own tests",
    engines=(
        sdk.EngineCapability(name="vllm", gpu_support=True, cpu_support=True),
        sdk.EngineCapability(name="llamacpp", cpu_support=True),
    ),
    selection=sdk.SelectionMode.EXPLICIT,
    upstream=(
        sdk.UpstreamKind(group=GROUP, kind="Toy", plural="toys", versions=("v1beta1", "v1alpha1"), primary=True),
        sdk.UpstreamKind(group=GROUP, kind="ToyBox", plural="toyboxes", versions=("v1",), required=False),
        sdk.UpstreamKind(
            group=GROUP, kind="ToyPart", plural="toyparts", versions=("v1",), write=False, select=TOY_LABEL
        ),
        SERVICE,
        CONFIG_MAP,
    ),
    pod_labels=(TOY_LABEL,),
    events={"Toy": (BROKEN,)},
    settings=Settings,
    override_schema=keys(spec=keys(note=TEXT)),
)

TRANSFORMERS = tuple(
    sdk.Transformer(
        name=version,
        api_version=f"{GROUP}/{version}",
        schema_hashes=(schema,),
        features=features,
        immutable=("spec.size",),
        since=since,
        until=until,
    )
    for version, schema, features, since, until in (
        ("v1alpha1", "6eaefffca1aa", frozenset[str](), "1.0", "1.9"),
        ("v1beta1", "0670d7d5317e", frozenset({"motor"}), "2.0", ""),
    )
)
"""The versions share all fields but one: ``spec.motor`` was ``spec.drive``. There is no conversion between them."""


def _can_handle(deployment: ModelDeployment, context: Context[Settings]) -> sdk.Compatibility:
    def blockers() -> Iterator[Finding]:
        if deployment.spec.scaling.replicas > MOST_REPLICAS:
            message = f"a Toy has at most {MOST_REPLICAS} replicas; spec.scaling.replicas: lower it"
            yield Finding(path="spec.scaling.replicas", reason="TooManyReplicas", message=message)
        if deployment.spec.serving.mode != "aggregated":
            message = "a Toy serves aggregated; spec.serving.mode: leave it out"
            yield Finding(path="spec.serving.mode", reason="IncompatibleConfiguration", message=message)
        if deployment.spec.model.cache.mode != "None":
            message = "a Toy has no use for a model cache; spec.model.cache.mode: leave it out"
            yield Finding(path="spec.model.cache.mode", reason="IncompatibleConfiguration", message=message)

    return sdk.Compatibility(blockers=tuple(blockers()))


def _translate_spec(deployment: ModelDeployment, context: Context[Settings]) -> sdk.Translation:
    name, spec = deployment.metadata.name, deployment.spec
    toy: Resource = {
        "model": spec.model.id,
        "replicas": spec.scaling.replicas,
        "size": spec.resources.gpu.count,
        "podLabels": {**sdk.pod_labels(deployment), **pod_selector(deployment)},
        "motor" if context.has("motor") else "drive": context.engine,
    }
    objects = [
        _object(context.upstream.api_version, "Toy", name, spec=toy),
        service(deployment, port=80, target=PORT),
        _object("v1", "ConfigMap", sdk.derived_name(name, suffix="toy"), data={"greeting": context.settings.greeting}),
    ]
    if context.settings.box and (box := context.served.get(f"ToyBox.{GROUP}")) is not None:
        objects.append(_object(box.api_version, "ToyBox", name, spec={"toy": name}))
    return sdk.Translation(objects=tuple(objects))


def _translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    toy = observed.primary or {}
    found = conditions.condition(toy, "Ready")
    reason = conditions.text(found, "reason") or "Starting"
    ready = conditions.truth(toy, "Ready")
    parts = [obj for obj in observed.objects if dig(obj, "kind") == "ToyPart"]
    count = conditions.number(toy, "status", "readyReplicas")
    broken = [event for event in observed.events if event.reason == BROKEN]
    return Observation(
        components=(
            Component(
                name="ProviderResource",
                ready=bool(ready),
                reason="Ready" if ready else reason,
                message=conditions.text(found, "message"),
            ),
            Component(name="Parts", ready=bool(parts), reason="Ready" if parts else "Progressing", only_degrades=True),
        ),
        replicas=sdk.Replicas(desired=deployment.spec.scaling.replicas, ready=count, available=count),
        endpoint=sdk.Endpoint(service=deployment.metadata.name, port=80) if ready else None,
        up_to_date=conditions.is_observed(toy),
        warnings=tuple(Finding(path="", reason=BROKEN, message=event.note) for event in broken),
        unrecoverable=conditions.text(found, "message") if reason == "BeyondRepair" else "",
    )


def _object(api_version: str, kind: str, name: str, **content: Resource) -> Resource:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **content}


provider = sdk.Provider(
    MANIFEST,
    TRANSFORMERS,
    can_handle=_can_handle,
    translate_spec=_translate_spec,
    translate_status=_translate_status,
)
