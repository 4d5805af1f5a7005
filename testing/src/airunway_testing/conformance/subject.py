"""What a check looks at: an installed provider, plain deployments that it runs, and what it writes for them."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.metadata import EntryPoint
from pathlib import Path

from airunway.plugins.contract import UpstreamKind
from airunway.plugins.host import ProviderHost
from airunway.resource import Resource
from airunway_testing.conformance.cases import Base, bases, judged
from airunway_testing.conformance.fields import Outcome, outcomes, setting_outcomes
from airunway_testing.simulators import simulators_for

LONG_NAME = "a" * 52
"""The longest name that a ModelDeployment can have."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A broken rule, by its id, and a sentence that says what is wrong and what to do."""

    rule: str
    text: str


Checker = Callable[["Subject"], Iterator[Fault]]


@dataclass(frozen=True)
class Subject:
    """One provider. `sources` are its modules as texts; `elsewhere` is a Python expression that is the same host in
    another process (empty: it is compared with none).
    """

    host: ProviderHost
    sources: tuple[str, ...] = ()
    elsewhere: str = ""

    @cached_property
    def asked(self) -> tuple[Base, ...]:
        return bases(self.host)

    @cached_property
    def definitions(self) -> Mapping[tuple[str, str], Resource]:
        """The CRDs of the simulators that act on kinds of the provider, by group and kind."""
        return _crds_of(frozenset((kind.group, kind.kind) for kind in self.host.manifest.upstream))

    @cached_property
    def schemas(self) -> Mapping[tuple[str, str], Resource]:
        """The schemas of these CRDs, by apiVersion and kind."""
        return {
            (f"{group}/{version['name']}", kind): version["schema"]["openAPIV3Schema"]
            for (group, kind), crd in self.definitions.items()
            for version in crd["spec"]["versions"]
        }

    @cached_property
    def written(self) -> Mapping[str, tuple[Resource, ...]]:
        """The objects for each plain deployment, by its name. Raises PluginFault."""
        return {base.name: judged(self.host, base, base.spec).objects for base in self.asked}

    @cached_property
    def written_long(self) -> Mapping[str, tuple[Resource, ...]]:
        """The same for deployments with the longest name; none where the provider refuses it. Raises PluginFault."""
        return {base.name: judged(self.host, base, base.spec, name=LONG_NAME).objects for base in self.asked}

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        return tuple(outcomes(self.host, self.asked))

    @cached_property
    def setting_outcomes(self) -> tuple[Outcome, ...]:
        return tuple(setting_outcomes(self.host, self.asked))

    def kind_of(self, obj: Resource) -> UpstreamKind:
        return self.host.kinds[str(obj["apiVersion"]).rpartition("/")[0], obj["kind"]]

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The texts in the provider's modules that may be a type of a condition, or a state: single words."""
        found: dict[str, None] = {}
        for source in self.sources:
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                    found[node.value] = None
        return tuple(found)


@lru_cache(maxsize=1)
def _crds_of(kinds: frozenset[tuple[str, str]]) -> dict[tuple[str, str], Resource]:
    # An upstream's own CRDs have megabytes: they are read once for what is wrong and what was not compared.
    crds = (crd for simulator in simulators_for(kinds) for crd in simulator.custom_resource_definitions())
    return {(crd["spec"]["group"], crd["spec"]["names"]["kind"]): crd for crd in crds}


def sources_of(point: EntryPoint) -> tuple[str, ...]:
    """The module of an entry point and what it imports of its own package, as texts; it has been imported."""
    package = point.module.rpartition(".")[0] or point.module
    if hasattr(sys.modules[point.module], "__path__"):
        package = point.module
    found: dict[str, str] = {}
    pending = [_where(point)]
    while pending:
        name = pending.pop()
        module = sys.modules.get(name)
        if name in found or module is None:
            continue
        file = inspect.getsourcefile(module)
        found[name] = Path(file).read_text(encoding="utf-8") if file else ""
        here = name if hasattr(module, "__path__") else name.rpartition(".")[0]
        pending += [each for each in _imports(found[name], here) if each == package or each.startswith(f"{package}.")]
    return tuple(found.values())


def _where(point: EntryPoint) -> str:
    """The module that makes what an entry point names: a package may only hand it on, with its simulator beside it."""
    file = inspect.getsourcefile(sys.modules[point.module])
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))) if file else ():
        if isinstance(node, ast.ImportFrom) and any((each.asname or each.name) == point.attr for each in node.names):
            package = point.module.split(".")[: len(point.module.split(".")) - node.level + 1] if node.level else []
            found = ".".join([*package, *([node.module] if node.module else [])])
            return found if found in sys.modules else point.module
    return point.module


def _imports(source: str, package: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above: Sequence[str] = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else ()
            module = ".".join([*above, *([node.module] if node.module else [])])
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
