"""What a provider makes of a deployment: the part of a pass that needs no cluster. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airunway.api import names
from airunway.api.bounds import noted_excess
from airunway.api.modeldeployment import ModelDeployment, ParseError, parse_deployment
from airunway.plugins.contract import Context, Finding, Transformer
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource
from airunway.runtime.desired import complete, identity_in, identity_of, written_for
from airunway.runtime.overrides import check_overrides, merged, placed
from airunway.sdk.fields import ignored_fields, tracked

__all__ = ["Judgement", "judge", "parsed", "selector_of"]


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Whether the provider can honour the deployment: not if there are `blockers`.

    `objects` are the desired ones, complete, the primary first; none with blockers, or where nothing is to run.
    """

    blockers: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
    objects: tuple[Resource, ...] = ()


def parsed(deployment: Resource) -> ModelDeployment:
    """The deployment as plugins see it. Raises ParseError, also for what is too large: a cache lacks most of that."""
    if large := noted_excess(deployment):
        raise ParseError(large[0].path, large[0].message)
    return parse_deployment(deployment)


def judge(
    host: ProviderHost, deployment: Resource, typed: ModelDeployment, context: Context[Any], *, wanted_for: str = ""
) -> Judgement:
    """What speaks against the deployment, else what is to be there for it. Raises PluginFault.

    `deployment` and `typed` are the same object, plain (with namespace and uid) and parsed; `wanted_for` is what
    `written_for` says of it, where that is known already. Overrides that the provider's schema refuses are not shown to
    the plugin. A field that the user set and the provider never looked at is reported here: nothing is dropped without
    a word (ruling 18).
    """
    overrides = check_overrides(typed.spec.provider.overrides or {}, host.manifest.override_schema)
    if overrides.errors:  # what the schema refuses no plugin has to read
        return Judgement(blockers=(*_unclaimed(typed), *overrides.errors), warnings=overrides.unknown)
    view, reads = tracked(typed)
    compatibility = host.can_handle(view, context)
    blockers = (*_unclaimed(typed), *compatibility.blockers)
    warnings = (*overrides.unknown, *compatibility.warnings)
    if blockers or typed.spec.suspend:
        return Judgement(blockers=blockers, warnings=warnings)
    translation = host.translate_spec(view, context)
    objects = list(translation.objects)
    if overrides.merge:
        for part in placed(overrides.merge, translation.overrides_at):
            objects[0] = merged(objects[0], part)
    told = {finding.path for finding in warnings}
    provided = ("spec.model.cache",) if context.cache is not None else ()
    ignored = (finding for finding in ignored_fields(typed, reads, provided=provided) if finding.path not in told)
    desired = complete(
        objects,
        deployment,
        provider=host.name,
        transformer=_writer(host, objects[0], context).name,
        wanted_for=wanted_for or written_for(deployment, typed),
        identity=identity_of(typed, context.engine),
        topology=translation.replace_on,
        immutable=[_immutable(host, obj, context, primary=i == 0) for i, obj in enumerate(objects)],
    )
    return Judgement(blockers=(), warnings=(*warnings, *ignored), objects=tuple(desired))


def _unclaimed(typed: ModelDeployment) -> list[Finding]:
    """Volumes with a size of their own: nobody makes their claims yet, and pods would wait for them for ever."""
    return [
        Finding(
            path=f"spec.model.storage.volumes[{position}].size",
            reason="IncompatibleConfiguration",
            message=f"volume {volume.name}: claims are not created from size yet; create a PersistentVolumeClaim, "
            "name it in claimName and take size out",
        )
        for position, volume in enumerate(typed.spec.model.storage.volumes)
        if volume.size is not None
    ]


def _writer(host: ProviderHost, primary: Resource, context: Context[Any]) -> Transformer:
    """The transformer that a primary object is written by: one of its own kind, or the primary kind's."""
    identity = identity_in(primary)
    kind = host.kinds[identity.group, identity.kind]
    served = context.served.get(kind.key)
    return context.upstream.transformer if kind.primary or served is None else served.transformer


def _immutable(host: ProviderHost, obj: Resource, context: Context[Any], *, primary: bool) -> tuple[str, ...]:
    identity = identity_in(obj)
    return _writer(host, obj, context).immutable if primary else host.kinds[identity.group, identity.kind].immutable


def selector_of(host: ProviderHost, deployment: str, primary: str) -> str:
    """What selects the serving pods, for the scale subresource and with it every HPA."""
    label = host.manifest.pod_labels[0] if host.manifest.pod_labels else names.MODEL_DEPLOYMENT
    value = deployment if label == names.MODEL_DEPLOYMENT else primary
    parts = [f"{label}={value}"]
    roles = host.manifest.serving_roles
    if roles and host.manifest.role_label:
        of = f"={roles[0]}" if len(roles) == 1 else f" in ({','.join(roles)})"
        parts.append(f"{host.manifest.role_label}{of}")
    return ",".join(parts)
