"""What the core reads of a ModelDeployment's status that its parts and the providers write.

There is no resync: a change of what is not named here brings no pass of the core.
"""

from __future__ import annotations

from airunway.api import names
from airunway.process.predicates import RelevantMetadata, needs_reconcile
from airunway.resource import Resource, condition_of, dig, kept
from airunway.selection.facts import REFUSED_BY
from airunway.status.conditions import PARTS, conditions_in, conditions_of
from airunway.status.rollup import parent_of

_PARTS_FIELDS = ("gateway", "modelCache")
_PARTS_CONDITIONS = frozenset(conditions_of(*PARTS))


def concerns_core(old: Resource | None, new: Resource | None, *, echo: bool, relevant: RelevantMetadata) -> bool:
    """Whether the core has to reconcile a deployment that changed from `old` to `new`; `echo` as in
    `predicates.needs_reconcile`.
    """
    if old is None or new is None:
        return True
    if needs_reconcile(*_without_parts(old, new), manager=names.CORE_MANAGER, echo=echo, relevant=relevant):
        return True
    # A second provider may refuse in the same second with the same message: then only the status's manager changes.
    return bool(dig(old, "metadata", REFUSED_BY) != dig(new, "metadata", REFUSED_BY))


def _without_parts(old: Resource, new: Resource) -> tuple[Resource, Resource]:
    """Both objects without what the core's parts have written, if nothing has changed of it that the core reads."""
    if _of_parts(old) == _of_parts(new) or _for_revision(old) != _for_revision(new):
        return old, new
    return _stripped(old), _stripped(new)


def _for_revision(deployment: Resource) -> tuple[object, ...]:
    """What of the parts' answers a revision is made from (`revisions.wanted`)."""
    cache, gateway = dig(deployment, "status", "modelCache"), dig(deployment, "status", "gateway")
    answers = (condition_of(deployment, type_) or {} for type_ in ("ModelCacheReady", "GatewayReady"))
    return (
        kept(cache, "artifactName", "claimName", "path", "mountPath", "accessMode", "templateHash", "ready"),
        kept(gateway, "gatewayName", "gatewayNamespace", "backend"),
        [(each.get("status"), each.get("observedGeneration")) for each in answers],
    )


def _of_parts(deployment: Resource) -> tuple[object, ...]:
    status = deployment.get("status") or {}
    conditions = [each for each in conditions_in(status) if not _is_read(each)]
    return *(status.get(field) for field in _PARTS_FIELDS), conditions


def _stripped(deployment: Resource) -> Resource:
    status = deployment.get("status") or {}
    kept = {field: value for field, value in status.items() if field not in _PARTS_FIELDS}
    kept["conditions"] = [each for each in conditions_in(status) if _is_read(each)]
    return {**deployment, "status": kept}


def _is_read(condition: Resource) -> bool:
    """Whether the core reads a condition: of those of its parts only faults from which it derives a parent, and a lost
    cache, which holds back another provider.
    """
    if condition["type"] not in _PARTS_CONDITIONS:
        return True
    return parent_of(condition) is not None or condition.get("reason") == "CacheLost"
