"""What ``airunway explain`` says of a deployment's model template: which one, and what of its values counts.

Example: the template gives ``engine.type: vllm`` and the variable ``A``; the deployment sets ``A`` itself. The line of
``spec.env[A]`` says that the deployment's own counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airunway.cli.explained_config import leaves
from airunway.resource import Resource, condition_of, dig

if TYPE_CHECKING:
    from airunway.cli.template_inputs import Expanded

__all__ = ["given_fields", "origin_of", "template_explanation", "template_lines"]


def template_explanation(found: Expanded) -> Resource:
    """Returns ``template`` of a deployment; empty if it names none."""
    from airunway.templates import request_of

    own = found.own.get("spec")
    request = request_of(own) if isinstance(own, dict) else None
    if request is None or not isinstance(own, dict):
        return {}
    record = _record(found)
    explained: Resource = {"asked": request.text, "found": record is not None and not found.problem}
    if record is not None:
        explained |= {"ref": record.get("ref"), "scope": record.get("scope"), "hash": record.get("hash")}
        given = record.get("spec")
        origin = origin_of(found)
        explained["fields"] = [
            {**entry, "from": origin} for entry in given_fields(given if isinstance(given, dict) else {}, own)
        ]
    if found.problem:
        explained |= {"reason": found.reason, "message": found.problem}
    ready = condition_of(found.own, "TemplateReady")
    if ready is not None:
        explained["ready"] = {key: str(ready.get(key, "")) for key in ("status", "reason", "message")}
    elif found.part is not None and found.part.condition is not None and not found.problem:
        explained["message"] = found.part.condition.message
    return {"template": explained}


def origin_of(found: Expanded) -> str:
    """Kind, namespace and name of the template in use; empty without one."""
    ref = dig(_record(found), "ref")
    if not isinstance(ref, dict):
        return ""
    where = f"{ref['namespace']}/" if ref.get("namespace") else ""
    return f"{ref.get('kind')} {where}{ref.get('name')}"


def given_fields(given: Resource, own: Resource) -> Iterator[Resource]:
    """Each field that a template gives, with its value, and by what of the deployment's own spec it is overridden or
    with what it is merged.
    """
    for field, value in leaves(given):
        entry: Resource = {"field": field, "value": value}
        if by := _overriding(field, given, own):
            entry["overriddenBy"] = by
        elif field.startswith("spec.affinity.") and dig(own, "affinity"):
            entry["mergedWith"] = "spec.affinity"
        yield entry


def _overriding(field: str, given: Resource, own: Resource) -> str:
    """The field of the deployment's own spec that counts instead; empty if none does."""
    from airunway.templates import is_default

    engine, other = dig(own, "engine", "type"), dig(given, "engine", "type")
    if engine and other and engine != other and (field.startswith("spec.engine.") or field == "spec.image"):
        return "spec.engine.type"
    path = field.split("[", maxsplit=1)[0].split(".")[1:]
    if path == ["env"]:
        entries = own.get("env")
        names = [dig(each, "name") for each in entries] if isinstance(entries, list) else []
        return field if field[len("spec.env[") : -1] in names else ""
    if path[0] in ("affinity", "imagePullSecrets"):
        return ""  # both hold, or are merged by name
    value: object = own
    for place, step in enumerate(path):
        value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            return ""
        if not isinstance(value, dict):
            at = tuple(path[: place + 1])
            return "" if is_default(value, at=at) else f"spec.{'.'.join(at)}"
    return ""


def _record(found: Expanded) -> Resource | None:
    """What is recorded of the template in use, or would be."""
    status = found.part.status if found.part is not None else found.own.get("status")
    record = dig(status, "effectiveTemplate")
    return record if isinstance(record, dict) else None


def template_lines(explained: Resource) -> Iterator[str]:
    """The explanation for people; nothing for a deployment without a template."""
    template = explained.get("template")
    if template is None:
        return
    ref = template.get("ref")
    if not isinstance(ref, dict):
        yield f"Template:  none ({template['asked']} was asked for)"
    else:
        where = f"{ref['namespace']}/" if ref.get("namespace") else ""
        before = "" if template["found"] else "; before: "
        used = f"{ref.get('kind')} {where}{ref.get('name')}"
        asked = f"({template['asked']} was asked for)"
        yield f"Template:  none {asked}{before}{used}" if before else f"Template:  {used} {asked}"
        yield f"           hash {template.get('hash')}"
        for entry in template["fields"]:
            value = f": {entry['value']}" if entry["value"] else ""
            by = f"; overridden by the deployment's {entry['overriddenBy']}" if "overriddenBy" in entry else ""
            by += f"; merged with the deployment's {entry['mergedWith']}" if "mergedWith" in entry else ""
            yield f"  {entry['field']}{value} (from {entry['from']}{by})"
    if template.get("message"):
        reason = f"{template['reason']}: " if template.get("reason") else ""
        yield f"  {reason}{template['message']}"
    if ready := template.get("ready"):
        yield f"  Ready:   {ready['status']} ({ready['reason']}) {ready['message']}".rstrip()
