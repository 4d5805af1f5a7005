"""The cluster of a test or a sandbox: a running one that was named, else a new control plane."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import yaml

from airunway_testing.controlplane.binaries import source_order
from airunway_testing.controlplane.components import AuditLevel
from airunway_testing.controlplane.credentials import issue_kubeconfig, load_description
from airunway_testing.controlplane.errors import ControlPlaneError
from airunway_testing.controlplane.k3s import k3s_kubeconfig
from airunway_testing.controlplane.kubeconfigs import file_name
from airunway_testing.controlplane.nodes import DEFAULT_NODES, SimulatedNode
from airunway_testing.controlplane.plane import START_TIMEOUT, ControlPlane
from airunway_testing.controlplane.progress import Report
from airunway_testing.controlplane.versions import Level


class Cluster(Protocol):
    """What tests and the sandbox need to know of a cluster, with any owner."""

    @property
    def level(self) -> Level:
        """What it can do: "cluster" also schedules and runs (or simulates) pods."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""

    @property
    def audit_log(self) -> Path | None:
        """The audit log where there is one that we can read."""

    @property
    def egress_socket(self) -> Path | None:
        """Where the proxy of the API server has to listen; None when it reaches pods itself."""

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig that acts as this user in these groups."""


class RunningCluster:
    """A cluster that is started and stopped elsewhere: a control plane of ours, or the user's own cluster.

    On a control plane of ours `kubeconfig_for` issues client certificates. On any other cluster it impersonates (`as`
    in the kubeconfig): that needs an administrator who may impersonate, and leaves no credentials behind.
    """

    def __init__(self, kubeconfig: Path, *, level: Level, folder: Path, context: str | None = None) -> None:
        self._folder = folder
        description = load_description(kubeconfig.parent)
        self._description = description
        self._origin = kubeconfig.parent
        self.level: Level = description.level if description else level
        if level == "cluster" and self.level != "cluster":
            raise ControlPlaneError(
                f"{kubeconfig}: this control plane has the level {self.level!r}, and {level!r} is needed: start one "
                f"with `airunway controlplane up --level {level}`"
            )
        self.kubeconfig = kubeconfig if context is None else self._with(kubeconfig, context=context)

    @property
    def audit_log(self) -> Path | None:
        """The audit log, if it is a control plane of ours that writes one."""
        return self._origin / "audit.log" if self._description and self._description.audit else None

    @property
    def egress_socket(self) -> Path | None:
        """None: how its API server reaches pods was decided when it was started."""
        return None

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig that acts as this user in these groups."""
        if self._description:
            return issue_kubeconfig(self._origin, url=self._description.url, user=user, groups=groups)
        return self._impersonating(user, groups)

    def _with(self, kubeconfig: Path, *, context: str) -> Path:
        content = yaml.safe_load(kubeconfig.read_text())
        names = [entry["name"] for entry in content.get("contexts") or []]
        if context not in names:
            raise ControlPlaneError(f"{kubeconfig} has no context {context!r}; it has: {', '.join(names) or 'none'}")
        content["current-context"] = context
        return self._write("context.kubeconfig", content)

    def _impersonating(self, user: str, groups: Sequence[str]) -> Path:
        content = yaml.safe_load(self.kubeconfig.read_text())
        current = content.get("current-context")
        contexts = [entry["context"] for entry in content.get("contexts") or [] if entry["name"] == current]
        if not contexts:
            raise ControlPlaneError(f"{self.kubeconfig}: current-context {current!r} is not among its contexts")
        for entry in content.get("users") or []:
            if entry["name"] == contexts[0].get("user"):
                entry["user"] = {**(entry.get("user") or {}), "as": user, "as-groups": list(groups)}
        return self._write(f"{file_name(user, groups)}.kubeconfig", content)

    def _write(self, name: str, content: object) -> Path:
        path = self._folder / name
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            yaml.safe_dump(content, file)
        return path


def named_kubeconfig(level: Level, environment: Mapping[str, str]) -> Path | None:
    """The kubeconfig of a running cluster that the environment names for this level.

    AIRUNWAY_TEST_CLUSTER_KUBECONFIG serves both levels; AIRUNWAY_TEST_KUBECONFIG only "api", where it goes first.
    """
    names = ["AIRUNWAY_TEST_CLUSTER_KUBECONFIG"]
    if level == "api":
        names.insert(0, "AIRUNWAY_TEST_KUBECONFIG")
    for name in names:
        if environment.get(name):
            path = Path(environment[name]).expanduser().absolute()
            if not path.is_file():
                raise ControlPlaneError(
                    f"{name}={path}: there is no such file; has that control plane been stopped? Unset {name}"
                )
            return path
    return None


@contextlib.contextmanager
def running(
    level: Level,
    *,
    kubeconfig: Path | None = None,
    context: str | None = None,
    audit: AuditLevel | None = None,
    nodes: Sequence[SimulatedNode] = DEFAULT_NODES,
    egress: bool = False,
    timeout: float = START_TIMEOUT,
    report: Report = lambda _: None,
) -> Iterator[Cluster]:
    """A cluster for the duration of the context; `nodes` and `egress` (ControlPlane) are those of a new control plane,
    which has `timeout` seconds.

    It is the one of `kubeconfig`, else the one that the environment names (`named_kubeconfig`, with the context
    AIRUNWAY_TEST_CONTEXT), else what AIRUNWAY_CONTROLPLANE_SOURCE asks for ("cluster": the user's current kubeconfig;
    "k3s": a container), else a new control plane.
    """
    named = kubeconfig or named_kubeconfig(level, os.environ)
    source, *_ = source_order(os.environ, cluster_named=named is not None)
    if source not in ("cluster", "k3s"):
        with ControlPlane(
            level, audit=audit, nodes=nodes, egress=egress, roomy=True, timeout=timeout, report=report
        ) as plane:
            yield plane
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airunway-kubeconfigs-")))
        if source == "k3s":
            chosen = stack.enter_context(k3s_kubeconfig(folder, report=report))
        else:
            chosen = named or _current_kubeconfig(os.environ)
            context = context or os.environ.get("AIRUNWAY_TEST_CONTEXT") or None
        yield RunningCluster(chosen, level=level, folder=folder, context=context)


def _current_kubeconfig(environment: Mapping[str, str]) -> Path:
    path = Path(environment.get("KUBECONFIG", "").split(os.pathsep)[0] or Path.home() / ".kube" / "config")
    if not path.is_file():
        raise ControlPlaneError(
            f"your own cluster is asked for (AIRUNWAY_CONTROLPLANE_SOURCE=cluster), but {path} does not exist: "
            "set KUBECONFIG"
        )
    return path.absolute()
