"""Which programs to use: the sources in their order."""

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Literal, get_args

from airunway_testing.controlplane.build import build, expected_minutes
from airunway_testing.controlplane.cache import control_plane_cache, is_program, locked
from airunway_testing.controlplane.download import download
from airunway_testing.controlplane.errors import (
    BinariesUnavailableError,
    BuildFailedError,
    ControlPlaneError,
    DownloadFailedError,
)
from airunway_testing.controlplane.progress import Report
from airunway_testing.controlplane.versions import KUBERNETES_VERSION, Component, Level, components_of

Source = Literal["cluster", "assets", "cache", "download", "k3s", "build"]
"""Where a cluster comes from. "cluster" (the user's own) and "k3s" (a container) are whole clusters, the others give
programs to start.
"""

_UNASKED: tuple[Source, ...] = ("assets", "cache", "download", "build")
_VARIABLE = "AIRUNWAY_CONTROLPLANE_SOURCE"


def source_order(environment: Mapping[str, str], *, cluster_named: bool = False) -> tuple[Source, ...]:
    """The sources to try, in order.

    AIRUNWAY_CONTROLPLANE_SOURCE names the only ones allowed: one, or several sources of programs separated by commas
    (their order stays). Without it: the user's own cluster if one is named, else KUBEBUILDER_ASSETS, our cache, the
    published programs, a build with Go; a K3s container only when asked for. Raises ControlPlaneError for an unknown
    name, and for a whole cluster combined with anything else.
    """
    wanted = [name.strip() for name in environment.get(_VARIABLE, "").split(",") if name.strip()]
    unknown = [name for name in wanted if name not in get_args(Source)]
    if unknown:
        raise ControlPlaneError(
            f"{_VARIABLE}: there is no source {unknown[0]!r}; the sources are {', '.join(get_args(Source))}"
        )
    if len(wanted) > 1 and not set(wanted) <= set(_UNASKED):
        raise ControlPlaneError(
            f"{_VARIABLE}={environment[_VARIABLE]}: 'cluster' and 'k3s' are whole clusters, name them alone"
        )
    if wanted:
        return tuple(source for source in get_args(Source) if source in wanted)
    return ("cluster",) if cluster_named else _UNASKED


def find_binaries(
    level: Level, *, report: Report, environment: Mapping[str, str] = os.environ
) -> Mapping[Component, Path]:
    """The program of every component of the level, from the first source that has it; fetched or built if need be.

    A source that has only some (KUBEBUILDER_ASSETS usually holds no kube-controller-manager) is completed by the next
    ones. Raises BinariesUnavailableError with what every source said, ChecksumMismatchError when a source gave
    something wrong.
    """
    found: dict[Component, Path] = {}
    reasons: list[str] = []
    for source in source_order(environment):
        missing = [component for component in components_of(level) if component not in found]
        if not missing:
            break
        if source in _SOURCES:
            found |= _SOURCES[source](missing, environment, report, reasons)
    missing = [component for component in components_of(level) if component not in found]
    if missing:
        why = "".join(f"\n  - {reason}" for reason in reasons) or f"\n  - {_VARIABLE} allows no source of programs"
        raise BinariesUnavailableError(
            f"no {', '.join(missing)} for a control plane of Kubernetes {KUBERNETES_VERSION}:{why}\n"
            "Point KUBEBUILDER_ASSETS to a folder with these programs, set AIRUNWAY_RELEASE_MIRROR, install Go, or "
            "name a cluster of yours in AIRUNWAY_TEST_CLUSTER_KUBECONFIG"
        )
    return found


def _from_assets(
    missing: Collection[Component], environment: Mapping[str, str], report: Report, reasons: list[str]
) -> Mapping[Component, Path]:
    del report
    folder = environment.get("KUBEBUILDER_ASSETS")
    if not folder:
        reasons.append("KUBEBUILDER_ASSETS is not set")
        return {}
    return _in_folder(Path(folder).absolute(), missing, reasons, name="KUBEBUILDER_ASSETS")


def _from_cache(
    missing: Collection[Component], environment: Mapping[str, str], report: Report, reasons: list[str]
) -> Mapping[Component, Path]:
    del report
    return _in_folder(control_plane_cache(environment), missing, reasons, name="the cache")


def _in_folder(
    folder: Path, missing: Collection[Component], reasons: list[str], *, name: str
) -> Mapping[Component, Path]:
    found = {component: folder / component for component in missing if is_program(folder / component)}
    absent = [component for component in missing if component not in found]
    if absent:
        reasons.append(f"{name} ({folder}) has no {', '.join(absent)}")
    return found


def _from_release(
    missing: Collection[Component], environment: Mapping[str, str], report: Report, reasons: list[str]
) -> Mapping[Component, Path]:
    folder = control_plane_cache(environment)
    mirror = environment.get("AIRUNWAY_RELEASE_MIRROR", "")
    with locked(folder, report=report):
        for component in missing:
            if not is_program(folder / component):
                try:
                    download(component, folder / component, mirror=mirror, report=report)
                except DownloadFailedError as error:
                    reasons.append(str(error))
                    if "not reachable" in str(error) or "no answer" in str(error):
                        break  # the others are no nearer, and every try costs seconds
    return _in_folder(folder, missing, [], name="the cache")


def _from_build(
    missing: Collection[Component], environment: Mapping[str, str], report: Report, reasons: list[str]
) -> Mapping[Component, Path]:
    folder = control_plane_cache(environment)
    with locked(folder, report=report):
        absent = [component for component in missing if not is_program(folder / component)]
        if absent:
            why = "; ".join(reasons) or f"{_VARIABLE} asks for it"
            report(
                f"{why}. Building {', '.join(absent)} with Go: once, about {expected_minutes(absent)} min on the "
                f"{os.cpu_count()} processors of this machine, less if Go has compiled them before"
            )
            try:
                build(absent, folder, environment=environment, report=report)
            except BuildFailedError as error:
                reasons.append(str(error))
    return _in_folder(folder, missing, [], name="the cache")


_SOURCES: Mapping[
    Source, Callable[[Collection[Component], Mapping[str, str], Report, list[str]], Mapping[Component, Path]]
] = {"assets": _from_assets, "cache": _from_cache, "download": _from_release, "build": _from_build}
