"""Everything of a release in one folder.

python -m tools.release VERSION [--registry HOST/PATH] [--signing-key FILE] [--output DIR] [--without-images] [--public]

    python/       wheels and sdists of all distributions; core and providers carry their charts
    charts/       packaged charts, whose images are in the registry that was given, by digest
    images/       one OCI archive for each image, of all architectures, and their digests
    charts-oci/   the charts as OCI archives, and their digests
    sboms/        bills of materials of the images (CycloneDX), by architecture
    install.yaml  CRDs and core for kubectl apply --server-side; crds.yaml: the CRDs alone
    CHANGELOG.md  what changed
    provenance.json  what all of it was made of (SLSA v1); with a key provenance.intoto.jsonl, the same and signed
    checksums.txt    sha256 of all the rest; with a key checksums.txt.sig and signing-key.pub

With a key the archives have signatures and attestations too: `python -m tools.publish` brings them to a registry. The
same commit and the same key make the same files. docs/releases/verify.md says how all of it is checked.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import yaml
from tools.changelog import ChangelogError, changelog
from tools.charts.package import UNRELEASED, package_charts, render
from tools.generated import ROOT
from tools.home import home, is_public
from tools.images import build
from tools.images.architectures import ARCHITECTURES, here
from tools.sign import CHARTS, IMAGES, seal, sign
from tools.supply.oci import Layout, archive, chart_layout
from tools.supply.provenance import Build
from tools.supply.signing import KeyFileError, Signer, load_key
from tools.wheels import build_wheels, source_time

from airunway.api.names import DEFAULT_NAMESPACE
from airunway.install.bundled_charts import CORE, DEFINITIONS

__all__ = ["ReleaseError", "main", "options", "release"]


class ReleaseError(Exception):
    """There can be no release; one sentence says why, and what to do."""


def release(
    version: str,
    target: Path,
    *,
    registry: str,
    images: Sequence[build.Builder],
    signer: Signer | None = None,
    builder: str = "",
    run: str = "",
) -> None:
    """Write a release into the folder `target`, which must not be there.

    `images` builds each image for one architecture; where it is empty there are none, and charts name tags. Without
    `signer` nothing is signed. `builder` and `run` are what the provenance says of who built.
    Raises ReleaseError, CalledProcessError.
    """
    _check(version, target)
    time = source_time()
    made = Build(version=version, registry=registry, commit=build.revision(), builder=builder, run=run)
    target.mkdir(parents=True)
    images_digests = _images(images, target, time=time, made=made) if images else {}
    build_wheels(target / "python", registry=registry, time=time, kinds=("wheel", "sdist"), digests=images_digests)
    charts = package_charts(target / "charts", registry=registry, time=time, digests=images_digests)
    _manifests(target, charts)
    charts_digests = _charts(charts, target, time=time, made=made)
    (target / "CHANGELOG.md").write_text(changelog(version, _date(time)), encoding="utf-8")
    seal(target, made, images_digests | charts_digests)
    if signer is not None:
        sign(target, signer)


def _check(version: str, target: Path) -> None:
    if target.exists():
        raise ReleaseError(f"{target} is there already: remove it, or name another folder with --output")
    patterns = ("core", "catalogue", "downloader", "testing", "ui", "providers/*", "providers/*/simulator")
    projects = sorted(path for pattern in patterns for path in ROOT.glob(f"{pattern}/pyproject.toml"))
    for path in projects:
        found = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["version"]
        if found != version:
            raise ReleaseError(
                f"{path.relative_to(ROOT)} has version {found}, not {version}: all distributions, charts and images of "
                "a release have one version; change it there, then `uv lock` and `make generate`"
            )


def _manifests(target: Path, charts: dict[str, Path]) -> None:
    """What those apply who have no helm: CRDs and core."""
    namespace = yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": DEFAULT_NAMESPACE}})
    crds, core = (render(charts[part], name=part, namespace=DEFAULT_NAMESPACE) for part in (DEFINITIONS, CORE))
    (target / "crds.yaml").write_text(crds, encoding="utf-8")
    (target / "install.yaml").write_text(f"---\n{namespace}{crds}{core}", encoding="utf-8")


def _images(builders: Sequence[build.Builder], target: Path, *, time: int, made: Build) -> dict[str, str]:
    """Archives and bills; what was not built yet is. Returns the digests by repository."""
    folder, bills = target / IMAGES, target / "sboms"
    folder.mkdir()
    bills.mkdir()
    digests = {}
    built = {builder.architecture.name: builder.all() for builder in builders}
    for name in build.packages_by_image():
        for builder in builders:
            shutil.copy(builder.bill_of(name), bills / f"airunway-{name}-{builder.architecture.name}.cdx.json")
        with tempfile.TemporaryDirectory() as temporary:
            layout = Layout(folder=Path(temporary) / name)
            for architecture, names in built.items():
                subprocess.run(
                    ["buildah", "push", "--quiet", names[name], f"oci:{layout.folder}:{architecture}"], check=True
                )
            index = layout.index(layout.tags())
            layout.tag({made.version: index})
            digests[f"airunway/{name}"] = str(index["digest"])
            archive(layout.folder, folder / f"{name}.oci.tar", time=time)
    _write_digests(folder, digests)
    return digests


def _charts(charts: Mapping[str, Path], target: Path, *, time: int, made: Build) -> dict[str, str]:
    """The charts as archives. Returns the digests by repository."""
    folder = target / CHARTS
    folder.mkdir()
    digests = {}
    created = datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name, package in charts.items():
        with tempfile.TemporaryDirectory() as temporary:
            layout = chart_layout(Path(temporary) / name, package, created=created)
            digests[f"airunway/charts/{name}"] = str(layout.tags()[made.version]["digest"])
            archive(layout.folder, folder / f"{name}.oci.tar", time=time)
    _write_digests(folder, digests)
    return digests


def _write_digests(folder: Path, digests: Mapping[str, str]) -> None:
    lines = [f"{repository} {digest}\n" for repository, digest in digests.items()]
    (folder / "digests.txt").write_text("".join(lines), encoding="utf-8")


def _date(time: int) -> str:
    return datetime.fromtimestamp(time, UTC).date().isoformat()


def _check_public(*, signed: bool) -> None:
    """What a release that strangers are to trust needs besides. Raises ReleaseError."""
    if not signed:
        raise ReleaseError(
            "a release for the public is signed: give --signing-key (make release SIGNING_KEY=FILE), or --sign-later "
            "where python -m tools.sign does it elsewhere"
        )
    if not is_public():
        raise ReleaseError(
            f"{home()} is an address for examples: set `home` in [tool.airunway] of pyproject.toml to the public "
            "repository's, then `make generate`"
        )
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    if changed:
        raise ReleaseError(f"the provenance would name a commit without these: commit them first\n{changed}")


@contextmanager
def _builders(*, registry: str, mirror: str) -> Iterator[list[build.Builder]]:
    """One for each architecture, all of packages that the lock names. Raises ReleaseError."""
    with build.builder(registry=registry, mirror=mirror) as first:
        first.base()  # whose Python compiles for the others
        others = [first.of(each, mirror=mirror) for each in ARCHITECTURES.values() if each != here()]
        builders = sorted([first, *others], key=lambda made: made.architecture.name)
        moved = [line for made in builders for line in made.moved()]
        if moved:
            raise ReleaseError(
                "Debian's archive has moved on from images/base.lock.yaml: `make images-lock`, look at what changed, "
                "commit it, and release that; or name an archive of that day with --mirror (images/README.md)\n"
                + "\n".join(moved)
            )
        yield builders


def options() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--registry", default=UNRELEASED, help="where the images will be, e.g. registry.internal/team")
    parser.add_argument("--output", type=Path, default=None, help="folder (default: dist/release-VERSION)")
    parser.add_argument("--without-images", action="store_true", help="where images cannot be built")
    parser.add_argument("--mirror", default="", help="archive of Debian (default: this machine's)")
    parser.add_argument("--signing-key", type=Path, help="private key (PEM, ECDSA P-256); SIGNING_PASSWORD opens it")
    parser.add_argument(
        "--sign-later", action="store_true", help="python -m tools.sign signs it, where nothing is built"
    )
    parser.add_argument("--builder-id", default="", help="URI of what runs this, for the provenance")
    parser.add_argument("--run", default="", help="URI of this run, for the provenance")
    parser.add_argument("--public", action="store_true", help="refuse what strangers should not be asked to trust")
    return parser


def main() -> int:
    """The exit code of the command."""
    arguments = options().parse_args()
    target = arguments.output or ROOT / "dist" / f"release-{arguments.version}"
    lacking = "" if arguments.without_images else build.missing(*ARCHITECTURES)
    if lacking:
        sys.stderr.write(f"images cannot be built here: {lacking}; --without-images leaves them out\n")
        return 1
    try:
        key = arguments.signing_key
        signer = load_key(key, password=os.environ.get("SIGNING_PASSWORD", "")) if key else None
        if arguments.public:
            _check_public(signed=signer is not None or arguments.sign_later)
        _check(arguments.version, target)
        builders: AbstractContextManager[Sequence[build.Builder]] = nullcontext(())
        if not arguments.without_images:
            builders = _builders(registry=arguments.registry, mirror=arguments.mirror)
        with builders as images:
            release(
                arguments.version,
                target,
                registry=arguments.registry,
                images=images,
                signer=signer,
                builder=arguments.builder_id,
                run=arguments.run,
            )
    except (ReleaseError, KeyFileError, ChangelogError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"{error}\n{error.stderr or ''}\n")
        return 1
    if signer is None and not arguments.sign_later:
        sys.stderr.write("nothing is signed: make release SIGNING_KEY=FILE does\n")
    sys.stdout.write((target / "checksums.txt").read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
