"""Where the programs come from, and in which order."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from airunway_testing.controlplane import (
    ETCD_VERSION,
    KUBERNETES_VERSION,
    BinariesUnavailableError,
    ControlPlaneError,
)
from airunway_testing.controlplane.access import RunningCluster, named_kubeconfig, running
from airunway_testing.controlplane.binaries import find_binaries, source_order
from airunway_testing.controlplane.cache import cache_root, control_plane_cache
from airunway_testing.controlplane.toolchain import go_version, required_go
from airunway_testing.controlplane.versions import GO_SOURCES, cache_key, components_of


def ignore(line: str) -> None:
    """Takes a report that the test does not look at."""


def programs(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("environment", "cluster_named", "expected"),
    [
        ({}, False, ("assets", "cache", "download", "build")),
        ({}, True, ("cluster",)),
        ({"AIRUNWAY_CONTROLPLANE_SOURCE": "build"}, False, ("build",)),
        ({"AIRUNWAY_CONTROLPLANE_SOURCE": "build"}, True, ("build",)),
        ({"AIRUNWAY_CONTROLPLANE_SOURCE": "k3s"}, False, ("k3s",)),
        ({"AIRUNWAY_CONTROLPLANE_SOURCE": "cluster"}, False, ("cluster",)),
        ({"AIRUNWAY_CONTROLPLANE_SOURCE": "download, cache"}, False, ("cache", "download")),
        ({"AIRUNWAY_CONTROLPLANE_SOURCE": ""}, False, ("assets", "cache", "download", "build")),
    ],
)
def test_order(environment: Mapping[str, str], cluster_named: bool, expected: tuple[str, ...]) -> None:
    assert source_order(environment, cluster_named=cluster_named) == expected


def test_unknown_source_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ControlPlaneError, match=r"no source 'bazaar'.*cluster, assets, cache, download, k3s, build"):
        source_order({"AIRUNWAY_CONTROLPLANE_SOURCE": "cache,bazaar"})


def test_whole_cluster_is_not_combined_with_programs() -> None:
    with pytest.raises(ControlPlaneError, match="name them alone"):
        source_order({"AIRUNWAY_CONTROLPLANE_SOURCE": "k3s,build"})


def test_assets_go_before_the_cache_which_completes_them(tmp_path: Path) -> None:
    environment = {
        "KUBEBUILDER_ASSETS": str(programs(tmp_path / "assets", "etcd", "kube-apiserver")),
        "AIRUNWAY_CACHE": str(tmp_path / "cache"),
        "AIRUNWAY_CONTROLPLANE_SOURCE": "assets,cache",
    }
    cache = programs(control_plane_cache(environment), *components_of("cluster"))
    found = find_binaries("api", report=ignore, environment=environment)
    assert found == {
        "etcd": tmp_path / "assets" / "etcd",
        "kube-apiserver": tmp_path / "assets" / "kube-apiserver",
        "kube-controller-manager": cache / "kube-controller-manager",
    }


def test_file_that_is_no_program_does_not_count(tmp_path: Path) -> None:
    environment = {
        "KUBEBUILDER_ASSETS": str(programs(tmp_path / "assets", "etcd", "kube-apiserver", "kube-controller-manager")),
        "AIRUNWAY_CONTROLPLANE_SOURCE": "assets",
    }
    (tmp_path / "assets" / "etcd").chmod(0o644)
    with pytest.raises(
        BinariesUnavailableError, match=r"(?s)no etcd for a control plane.*KUBEBUILDER_ASSETS .* has no etcd"
    ):
        find_binaries("api", report=ignore, environment=environment)


def test_failure_says_what_every_source_said_and_what_to_do(tmp_path: Path) -> None:
    environment = {
        "AIRUNWAY_CACHE": str(tmp_path),
        "AIRUNWAY_CONTROLPLANE_SOURCE": "assets,cache,download",
        "AIRUNWAY_RELEASE_MIRROR": "http://127.0.0.1:1",  # nobody listens on port 1
    }
    with pytest.raises(BinariesUnavailableError) as failure:
        find_binaries("cluster", report=ignore, environment=environment)
    message = str(failure.value)
    assert "KUBEBUILDER_ASSETS is not set" in message
    assert f"the cache ({control_plane_cache(environment)}) has no etcd" in message
    assert "http://127.0.0.1:1/github.com/etcd-io/etcd" in message
    assert "not reachable" in message
    assert message.count("not reachable") == 1, "one unreachable host is enough to know"
    assert "set AIRUNWAY_RELEASE_MIRROR, install Go" in message


def test_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environment = {"AIRUNWAY_CACHE": str(tmp_path / "file"), "AIRUNWAY_CONTROLPLANE_SOURCE": "build"}
    with pytest.raises(ControlPlaneError, match=r"the cache cannot be written .*set AIRUNWAY_CACHE"):
        find_binaries("api", report=ignore, environment=environment)


def test_cache_is_where_the_environment_says() -> None:
    assert cache_root({"AIRUNWAY_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert cache_root({"XDG_CACHE_HOME": "/b"}) == Path("/b/airunway")
    assert cache_root({}) == Path.home() / ".cache" / "airunway"
    assert control_plane_cache({"AIRUNWAY_CACHE": "/a"}) == Path("/a/controlplane") / cache_key()


def test_go_module_and_constants_name_the_same_versions() -> None:
    module = (GO_SOURCES / "go.mod").read_text()
    assert f"\tk8s.io/kubernetes {KUBERNETES_VERSION}\n" in module
    assert f"\tgo.etcd.io/etcd/server/v3 {ETCD_VERSION}\n" in module
    staging = re.findall(r"^\tk8s\.io/\S+ => k8s\.io/\S+ (\S+)$", module, re.MULTILINE)
    assert set(staging) == {"v0." + KUBERNETES_VERSION.removeprefix("v1.")}
    for part in (KUBERNETES_VERSION, ETCD_VERSION):
        assert part in cache_key()


def test_go_release_is_read_from_the_program(tmp_path: Path) -> None:
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.19.8\n")
    go.chmod(0o755)
    assert go_version(go) == (1, 19)
    assert go_version(go) < required_go()  # type: ignore[operator]
    assert go_version(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("level", "names", "expected"),
    [
        ("api", ["AIRUNWAY_TEST_KUBECONFIG", "AIRUNWAY_TEST_CLUSTER_KUBECONFIG"], "AIRUNWAY_TEST_KUBECONFIG"),
        ("api", ["AIRUNWAY_TEST_CLUSTER_KUBECONFIG"], "AIRUNWAY_TEST_CLUSTER_KUBECONFIG"),
        (
            "cluster",
            ["AIRUNWAY_TEST_KUBECONFIG", "AIRUNWAY_TEST_CLUSTER_KUBECONFIG"],
            "AIRUNWAY_TEST_CLUSTER_KUBECONFIG",
        ),
        ("cluster", ["AIRUNWAY_TEST_KUBECONFIG"], None),
    ],
)
def test_named_kubeconfig(tmp_path: Path, level: str, names: list[str], expected: str | None) -> None:
    for name in names:
        (tmp_path / name).touch()
    found = named_kubeconfig(level, {name: str(tmp_path / name) for name in names})  # type: ignore[arg-type]
    assert found == (tmp_path / expected if expected else None)


def test_named_kubeconfig_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ControlPlaneError, match="has that control plane been stopped"):
        named_kubeconfig("api", {"AIRUNWAY_TEST_KUBECONFIG": str(tmp_path / "gone")})


OWN_CLUSTER = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://cluster.example.test"}}]
users: [{name: boss, user: {token: secret}}, {name: other, user: {token: hidden}}]
contexts:
- {name: staging, context: {cluster: c, user: other}}
- {name: production, context: {cluster: c, user: boss}}
current-context: production
"""


def test_own_cluster_impersonates_and_uses_the_context_asked_for(tmp_path: Path) -> None:
    import yaml

    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(OWN_CLUSTER)
    with running("cluster", kubeconfig=kubeconfig, context="staging") as cluster:
        assert isinstance(cluster, RunningCluster)
        assert cluster.audit_log is None
        assert yaml.safe_load(cluster.kubeconfig.read_text())["current-context"] == "staging"
        acting = yaml.safe_load(cluster.kubeconfig_for("ada", ["readers"]).read_text())
        users = {entry["name"]: entry["user"] for entry in acting["users"]}
        assert users["other"] == {"token": "hidden", "as": "ada", "as-groups": ["readers"]}
        assert users["boss"] == {"token": "secret"}
    assert kubeconfig.read_text() == OWN_CLUSTER
    with (
        pytest.raises(ControlPlaneError, match=r"no context 'moon'; it has: staging, production"),
        running("api", kubeconfig=kubeconfig, context="moon"),
    ):
        pass
