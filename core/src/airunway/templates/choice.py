"""Which template a deployment uses, and what speaks against each of the others (docs/catalogue.md). Pure.

Of two usable templates of a model, that for latency is chosen before that for throughput. Two that are equal in all
that counts are ambiguous: the deployment has to name one, or a metric, or a precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from airunway.api import names
from airunway.resource import ObjectKey, Resource, dig, digest, is_integer, key_of, labels_of, text_at

KIND, CLUSTER_KIND = "ModelTemplate", "ClusterModelTemplate"

TemplateScope = str
"""``Namespace`` or ``Cluster``."""

METRICS = ("latency", "throughput")
"""The better first."""
PRECISIONS = (("fp4", "nvfp4", "mxfp4"), ("int4", "w4a16"), ("fp8",), ("int8", "w8a8"), ("bf16", "fp16"), ("fp32",))
"""Groups of precisions, the one with the smallest weights first; one that is not listed comes last."""

USABLE = ("Ready", "Degraded")
"""Phases of templates that can be used."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What ``spec.templateRef`` asks for."""

    name: str = ""
    """Of the template; empty: it is chosen by model."""
    model: str = ""
    """Name of the model."""
    metric: str = ""
    """``latency`` or ``throughput``; empty: either."""
    precision: str = ""
    """Empty: any."""
    digest: str = ""
    """Of ``spec.templateRef``: another one is another request."""

    @property
    def text(self) -> str:
        """In words, such as ``template fast`` or ``model org/m, metric latency``."""
        if self.name:
            return f"template {self.name}"
        named = (("model", self.model), ("metric", self.metric), ("precision", self.precision))
        return ", ".join(f"{field_} {value}" for field_, value in named if value)


@dataclass(frozen=True, kw_only=True)
class TemplateCandidate:
    """A template that was considered."""

    template: Resource = field(hash=False, compare=False)
    """The stored template."""
    kind: str
    """``ModelTemplate`` or ``ClusterModelTemplate``."""
    key: ObjectKey
    """Namespace (empty for a ClusterModelTemplate) and name."""
    against: str = ""
    """Why it cannot be chosen; empty if it can."""
    reason: str = ""
    """The template's own reason, where its state speaks against it."""
    rank: tuple[int, ...] = ()
    """What decides among those that can be chosen: the smallest is chosen."""

    @property
    def scope(self) -> TemplateScope:
        """Where the template is."""
        return "Namespace" if self.key.namespace else "Cluster"

    @property
    def label(self) -> str:
        """Kind and name, for messages."""
        where = f" in namespace {self.key.namespace}" if self.key.namespace else ""
        return f"{self.kind} {self.key.name}{where}"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The result of a choice."""

    chosen: TemplateCandidate | None = None
    """None: there is none, or more than one."""
    reason: str = ""
    """Why none was chosen: ``TemplateNotFound``, ``TemplateSelectionAmbiguous`` or the template's own reason."""
    message: str = ""
    """The same in a sentence that says what to do; of a chosen one why it was chosen."""
    candidates: tuple[TemplateCandidate, ...] = ()
    """All that were considered, the best first; of a choice by model empty where one is chosen, unless asked for."""


def request_of(spec: Resource) -> Request | None:
    """What a deployment's own spec asks for; None if it names no template. Total for any JSON."""
    asked = spec.get("templateRef")
    if not isinstance(asked, dict):
        return None
    found = {
        key: value for key in ("name", "modelName", "metric", "precision") if isinstance(value := asked.get(key), str)
    }
    return Request(
        name=found.get("name", ""),
        model=found.get("modelName", ""),
        metric=found.get("metric", ""),
        precision=found.get("precision", ""),
        digest=digest(found),
    )


Unusable = Callable[[Resource], str]
"""Why no deployment can use a template (`Contribution.unusable`); empty if one can."""


def choose(
    request: Request,
    *,
    namespaced: Iterable[Resource],
    cluster: Iterable[Resource],
    unusable: Unusable,
    every: bool = False,
) -> Choice:
    """Returns the template for a request, given the templates of the deployment's namespace and of the cluster: those
    of the name, or of the model, that was asked for; others are passed over.

    `unusable` is asked for the best templates, and for the others where that is needed. `every`: all that were
    considered are named although one is chosen, which takes longer.
    """
    found = [
        *((each, KIND) for each in namespaced if _matches(each, request)),
        *((each, CLUSTER_KIND) for each in cluster if _matches(each, request)),
    ]
    if request.name:
        return _by_name(request, found)
    return _by_model(request, found, unusable=unusable, every=every)


def answers(template: Resource, request: Request) -> bool:
    """Whether a template is what was asked for, whatever its state: a request by model asks for no name."""
    return _matches(template, request) and not _another(template, request)


def _matches(template: Resource, request: Request) -> bool:
    if request.name:
        return key_of(template).name == request.name
    return bool(request.model) and dig(template, "spec", "modelName") == request.model


def _considered(
    template: Resource, kind: str, request: Request, *, unusable: Unusable | None = None
) -> TemplateCandidate:
    reason, against = _against(template, request)
    if unusable is not None and not against and (why := unusable(template)):
        reason, against = "InvalidSpec", f"no deployment can use it: {why}"
    key = key_of(template) if kind == KIND else ObjectKey("", key_of(template).name)
    return TemplateCandidate(
        template=template, kind=kind, key=key, against=against, reason=reason, rank=_rank(template)
    )


def _against(template: Resource, request: Request) -> tuple[str, str]:
    """Reason and sentence for what speaks against a template; the sentence is empty if it can be chosen."""
    if another := _another(template, request):
        return "", another
    return _state(template, named=bool(request.name))


def _another(template: Resource, request: Request) -> str:
    """Why a template of the model is for another metric or precision than was asked for; empty if it is not."""
    if not request.name and (request.metric or request.precision):
        for field_, asked in (("metric", request.metric), ("precision", request.precision)):
            has = text_at(template, "spec", field_)
            if asked and asked != has:
                return f"its {field_} is {has or 'not given'}, and {asked} was asked for"
    return ""


def _state(template: Resource, *, named: bool) -> tuple[str, str]:
    """Reason and sentence for what a template's status has against it; both empty if nothing."""
    phase = text_at(template, "status", "phase")
    if phase in USABLE or (named and not phase):
        return "", ""
    if not phase:
        text = "install the catalogue if it is missing, or name the template in spec.templateRef.name"
        return "", f"it has no status: the catalogue has not looked at it; {text}"
    reason, message = text_at(template, "status", "reason"), text_at(template, "status", "message")
    return reason, f"it is {phase}" + (f": {message}" if message else "")


_BY_METRIC = {metric: place for place, metric in enumerate(METRICS)}
_BY_PRECISION = {precision: place for place, group in enumerate(PRECISIONS) for precision in group}


def _rank(template: Resource) -> tuple[int, ...]:
    """An administrator's template comes before one that a scan made out of what an image says of itself."""
    found, tier = template.get("spec"), dig(template, "status", "hardware", "tier")
    spec = found if isinstance(found, dict) else {}
    optimized, metric, precision = spec.get("optimized"), spec.get("metric"), spec.get("precision")
    return (
        1 if labels_of(template).get(names.MODEL_SOURCE) else 0,
        0 if optimized is True else 2 if optimized is False else 1,
        -tier if is_integer(tier) else 0,
        _BY_METRIC.get(metric, len(METRICS)) if isinstance(metric, str) else len(METRICS),
        _BY_PRECISION.get(precision.lower(), len(PRECISIONS)) if isinstance(precision, str) else len(PRECISIONS),
    )


def _by_name(request: Request, found: Sequence[tuple[Resource, str]]) -> Choice:
    candidates = tuple(_considered(template, kind, request) for template, kind in found)
    if not candidates:
        text = (
            f"there is no ModelTemplate {request.name} in this namespace, and no ClusterModelTemplate of that name: "
            "create one, or name another one in spec.templateRef.name"
        )
        return Choice(reason="TemplateNotFound", message=text)
    first = candidates[0]  # the namespace's own comes first
    if first.against:
        text = f"{first.label} cannot be used: {first.against}"
        return Choice(reason=first.reason or "TemplateNotFound", message=text, candidates=candidates)
    return Choice(chosen=first, message=f"{first.label} was named", candidates=candidates)


def _by_model(request: Request, found: Sequence[tuple[Resource, str]], *, unusable: Unusable, every: bool) -> Choice:
    usable = [each for each in found if not _against(each[0], request)[1]]
    best = _best(usable)
    if any(unusable(template) for template, _ in best):  # its status may be older than its spec
        best = _best([each for each in usable if not unusable(each[0])])
    candidates: tuple[TemplateCandidate, ...] = ()
    if every or len(best) != 1:
        considered = (_considered(template, kind, request, unusable=unusable) for template, kind in found)
        ordered = sorted(considered, key=lambda each: (bool(each.against), not each.key.namespace, each.rank, each.key))
        candidates = tuple(ordered)
    if not best:
        return _none(request, candidates)
    if len(best) > 1:
        listed = ", ".join(each.label for each in candidates[: min(len(best), 8)])
        text = (
            f"{len(best)} templates of {request.model} are equally good: {listed}. Name one in spec.templateRef.name, "
            "or a metric or precision that only one of them has"
        )
        return Choice(reason="TemplateSelectionAmbiguous", message=text, candidates=candidates)
    chosen = _considered(*best[0], request)
    return Choice(chosen=chosen, message=f"{chosen.label} is the best of {len(found)}", candidates=candidates)


def _best(usable: Sequence[tuple[Resource, str]]) -> list[tuple[Resource, str]]:
    """Those of the smallest rank, of the namespace if there are any: they come first in `usable`."""
    best: list[tuple[Resource, str]] = []
    least: tuple[int, ...] | None = None
    for each in usable:
        if each[1] != usable[0][1]:
            continue
        rank = _rank(each[0])
        if least is None or rank < least:
            best, least = [each], rank
        elif rank == least:
            best.append(each)
    return best


def _none(request: Request, candidates: tuple[TemplateCandidate, ...]) -> Choice:
    if not candidates:
        text = f"no template has the model {request.model}: `airunway template list` shows those that there are"
        return Choice(reason="TemplateNotFound", message=text)
    reasons = "; ".join(f"{each.label}: {each.against}" for each in candidates[:4])
    more = f"; and {len(candidates) - 4} more" if len(candidates) > 4 else ""
    none = f"none of the {len(candidates)} templates of {request.model} can" if len(candidates) > 1 else ""
    text = f"{none or f'the only template of {request.model} cannot'} be used: {reasons}{more}"
    return Choice(reason="TemplateNotFound", message=text, candidates=candidates)
