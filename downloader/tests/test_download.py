"""What a download leaves behind, from a hub that works."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import aiohttp
import pytest
from downloader.tests.conftest import FILES, LLAMA, Claim, content, start, tree_digest

from airunway_testing.modelhub.hub import Hub, Repository, model_hub
from airunway_testing.modelhub.serving import Slow

SIZE = sum(map(len, FILES.values()))


async def test_the_tree_is_the_repositorys(hub: Hub, claim: Claim) -> None:
    done = await claim.download(LLAMA)
    assert claim.files() == FILES
    assert done.message["v"] == 1
    assert done.message["command"] == "download"
    assert done.ok == {
        "bytes": SIZE,
        "files": len(FILES),
        "revision": hub.head("acme/llama"),
        "digest": tree_digest(FILES),
    }
    assert claim.parts() == []
    assert {path.name for path in claim.folder.iterdir()} == {"model", ".airunway"}


async def test_other_accounts_may_read_it(hub: Hub, claim: Claim) -> None:
    await claim.download(LLAMA)
    for path in (claim.folder / "model").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)


async def test_the_size_check_counts_what_a_download_fetches(hub: Hub, claim: Claim) -> None:
    checked = await claim.command("check-size", LLAMA)
    assert checked.ok == {"bytes": SIZE, "files": len(FILES), "revision": hub.head("acme/llama")}
    assert hub.bytes_sent() == 0
    assert not (claim.folder / "model").exists()


async def test_a_complete_tree_is_not_fetched_and_not_read_again(hub: Hub, claim: Claim) -> None:
    first = await claim.download(LLAMA)
    asked = len(hub.requests)
    hub.remove("acme/llama")
    again = await claim.download(LLAMA)
    by_commit = await claim.download(LLAMA, "--revision", str(first.ok["revision"]))
    assert again.ok == by_commit.ok == first.ok
    assert len(hub.requests) == asked


@pytest.mark.parametrize("arguments", [["--include", "*.json"], ["--exclude", "*.json"]])
async def test_a_marker_is_bound_to_the_filters(hub: Hub, claim: Claim, arguments: list[str]) -> None:
    await claim.download(LLAMA)
    other = await claim.download(LLAMA, *arguments)
    expected = {path: data for path, data in FILES.items() if path.endswith(".json") == (arguments[0] == "--include")}
    assert claim.files() == expected
    assert other.ok["digest"] == tree_digest(expected)


async def test_a_damaged_tree_is_mended_and_the_rest_not_fetched(hub: Hub, claim: Claim) -> None:
    first = await claim.download(LLAMA)
    (claim.folder / "model/config.json").unlink()
    before = hub.bytes_sent()
    assert (await claim.download(LLAMA)).ok == first.ok
    assert claim.files() == FILES
    assert hub.bytes_sent() - before == len(FILES["config.json"])


async def test_what_is_not_of_the_repository_goes(hub: Hub, claim: Claim, tmp_path: Path) -> None:
    """An engine reads every *.safetensors of the folder: those of before must not stay."""
    model = claim.folder / "model"
    (model / "old/deep").mkdir(parents=True)
    (model / "old/deep/old.safetensors").write_bytes(b"old")
    (model / "tokenizer").symlink_to(tmp_path)
    (model / "config.json").mkdir()
    (claim.folder / "lost+found").mkdir()
    outside = tmp_path / "vocab.json"
    outside.write_text("mine")
    await claim.download(LLAMA)
    assert claim.files() == FILES
    assert not (model / "tokenizer").is_symlink()
    assert outside.read_text() == "mine"
    assert (claim.folder / "lost+found").exists()
    assert not (model / "old").exists()


async def test_a23_main_moves_between_size_check_and_download(hub: Hub, claim: Claim) -> None:
    checked = await claim.command("check-size", LLAMA)
    hub.commit("acme/llama", {"config.json": "{}"})
    done = await claim.download(LLAMA, "--revision", checked.ok["revision"])
    assert done.ok["revision"] == checked.ok["revision"]
    assert claim.files() == FILES


async def test_a_branch_with_a_slash(hub: Hub, claim: Claim) -> None:
    commit = hub.commit("acme/llama", {"config.json": "{}"}, branch="refs/pr/1")
    done = await claim.download(LLAMA, "--revision", "refs/pr/1")
    assert done.ok["revision"] == commit
    assert claim.files() == {"config.json": b"{}"}


async def test_a_renamed_repository_is_found(hub: Hub, claim: Claim) -> None:
    hub.rename("acme/llama", "acme/new")
    assert (await claim.download(LLAMA, "--include", "*.json")).ok["files"] == 2


async def test_lists_of_many_pages(claim: Claim) -> None:
    files = {f"part-{number:03}.json": b"%d" % number for number in range(57)}
    async with model_hub([Repository("acme/many", files)], page_size=10) as hub:
        done = await claim.download("hf://acme/many", HF_ENDPOINT=hub.endpoint)
    assert done.ok["digest"] == tree_digest(files)


A24 = {
    "config.json": b"{}",
    "model.safetensors": content(1000, 1),
    "pytorch_model.bin": content(1000, 2),
    "original/consolidated.00.pth": content(1000, 3),
    "original/params.json": b"{}",
    "onnx/model.onnx": content(1000, 4),
}


@pytest.mark.parametrize(
    ("path", "arguments", "expected"),
    [
        ("", [], {"config.json", "model.safetensors"}),
        ("", ["--include", "*.bin"], {"pytorch_model.bin"}),
        (
            "",
            ["--exclude", "*.safetensors", "--exclude", "original/"],
            {"config.json", "pytorch_model.bin", "onnx/model.onnx"},
        ),
        ("/pytorch_model.bin", [], {"pytorch_model.bin"}),
        ("/original", [], {"original/consolidated.00.pth", "original/params.json"}),
    ],
)
async def test_a24_what_an_engine_needs(claim: Claim, path: str, arguments: list[str], expected: set[str]) -> None:
    async with model_hub([Repository("acme/mixed", A24)]) as hub:
        claim.environment["HF_ENDPOINT"] = hub.endpoint
        checked = await claim.command("check-size", f"hf://acme/mixed{path}", *arguments)
        done = await claim.download(f"hf://acme/mixed{path}", *arguments)
    assert set(claim.files()) == expected
    assert checked.ok["bytes"] == done.ok["bytes"] == sum(len(A24[each]) for each in expected)
    assert checked.ok["files"] == done.ok["files"] == len(expected)


async def test_without_safetensors_other_weights_are_fetched(claim: Claim) -> None:
    files = {"config.json": b"{}", "pytorch_model.bin": content(1000)}
    async with model_hub([Repository("acme/old", files)]) as hub:
        await claim.download("hf://acme/old", HF_ENDPOINT=hub.endpoint)
    assert claim.files() == files


async def test_a24_one_of_20_gguf_files(claim: Claim) -> None:
    files = {f"q{number}.gguf": content(100, number) for number in range(20)}
    split = {f"big-0000{number}-of-00003.gguf": content(100, number) for number in (1, 2, 3)}
    async with model_hub([Repository("acme/gguf", files | split)]) as hub:
        claim.environment["HF_ENDPOINT"] = hub.endpoint
        await claim.download("hf://acme/gguf/q7.gguf")
        assert claim.files() == {"q7.gguf": files["q7.gguf"]}
        await claim.download("hf://acme/gguf/big-00001-of-00003.gguf")
        assert claim.files() == split


async def test_progress_is_served_while_it_downloads(hub: Hub, claim: Claim) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    hub.inject(Slow(bytes_per_second=1_000_000), path="model-00001-of-00002.safetensors", times=None)
    running = asyncio.create_task(
        claim.download(
            LLAMA, AIRUNWAY_PROGRESS_PORT=str(port), AIRUNWAY_PROGRESS_HOST="127.0.0.1", AIRUNWAY_ARTIFACT_UID="uid-1"
        )
    )
    seen: list[dict[str, object]] = []
    async with aiohttp.ClientSession() as session:
        while not running.done() and not any(0 < int(str(each["downloadedBytes"])) < SIZE for each in seen):
            try:
                async with session.get(f"http://127.0.0.1:{port}/progress") as answer:
                    body = await answer.read()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.02)
                continue
            assert len(body) <= 4096
            seen.append(json.loads(body))
        hub.clear_faults()
        async with session.get(f"http://127.0.0.1:{port}/else") as answer:
            assert answer.status == 404
    await running
    assert set(seen[-1]) == {"artifact", "totalBytes", "downloadedBytes", "bytesPerSecond", "phase"}
    assert seen[-1]["artifact"] == "uid-1"
    assert seen[-1]["totalBytes"] == SIZE
    assert seen[-1]["phase"] == "Downloading"


async def test_proxies_are_used_and_their_exceptions(hub: Hub, claim: Claim) -> None:
    """The hub plays the proxy: it gets requests for a host that does not exist. Its second host is asked directly."""
    proxy = hub.endpoint.replace("://", "://user:Canary@")
    environment = {"HF_ENDPOINT": "http://hub.invalid", "HTTP_PROXY": proxy, "NO_PROXY": "localhost"}
    process = await start(claim, LLAMA, **environment)
    out, errors = await process.communicate()
    assert process.returncode == 0, errors
    assert claim.files() == FILES
    assert b"Canary" not in out + errors
    assert all(each.target.startswith("http://hub.invalid/") for each in hub.requests if each.host == "hub")
