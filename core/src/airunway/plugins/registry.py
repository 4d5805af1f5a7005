"""Finds provider plugins by entry point and loads one of them.

A provider process loads only the plugin that it runs, so a broken neighbour does no harm. `discover` only reads
metadata and imports nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

import pluggy

from airunway import __version__
from airunway.plugins import hookspecs
from airunway.plugins.errors import PluginBroken, PluginNotFound
from airunway.plugins.host import ProviderHost
from airunway.plugins.rules import ENTRY_POINT

_AIRUNWAY = re.compile(r"airunway(?![\w-])")
"""The beginning of a requirement of the core's distribution."""


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """An installed provider."""

    name: str
    """Name of the provider and of its entry point."""
    distribution: str
    """Name of the Python distribution."""
    version: str
    """Version of the distribution."""
    entry_point: EntryPoint


def discover(*, on_request: bool = False) -> list[Distribution]:
    """All providers that installed distributions register, by name. Nothing is imported.

    `on_request` includes providers that run only if they are requested by name.
    """
    groups = (hookspecs.PROVIDERS, hookspecs.ON_REQUEST) if on_request else (hookspecs.PROVIDERS,)
    found = [
        Distribution(
            name=point.name,
            distribution=point.dist.name if point.dist else "",
            version=point.dist.version if point.dist else "",
            entry_point=point,
        )
        for group in groups
        for point in entry_points(group=group)
    ]
    return sorted(found, key=lambda d: (d.name, d.distribution))


def load(name: str) -> ProviderHost:
    """The host of the provider with that name.

    Raises PluginNotFound (with the installed providers), PluginBroken (with the broken rule of the contract), or
    ContractMismatch (with both versions).
    """
    candidates = [found for found in discover(on_request=True) if found.name == name]
    if not candidates:
        installed = ", ".join(sorted({found.name for found in discover()})) or "none"
        raise PluginNotFound(
            f"no installed distribution provides {name!r} (installed providers: {installed}); "
            f"install one that registers it under the entry-point group {hookspecs.PROVIDERS!r}",
            rule=ENTRY_POINT,
        )
    if len(candidates) > 1:
        brought_by = ", ".join(f"{found.distribution} {found.version}" for found in candidates)
        raise PluginBroken(
            f"provider {name!r} is registered by more than one distribution: {brought_by}; uninstall one",
            rule=ENTRY_POINT,
        )
    found = candidates[0]
    plugin = _import(found.entry_point, what=f"provider {name!r} ({found.distribution} {found.version})")
    return host_of(name, plugin, origin=f"{found.distribution} {found.version}", wrappers=wrappers())


def wrappers() -> tuple[object, ...]:
    """The hook wrappers of this installation, sorted by name.

    Raises PluginBroken for one that cannot be imported, because a site's rules for all pods must not be skipped
    silently.
    """
    points = sorted(entry_points(group=hookspecs.WRAPPERS), key=lambda point: point.name)
    return tuple(_import(point, what=f"wrapper {point.name!r}") for point in points)


def _import(point: EntryPoint, *, what: str) -> object:
    try:
        return point.load()
    except Exception as error:  # importing foreign code may raise anything
        raise PluginBroken(
            f"{what} cannot be imported: {error!r}{_of_another_release(point, error)}", rule=ENTRY_POINT
        ) from error


def _of_another_release(point: EntryPoint, error: Exception) -> str:
    """The requirement of a distribution that may have been written for another release of the SDK."""
    if not (isinstance(error, ImportError) and str(error.name).startswith("airunway.")) and not (
        isinstance(error, TypeError) and "argument" in str(error)
    ):
        return ""
    required = [each for each in (point.dist.requires or () if point.dist else ()) if _AIRUNWAY.match(each)]
    wants = f"it requires {required[0]!r}, and" if required else "its distribution does not say for which, and"
    return f"; it may be written for another release of AI Runway: {wants} {__version__} is installed"


def host_of(name: str, plugin: object, *, origin: str = "", wrappers: tuple[object, ...] = ()) -> ProviderHost:
    """The host of an already imported plugin object, checked against the contract.

    `wrappers` are further plugins whose hook wrappers change what the provider returns. Raises PluginBroken or
    ContractMismatch.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin, name=name)
        for wrapper in wrappers:
            manager.register(wrapper)
        manager.check_pending()
    except (pluggy.PluginValidationError, ValueError) as error:
        raise PluginBroken(
            f"provider {name!r} ({origin}) does not fit the contract: {error}", rule=ENTRY_POINT
        ) from error
    wanted = [name for name in vars(hookspecs) if hasattr(getattr(hookspecs, name), f"{hookspecs.PROJECT}_spec")]
    implemented = {caller.name for caller in manager.get_hookcallers(plugin) or ()}
    missing = sorted(set(wanted) - implemented)
    if missing:
        raise PluginBroken(
            f"provider {name!r} ({origin}) lacks the hooks {', '.join(missing)}; see {ENTRY_POINT} in "
            "docs/providers/contract.md",
            rule=ENTRY_POINT,
        )
    host = ProviderHost(manager, name=name, origin=origin)
    host.check()
    return host
