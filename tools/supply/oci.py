"""OCI layouts: folders of blobs with an index, as `skopeo copy` takes them (OCI image specification 1.1)."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airunway.resource import Resource

__all__ = ["Layout", "archive", "chart_layout"]

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
_REFERENCE = "org.opencontainers.image.ref.name"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A layout in a folder, which may be there already."""

    folder: Path

    def put(self, content: bytes, media_type: str) -> Resource:
        """Add a blob; returns its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        blobs = self.folder / "blobs" / "sha256"
        blobs.mkdir(parents=True, exist_ok=True)
        (blobs / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def artifact(
        self,
        layers: Sequence[Resource],
        *,
        config: Resource | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Resource:
        """Add a manifest of these layers; without `config` it has that of an image without anything in it."""
        empty = {
            "architecture": "",
            "created": "0001-01-01T00:00:00Z",
            "history": [{"created": "0001-01-01T00:00:00Z"} for _ in layers],
            "os": "",
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in layers]},
            "config": {},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config or self.put(_json(empty), CONFIG),
            "layers": list(layers),
            **({"annotations": dict(annotations)} if annotations else {}),
        }
        return self.put(_json(manifest), MANIFEST)

    def index(self, manifests: Mapping[str, Resource]) -> Resource:
        """Add one image out of those of several architectures."""
        found = [
            {**_plain(manifest), "platform": {"architecture": architecture, "os": "linux"}}
            for architecture, manifest in manifests.items()
        ]
        return self.put(_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": found}), INDEX)

    def tags(self) -> dict[str, Resource]:
        """What the layout offers, by tag."""
        path = self.folder / "index.json"
        entries = json.loads(path.read_text(encoding="utf-8"))["manifests"] if path.exists() else []
        return {entry["annotations"][_REFERENCE]: entry for entry in entries}

    def tag(self, tags: Mapping[str, Resource]) -> None:
        """Offer these, and nothing else."""
        entries = []
        for tag, found in tags.items():
            entries.append({**_plain(found), "annotations": {**found.get("annotations", {}), _REFERENCE: tag}})
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}', encoding="utf-8")
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}
        (self.folder / "index.json").write_bytes(_json(index))


def chart_layout(folder: Path, package: Path, *, created: str) -> Layout:
    """A layout with a packaged chart as `helm push` makes it, but for the time, which is that of the commit."""
    import yaml  # not where a release is only signed

    made = Layout(folder=folder)
    with tarfile.open(package) as packed:
        (name,) = (each for each in packed.getnames() if each.count("/") == 1 and each.endswith("/Chart.yaml"))
        file = packed.extractfile(name)
        assert file is not None
        metadata: Resource = yaml.safe_load(file.read())
    layer = made.put(package.read_bytes(), "application/vnd.cncf.helm.chart.content.v1.tar+gzip")
    config = made.put(_json(metadata), "application/vnd.cncf.helm.config.v1+json")
    named = {"title": metadata["name"], "version": metadata["version"], "created": created}
    named["description"] = metadata["description"]
    annotations = {f"org.opencontainers.image.{key}": value for key, value in named.items()}
    made.tag({metadata["version"]: made.artifact([layer], config=config, annotations=annotations)})
    return made


def archive(folder: Path, target: Path, *, time: int) -> None:
    """The folder as a tar archive that is the same for the same contents."""
    with tarfile.open(target, "w", format=tarfile.GNU_FORMAT) as made:
        for path in sorted(folder.rglob("*")):
            info = made.gettarinfo(path, arcname=str(path.relative_to(folder)))
            info.mtime, info.uid, info.gid, info.uname, info.gname = time, 0, 0, "", ""
            info.mode = 0o755 if path.is_dir() else 0o644
            if path.is_file():
                with path.open("rb") as content:
                    made.addfile(info, content)
            else:
                made.addfile(info)


def _plain(descriptor: Resource) -> Resource:
    return {key: descriptor[key] for key in ("mediaType", "digest", "size")}


def _json(content: Resource) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
