"""The command lines of the components: pure functions of a `Layout`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from airunway.resource import Resource
from airunway_testing.controlplane.certificates import Authority, KeyPair, key_pair_of_service_accounts, new_authority
from airunway_testing.controlplane.kubeconfigs import write_kubeconfig
from airunway_testing.controlplane.versions import Component, Level

AuditLevel = Literal["Metadata", "Request", "RequestResponse"]

EGRESS_SOCKET = "egress.sock"
"""The socket in a control plane's folder at which the proxy of its API server listens, where it has one."""

_SERVICE_RANGE = "10.96.0.0/16"
_SERVICE_RANGE_IPV6 = "fd00:10:96::/108"
_FIRST_SERVICE_ADDRESS = "10.96.0.1"  # the one that `kubernetes.default` gets

# What a real cluster runs, without what needs a cloud, a container runtime or real volumes.
_CLUSTER_CONTROLLERS = (
    "*",
    "-cloud-node-lifecycle-controller",
    "-device-taint-eviction-controller",
    "-node-ipam-controller",
    "-node-route-controller",
    "-persistentvolume-attach-detach-controller",
    "-service-lb-controller",
    "-ttl-controller",
)
# The components' own default of 20 requests a second is made for clusters that start once; it would cost seconds here.
_UNTHROTTLED = ("--kube-api-qps=500", "--kube-api-burst=1000")
_CONTROLLERS: dict[Level, Sequence[str]] = {
    # The aggregation controller fills the roles `view`, `edit` and `admin`: without it they grant nothing, and tests
    # of RBAC mean little.
    "api": ("garbage-collector-controller", "namespace-controller", "clusterrole-aggregation-controller"),
    "cluster": _CLUSTER_CONTROLLERS,
}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where one control plane has what: its folder, its ports, its credentials."""

    directory: Path
    level: Level
    server_port: int
    store_port: int
    audit: AuditLevel | None
    authority: Authority
    front_proxy_authority: Authority
    store_authority: Authority
    server: KeyPair
    store: KeyPair
    store_client: KeyPair
    front_proxy_client: KeyPair
    service_accounts: KeyPair
    admin: KeyPair
    extra_server_flags: tuple[str, ...]
    egress: bool = False
    """The API server reaches pods and kubelets through the proxy at EGRESS_SOCKET."""
    ipv6: bool = False
    """Services and pods get addresses of IPv6 only."""

    @property
    def url(self) -> str:
        """The address of the API server."""
        return f"https://127.0.0.1:{self.server_port}"

    @property
    def audit_log(self) -> Path | None:
        """The audit log, one JSON event per line; None when none was asked for."""
        return self.directory / "audit.log" if self.audit else None

    def component_kubeconfig(self, name: Component) -> Path:
        """The kubeconfig that a component uses."""
        return self.directory / f"{name}.kubeconfig"


def new_layout(
    directory: Path,
    *,
    level: Level,
    ports: Sequence[int],
    audit: AuditLevel | None,
    extra_server_flags: Sequence[str],
    egress: bool = False,
    ipv6: bool = False,
) -> Layout:
    """Make the credentials and files of a control plane in `directory`; `ports` are the API server's and the store's.

    The store has an authority of its own: a certificate that identifies a user of Kubernetes does not open etcd.
    """
    folder = directory / "certificates"
    folder.mkdir()
    authority = new_authority(folder / "ca", name="airunway-test-ca")
    front_proxy_authority = new_authority(folder / "front-proxy-ca", name="airunway-test-front-proxy-ca")
    store_authority = new_authority(folder / "etcd-ca", name="airunway-test-etcd-ca")
    service_names = (
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    )
    layout = Layout(
        directory=directory,
        level=level,
        server_port=ports[0],
        store_port=ports[1],
        audit=audit,
        authority=authority,
        front_proxy_authority=front_proxy_authority,
        store_authority=store_authority,
        server=authority.server(
            folder / "kube-apiserver",
            name="kube-apiserver",
            hosts=("127.0.0.1", "localhost", _FIRST_SERVICE_ADDRESS, *service_names),
        ),
        store=store_authority.server(folder / "etcd", name="etcd", hosts=("127.0.0.1", "localhost")),
        store_client=store_authority.client(folder / "etcd-client", user="kube-apiserver"),
        front_proxy_client=front_proxy_authority.client(folder / "front-proxy-client", user="front-proxy-client"),
        service_accounts=key_pair_of_service_accounts(folder / "service-accounts"),
        admin=authority.client(folder / "admin", user="admin", groups=("system:masters",)),
        extra_server_flags=tuple(extra_server_flags),
        egress=egress,
        ipv6=ipv6,
    )
    users: dict[Component, tuple[str, ...]] = {
        "kube-controller-manager": (),
        "kube-scheduler": (),
        "kwok": ("system:masters",),  # plays every kubelet at once; no role of RBAC covers that
    }
    for name, groups in users.items():
        user = f"system:{name}"
        client = authority.client(folder / name, user=user, groups=groups)
        write_kubeconfig(
            layout.component_kubeconfig(name),
            server=layout.url,
            authority=authority.files.certificate,
            client=client,
            user=user,
        )
    return layout


def audit_policy(level: AuditLevel) -> Resource:
    """Everything is logged once, when its answer is complete: who reads the log filters it."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": level}],
    }


def egress_selection() -> Resource:
    """Connections to pods, kubelets and Services go through an HTTP CONNECT proxy at EGRESS_SOCKET.

    The API server runs in the control plane's folder. A path that begins there would be too long for a socket.
    """
    connection = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": EGRESS_SOCKET}}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": connection}],
    }


def command(name: Component, layout: Layout, *, executable: Path) -> list[str]:
    """The command line of a component."""
    flags = {
        "etcd": _etcd,
        "kube-apiserver": _server,
        "kube-controller-manager": _controller_manager,
        "kube-scheduler": _scheduler,
        "kwok": _kwok,
    }[name](layout)
    return [str(executable), *flags]


def _etcd(layout: Layout) -> list[str]:
    client = f"https://127.0.0.1:{layout.store_port}"
    # A store of one never talks to peers, but insists on an address for them: a socket in the folder costs no port.
    # ("unix://host:port" is a file of that name in the working folder.)
    peer = "unix://peer:1"
    return [
        "--data-dir=etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--cert-file={layout.store.certificate}",
        f"--key-file={layout.store.key}",
        f"--trusted-ca-file={layout.store_authority.files.certificate}",
        "--client-cert-auth",
        "--unsafe-no-fsync",  # the data is thrown away with the folder
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def _server(layout: Layout) -> list[str]:
    flags = [
        "--bind-address=127.0.0.1",
        # Of the family of the Services' addresses; no client connects to it.
        f"--advertise-address={'::1' if layout.ipv6 else '127.0.0.1'}",
        f"--secure-port={layout.server_port}",
        "--endpoint-reconciler-type=none",  # an Endpoints object may not hold a loopback address
        f"--etcd-servers=https://127.0.0.1:{layout.store_port}",
        f"--etcd-cafile={layout.store_authority.files.certificate}",
        f"--etcd-certfile={layout.store_client.certificate}",
        f"--etcd-keyfile={layout.store_client.key}",
        f"--tls-cert-file={layout.server.certificate}",
        f"--tls-private-key-file={layout.server.key}",
        f"--client-ca-file={layout.authority.files.certificate}",
        f"--requestheader-client-ca-file={layout.front_proxy_authority.files.certificate}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={layout.front_proxy_client.certificate}",
        f"--proxy-client-key-file={layout.front_proxy_client.key}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-signing-key-file={layout.service_accounts.key}",
        f"--service-account-key-file={layout.service_accounts.certificate}",
        f"--service-cluster-ip-range={_SERVICE_RANGE_IPV6 if layout.ipv6 else _SERVICE_RANGE}",
        "--authorization-mode=RBAC",
        "--allow-privileged",
        "--profiling=false",
    ]
    if layout.level == "api":
        # Nobody makes the `default` service accounts at this level, and pods are only records.
        flags.append("--disable-admission-plugins=ServiceAccount")
    if layout.audit:
        flags += ["--audit-policy-file=audit-policy.json", f"--audit-log-path={layout.audit_log}"]
    if layout.egress:
        flags.append("--egress-selector-config-file=egress.json")
    return [*flags, *layout.extra_server_flags]


def _controller_manager(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.component_kubeconfig('kube-controller-manager')}",
        f"--controllers={','.join(_CONTROLLERS[layout.level])}",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={layout.service_accounts.key}",
        f"--root-ca-file={layout.authority.files.certificate}",
        f"--cluster-signing-cert-file={layout.authority.files.certificate}",
        f"--cluster-signing-key-file={layout.authority.files.key}",
        "--leader-elect=false",
        "--horizontal-pod-autoscaler-sync-period=1s",  # 15 s by default, for which whoever tests one would wait
        "--secure-port=0",
        "--profiling=false",
        *_UNTHROTTLED,
    ]


def _scheduler(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.component_kubeconfig('kube-scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
        "--profiling=false",
        *_UNTHROTTLED,
    ]


def _kwok(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.component_kubeconfig('kwok')}",
        "--config=kwok.yaml",
        "--manage-all-nodes",
        "--node-lease-duration-seconds=40",  # without leases the node lifecycle controller finds the nodes unreachable
        f"--cidr={'fd00:10:244::1/64' if layout.ipv6 else '10.244.0.1/16'}",
    ]
