"""What counts as a change of a deployment's spec: one definition for template values, pod settings and transformers.

Example: a deployment serves with older values of its template. Two replicas more, or a larger claim, change nothing of
what its pods are made from, so it keeps them. A new argument of the engine takes the newest values.

`upstream_spec` and `lasting_spec` take a spec without default values (`to_essence`): the API server sets those of the
CRD and a preview does not, and a default that a newer CRD adds is no change of the user's.
"""

from __future__ import annotations

from contextlib import suppress

from airunway.api import names
from airunway.api.base import ParseError, parse_model
from airunway.api.modeldeployment import ModelDeploymentSpec
from airunway.resource import Resource, annotations_of, dig, digest
from airunway.revisions.revision import HASH_LENGTH

_NOT_UPSTREAM = ("gateway", "runtimeConfigName")
"""Parts of a spec that no upstream object is made from."""

AUTOSCALING = "autoscaling"
"""Field of ``scaling`` from which an object of its own is made: it is edited while pods and other objects stay."""

_PASSING = ("suspend", "scaling")
"""Parts whose change takes nothing newer; of ``scaling`` only the replica counts."""

CLAIM_FIELDS = ("size", "storageClassName", "accessMode")
"""Fields of a volume that only concern its claim, which the core makes."""


def upstream_spec(essence: Resource) -> Resource:
    """Returns the parts of a spec that upstream objects are made from."""
    spec = _without_claims({key: value for key, value in essence.items() if key not in _NOT_UPSTREAM})
    scaling = spec.get("scaling")
    if not isinstance(scaling, dict) or AUTOSCALING not in scaling:
        return spec
    rest = {key: value for key, value in scaling.items() if key != AUTOSCALING}
    others = {key: value for key, value in spec.items() if key != "scaling"}
    return {**others, "scaling": rest} if rest else others


def lasting_spec(essence: Resource) -> Resource:
    """Returns the parts of a spec whose change takes what is newer: scaling and ``suspend`` do not."""
    spec = upstream_spec(essence)
    lasting = {key: value for key, value in spec.items() if key not in _PASSING}
    if scaling := _without_counts(spec.get("scaling")):
        lasting["scaling"] = scaling
    return lasting


def _without_counts(scaling: object) -> dict[str, object]:
    """``scaling`` and its roles without replica counts."""
    if not isinstance(scaling, dict):
        return {}
    return {
        name: {key: each for key, each in value.items() if key != "replicas"} if isinstance(value, dict) else value
        for name, value in scaling.items()
        if name != "replicas"
    }


def _without_claims(spec: Resource) -> Resource:
    """A spec without what only concerns claims of volumes: a claim that grows is no change for what mounts it."""
    volumes = dig(spec, "model", "storage", "volumes")
    if not isinstance(volumes, list) or not any(dig(volume, "size") is not None for volume in volumes):
        return spec
    kept = [
        {key: value for key, value in volume.items() if key not in CLAIM_FIELDS} if isinstance(volume, dict) else volume
        for volume in volumes
    ]
    model = spec["model"]
    return {**spec, "model": {**model, "storage": {**model["storage"], "volumes": kept}}}


def taken_for(spec: Resource, adopted: str) -> str:
    """Returns the digest of "the same spec": of a deployment's own `spec` and of `adopted`, the last value of its adopt
    annotation as `adopted_by` gives it.
    """
    with suppress(ParseError):  # a spec that is refused has its default values in it
        spec = parse_model(ModelDeploymentSpec, spec).to_essence()
    own = {key: value for key, value in lasting_spec(spec).items() if value != {}}
    return digest([own, adopted], length=HASH_LENGTH)


def adopted_by(deployment: Resource, before: str) -> str:
    """Returns a digest of the value of the adopt annotation. Its removal is no new value: then `before` stays."""
    value = annotations_of(deployment).get(names.ADOPT)
    return digest(value, length=HASH_LENGTH) if value else before
