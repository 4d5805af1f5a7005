"""What the deployments of a namespace may use: parses a policy and checks a spec against it. Pure.

The webhook checks at admission; the reconciler checks deployments that were created without it, with the same messages.

    default: Allow                 # or Deny: a namespace that no rule matches may use nothing
    rules:
      - namespaceSelector:         # a LabelSelector; left out or empty: every namespace
          matchLabels: {team: search}
        providers: [kaito]         # each list is optional; an entry may have * and ? (both also match "/")
        engines: [vllm, "llama*"]
        images: ["ghcr.io/acme/*"]
        gpuTypes: [nvidia.com/gpu]
        serviceAccounts: [models]  # and the other lists of `airunway.validation.uses`
        pathPrefixes: ["/ml/{namespace}"]   # what the namespaces may have at a Gateway (`airunway.routing.rights`)
        modelNames: ["{namespace}/*"]

A rule restricts only the lists that it has. A namespace may use what any matching rule lists: the lists of several
rules add up, and an empty list allows nothing. A list that no matching rule has restricts nothing, except what is
dangerous everywhere (`Dimension.refused`). Without any policy `Policy()` applies, which refuses only that.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import yaml

from airunway.api.bounds import MAX_CAUSES
from airunway.api.names import DEFAULT_GPU_TYPE, DEVICE_CLASS_PREFIX
from airunway.json_path import JsonPath, entries
from airunway.references import OCI, is_image
from airunway.resource import Resource, dig
from airunway.schema import Violation
from airunway.validation.uses import DIMENSIONS, Use, covers, fits, uses_of, uses_of_config

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label with the namespace's own name, which every Namespace has."""

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_OF_ROUTES = ("pathPrefixes", "modelNames")
"""Lists of what a namespace may have at a Gateway; the gateway part, which renders paths, goes by them."""
_LISTS = ("providers", "engines", "images", "gpuTypes", *DIMENSIONS, *_OF_ROUTES)
"""The keys of the lists in the file."""


class PolicyError(ValueError):
    """A policy cannot be parsed; the message names the place, what is wrong, and what is known."""


class _PolicyLoader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys: the first of two `rules` would be lost without an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value]
        twice = next((key for index, key in enumerate(keys) if key in keys[:index]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


@dataclass(frozen=True, kw_only=True)
class Selector:
    """A Kubernetes LabelSelector; without any requirement it matches everything."""

    labels: Mapping[str, str] = field(default_factory=dict)
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    """Key, operator (``In``, ``NotIn``, ``Exists``, ``DoesNotExist``) and values of each expression."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.labels.items()) and all(
            _holds(labels, key, operator, values) for key, operator, values in self.expressions
        )


@dataclass(frozen=True, kw_only=True)
class _Lists:
    """Patterns of what may be used; None: no restriction."""

    providers: tuple[str, ...] | None = None
    engines: tuple[str, ...] | None = None
    images: tuple[str, ...] | None = None
    gpu_types: tuple[str, ...] | None = None
    uses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The lists of `DIMENSIONS`, and those of routes, by their keys; one that is not there restricts nothing."""


@dataclass(frozen=True, kw_only=True)
class NamespaceRule(_Lists):
    """What the namespaces that `selector` matches may use."""

    selector: Selector = Selector()


@dataclass(frozen=True, kw_only=True)
class Grants(_Lists):
    """What one namespace may use."""

    def allows_provider(self, name: str) -> bool:
        return _allowed(self.providers, name)

    def allows_engine(self, name: str) -> bool:
        return _allowed(self.engines, name)

    def allows_image(self, image: str) -> bool:
        """Compares the image as written, and with its full name (``vllm/vllm`` is ``docker.io/vllm/vllm``). A pattern
        allows nothing that is no reference: ``docker.io/vllm/../evil/x`` begins as it should and is something else.
        """
        if self.images is None:
            return True
        if not is_image(image):
            return False
        return _allowed(self.images, image) or _allowed(self.images, _full_name(image))

    def allows_gpu_type(self, name: str) -> bool:
        return _allowed(self.gpu_types, name)

    def allows(self, use: Use) -> bool:
        """Whether the list allows it; without a list, whether it is not refused everywhere. A pattern is allowed then:
        what it matches is not known.
        """
        patterns = self.uses.get(use.dimension)
        if use.is_pattern:
            return patterns is None or covers(patterns, use.value)
        if patterns is None:
            return not DIMENSIONS[use.dimension].is_refused(use.value)
        return fits(use.value, patterns)


_NOTHING = Grants(providers=(), engines=(), images=(), gpu_types=(), uses=dict.fromkeys((*DIMENSIONS, *_OF_ROUTES), ()))


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The rules of a cluster."""

    rules: tuple[NamespaceRule, ...] = ()
    deny: bool = False
    """Whether namespaces that no rule matches may use nothing."""

    def grants(self, namespace_labels: Mapping[str, str]) -> Grants:
        """Returns what a namespace with these labels may use."""
        matching = [rule for rule in self.rules if rule.selector.matches(namespace_labels)]
        if not matching:
            return _NOTHING if self.deny else Grants()
        uses = {key: _union([rule.uses.get(key) for rule in matching]) for key in (*DIMENSIONS, *_OF_ROUTES)}
        return Grants(
            providers=_union([rule.providers for rule in matching]),
            engines=_union([rule.engines for rule in matching]),
            images=_union([rule.images for rule in matching]),
            gpu_types=_union([rule.gpu_types for rule in matching]),
            uses={key: patterns for key, patterns in uses.items() if patterns is not None},
        )

    def idle_rules(self, namespaces: Iterable[Mapping[str, str]]) -> list[int]:
        """Returns the indexes of the rules that match none of the namespaces with these labels."""
        known = list(namespaces)
        return [i for i, rule in enumerate(self.rules) if not any(rule.selector.matches(labels) for labels in known)]

    def __str__(self) -> str:
        number = len(self.rules)
        return f"{number} rule{'' if number == 1 else 's'}, default {'Deny' if self.deny else 'Allow'}"


def parse_policy(text: str) -> Policy:
    """Parses a policy from YAML (or JSON). Raises PolicyError.

    An empty text is an error: a file that was lost, or is just being written, must not allow everything.
    """
    try:
        document = yaml.load(text, Loader=_PolicyLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise PolicyError(f"the policy is not YAML: {where}{getattr(error, 'problem', None) or error}") from error
    if document is None:
        raise PolicyError("the policy is empty: write {} for one that allows everything")
    top = _mapping(document, "the policy", ("default", "rules"))
    default = top.get("default", "Allow")
    if default not in ("Allow", "Deny"):
        raise PolicyError(f"default must be Allow or Deny, not {default!r}")
    rules = top.get("rules", [])
    if not isinstance(rules, list):
        raise PolicyError("rules must be a list")
    return Policy(
        rules=tuple(_rule(rule, f"rules[{index}]") for index, rule in enumerate(rules)), deny=default == "Deny"
    )


def violations(
    policy: Policy,
    spec: Resource,
    *,
    engine: str | None,
    provider: str | None,
    namespace_labels: Mapping[str, str],
) -> list[Violation]:
    """Returns everything about `spec` that the policy does not allow; `engine` and `provider` are those that are known.

    Checks the images that the deployment names, also in its overrides, but not one that a provider would choose.
    """
    grants = policy.grants(namespace_labels)
    name = namespace_labels.get(NAMESPACE_NAME, "")

    def found() -> Iterator[Violation]:
        if provider and not grants.allows_provider(provider):
            yield _violation("spec.provider.name", "provider", provider, name, grants.providers)
        if engine and not grants.allows_engine(engine):
            yield _violation("spec.engine.type", "engine", engine, name, grants.engines)
        for path, image in _images(spec):
            if not grants.allows_image(image):
                yield _violation(path, "image", image, name, grants.images)
        for path, gpu in _gpu_types(spec):
            if not grants.allows_gpu_type(gpu):
                yield _violation(path, "GPU type", gpu, name, grants.gpu_types)
        for use in uses_of(spec):
            if not grants.allows(use):
                noun, patterns = DIMENSIONS[use.dimension].noun, grants.uses.get(use.dimension)
                yield _violation(use.path, noun, use.value, name, patterns, use.dimension)

    return list(islice(found(), MAX_CAUSES))


def config_violations(grants: Grants, spec: Resource, *, namespace: str) -> list[Violation]:
    """Returns everything in the spec of a RuntimeConfig that its namespace may not use."""

    def found() -> Iterator[Violation]:
        for use in uses_of_config(spec):
            if not grants.allows(use):
                noun, patterns = DIMENSIONS[use.dimension].noun, grants.uses.get(use.dimension)
                yield _violation(use.path, noun, use.value, namespace, patterns, use.dimension, named=True)

    return list(islice(found(), MAX_CAUSES))


def _violation(
    path: str,
    what: str,
    value: str,
    namespace: str,
    allowed: tuple[str, ...] | None,
    key: str = "",
    *,
    named: bool = False,
) -> Violation:
    """`allowed` None: it is refused without a rule; `key` is the list that would allow it, and is always `named` if a
    user does not see from the field which list is meant.
    """
    may = ", ".join(allowed or ()) or "none"
    listed = f"{key} allowed by policy" if named else "allowed by policy"
    why = f"only where the policy lists it under {key}" if allowed is None else f"{listed}: {may:.500}"
    message = f"{what} '{value:.200}' is not allowed in namespace '{namespace}' ({why})"
    return Violation(path=path, message=message, reason="FieldValueForbidden")


def _images(spec: Resource) -> Iterator[tuple[str, str]]:
    for path in (("image",), ("engine", "image")):
        image = dig(spec, *path)
        if isinstance(image, str) and image:
            yield f"spec.{'.'.join(path)}", image
    weights = dig(spec, "model", "uri")
    if isinstance(weights, str) and weights:
        yield "spec.model.uri", weights.removeprefix(OCI)
    for place, key, value in entries(dig(spec, "provider", "overrides"), "spec.provider.overrides"):
        if key == "image":
            if isinstance(value, str) and value:
                yield str(place), value
            elif isinstance(value, dict):
                yield str(place), _composed(value)


def _composed(image: Mapping[str, Any]) -> str:
    """Returns the image of the object form that charts use: registry, repository, and tag or digest."""
    name = "/".join(str(image[part]) for part in ("registry", "repository", "name") if image.get(part))
    if image.get("digest"):
        return f"{name}@{image['digest']}"
    return f"{name}:{image['tag']}" if image.get("tag") else name


def _gpu_types(spec: Resource) -> Iterator[tuple[str, str]]:
    disaggregated = dig(spec, "serving", "mode") == "disaggregated"
    places = (("scaling", "prefill"), ("scaling", "decode")) if disaggregated else (("resources",),)
    for place in places:
        gpu = dig(spec, *place, "gpu", default={})
        count = dig(gpu, "count", default=0)
        if isinstance(count, int) and count > 0:
            if device_class := dig(gpu, "deviceClass"):
                # By the name that Kubernetes gives the devices, so that a list of types restricts classes, too.
                yield f"spec.{'.'.join(place)}.gpu.deviceClass", f"{DEVICE_CLASS_PREFIX}{device_class}"
            else:
                yield f"spec.{'.'.join(place)}.gpu.type", str(dig(gpu, "type") or DEFAULT_GPU_TYPE)
    for at, key, value in entries(dig(spec, "provider", "overrides"), "spec.provider.overrides"):
        if key in ("limits", "requests") and isinstance(value, dict):
            yield from ((str(JsonPath(at, name)), name) for name in value if "/" in name)


def _allowed(patterns: tuple[str, ...] | None, value: str) -> bool:
    return patterns is None or fits(value, patterns)


def _full_name(image: str) -> str:
    """Returns an image with the registry and folder that container runtimes add to a short name.

    As in distribution/reference (normalize.go): a first part with an upper-case letter is a registry too.
    """
    first, slash, rest = image.partition("/")
    registry = slash and ("." in first or ":" in first or first == "localhost" or first != first.lower())
    if registry and first not in ("docker.io", "index.docker.io"):
        return image
    path = rest if registry else image
    return f"docker.io/{path}" if "/" in path else f"docker.io/library/{path}"


def _union(lists: list[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    spoken = [entries for entries in lists if entries is not None]
    return tuple(dict.fromkeys(entry for entries in spoken for entry in entries)) if spoken else None


def _holds(labels: Mapping[str, str], key: str, operator: str, values: tuple[str, ...]) -> bool:
    match operator:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _rule(value: object, at: str) -> NamespaceRule:
    rule = _mapping(value, at, ("namespaceSelector", *_LISTS))
    lists = {key: _texts(rule[key], f"{at}.{key}") for key in _LISTS if rule.get(key) is not None}
    return NamespaceRule(
        selector=read_selector(rule.get("namespaceSelector"), f"{at}.namespaceSelector"),
        providers=lists.get("providers"),
        engines=lists.get("engines"),
        images=lists.get("images"),
        gpu_types=lists.get("gpuTypes"),
        uses={key: patterns for key, patterns in lists.items() if key in DIMENSIONS or key in _OF_ROUTES},
    )


def read_selector(value: object, at: str) -> Selector:
    """Parses the LabelSelector of an object; None selects everything. Raises PolicyError, which names `at`."""
    if value is None:
        return Selector()
    selector = _mapping(value, at, ("matchLabels", "matchExpressions"))
    labels = selector.get("matchLabels") or {}
    if not isinstance(labels, dict) or not all(isinstance(t, str) for pair in labels.items() for t in pair):
        raise PolicyError(f"{at}.matchLabels must map label names to texts (quote numbers and true/false)")
    expressions = selector.get("matchExpressions") or []
    if not isinstance(expressions, list):
        raise PolicyError(f"{at}.matchExpressions must be a list")
    return Selector(
        labels=labels,
        expressions=tuple(_expression(e, f"{at}.matchExpressions[{index}]") for index, e in enumerate(expressions)),
    )


def _expression(value: object, at: str) -> tuple[str, str, tuple[str, ...]]:
    expression = _mapping(value, at, ("key", "operator", "values"))
    key, operator = expression.get("key"), expression.get("operator")
    if not isinstance(key, str) or not key:
        raise PolicyError(f"{at}.key must be a label name")
    if operator not in _OPERATORS:
        raise PolicyError(f"{at}.operator must be one of {', '.join(_OPERATORS)}, not {operator!r}")
    values = _texts(expression.get("values") or [], f"{at}.values")
    if (operator in ("In", "NotIn")) != bool(values):
        raise PolicyError(f"{at}.values must {'not be empty' if not values else 'be left out'} with {operator}")
    return key, operator, values


def _texts(value: object, at: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise PolicyError(f"{at} must be a list of texts")
    return tuple(value)


def _mapping(value: object, at: str, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise PolicyError(f"{at} must be an object with {', '.join(known)}")
    for key in value:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f", did you mean {close[0]}?" if close else f" (known: {', '.join(known)})"
            raise PolicyError(f"{at} has the unknown key {key!r}{hint}")
    return value
