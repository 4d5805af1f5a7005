"""The samples folder of each provider is one that a user applies as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.registry import discover
from airunway.resource import key_of
from airunway_testing.operator import install_definitions
from airunway_testing.sandbox.samples import manifests_of
from airunway_testing.scaffold import write_skeleton

pytestmark = pytest.mark.apiserver

FOLDERS = {found.name: manifests[0].parent for found in discover() if (manifests := manifests_of(found))}


def test_every_provider_of_ours_has_samples() -> None:
    assert {"dynamo", "kaito", "kuberay", "llmd", "vllm"} <= set(FOLDERS)


@pytest.mark.parametrize("folder", [*FOLDERS.values(), None], ids=[*FOLDERS, "skeleton"])
async def test_a_folder_of_samples_is_applied_as_a_whole(
    client: Client,
    kubectl: Callable[..., CompletedProcess[str]],
    namespace: str,
    folder: Path | None,
    tmp_path: Path,
) -> None:
    await install_definitions(client)
    if folder is None:
        write_skeleton("acme", tmp_path / "acme")
        (folder,) = (tmp_path / "acme" / "src").rglob("samples")
    done = kubectl("apply", "-n", namespace, "-f", str(folder))
    made = {key_of(found).name for found in await client.list_all(MODEL_DEPLOYMENT, namespace=namespace)}
    assert made == {path.stem for path in folder.glob("*.yaml")}
    assert len(done.stdout.splitlines()) == len(made)
    assert "index" not in done.stderr
