"""Build the images.

python -m tools.images.build [NAME ...] [--registry HOST/PATH] [--architecture arm64] [--base IMAGE]

The controller's image has our distribution (and what it needs) on the base; without --base the base is made here. Each
provider's image, and the toolbox, are one more layer on the controller's. The model downloader's is one layer on the
base and has nothing of the controller's. They have the names that the charts expect:
REGISTRY/airunway/controller:VERSION. Needs buildah, and root or subordinate user ids; no Docker.

Images of another architecture are put together of its packages and wheels. The one program that runs is Python, which
compiles its modules: that of this machine, since byte code is the same for all.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tools.charts.generate import manifests
from tools.charts.package import UNRELEASED
from tools.generated import ROOT
from tools.images.architectures import ARCHITECTURES, Architecture, here
from tools.images.base import Package, apt_missing, fetch, packages_of, rootfs, write_rootfs
from tools.images.bill import bill, problems
from tools.images.lock import moved
from tools.images.programs import toolbox_programs
from tools.images.site import Site, install
from tools.wheels import build_wheels, source_time

from airunway import __version__

__all__ = [
    "BASE",
    "CATALOGUE",
    "CONTROLLER",
    "DOWNLOADER",
    "LOCAL",
    "TOOLBOX",
    "Builder",
    "builder",
    "missing",
    "packages_by_image",
    "revision",
]

LOCAL = "localhost"
"""The registry of images that are on this machine only."""
BASE = "base"
CONTROLLER = "controller"
DOWNLOADER = "model-downloader"
"""What the Jobs of the model cache start; no part of AI Runway is in it."""
CATALOGUE = "catalogue"
"""The add-on that reads registries and nodes: one more layer on the controller's image, as a provider is."""
TOOLBOX = "toolbox"
"""Every provider, and helm 3 and 4 and kubectl: what tests of charts in CI need. No part of a release."""
_CONTEXT = ROOT / "images"


def packages_by_image() -> dict[str, str]:
    """The distribution that each image of a release is of."""
    providers = {f"provider-{each.name}": f"airunway-{each.name}" for each in manifests()}
    return {CONTROLLER: "airunway", DOWNLOADER: "airunway-downloader", CATALOGUE: "airunway-catalogue", **providers}


def missing(*architectures: str) -> str:
    """What this machine lacks to build images of these architectures (none: its own), or the empty string."""
    if shutil.which("buildah") is None:
        return "buildah is not on PATH"
    for name in architectures or (here().name,):
        if not ARCHITECTURES[name].strip:
            gnu = ARCHITECTURES[name].gnu
            return f"{gnu}-strip is not on PATH (Debian: package binutils-{gnu.replace('_', '-')})"
    return apt_missing()


@dataclass(frozen=True, kw_only=True)
class Builder:
    """Builds images out of wheels and Debian's packages that are there already.

    `work` is a folder of its own. `packages` are those of this machine's architecture and of the builder's own.
    """

    work: Path
    wheels: Path
    packages: Mapping[str, Sequence[Package]]
    registry: str
    time: int
    revision: str
    architecture: Architecture

    def of(self, architecture: Architecture, *, mirror: str = "") -> Builder:
        """The same for another architecture; Debian's packages are fetched. Raises CalledProcessError."""
        work = self.work / architecture.name
        (work / "debs").mkdir(parents=True)
        packages = {**self.packages, architecture.name: fetch(work / "debs", architecture, mirror=mirror)}
        return replace(self, work=work, packages=packages, architecture=architecture)

    def moved(self) -> list[str]:
        """Where Debian's packages are not those of images/base.lock.yaml, one sentence each."""
        own = self.architecture.name
        return moved(self.packages[own], own) if own in self.packages else []

    def base(self) -> str:
        """The base image; returns its name."""
        own, runs, library = self.architecture, here(), "usr/lib/python3.13"
        with _folder(self.work, "base") as context:
            shutil.copy(_CONTEXT / "compile.py", context)
            files = rootfs(self.packages[own.name], own)
            compiler = files if runs == own else rootfs(self.packages[runs.name], runs)
            write_rootfs(compiler, context / "compiler.tar", time=self.time)
            write_rootfs(files, context / "rootfs-without-library.tar", time=self.time, but=library)
            write_rootfs(files, context / "library.tar", time=self.time, only=library)
            return self._build(BASE, context, _CONTEXT / "Containerfile.base", {})

    def all(self) -> dict[str, str]:
        """Every image by its short name; what is there already is not built again."""
        base = ""
        for name in packages_by_image():
            if not self.bill_of(name).exists():
                base = base or self.base()
                self.image(name, base)
        return {name: self.tag(name) for name in packages_by_image()}

    def tag(self, name: str) -> str:
        """What an image is called."""
        return self._tag(name, self.architecture)

    def bill_of(self, name: str) -> Path:
        """Where the bill of materials of an image is once it is built."""
        return self.work / f"airunway-{name}.cdx.json"

    def image(self, name: str, base: str) -> str:
        """One image; returns its name. Raises LicenceError, CalledProcessError."""
        below, title = "", f"airunway-{name}"
        if name not in (CONTROLLER, DOWNLOADER):
            below = packages_by_image()[CONTROLLER]
            base = self.tag(CONTROLLER) if self.bill_of(CONTROLLER).exists() else self.image(CONTROLLER, base)
        with _folder(self.work, name) as context:
            shutil.copy(_CONTEXT / "compile.py", context)
            root = context / "root"
            site = self.site(name, root / "opt" / "airunway", below=below)
            programs = toolbox_programs() if name == TOOLBOX else []
            for program in programs:
                program.put_into(root)
            for metadata in site.folder.glob("*.dist-info/METADATA"):
                kept = self._metadata(name) / metadata.parent.name
                kept.mkdir(parents=True, exist_ok=True)
                shutil.copy(metadata, kept)
            installed = [
                Site(folder=self._metadata(each)) for each in dict.fromkeys([CONTROLLER if below else name, name])
            ]
            distributions = [found for each in installed for found in each.distributions()]
            debian = self.packages.get(self.architecture.name, [])
            made = bill(title, __version__, distributions, debian, self.time, programs=programs)
            (root / "usr/share/sbom").mkdir(parents=True)
            (root / "usr/share/sbom/airunway.cdx.json").write_text(made, encoding="utf-8")
            compiler = base if self.architecture == here() else self._tag(BASE, here())
            arguments = {
                "BASE": base,
                "COMPILER": compiler,
                "TITLE": title,
                "VERSION": __version__,
                "REVISION": self.revision,
            }
            file = "Containerfile.downloader" if name == DOWNLOADER else "Containerfile"
            image = self._build(name, context, _CONTEXT / file, arguments)
            self.bill_of(name).write_text(made, encoding="utf-8")
            return image

    def site(self, name: str, folder: Path, *, below: str = "", prune: bool = True) -> Site:
        """What is installed in an image on top of the distribution `below`.

        Raises SystemExit for a licence that must not be there.
        """
        providers = [package for image, package in packages_by_image().items() if image.startswith("provider-")]
        wanted = providers if name == TOOLBOX else [packages_by_image()[name]]
        site = install(wanted, self.wheels, folder, architecture=self.architecture, below=below, prune=prune)
        wrong = problems(site.distributions())
        if wrong:
            raise SystemExit("\n".join(wrong))
        return site

    def _metadata(self, name: str) -> Path:
        """What is known of the distributions that an image brings."""
        return self.work / f"metadata-{name}"

    def _tag(self, name: str, architecture: Architecture) -> str:
        suffix = "" if architecture == here() else f"-{architecture.name}"
        return f"{self.registry}/airunway/{name}:{__version__}{suffix}"

    def _build(self, name: str, context: Path, file: Path, arguments: Mapping[str, str]) -> str:
        image = self.tag(name)
        given = [part for key, value in arguments.items() for part in ("--build-arg", f"{key}={value}")]
        command = ["buildah", "bud", "--isolation", "chroot", "--pull-never", "--layers=false", "--quiet"]
        command += ["--timestamp", str(self.time), "--tag", image, "--file", str(file), *given]
        # The others have the architecture of their base: with --arch buildah would look for a compiler of that too.
        command += ["--arch", self.architecture.name] if name == BASE else []
        command.append(str(context))
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return image


@contextmanager
def builder(
    *,
    registry: str = LOCAL,
    mirror: str = "",
    debs: Path | None = None,
    base: bool = True,
) -> Iterator[Builder]:
    """A builder for this machine's architecture with fresh wheels for images in `registry` and, with `base`, Debian's
    packages: those in `debs`, which is filled if empty.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        wheels, debs = folder / "wheels", debs or folder / "debs"
        for each in (wheels, debs):
            each.mkdir(parents=True, exist_ok=True)
        build_wheels(wheels, registry=UNRELEASED if registry == LOCAL else registry, time=source_time())
        own = here()
        yield Builder(
            work=folder,
            wheels=wheels,
            packages={own.name: packages_of(debs) or fetch(debs, own, mirror=mirror)} if base else {},
            registry=registry,
            time=source_time(),
            revision=revision(),
            architecture=own,
        )


@contextmanager
def _folder(work: Path, name: str) -> Iterator[Path]:
    folder = work / f"context-{name}"
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def revision() -> str:
    """The commit that is checked out."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    """The exit code of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which, also {TOOLBOX}; default: {', '.join(packages_by_image())}")
    parser.add_argument("--base", default="", help="an image that is there already, instead of making one")
    parser.add_argument("--registry", default=LOCAL, help=f"where the charts look for them (default: {LOCAL})")
    parser.add_argument("--architecture", choices=sorted(ARCHITECTURES), default=here().name)
    parser.add_argument("--mirror", default="", help="archive of Debian (default: this machine's)")
    parser.add_argument("--debs", type=Path, help="folder with Debian's packages; filled where it is empty")
    parser.add_argument("--output", type=Path, default=None, help="folder for the bills of materials")
    arguments = parser.parse_args()
    architecture = ARCHITECTURES[arguments.architecture]
    lacking = missing(architecture.name)
    if lacking:
        sys.stderr.write(f"images cannot be built here: {lacking}\n")
        return 1
    if arguments.base and architecture != here():
        parser.error(f"--base is for {here().name}: the base of another architecture is made here")
    own = not arguments.base
    with builder(registry=arguments.registry, mirror=arguments.mirror, debs=arguments.debs, base=own) as made:
        if architecture != here():
            made.base()  # whose Python compiles
            made = made.of(architecture, mirror=arguments.mirror)
        sys.stderr.writelines(f"{line}\n" for line in made.moved())
        base = arguments.base or made.base()
        for name in arguments.names or packages_by_image():
            started = clock.monotonic()
            image = made.image(name, base)
            sys.stdout.write(f"{image} ({clock.monotonic() - started:.0f} s)\n")
        if arguments.output is not None:
            arguments.output.mkdir(parents=True, exist_ok=True)
            for path in made.work.glob("*.cdx.json"):
                shutil.copy(path, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
