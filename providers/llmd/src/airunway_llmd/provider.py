"""The plugin object: compatibility check, translation and status."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airunway.sdk import (
    HARDENED,
    SERVING_PORT,
    Compatibility,
    Component,
    Context,
    Finding,
    ModelDeployment,
    Observation,
    Observed,
    Pool,
    Provider,
    Replicas,
    Resource,
    Translation,
    blocker,
    ignored,
    is_disaggregated,
    labels,
    picker,
    pod_blockers,
    pod_findings,
    serving,
    unsupported_engine,
    without_gpus,
    workloads,
)
from airunway.sdk.conditions import text
from airunway_llmd.manifest import DECIDERS, MANIFEST, PREFILL, ROLE_BY_ROLE, TRANSFORMERS
from airunway_llmd.roles import pair_findings, pool_labels, roles_of
from airunway_llmd.settings import Settings
from airunway_llmd.sidecar import sidecar, sidecar_blockers, sidecar_warnings

_COMPONENTS = {"": "ProviderResource", "decode": "Decode", "prefill": "Prefill"}
_RESERVED = ("llm-d.ai/",)
_WORKLOADS = (workloads.DEPLOYMENT.kind, workloads.LEADER_WORKER_SET.kind)
_ALONE = {
    "decode": "no request is answered until a decode worker is ready",
    "prefill": "decode workers prefill by themselves until a prefill worker is ready",
}

_PARAMETERS = {"prefix-based": "\n  parameters:\n    nonCachedTokens: 16"}
"""Parameters of deciders. Without a number of tokens, this decider never uses a prefill worker; 16 is a block of vLLM's
cache."""

# The filters select roles by the label llm-d.ai/role; the decider chooses which prompts go to a prefill worker.
_APART = """\
plugins:
- type: {decider}{parameters}
- type: disagg-profile-handler
  parameters:
    deciders:
      prefill: {decider}
- type: prefill-filter
- type: decode-filter
- type: prefix-cache-scorer
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: active-request-scorer
schedulingProfiles:
- name: prefill
  plugins:
  - pluginRef: prefill-filter
  - pluginRef: prefix-cache-scorer
    weight: 3
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: kv-cache-utilization-scorer
    weight: 2
- name: decode
  plugins:
  - pluginRef: decode-filter
  - pluginRef: active-request-scorer
    weight: 2
  - pluginRef: prefix-cache-scorer
    weight: 3
"""


# ----------------------------------------------------------------------------------------------------- compatibility


def can_handle(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Blockers would change what runs; the runtime reports fields without effect."""
    roles = roles_of(deployment, context)
    fundamental = tuple(_fundamental(deployment, context, roles))
    if fundamental:
        return Compatibility(blockers=fundamental)
    pods = sum(role.pods(deployment, context.settings) for role in roles)
    blockers = [
        *_picker_blockers(deployment, context),
        *pod_blockers(deployment, context, mounts=pods),
        *workloads.unserved_claims(deployment, context),
    ]
    warnings = [*_warnings(deployment, context), *pod_findings(deployment, reserved=_RESERVED)]
    for role in roles:
        started = serving.launch_of(deployment, context, role)
        blockers += [*started.blockers, *serving.blockers(deployment, context, role)]
        warnings += started.warnings
    blockers += serving.override_conflicts(deployment, grouped=serving.several(deployment, context.settings, roles[:1]))
    if is_disaggregated(deployment):
        refused, doubtful = list(sidecar_blockers(deployment, context)), list[Finding]()
        if not refused:
            refused, doubtful = pair_findings(deployment, context, roles)
        blockers += refused
        warnings += doubtful
    return Compatibility(blockers=tuple(dict.fromkeys(blockers)), warnings=tuple(dict.fromkeys(warnings)))


def _fundamental(
    deployment: ModelDeployment, context: Context[Settings], roles: tuple[serving.Servers, ...]
) -> Iterator[Finding]:
    """Blockers that make all other findings irrelevant."""
    yield from unsupported_engine(deployment, context, MANIFEST.engines, who="llm-d", only=True)
    yield from without_gpus(deployment, who="llm-d")
    if is_disaggregated(deployment) and deployment.spec.model.task != "generate":
        yield blocker("spec.serving.mode", f"a model of task {deployment.spec.model.task} is not split: use aggregated")
    if is_disaggregated(deployment) and deployment.spec.model.source == "custom":
        text = "an image with a model of its own cannot get a role: use mode aggregated, or a model id"
        yield blocker("spec.serving.mode", text)


def _picker_blockers(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """Why the endpoint picker cannot be configured; empty without a pool."""
    if not _has_pool(deployment, context):
        return
    image = context.settings.picker_image
    release = picker.release_of(image, context.settings.picker_version)
    if release is None:
        yield blocker(
            "spec.provider.name",
            f"the flags of the endpoint picker {image} are not known: known are {picker.known_releases()}; set the "
            "provider setting pickerImage to an image with such a tag, or pickerVersion to the release that it is of",
        )
    elif is_disaggregated(deployment) and not release.disaggregates:
        text = f"the endpoint picker {image} ({release.title}) cannot tell prefill from decode: use an llm-d router's"
        yield blocker("spec.serving.mode", text)


def _warnings(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    apart, overrides = is_disaggregated(deployment), deployment.spec.provider.overrides
    release = picker.release_of(context.settings.picker_image, context.settings.picker_version)
    if _has_pool(deployment, context) and release is not None and not release.messages:
        yield ignored("", f"the endpoint picker ({release.title}) answers requests to /v1/messages with 400")
    if apart:
        yield from sidecar_warnings(context)
    if not _has_pool(deployment, context) and picker.INFERENCE_POOL.key in context.served:
        if apart:
            text = "without an endpoint picker prefill workers get no requests: use mode aggregated"
            yield ignored("spec.serving.mode", text)
    elif not _has_pool(deployment, context):
        text = "the Gateway API Inference Extension (InferencePool v1) is not installed: the model has a plain Service"
        if apart:
            text += ", and prefill workers get no requests until it is"
        yield ignored("spec.serving.mode" if apart else "", text)
    if apart and "spec" in overrides:
        text = "overrides of the workload are those of the decode workers; prefill workers are left as they are"
        yield ignored("spec.provider.overrides.spec", text)
    for key in ("connector", "routerMode"):
        if not apart and key in overrides:
            text = f"{key} has no effect in aggregated mode"
            yield ignored(f"spec.provider.overrides.{key}", text)


def _has_pool(deployment: ModelDeployment, context: Context[Settings]) -> bool:
    return picker.INFERENCE_POOL.key in context.served and picker.may_stand_before(deployment)


# --------------------------------------------------------------------------------------------------------- translation


def translate_spec(deployment: ModelDeployment, context: Context[Settings]) -> Translation:
    """The serving workload, its Service, the pool with its picker, and prefill workers."""
    first, *others = roles_of(deployment, context)
    features = serving.features(deployment, context, first)
    hardened = HARDENED in features
    beside = (sidecar(deployment, context, hardened=hardened),) if is_disaggregated(deployment) else ()
    return Translation(
        objects=(
            serving.workload(deployment, context, first, sidecars=beside, hardened=hardened),
            workloads.service(deployment, port=SERVING_PORT, component=first.component),
            *(_pool_and_picker(deployment, context, hardened=hardened) if _has_pool(deployment, context) else ()),
            *(serving.workload(deployment, context, role, hardened=hardened) for role in others),
            *serving.claims(deployment, context, [first, *others]),
        ),
        # The first generation recreated everything when a role changed its kind of workload. Now the runtime replaces
        # only the workload of that role, and the others keep serving.
        replace_on=(
            {}
            if ROLE_BY_ROLE in features
            else {role.component: role.object(deployment, context.settings)[0] for role in others}
        ),
    )


def _pool_and_picker(deployment: ModelDeployment, context: Context[Settings], *, hardened: bool) -> list[Resource]:
    settings, spec = context.settings, deployment.spec
    release = picker.release_of(settings.picker_image, settings.picker_version)
    assert release is not None, "can_handle refuses an unknown one"
    mode = text(spec.provider.overrides, "routerMode") or "always"
    deciding = {"decider": DECIDERS[mode], "parameters": _PARAMETERS.get(mode, "")}
    plugins = _APART.format(**deciding) if is_disaggregated(deployment) else ""
    return picker.objects(
        deployment,
        pool=picker.pool_of(deployment, selector=pool_labels(deployment), port=SERVING_PORT),
        image=settings.picker_image,
        config=picker.config_of(release, plugins, hold_for=picker.hold_for(deployment)),
        requests={"cpu": settings.picker_cpu, "memory": settings.picker_memory},
        labels=context.runtime.labels,
        pull_secrets=[*(ref.name for ref in spec.image_pull_secrets), *context.runtime.image_pull_secrets],
        hardened=hardened,
    )


# ------------------------------------------------------------------------------------------------------------- status


def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    """A component for each role and one for the picker. The endpoint is always the Service, even without ready pods."""
    roles = roles_of(deployment, context)
    found = [_workload(deployment, observed, context, role) for role in roles]
    components = [
        _component(deployment, observed, context, role, workload) for role, workload in zip(roles, found, strict=True)
    ]
    pool = None
    if _has_pool(deployment, context):
        components.append(picker.component(deployment, observed, selector=pool_labels(deployment)))
        pool = Pool(
            name=deployment.metadata.name, port=SERVING_PORT, holds_requests=_holds(deployment, observed, context)
        )
    return Observation(
        components=tuple(components),
        replicas=sum((workload.replicas for workload in found), Replicas()),
        endpoint=workloads.endpoint(deployment, observed, SERVING_PORT, target=SERVING_PORT),
        up_to_date=all(workload.up_to_date for workload in found),
        observed=all(workload.observed for workload in found if workload.exists),
        pool=pool,
    )


def _holds(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> bool | None:
    """Whether the picker holds requests while no replica runs; None if it is never to."""
    release = picker.release_of(context.settings.picker_image, context.settings.picker_version)
    if not picker.hold_for(deployment) or release is None or not release.holds:
        return None
    return picker.holds(observed.find(workloads.DEPLOYMENT.kind, picker.name_of(deployment)))


def _component(
    deployment: ModelDeployment,
    observed: Observed,
    context: Context[Settings],
    role: serving.Servers,
    workload: workloads.Workload,
) -> Component:
    component = workload.component(_COMPONENTS[role.role], only_degrades=role.role == PREFILL, role=role.component)
    if component.ready:
        return component
    words = [f"{role.role}: {component.message}" if role.role else component.message]
    if workload.replicas.desired and not workload.replicas.ready:
        words.append(_ALONE.get(role.role, ""))
    component = replace(component, message="; ".join(filter(None, words)))
    _, name = role.object(deployment, context.settings)
    return serving.with_recreations(component, observed, now=context.now, name=name)


def _workload(
    deployment: ModelDeployment, observed: Observed, context: Context[Settings], role: serving.Servers
) -> workloads.Workload:
    """The state of a role's workload. For prefill, it may be an old one that a workload of another kind replaces."""
    if role.role != PREFILL:
        return workloads.read(observed.primary)
    kind, name = role.object(deployment, context.settings)
    if (own := observed.find(kind, name)) is not None:
        return workloads.read(own)
    component = ("metadata", "labels", labels.COMPONENT)
    others = [o for o in observed.objects if text(o, "kind") in _WORKLOADS and text(o, *component) == role.component]
    before = others[-1] if others else None
    found = workloads.read(before)
    if before is None:
        return found
    words = f"{text(before, 'kind')} {text(before, 'metadata', 'name')} gives way to {kind} {name}"
    return replace(found, up_to_date=False, ready=False, reason="Progressing", message=words)


provider = Provider(
    MANIFEST, TRANSFORMERS, can_handle=can_handle, translate_spec=translate_spec, translate_status=translate_status
)
