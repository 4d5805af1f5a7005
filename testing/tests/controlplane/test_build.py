"""Building with Go. The Go here is a stand-in that says and does what Go would, in no time."""

import os
import sys
from pathlib import Path

import pytest

from airunway_testing.controlplane import BinariesUnavailableError, ChecksumMismatchError
from airunway_testing.controlplane.binaries import find_binaries
from airunway_testing.controlplane.build import expected_minutes
from airunway_testing.controlplane.cache import control_plane_cache
from airunway_testing.controlplane.versions import KUBERNETES_VERSION, components_of

KWOK_HASH = "h1:+eGsNOIPapjsSzeZlOEcwbpyEVa2Vqlcafa0qIjaKV4="

STAND_IN = """#!{python}
import json, os, sys
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps([arguments, os.environ["CGO_ENABLED"] if arguments[0] != "env" else ""]) + "\\n")
match arguments[:2]:
    case ["env", "GOVERSION"]:
        print("go1.99.0")
    case ["mod", "download"]:
        print("go: downloading something", file=sys.stderr)
        print(json.dumps({{"Dir": {folder!r}, "Sum": {kwok_hash!r}}}))
    case ["list", _]:
        print("go: downloading example.test/module v1.0.0", file=sys.stderr)
        print("fmt\\nexample.test/module\\nexample.test/program")
    case ["build", _]:
        if {broken!r} in arguments:
            print("example.test/module\\n./main.go:7:2: undefined: fmt.Prinln", file=sys.stderr)
            sys.exit(1)
        print("fmt\\nexample.test/module", file=sys.stderr)
        os.makedirs(os.environ["GOCACHE"], exist_ok=True)
        target = arguments[arguments.index("-o") + 1]
        open(target, "w").write("#!/bin/sh\\n")
        os.chmod(target, 0o755)
"""


def stand_in(folder: Path, *, kwok_hash: str = KWOK_HASH, broken: str = "") -> dict[str, str]:
    """An environment in which that Go is the only thing on PATH, and the cache is empty."""
    folder.joinpath("bin").mkdir()
    go = folder / "bin" / "go"
    values = {"log": str(folder / "log"), "folder": str(folder), "kwok_hash": kwok_hash, "broken": broken}
    go.write_text(STAND_IN.format(python=sys.executable, **values))
    go.chmod(0o755)
    return {
        "PATH": str(go.parent),
        "HOME": os.environ.get("HOME", "/"),
        "AIRUNWAY_CACHE": str(folder / "cache"),
        "AIRUNWAY_CONTROLPLANE_SOURCE": "cache,build",
    }


def test_programs_are_built_into_the_cache_once(tmp_path: Path) -> None:
    environment = stand_in(tmp_path)
    lines: list[str] = []
    found = find_binaries("cluster", report=lines.append, environment=environment)
    folder = control_plane_cache(environment)
    assert {path.name for path in found.values()} == set(components_of("cluster"))
    assert {(folder / name).resolve().name for name in ("etcd", "kube-apiserver", "kube-scheduler")} == {"controlplane"}
    assert [path.name for path in folder.glob(".build-*")] == []
    assert not (folder / ".go").exists(), "4 GB of Go's caches stayed after a build"
    assert len(lines) == 1
    assert f"the cache ({folder}) has no etcd" in lines[0]
    assert (
        "Building etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok with Go: once, about" in lines[0]
    )

    commands = (tmp_path / "log").read_text()
    assert f"version.gitVersion={KUBERNETES_VERSION}" in commands
    assert '"-trimpath"' in commands
    find_binaries("cluster", report=lines.append, environment=environment)
    assert (tmp_path / "log").read_text() == commands, "the second time nothing is built"


def test_only_what_the_level_needs_is_built(tmp_path: Path) -> None:
    environment = stand_in(tmp_path)
    find_binaries("api", report=print, environment=environment)
    assert not (control_plane_cache(environment) / "kwok").exists()
    assert "sigs.k8s.io/kwok" not in (tmp_path / "log").read_text()


def test_failed_build_shows_what_go_said(tmp_path: Path) -> None:
    environment = stand_in(tmp_path, broken=".")
    with pytest.raises(BinariesUnavailableError) as failure:
        find_binaries("api", report=print, environment=environment)
    assert "go build -v failed" in str(failure.value)
    assert "undefined: fmt.Prinln" in str(failure.value)
    folder = control_plane_cache(environment)
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_kwok_with_another_hash_is_refused(tmp_path: Path) -> None:
    environment = stand_in(tmp_path, kwok_hash="h1:somebody-elses")
    with pytest.raises(ChecksumMismatchError, match=r"hash is h1:somebody-elses, expected is h1:\+eGsNOIP"):
        find_binaries("cluster", report=print, environment=environment)


def test_expected_time_is_never_nothing() -> None:
    assert expected_minutes(["kwok"]) >= 1
    assert expected_minutes(components_of("cluster")) >= expected_minutes(["kwok"])
