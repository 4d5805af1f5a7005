"""From a ModelSource to what is looked for, and from the images that are found to ClusterModelTemplates. Pure.

Of the tags ``v1.1``, ``1.2``, ``1.3.0-rc1`` and ``latest`` the constraints ``>=1.2`` and ``<1.3`` accept the second and
the third: a pre-release comes before its release, and a tag that is no version never satisfies a constraint.

An image that recommends two ways to run it gives two templates. Their names follow from the image and the way alone, so
that every scan gives the same ones; what is there already is left as it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from airunway.api import names
from airunway.configs.canonical import parse_duration
from airunway.configs.patterns import matches, pattern_problem
from airunway.configs.resolution import CABundle, EffectiveConfig, ca_bundle_at, propagated
from airunway.resource import Resource, annotations_of, dig, digest, is_integer, key_of, label_value, labels_of, list_at
from airunway_catalogue.addresses import RegistryAddress, address_of, is_repository
from airunway_catalogue.labels import ImageLabels, Recommendation

MODEL_SOURCE_LABEL = names.MODEL_SOURCE
"""Label of a made template: the ModelSource that it was made from."""

IMAGE_TEMPLATES = f"{names.GROUP}/image-templates"
"""Annotation of a made template: how many templates its image gives. Where fewer are there, a scan reads it again."""

DESCRIPTION = f"{names.GROUP}/description"
"""Annotation of a made template: what the image says of this way to run it."""

DEFAULT_MAX_MODELS = 100
_LONGEST_NAME = 63
_HASH = 8
_LONGEST_SUFFIX = 28

_SIGNATURE = re.compile(r"sha256-[0-9a-f]{64}(?:\.[a-z]+)?")
"""Tags under which tools keep signatures of images."""


@dataclass(frozen=True, kw_only=True)
class FilterPlan:
    """One filter of a source, ready to be used."""

    position: int
    """In ``spec.filters``."""
    image: str
    """As it is written."""
    exclude: tuple[str, ...] = ()
    """Patterns of images to leave out."""
    constraints: tuple[Constraint, ...] = ()
    """Constraints on versions; all must hold."""
    reason: str = ""
    """Why the filter cannot be used; empty if it can."""
    message: str = ""
    """The same as a sentence."""

    @property
    def wildcard(self) -> bool:
        """Whether the registry has to be asked which repositories there are."""
        return any(character in self.image for character in "*?[")

    def selects(self, image: str) -> bool:
        """Whether an image counts by its name alone."""
        if any(matches(pattern, image) for pattern in self.exclude):
            return False
        return matches(self.image, image) if self.wildcard else image == self.image

    def tags(self, found: Iterable[str]) -> list[str]:
        """The tags that count, the newest version first."""
        counted = (tag for tag in found if not _SIGNATURE.fullmatch(tag) and satisfies(tag, self.constraints))
        return newest_first(counted)


@dataclass(frozen=True, kw_only=True)
class SourcePlan:
    """What a source asks for."""

    address: RegistryAddress
    """The registry."""
    filters: tuple[FilterPlan, ...]
    """All of its filters, those that cannot be used too."""
    max_models: int
    """Most templates that it makes."""
    interval: float
    """Seconds between two scans."""
    secrets: tuple[str, ...]
    """Names of pull Secrets, in the operator's namespace."""
    authorities: CABundle | None = None
    """What the registry is trusted by besides the public authorities: a ConfigMap of that namespace."""
    models: tuple[str, ...] = ()
    """Patterns of the models that its images may be for; empty: all."""
    trusts_optimized: bool = False
    """Whether an image's word that it was tuned counts."""

    def allows(self, model: str) -> bool:
        """Whether an image of the source may be for a model."""
        return not self.models or any(matches(pattern, model) for pattern in self.models)


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image that a filter has selected."""

    name: str
    """Below the registry, such as ``team/llama``."""
    repository: str
    """Repository of the registry's API."""
    tag: str
    """The tag."""
    reference: str
    """With the registry and the tag, as a pod names it."""

    @property
    def label(self) -> str:
        """The image in messages."""
        return f"{self.name}:{self.tag}"


def newest_first(tags: Iterable[str]) -> list[str]:
    """Versions in descending order, then all other tags by name."""
    versions, others = [], []
    for tag in tags:
        version = parse_version(tag)
        if version is None:
            others.append(tag)
        else:
            versions.append((version, tag))
    return [tag for _, tag in sorted(versions, reverse=True)] + sorted(others)


# -------------------------------------------------------------------------------------------------------------- plans


def plan_of(source: Resource) -> SourcePlan:
    """What a stored source asks for. Total for any JSON: a filter that cannot be used says why."""
    spec = source.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    registry = spec.get("registry")
    limit = spec.get("maxModels")
    interval = parse_duration(spec.get("syncInterval"))
    return SourcePlan(
        address=address_of(registry if isinstance(registry, str) else "", insecure=spec.get("insecure") is True),
        filters=tuple(
            _filter(position, each, _texts(spec.get("versions")))
            for position, each in enumerate(list_at(spec, "filters"))
        ),
        max_models=limit if is_integer(limit) else DEFAULT_MAX_MODELS,
        interval=max(interval.total_seconds(), _SHORTEST_INTERVAL) if interval is not None else _DEFAULT_INTERVAL,
        secrets=tuple(
            name for each in list_at(spec, "imagePullSecrets") if isinstance(name := dig(each, "name"), str) and name
        ),
        authorities=ca_bundle_at(spec),
        models=tuple(_texts(spec.get("models"))),
        trusts_optimized=spec.get("trustOptimized") is True,
    )


_SHORTEST_INTERVAL, _DEFAULT_INTERVAL = 60.0, 3600.0


def _filter(position: int, found: object, versions: Sequence[str]) -> FilterPlan:
    image = dig(found, "image")
    image = image.strip("/") if isinstance(image, str) else ""
    exclude = tuple(_texts(dig(found, "exclude")))
    own = _texts(dig(found, "versions"))
    plan = FilterPlan(position=position, image=image, exclude=exclude)
    if problem := _problem(plan):
        return _unusable(plan, "InvalidImageReference", problem)
    try:
        constraints = parse_constraints(own or versions)
    except InvalidConstraint as error:
        field = f"spec.filters[{position}].versions" if own else "spec.versions"
        return _unusable(plan, "InvalidConstraint", f"{field}: {error}")
    return FilterPlan(position=position, image=image, exclude=exclude, constraints=constraints)


def _problem(plan: FilterPlan) -> str:
    where = f"spec.filters[{plan.position}]"
    for field, pattern in (("image", plan.image), *(("exclude", each) for each in plan.exclude)):
        if (wrong := pattern_problem(pattern)) is not None:
            return f"{where}.{field}: {pattern!r} is no pattern: {wrong}"
    if not plan.wildcard and not is_repository(plan.image):
        hint = (
            "name tags in versions, such as =1.2" if ":" in plan.image else "write it in lower case, as in team/llama"
        )
        return f"{where}.image: {plan.image!r} is no repository: {hint}"
    return ""


def _unusable(plan: FilterPlan, reason: str, message: str) -> FilterPlan:
    return FilterPlan(position=plan.position, image=plan.image, exclude=plan.exclude, reason=reason, message=message)


def _texts(value: object) -> list[str]:
    return [each for each in list_at(value) if isinstance(each, str)]


# ---------------------------------------------------------------------------------------------------------- templates


def made_from(template: Resource) -> tuple[str, ...]:
    """The source that a template was made from, for the index of a cache; nothing for other templates."""
    value = labels_of(template).get(MODEL_SOURCE_LABEL)
    return (value,) if value else ()


def complete_images(templates: Iterable[Resource]) -> set[str]:
    """The images of which all templates are there: a scan need not read them again."""
    counts: dict[str, int] = defaultdict(int)
    wanted: dict[str, int] = {}
    for template in templates:
        image, number = dig(template, "spec", "defaults", "image"), annotations_of(template).get(IMAGE_TEMPLATES, "")
        if isinstance(image, str) and number.isdecimal() and len(number) <= 4:
            reference = image.partition("@")[0]
            counts[reference] += 1
            wanted[reference] = max(int(number), wanted.get(reference, 0))
    return {image for image, count in counts.items() if count >= wanted[image]}


def templates_of(
    image: Image, found: ImageLabels, *, source: Resource, config: EffectiveConfig | None
) -> list[Resource]:
    """The templates of one image; none if its labels have recommendations of which no one can be read, or if the source
    does not let its images be for that model.
    """
    if found.unreadable or not_for(image, found, source):
        return []
    ways = tuple(dict.fromkeys(_trusted(way, source) for way in found.recommended)) or (Recommendation(),)
    return [_template(image, found, way, source=source, config=config, number=len(ways)) for way in ways]


def not_for(image: Image, found: ImageLabels, source: Resource) -> str:
    """Why an image may not be for the model that it names; empty if it may. The builder of an image
    writes its labels: by them alone one image could stand in for any model, for all tenants.
    """
    model = found.model or image.name
    if plan_of(source).allows(model):
        return ""
    return f"it says that it is for the model {model}, which spec.models does not list"


def labels_of_made(source: Resource, config: EffectiveConfig | None) -> dict[str, str]:
    """The labels of the templates of a source: those that its config propagates, and those by which they are found."""
    return {
        **propagated(labels_of(source), config),
        names.MANAGED_BY: names.MANAGED_BY_VALUE,
        MODEL_SOURCE_LABEL: label_value(key_of(source).name),
    }


def _trusted(way: Recommendation, source: Resource) -> Recommendation:
    """The way without the image's word that it was tuned, unless the source trusts that."""
    trusted = way.optimized is not True or plan_of(source).trusts_optimized
    return way if trusted else replace(way, optimized=None)


def _template(
    image: Image,
    found: ImageLabels,
    way: Recommendation,
    *,
    source: Resource,
    config: EffectiveConfig | None,
    number: int,
) -> Resource:
    labels = labels_of_made(source, config)
    annotations = {IMAGE_TEMPLATES: str(number), **({DESCRIPTION: way.description} if way.description else {})}
    # What was read is what runs: the tag may lead to another image tomorrow.
    pinned = f"{image.reference}@{found.digest}" if found.digest else image.reference
    spec: Resource = {
        "modelName": found.model or image.name,
        "defaults": {"image": pinned},
        "discovery": {"image": pinned},
    }
    for field, value in (("metric", way.metric), ("precision", way.precision), ("optimized", way.optimized)):
        if value not in ("", None):
            spec[field] = value
    if gpu := _gpu(way):
        spec["hardware"] = {"gpu": gpu}
    follows = dig(source, "spec", "runtimeConfigName")
    if isinstance(follows, str) and follows:
        spec["runtimeConfigName"] = follows
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ClusterModelTemplate",
        "metadata": {"name": _name(image, way), "labels": labels, "annotations": annotations},
        "spec": spec,
    }


def _gpu(way: Recommendation) -> Mapping[str, object]:
    count = way.gpu_count if way.gpu_count is not None else (1 if way.gpu_model else 0)
    if not count:
        return {}
    given = {"count": count, "model": way.gpu_model, "type": way.gpu_type}
    return {field: value for field, value in given.items() if value}


def _name(image: Image, way: Recommendation) -> str:
    """Such as ``llama-1-2-8x-mi300x-lat-fp8-0123abcd``: at most 63 characters, with a digest of all that it is for."""
    gpu = _gpu(way)
    words = (f"{gpu['count']}x-{gpu.get('model', 'gpu')}" if gpu else "", way.metric[:3], way.precision)
    suffix = _slug("-".join(word for word in words if word))[:_LONGEST_SUFFIX].strip("-")
    end = f"{suffix}-" if suffix else ""
    key = [image.reference, way.gpu_model, way.gpu_count, way.gpu_type, way.precision, way.metric, way.optimized]
    end += digest(key, length=_HASH)
    begin = _slug(f"{image.name.rpartition('/')[2]}-{image.tag}")[: _LONGEST_NAME - len(end) - 1].strip("-")
    return f"{begin or 'image'}-{end}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


_VERSION = re.compile(
    r"v?(?P<numbers>[0-9]{1,18}(?:\.[0-9]{1,18}){0,2})"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
"""At most 18 digits: ``20261125`` and ``1764028800`` are versions, too; a longer number is a digest or an id."""

_CONSTRAINT = re.compile(r"(?P<operator>!=|>=|<=|=|>|<)\s*(?P<version>\S+)")

_MAX_TEXT = 128
"""Characters; the registry's limit for a tag."""

_OPERATORS: dict[str, Callable[[Version, Version], bool]] = {
    "=": lambda found, wanted: found == wanted,
    "!=": lambda found, wanted: found != wanted,
    ">": lambda found, wanted: found > wanted,
    ">=": lambda found, wanted: found >= wanted,
    "<": lambda found, wanted: found < wanted,
    "<=": lambda found, wanted: found <= wanted,
}


class InvalidConstraint(ValueError):
    """A constraint that cannot be read."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"{text!r} {problem}")
        self.text = text
        """The constraint as it was written."""


@dataclass(frozen=True, order=True)
class Version:
    """A version; versions are ordered as Semantic Versioning orders them."""

    numbers: tuple[int, int, int]
    """Major, minor and patch; what is not written is 0."""
    rank: tuple[tuple[int, int, str], ...]
    """Sorts the pre-release: a release comes after all its pre-releases, numbers come before words."""


_RELEASE: tuple[tuple[int, int, str], ...] = ((2, 0, ""),)


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """One constraint, such as ``>=1.2``."""

    operator: str
    """``=``, ``!=``, ``>``, ``>=``, ``<`` or ``<=``."""
    version: Version
    """What a version is compared with."""

    def accepts(self, version: Version) -> bool:
        """Whether the version satisfies the constraint."""
        return _OPERATORS[self.operator](version, self.version)


def parse_version(text: str) -> Version | None:
    """Returns the version that a tag is; None if it is none. Never raises."""
    found = _VERSION.fullmatch(text) if len(text) <= _MAX_TEXT else None
    if found is None:
        return None
    major, minor, patch = (*map(int, found["numbers"].split(".")), 0, 0)[:3]
    return Version((major, minor, patch), _rank(found["pre"]))


def _rank(pre: str | None) -> tuple[tuple[int, int, str], ...]:
    if pre is None:
        return _RELEASE
    parts = pre.split(".")
    # A longer pre-release comes after a shorter one with the same beginning: tuples are compared so.
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)


def parse_constraint(text: str) -> Constraint:
    """Returns the constraint that a text is. Raises InvalidConstraint."""
    text = text.strip()
    if not text:
        raise InvalidConstraint(text, "is empty: write an operator and a version, such as >=1.2")
    found = _CONSTRAINT.fullmatch(text)
    if found is None:
        if parse_version(text) is not None:
            raise InvalidConstraint(text, f"has no operator: write ={text} for exactly this version")
        if "," in text or " " in text:
            raise InvalidConstraint(text, "is not one constraint: write each as an entry of its own in versions")
        raise InvalidConstraint(
            text, "cannot be read: write =, !=, >, >=, < or <= and a version of one to three numbers, such as >=1.2"
        )
    version = parse_version(found["version"])
    if version is None:
        raise InvalidConstraint(
            text,
            f"cannot be read: {found['version']!r} is no version; write one to three numbers, such as 1.2 or 1.2.3-rc1",
        )
    return Constraint(operator=found["operator"], version=version)


def parse_constraints(texts: Iterable[str]) -> tuple[Constraint, ...]:
    """Returns all constraints. Raises InvalidConstraint for the first that cannot be read: none is left out."""
    return tuple(parse_constraint(text) for text in texts)


def satisfies(tag: str, constraints: Sequence[Constraint]) -> bool:
    """Whether a tag satisfies all constraints; without constraints every tag does."""
    if not constraints:
        return True
    version = parse_version(tag)
    return version is not None and all(constraint.accepts(version) for constraint in constraints)
