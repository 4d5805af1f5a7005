"""A control plane of one's own."""

import asyncio
import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from airunway_testing.controlplane.binaries import find_binaries
from airunway_testing.controlplane.components import (
    EGRESS_SOCKET,
    AuditLevel,
    Layout,
    audit_policy,
    command,
    egress_selection,
    new_layout,
)
from airunway_testing.controlplane.credentials import Description, issue_kubeconfig, save_description
from airunway_testing.controlplane.errors import ControlPlaneError, StartFailedError
from airunway_testing.controlplane.kubeconfigs import write_kubeconfig
from airunway_testing.controlplane.nodes import DEFAULT_NODES, SimulatedNode
from airunway_testing.controlplane.ports import reserved_ports
from airunway_testing.controlplane.processes import Processes
from airunway_testing.controlplane.progress import Report
from airunway_testing.controlplane.readiness import Waiter, collects_garbage, has_user_roles, join, serves, takes_pods
from airunway_testing.controlplane.requests import Requests
from airunway_testing.controlplane.stages import pod_stages
from airunway_testing.controlplane.versions import Component, Level, components_of

START_TIMEOUT = 90.0
"""Seconds in which a control plane must be ready, not counting fetching or building the programs."""

_ATTEMPTS = 3
_STORE: tuple[Component, ...] = ("etcd", "kube-apiserver")
"""What has to run from the beginning; the others need the API server."""
_ROOMY = {"GOGC": "400", "GOMAXPROCS": "1"}
"""For Go: how far a heap grows before it is collected, in percent (default 100), and how many threads compute: programs
that mostly wait lose a tenth of their time to threads that look for work."""
_WITHOUT_QUEUES = (
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=0",
    "--max-mutating-requests-inflight=0",
)
"""Requests of one machine need no fair shares, which cost a tenth of the API server's time."""

_PORT_TAKEN = "address already in use"

_RUNNING: dict[str, "ControlPlane"] = {}
"""The control planes of this process by the addresses of their API servers."""


def learn_kinds(url: str) -> None:
    """Let the controllers of a control plane of this process know all kinds that it serves; elsewhere nothing happens.

    The garbage collector and the autoscaler look for new kinds every 30 seconds only, and first when they start: so
    they are started again, which takes a tenth of a second of processor time. Returns before they have begun to work.
    """
    plane = _RUNNING.get(url)
    if plane is not None and "kube-controller-manager" in plane.pids:
        plane.stop_component("kube-controller-manager")
        plane.start_component("kube-controller-manager", wait=False)


class ControlPlane:
    """A control plane on free ports of 127.0.0.1 that ends with the process that started it.

    Use it as a context manager (``with`` or ``async with``), or call `start` and `stop`.

    level:         "api": etcd, kube-apiserver, and the controllers that an API server alone needs (garbage collection,
                   namespaces, the roles view, edit and admin). "cluster": all that a cluster's control plane runs, with
                   KWOK playing the nodes.
    audit:         write an audit log with this much of every request.
    binaries:      where the programs are; found by `find_binaries` when not given.
    directory:     where all files go (empty or absent); when not given, a new temporary folder. Removed at the end
                   unless `keep`.
    grace:         seconds that a component gets between SIGTERM and SIGKILL.
    timeout:       seconds in which all must be ready (not counting fetching or building the programs).
    server_flags:  further flags for kube-apiserver.
    nodes:         the simulated nodes of the level "cluster".
    egress:        let the API server reach pods, kubelets and Services through the proxy that listens at
                   `egress_socket`. While none does, requests to pods and webhooks fail.
    ipv6:          Services and pods get addresses of IPv6 only.
    roomy:         let the programs' memory grow to some three times of what they need, on one thread each, and no
                   request waits for its fair share: a third to a half less CPU. Not for what is measured.
    report:        told, in a sentence, about what takes long.
    """

    def __init__(
        self,
        level: Level = "api",
        *,
        audit: AuditLevel | None = None,
        binaries: Mapping[Component, Path] | None = None,
        directory: Path | None = None,
        keep: bool = False,
        grace: float = 2.0,
        timeout: float = START_TIMEOUT,
        server_flags: Sequence[str] = (),
        nodes: Sequence[SimulatedNode] = DEFAULT_NODES,
        egress: bool = False,
        ipv6: bool = False,
        roomy: bool = False,
        report: Report = lambda _: None,
    ) -> None:
        self.level = level
        self._audit = audit
        self._binaries = binaries
        self._wanted_directory = directory
        self._keep = keep
        self._grace = grace
        self._timeout = timeout
        self._server_flags = (*(_WITHOUT_QUEUES if roomy else ()), *server_flags)
        self._nodes = tuple(nodes)
        self._egress = egress
        self._ipv6 = ipv6
        self._roomy = roomy
        self._report = report
        self._lock = threading.RLock()
        self._ports = contextlib.ExitStack()
        self._layout: Layout | None = None
        self._processes: Processes | None = None

    @property
    def directory(self) -> Path:
        """The folder with credentials, logs and data."""
        return self._started()[0].directory

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig (group ``system:masters``)."""
        return self.directory / "admin.kubeconfig"

    @property
    def url(self) -> str:
        """The address of the API server."""
        return self._started()[0].url

    @property
    def audit_log(self) -> Path | None:
        """The audit log, one JSON event (``audit.k8s.io/v1``) per line; None when none was asked for."""
        return self._started()[0].audit_log

    @property
    def egress_socket(self) -> Path | None:
        """Where the proxy of the API server has to listen; None when it reaches pods itself."""
        return self.directory / EGRESS_SOCKET if self._egress else None

    @property
    def pids(self) -> Mapping[str, int]:
        """The process ids of the running components by name."""
        return self._started()[1].pids

    @property
    def process_group(self) -> int:
        """The process group that all components and their supervisor are in."""
        return self._started()[1].group

    def log(self, component: Component) -> Path:
        """Where a component's output goes."""
        return self._started()[1].log(component)

    def kubeconfig_for(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig with a client certificate for this user and these groups; without roles they may do next to
        nothing (RBAC).
        """
        return issue_kubeconfig(self.directory, url=self.url, user=user, groups=groups)

    def start(self) -> Self:
        """Start everything and return when it is ready. Harmless when it runs already.

        Raises BinariesUnavailableError (or what fetching or building the programs raises), or StartFailedError with
        the tail of a log.
        """
        with self._lock:
            if self._layout is None:
                self._binaries = self._binaries or find_binaries(self.level, report=self._report)
                for _ in range(_ATTEMPTS - 1):
                    try:
                        self._attempt()
                    except StartFailedError as error:
                        if _PORT_TAKEN not in str(error):
                            raise
                        self._report("another process took a port meanwhile: trying again with others")
                    else:
                        break
                else:
                    self._attempt()
                _RUNNING[self.url] = self
            return self

    def stop(self) -> None:
        """Stop everything; returns when no process is left. Harmless when nothing runs."""
        with self._lock:
            if self._layout is not None:
                _RUNNING.pop(self._layout.url, None)
            processes, self._layout, self._processes = self._processes, None, None
            try:
                if processes is not None:
                    processes.close(grace=self._grace)
            finally:
                self._ports.close()

    def stop_component(self, component: Component) -> None:
        """Stop one component, e.g. to see what a controller does without an API server. Its port stays reserved."""
        with self._lock:
            self._started()[1].stop(component, grace=self._grace)

    def start_component(self, component: Component, *, wait: bool = True) -> None:
        """Start a component that was stopped or has died, with the same port and data; returns when all is ready."""
        with self._lock:
            layout, processes = self._started()
            self._run(component, layout, processes)
            if wait:
                self._wait(layout, processes)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _started(self) -> tuple[Layout, Processes]:
        if self._layout is None or self._processes is None:
            raise ControlPlaneError("the control plane is not running: call start() or use it as a context manager")
        return self._layout, self._processes

    def _attempt(self) -> None:
        try:
            ports = self._ports.enter_context(reserved_ports(2))
            layout = self._layout = new_layout(
                self._new_directory(),
                level=self.level,
                ports=ports,
                audit=self._audit,
                extra_server_flags=self._server_flags,
                egress=self._egress,
                ipv6=self._ipv6,
            )
            processes = self._processes = Processes(layout.directory, keep=self._keep)
            self._write_files(layout)
            for component in components_of(self.level):
                self._run(component, layout, processes)
            self._wait(layout, processes)
        except BaseException:  # Ctrl-C too: what has started must not stay
            self.stop()
            raise

    def _new_directory(self) -> Path:
        if self._wanted_directory is None:
            return Path(tempfile.mkdtemp(prefix="airunway-control-plane-"))
        directory = self._wanted_directory.absolute()
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ControlPlaneError(f"{directory} is not empty: a control plane wants a folder of its own")
        return directory

    def _write_files(self, layout: Layout) -> None:
        if self._audit:
            (layout.directory / "audit-policy.json").write_text(json.dumps(audit_policy(self._audit)))
        if layout.egress:
            (layout.directory / "egress.json").write_text(json.dumps(egress_selection()))
        if self.level == "cluster":
            (layout.directory / "kwok.yaml").write_text(yaml.safe_dump_all(pod_stages(), width=1000))
        write_kubeconfig(
            self.kubeconfig,
            server=layout.url,
            authority=layout.authority.files.certificate,
            client=layout.admin,
            user="admin",
        )
        save_description(layout.directory, Description(level=self.level, url=layout.url, audit=self._audit is not None))

    def _run(self, component: Component, layout: Layout, processes: Processes) -> None:
        assert self._binaries is not None
        # No proxy settings: the API server calls webhooks on this machine. HOME, because some libraries insist on one.
        environment = {"PATH": os.defpath, "HOME": str(layout.directory), "TMPDIR": str(layout.directory)}
        if self._roomy:
            environment |= _ROOMY
        argv = command(component, layout, executable=self._binaries[component])
        processes.start(component, argv, environment=environment, last=component == "etcd")

    def _wait(self, layout: Layout, processes: Processes) -> None:
        requests = Requests(port=layout.server_port, authority=layout.authority.files.certificate, client=layout.admin)
        waiter = Waiter(processes, timeout=self._timeout, report=self._report)
        waiter.until("the API server", lambda: serves(requests), component="kube-apiserver", unless_ended=_STORE)
        for component in components_of(self.level):
            # The others start with it, so that a calm machine is ready soon; they wait 10 s for it, which a busy one
            # exceeds, and then they end.
            if component not in _STORE and component in processes.exited():
                self._run(component, layout, processes)
        if "kwok" in processes.pids:
            join(requests, [node.manifest() for node in self._nodes])
        # What was stopped on purpose is not waited for; what ended by itself is a failure, which the waiter reports.
        if "kube-controller-manager" not in {*processes.pids, *processes.exited()}:
            return
        waiter.until("the garbage collector", collects_garbage(requests), component="kube-controller-manager")
        waiter.until("the user roles", lambda: has_user_roles(requests), component="kube-controller-manager")
        if "kwok" in processes.pids:
            names = [node.name for node in self._nodes]
            waiter.until("the nodes", lambda: takes_pods(requests, names), component="kwok")
