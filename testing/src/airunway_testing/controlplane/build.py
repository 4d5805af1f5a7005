"""The last way to the programs: build them with Go, from the modules that the projects publish."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from airunway_testing.controlplane.errors import BuildFailedError, ChecksumMismatchError
from airunway_testing.controlplane.progress import Meter, Report
from airunway_testing.controlplane.toolchain import find_go
from airunway_testing.controlplane.versions import GO_SOURCES, KUBERNETES_VERSION, KWOK_VERSION, Component

_MULTI_CALL = "controlplane"
_MULTI_CALL_COMPONENTS: frozenset[Component] = frozenset(
    {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
)
_KWOK_MODULE = "sigs.k8s.io/kwok"
# Go's own hash of the module (what a go.sum would say): pinned here, as KWOK is the one module that our go.sum does
# not cover.
_KWOK_HASHES = {"v0.7.0": "h1:+eGsNOIPapjsSzeZlOEcwbpyEVa2Vqlcafa0qIjaKV4="}

GO_CACHES = ".go"
"""Folder of Go's caches while programs are built."""

_PROCESSOR_MINUTES = {"kube": 10, "kwok": 3}
_TAIL = 20


def expected_minutes(components: Collection[Component]) -> int:
    """About how long building takes on this machine with nothing compiled yet."""
    work = _PROCESSOR_MINUTES["kube"] * bool(_MULTI_CALL_COMPONENTS & set(components)) + _PROCESSOR_MINUTES["kwok"] * (
        "kwok" in components
    )
    return max(1, round(work / (os.cpu_count() or 1)))


def build(components: Collection[Component], folder: Path, *, environment: Mapping[str, str], report: Report) -> None:
    """Build the programs into `folder`; each appears whole or not at all.

    Go's caches of modules and objects (4 GB) stand below `folder` until all is built, unless the environment names
    others; after a failure they stay, so that the next try goes on from there.

    Raises BuildFailedError with the end of what Go said, ChecksumMismatchError when a module is not the expected one.
    """
    caches = folder / GO_CACHES
    go = _Go(find_go(environment, report=report), environment, report, caches=caches)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as scratch:
        if _MULTI_CALL_COMPONENTS & set(components):
            program = Path(scratch) / _MULTI_CALL
            go.build(GO_SOURCES, ".", program, title="Kubernetes and etcd", flags=_version_flags())
            program.replace(folder / _MULTI_CALL)
            for component in sorted(_MULTI_CALL_COMPONENTS & set(components)):
                link = Path(scratch) / component
                link.symlink_to(_MULTI_CALL)
                link.replace(folder / component)
        if "kwok" in components:
            program = Path(scratch) / "kwok"
            go.build(go.module(_KWOK_MODULE, KWOK_VERSION), "./cmd/kwok", program, title="KWOK", flags="-s -w")
            program.replace(folder / "kwok")
    shutil.rmtree(caches, ignore_errors=True)


def _version_flags() -> str:
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    values = {
        "gitVersion": KUBERNETES_VERSION,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "unknown",
    }
    return " ".join(
        ["-s", "-w", *(f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items())]
    )


class _Go:
    """Runs Go commands in an environment where only our own settings count."""

    def __init__(self, program: Path, environment: Mapping[str, str], report: Report, *, caches: Path) -> None:
        self._program = program
        self._report = report
        self._environment = {
            "GOCACHE": str(caches / "objects"),
            "GOMODCACHE": str(caches / "modules"),
            **environment,
            "CGO_ENABLED": "0",
            "GOFLAGS": "-mod=readonly -modcacherw",  # else the modules could not be deleted
            "GOTOOLCHAIN": "local",
            "GOWORK": "off",
            # Its hash is compared here: the public checksum database, which not every network reaches, is not needed
            # for it.
            "GONOSUMDB": ",".join(filter(None, [environment.get("GONOSUMDB"), _KWOK_MODULE])),
        }
        for name in ("GOOS", "GOARCH", "GOROOT"):
            self._environment.pop(name, None)

    def module(self, path: str, version: str) -> Path:
        """Fetch a module and return the folder with its sources."""
        output: list[str] = []

        def on_line(line: str) -> None:
            if not line.startswith("go: "):
                output.append(line)

        self._run(["mod", "download", "-json", f"{path}@{version}"], folder=Path("/"), on_line=on_line)
        try:
            found = json.loads("\n".join(output))
        except ValueError as error:
            raise BuildFailedError(f"go mod download {path}@{version} said: {' '.join(output)}") from error
        if found.get("Error"):
            raise BuildFailedError(f"{path}@{version}: {found['Error']}")
        if found["Sum"] != _KWOK_HASHES[version]:
            raise ChecksumMismatchError(
                f"{path}@{version} is not the expected module: its hash is {found['Sum']}, "
                f"expected is {_KWOK_HASHES[version]}"
            )
        return Path(found["Dir"])

    def build(self, folder: Path, package: str, target: Path, *, title: str, flags: str) -> None:
        """Build one program, counting packages."""
        packages: list[str] = []
        with Meter(f"{title}: fetching modules", unit="modules", report=self._report) as meter:
            fetched = 0

            def on_listed(line: str) -> None:
                nonlocal fetched
                if line.startswith("go: downloading"):
                    fetched += 1
                    meter.show(fetched, of=0)
                elif not line.startswith("go: "):
                    packages.append(line)

            self._run(["list", "-deps", package], folder=folder, on_line=on_listed)
        with Meter(f"{title}: compiling", unit="packages", report=self._report) as meter:
            compiled: set[str] = set()
            known = set(packages)

            def on_compiled(line: str) -> None:
                if line in known:
                    compiled.add(line)
                    meter.show(len(compiled), of=len(known))

            arguments = ["build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", str(target), package]
            self._run(arguments, folder=folder, on_line=on_compiled)

    def _run(self, arguments: Sequence[str], *, folder: Path, on_line: Callable[[str], None]) -> None:
        tail: list[str] = []
        with self._process(arguments, folder) as process:
            assert process.stdout is not None
            for line in process.stdout:
                on_line(line.rstrip("\n"))
                tail = [*tail[1 - _TAIL :], line.rstrip("\n")]
            code = process.wait()
        if code != 0:
            raise BuildFailedError(
                f"go {' '.join(arguments[:2])} failed in {folder}:\n" + "\n".join(f"  | {line}" for line in tail)
            )

    @contextlib.contextmanager
    def _process(self, arguments: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
        # A session of its own, so that Ctrl-C ends the compilers through us, all of them.
        with subprocess.Popen(
            [str(self._program), *arguments],
            cwd=folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
