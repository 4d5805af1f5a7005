"""Checks 10: the model cache: its kind, its image, and ModelArtifacts that do not get on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from airunway import __version__
from airunway.artifacts.claims import access_mode_of, class_name_of
from airunway.artifacts.deployments import wants_cache
from airunway.doctor.checks_cluster import INSTALL
from airunway.doctor.checks_cluster_resources import default_classes
from airunway.doctor.checks_configs import asking, configs_by_name, resolved
from airunway.doctor.findings import Found, error, warning
from airunway.doctor.snapshot import ProcessDeployment, Snapshot, named
from airunway.kinds import MODEL_ARTIFACT
from airunway.quantity import parse_quantity
from airunway.rbac.policy_rules import repository_of
from airunway.resource import Resource, condition_of, dig, is_deleting, key_of, parse_time
from airunway.sdk.deployments import release_in, tag_of

_CRD = str(MODEL_ARTIFACT)

_UNUSED_FOR = timedelta(days=7)

_FULL = 0.97
"""Part of a claim that files can fill: the file system itself takes some of it."""

_ONE_NODE = (
    "disk.csi.azure.com",
    "ebs.csi.aws.com",
    "kubernetes.io/aws-ebs",
    "kubernetes.io/azure-disk",
    "kubernetes.io/gce-pd",
    "pd.csi.storage.gke.io",
    "rancher.io/local-path",
    "topolvm.io",
)
"""Provisioners whose file systems one node mounts at a time, by their own documentation. Of others nothing is known."""


def _caching(seen: Snapshot) -> Iterator[ProcessDeployment]:
    """The cores whose model cache part is on."""
    return (core for core in seen.cores if core.has_model_cache)


def _artifacts(seen: Snapshot) -> Iterator[tuple[str, Resource]]:
    """Every ModelArtifact that stays, with its name in a finding."""
    for artifact in seen.artifacts or ():
        if not is_deleting(artifact):
            yield named(MODEL_ARTIFACT.kind, artifact), artifact


def _unfinished(seen: Snapshot) -> Iterator[tuple[str, Resource]]:
    return ((name, found) for name, found in _artifacts(seen) if dig(found, "status", "completed") is None)


@error(
    "ARW1001",
    "The CRD of ModelArtifacts is missing and the model cache is on",
    why="Weights are not fetched: deployments that ask for a cache wait. Other models are served.",
    do=f"Install the chart airunway-crds, or: {INSTALL}. Or set the value modelCache.enabled of the chart airunway to "
    "false (--model-cache=off).",
    needs=("components", "definitions"),
)
def _no_kind(seen: Snapshot) -> Iterator[Found]:
    if any(_caching(seen)) and _CRD not in (seen.definitions or {}):
        yield Found(f"CustomResourceDefinition/{_CRD}", "It is not installed.")


@warning(
    "ARW1002",
    "Deployments ask for a model cache and the part is off",
    why="Nothing fetches their weights: they wait with the condition ModelCacheReady=False (ModelCacheNotEnabled). "
    "What serves goes on.",
    do="Set the value modelCache.enabled of the chart airunway to true (--model-cache=on), or spec.model.cache.mode to "
    "None.",
    needs=("components", "deployments"),
)
def _off(seen: Snapshot) -> Iterator[Found]:
    off = [core for core in seen.cores if core.option("model-cache") == "off"]
    return asking(off, [each for each in seen.deployments or () if wants_cache(each)])


@warning(
    "ARW1003",
    "No StorageClass can give a ModelArtifact its claim",
    why="The claim stays Pending and nothing is fetched. Whether a class offers ReadWriteMany is not in the API: for "
    "this check it is known of a few provisioners whose volumes one node mounts.",
    do="Name a class that fits in spec.storageClassName of the artifact, spec.model.cache.storageClassName of the "
    "deployment, or spec.storage.defaultStorageClassName of a runtime config (class and access mode of an artifact are "
    "immutable: delete it, it is made again). With one replica, accessMode: ReadWriteOnce may do.",
    needs=("artifacts", "storage_classes", "runtime_configs", "cluster_runtime_configs"),
)
def _no_class(seen: Snapshot) -> Iterator[Found]:
    configs = configs_by_name(seen)
    classes = {key_of(found).name: found for found in seen.storage_classes or ()}
    for name, artifact in _unfinished(seen):
        config = resolved(artifact, configs).config
        asked, mode = class_name_of(artifact, config, None), access_mode_of(artifact, config, None)
        defaults = default_classes(seen)
        chosen = asked or (defaults[0] if defaults else "")
        provisioner = str(dig(classes.get(chosen), "provisioner", default=""))
        if not chosen:
            yield Found(name, "It names no StorageClass, and none is the default.")
        elif chosen not in classes:
            yield Found(name, f"There is no StorageClass {chosen}.")
        elif mode == "ReadWriteMany" and provisioner in _ONE_NODE:
            yield Found(name, f"{provisioner} of StorageClass {chosen} has no volumes for {mode}.")


@warning(
    "ARW1004",
    "The claim of a ModelArtifact is too small, or nearly",
    why="The file system takes a part of the volume: the download will fill it and fail (StorageFull).",
    do="Raise spec.size of the artifact (spec.model.cache.size of deployments yet to come).",
    needs=("artifacts",),
)
def _too_small(seen: Snapshot) -> Iterator[Found]:
    for name, artifact in _unfinished(seen):
        status = artifact.get("status")
        total = dig(status, "progress", "totalBytes") or dig(status, "discoveredSizeBytes")
        try:
            size = int(parse_quantity(dig(status, "allocatedSize")))
        except ValueError:
            continue
        if isinstance(total, int) and total > size * _FULL:
            yield Found(name, f"Its files have {total} bytes, its claim has {size} bytes.")


@warning(
    "ARW1005",
    "Weights cannot be fetched",
    why="Deployments that use the artifact wait, or go on with what they have. The part tries again by itself where "
    "that can help.",
    do="Do what the message says; kubectl describe modelartifact shows all conditions and the next try.",
    needs=("artifacts",),
)
def _failed(seen: Snapshot) -> Iterator[Found]:
    for name, artifact in _artifacts(seen):
        if dig(artifact, "status", "phase") not in ("Failed", "Degraded") or dig(artifact, "status", "users") == 0:
            continue
        children = (condition_of(artifact, child) for child in ("RuntimeConfigReady", "StorageReady", "DownloadReady"))
        condition = next((each for each in children if each is not None and each.get("status") == "False"), {})
        reason = condition.get("reason") or dig(artifact, "status", "reason", default="")
        text = condition.get("message") or dig(artifact, "status", "message", default="")
        yield Found(name, f"{reason}: {text}")


@warning(
    "ARW1006",
    "Nothing has used a ModelArtifact for a week",
    why="Its claim costs storage. AI Runway deletes complete weights only where spec.retention.policy is DeleteUnused.",
    do="Delete the artifact, and its claim goes with it; or set spec.retention.policy to DeleteUnused.",
    needs=("artifacts",),
)
def _unused(seen: Snapshot) -> Iterator[Found]:
    for name, artifact in _artifacts(seen):
        since = parse_time(dig(artifact, "status", "unusedSince"))
        if since is not None and seen.now - since > _UNUSED_FOR:
            size = dig(artifact, "status", "allocatedSize", default="unknown")
            yield Found(name, f"Unused since {since:%Y-%m-%d %H:%M}Z; size of its claim: {size}.")


@warning(
    "ARW1007",
    "The image of the downloader is of another release than the core",
    why="The core passes the downloader its arguments and reads its result: a download of another release may fail.",
    do="Clear the value modelCache.image.tag of the chart airunway (--downloader-image), or set it to the release of "
    "the core.",
    needs=("components",),
)
def _other_release(seen: Snapshot) -> Iterator[Found]:
    for core in _caching(seen):
        image = core.option("downloader-image")
        ours = repository_of(image).rpartition("/")[2] == "model-downloader"
        found, own = release_in(image), release_in(f"core:{core.version or __version__}")
        if ours and found is not None and own is not None and found != own:
            yield Found(core.name, f"It has {tag_of(image)}; the core is of release {core.version or __version__}.")
