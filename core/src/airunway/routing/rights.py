"""What a namespace may have at a Gateway: prefixes of paths and patterns of model names, by an administrator. Pure.

``routing.pathPrefixes: ["/ml/{namespace}"]`` in a ClusterRuntimeConfig, or ``pathPrefixes`` in the policy, allows the
namespace ``ml-team`` the path ``/ml/ml-team`` and all below it, and nothing else. Where both have a list, both must
allow it. The lists of ClusterRuntimeConfigs hold whatever config a deployment follows: a tenant chooses that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from urllib.parse import quote

from airunway.api.paths import NAMESPACE_MARK
from airunway.resource import Resource, list_at

PATH_PREFIXES, MODEL_NAMES = "pathPrefixes", "modelNames"
"""The fields of ``spec.routing`` and the lists of a policy."""


@dataclass(frozen=True, kw_only=True)
class RouteRights:
    """What one namespace may have; None: no list restricts it."""

    config_prefixes: tuple[str, ...] | None = None
    policy_prefixes: tuple[str, ...] | None = None
    config_names: tuple[str, ...] | None = None
    policy_names: tuple[str, ...] | None = None

    def path_problem(self, path: str, *, namespace: str) -> str:
        """Why the namespace may not have a path, as a sentence; empty if it may."""
        for prefixes, where in ((self.config_prefixes, _CONFIG), (self.policy_prefixes, _POLICY)):
            if prefixes is not None and not any(_is_below(path, prefix, namespace) for prefix in prefixes):
                return _sentence(f"the path {path}", prefixes, PATH_PREFIXES, where, namespace=namespace)
        return ""

    def name_problem(self, name: str, *, namespace: str) -> str:
        """Why the namespace may not have a model name, as a sentence; empty if it may."""
        for patterns, where in ((self.config_names, _CONFIG), (self.policy_names, _POLICY)):
            if patterns is not None and not any(fnmatchcase(name, _of(each, namespace)) for each in patterns):
                return _sentence(f"the model name {name!r}", patterns, MODEL_NAMES, where, namespace=namespace)
        return ""

    def default_path(self, path: str, *, namespace: str) -> str:
        """The default path, below the first prefix that allows it where it is not allowed itself."""
        if not self.path_problem(path, namespace=namespace):
            return path
        uid = path.rpartition("/")[2]
        for prefix in (*(self.config_prefixes or ()), *(self.policy_prefixes or ())):
            below = "/".join(("", *_segments(prefix, namespace), uid))
            if not {"*", "?"} & set(below) and not self.path_problem(below, namespace=namespace):
                return below
        return path


UNRESTRICTED = RouteRights()
"""Without any list."""

_CONFIG, _POLICY = "routing.{field} of a ClusterRuntimeConfig", "{field} of the policy"


def _sentence(what: str, allowed: Sequence[str], field: str, where: str, *, namespace: str) -> str:
    listed = ", ".join(_of(each, namespace) for each in allowed[:5]) or "none"
    return f"{what} is not allowed in namespace {namespace!r} (allowed by {where.format(field=field)}: {listed:.300})"


def _of(entry: str, namespace: str) -> str:
    return entry.replace(NAMESPACE_MARK, namespace)


def _segments(prefix: str, namespace: str) -> list[str]:
    """The segments of a prefix as they are in rendered paths; an entry is a path, or ``*`` for every path."""
    return [quote(segment.lower(), safe="*?") for segment in _of(prefix, namespace).split("/") if segment]


def _is_below(path: str, prefix: str, namespace: str) -> bool:
    wanted, found = _segments(prefix, namespace), path.strip("/").split("/")
    return len(found) >= len(wanted) and all(
        fnmatchcase(segment, pattern) for segment, pattern in zip(found, wanted, strict=False)
    )


def granted_by(configs: Iterable[Resource]) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """The prefixes and the model names of all ClusterRuntimeConfigs together; None where none has such a list."""
    found: dict[str, list[str]] = {PATH_PREFIXES: [], MODEL_NAMES: []}
    for config in sorted(configs, key=lambda config: str(config.get("metadata"))):
        for field, entries in found.items():
            entries += [each for each in list_at(config, "spec", "routing", field) if isinstance(each, str)]
    prefixes, names = (tuple(dict.fromkeys(entries)) or None for entries in found.values())
    return prefixes, names
