"""The plugin object: compatibility check, translation and status."""

from __future__ import annotations

from collections.abc import Iterator

from airunway.sdk import (
    HARDENED,
    SERVING_PORT,
    Compatibility,
    Context,
    Finding,
    ModelDeployment,
    Observation,
    Observed,
    Provider,
    Resource,
    blocker,
    pod_blockers,
    pod_findings,
    serving,
    unsupported_engine,
    workloads,
)
from airunway_vllm.manifest import MANIFEST, TRANSFORMERS
from airunway_vllm.settings import Settings

COMPONENT = "ProviderResource"
_CAPABILITIES = {engine.name: engine for engine in MANIFEST.engines}


def can_handle(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Blockers would change what runs; the runtime reports fields without effect."""
    fundamental = tuple(_fundamental(deployment, context))
    if fundamental:
        return Compatibility(blockers=fundamental)
    role = _servers(deployment, context)
    started = serving.launch_of(deployment, context, role)
    grouped = serving.several(deployment, context.settings, [role])
    blockers = [
        *started.blockers,
        *pod_blockers(deployment, context, mounts=role.pods(deployment, context.settings)),
        *serving.override_conflicts(deployment, grouped=grouped),
        *serving.blockers(deployment, context, role),
        *workloads.unserved_claims(deployment, context),
    ]
    return Compatibility(blockers=tuple(blockers), warnings=(*started.warnings, *pod_findings(deployment)))


def _fundamental(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """Blockers that make all other findings irrelevant."""
    spec, engine = deployment.spec, _CAPABILITIES.get(context.engine)
    instead = "use a provider that does (llmd, dynamo), or aggregated"
    unsupported = tuple(unsupported_engine(deployment, context, MANIFEST.engines, who="vllm", instead=instead))
    yield from unsupported
    if engine is None or unsupported:
        return
    if not (engine.gpu_support if spec.resources.gpu.count else engine.cpu_support):
        text = f"{context.engine} engine requires GPU (set resources.gpu.count > 0)"
        yield blocker("spec.resources.gpu.count", text)


def translate_spec(deployment: ModelDeployment, context: Context[Settings]) -> list[Resource]:
    """A Deployment, or a LeaderWorkerSet if a replica needs several nodes, a Service and ResourceClaimTemplates."""
    role = _servers(deployment, context)
    hardened = HARDENED in serving.features(deployment, context, role)
    return [
        serving.workload(deployment, context, role, hardened=hardened),
        workloads.service(deployment, port=SERVING_PORT),
        *serving.claims(deployment, context, [role]),
    ]


def _servers(deployment: ModelDeployment, context: Context[Settings]) -> serving.Servers:
    return serving.Servers(
        name=deployment.metadata.name, port=SERVING_PORT, image=context.settings.image(context.engine)
    )


def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Settings]) -> Observation:
    """One component. The endpoint is always the Service, even without ready pods."""
    found = workloads.read(observed.primary)
    component = serving.with_recreations(found.component(COMPONENT), observed, now=context.now)
    return Observation(
        components=(component,),
        replicas=found.replicas,
        endpoint=workloads.endpoint(deployment, observed, SERVING_PORT, target=SERVING_PORT),
        up_to_date=found.up_to_date,
        observed=found.observed,
    )


provider = Provider(
    MANIFEST, TRANSFORMERS, can_handle=can_handle, translate_spec=translate_spec, translate_status=translate_status
)
