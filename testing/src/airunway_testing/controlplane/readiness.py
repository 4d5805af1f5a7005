"""When a control plane is ready: seen from outside, by what it does."""

import os
import time
import uuid
from collections.abc import Callable, Collection, Sequence

from airunway.resource import Resource
from airunway_testing.controlplane.errors import StartFailedError
from airunway_testing.controlplane.processes import Processes, ending_of, log_tail
from airunway_testing.controlplane.requests import Requests

REPORT_EVERY = 15.0
"""Seconds between two words about the same wait."""
_INTERVAL = 0.05
_SYSTEM_CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


class Waiter:
    """Waits for one thing after the other until one common deadline, as long as no component has ended.

    What takes long is reported every `REPORT_EVERY` seconds.
    """

    def __init__(self, processes: Processes, *, timeout: float, report: Callable[[str], None] = lambda _: None) -> None:
        self._processes = processes
        self._timeout = timeout
        self._report = report
        self._deadline = time.monotonic() + timeout

    def until(
        self, what: str, condition: Callable[[], bool], *, component: str, unless_ended: Collection[str] | None = None
    ) -> None:
        """Return once `condition` holds; StartFailedError with the tail of `component`'s log when it does not, or of
        the log of the one that ended. Only the end of a component in `unless_ended` counts (None: of any).
        """
        begun = said = time.monotonic()
        while True:
            for name, code in self._processes.exited().items():
                if unless_ended is not None and name not in unless_ended:
                    continue
                raise StartFailedError(
                    f"{name} {ending_of(code)} while waiting for {what}\n{log_tail(self._processes.log(name))}"
                )
            if condition():
                return
            if time.monotonic() - said >= REPORT_EVERY:
                said = time.monotonic()
                self._report(still_waiting(what, said - begun))
            if time.monotonic() > self._deadline:
                tail = log_tail(self._processes.log(component))
                raise StartFailedError(f"{what}: not within {self._timeout:.0f} s\n{tail}")
            time.sleep(_INTERVAL)


def still_waiting(what: str, seconds: float) -> str:
    """A sentence about a wait that takes long, with the machine's load where that explains it."""
    text = f"Still waiting for {what} ({seconds:.0f} s)"
    cores, load = os.cpu_count() or 1, os.getloadavg()[0]
    if load > 2 * cores:
        text += f"; the machine is slow: {load:.0f} processes want its {cores} cores"
    return f"{text}."


def serves(requests: Requests) -> bool:
    """Whether the API server is ready and has made its own namespaces (a little after it says that it is ready)."""
    return (
        requests.send("GET", "/readyz").status == 200
        and requests.send("GET", "/api/v1/namespaces/default").status == 200
    )


def collects_garbage(requests: Requests) -> Callable[[], bool]:
    """A condition: an object whose owner does not exist has been deleted, so the garbage collector works."""
    name = f"garbage-collector-probe-{uuid.uuid4().hex[:8]}"
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": str(uuid.uuid4())}
    reply = requests.send(
        "POST",
        _SYSTEM_CONFIG_MAPS,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "ownerReferences": [owner]}},
    )
    if reply.status != 201:
        raise StartFailedError(f"the garbage collector's probe could not be created: {reply.text}")
    return lambda: requests.send("GET", f"{_SYSTEM_CONFIG_MAPS}/{name}").status == 404


def has_user_roles(requests: Requests) -> bool:
    """Whether the roles `view`, `edit` and `admin` have been put together from their parts."""
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    return all(requests.send("GET", f"{roles}/{name}").body.get("rules") for name in ("view", "edit", "admin"))


def join(requests: Requests, nodes: Sequence[Resource]) -> None:
    """Create the Node objects; those that exist already stay (a component was started again)."""
    for node in nodes:
        reply = requests.send("POST", "/api/v1/nodes", node)
        if reply.status not in (201, 409):
            raise StartFailedError(f"node {node['metadata']['name']} was refused: {reply.text}")


def takes_pods(requests: Requests, nodes: Sequence[str]) -> bool:
    """Whether every node is Ready and rid of the taints of a new node, and pods are admitted (they need a service
    account).
    """
    for name in nodes:
        node = requests.send("GET", f"/api/v1/nodes/{name}").body
        ready = [
            condition["status"]
            for condition in node.get("status", {}).get("conditions", [])
            if condition["type"] == "Ready"
        ]
        taints = [taint["key"] for taint in node.get("spec", {}).get("taints", [])]
        if ready != ["True"] or any(taint.startswith("node.kubernetes.io/") for taint in taints):
            return False
    return requests.send("GET", "/api/v1/namespaces/default/serviceaccounts/default").status == 200
