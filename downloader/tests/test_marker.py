"""What is on a volume counts for the claim that it names: a forged or copied marker is not believed (L5)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from downloader.tests.conftest import FILES, LLAMA, Claim

from airunway_downloader.files import Filters, parse_uri
from airunway_downloader.transfer import request_key
from airunway_downloader.tree import Placed, digest_of
from airunway_testing.modelhub.hub import Hub

OURS, THEIRS = {"AIRUNWAY_CLAIM_UID": "uid-of-ours"}, {"AIRUNWAY_CLAIM_UID": "uid-of-theirs"}


def marker(claim: Claim) -> Path:
    return claim.folder / ".airunway" / "complete.json"


async def is_asked(hub: Hub, claim: Claim, **environment: str) -> bool:
    """Whether a download asks the hub; it ends with the files of the hub in any case."""
    before = len(hub.requests)
    done = await claim.download(LLAMA, **environment)
    assert done.ok["files"] == len(FILES)
    assert claim.files() == FILES
    return len(hub.requests) > before


async def test_l5_a_marker_of_this_claim_is_believed(hub: Hub, claim: Claim) -> None:
    assert await is_asked(hub, claim, **OURS)
    assert not await is_asked(hub, claim, **OURS)


@pytest.mark.parametrize("there", ["the marker", "the whole folder"])
async def test_l5_what_another_claim_left_is_fetched_anew(hub: Hub, claim: Claim, there: str) -> None:
    """A class that hands out used volumes, or somebody who copies the marker beside other weights."""
    assert await is_asked(hub, claim, **THEIRS)
    name = next(name for name, data in FILES.items() if data)
    (claim.folder / "model" / name).write_bytes(bytes(len(FILES[name])))  # other weights of the same size
    if there == "the marker":
        copied = marker(claim).read_text()
        shutil.rmtree(claim.folder / ".airunway")
        assert (await claim.download("hf://acme/other", **OURS)).code != 0  # the folder is ours
        marker(claim).parent.mkdir(exist_ok=True)
        marker(claim).write_text(copied)
    assert await is_asked(hub, claim, **OURS)
    assert not await is_asked(hub, claim, **OURS)


async def test_l5_a_forged_marker_that_names_no_claim_is_not_believed(hub: Hub, claim: Claim) -> None:
    (claim.folder / "model").mkdir()
    (claim.folder / "model" / "config.json").write_bytes(b"{}")
    placed = Placed(path="config.json", size=2, sha256="0" * 64)
    requests = [request_key(parse_uri(LLAMA), "", Filters(include=(), exclude=()))]
    forged = {"v": 1, "requests": requests, "digest": digest_of([placed]), "files": [["config.json", 2, "0" * 64]]}
    marker(claim).parent.mkdir()
    for claimed in ({}, {"claim": ""}, {"claim": "uid-of-theirs"}):
        marker(claim).write_text(json.dumps({**forged, "bytes": 2, "revision": "", **claimed}))
        assert await is_asked(hub, claim, **OURS)
        shutil.rmtree(marker(claim).parent)
        marker(claim).parent.mkdir()
        (claim.folder / "model" / "config.json").write_bytes(b"{}")


async def test_l5_parts_and_records_of_another_claim_are_removed(hub: Hub, claim: Claim) -> None:
    """A source without digests is compared with records beside the files, which the thief could write."""
    assert await is_asked(hub, claim, **THEIRS)
    record = claim.folder / ".airunway" / "verified" / "record"
    record.write_text("0" * 64)
    assert await is_asked(hub, claim, **OURS)
    assert not record.exists()


async def test_l5_a_link_in_place_of_our_folder_is_removed_and_not_followed(
    hub: Hub, claim: Claim, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "claim").write_text(OURS["AIRUNWAY_CLAIM_UID"])
    (claim.folder / ".airunway").symlink_to(elsewhere)
    assert await is_asked(hub, claim, **OURS)
    assert [path.name for path in elsewhere.iterdir()] == ["claim"]
