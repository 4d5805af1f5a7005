"""What goes wrong, and what is reported: reason, exit code, what stays on the disk, what is fetched again."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from downloader.tests.conftest import FILES, LLAMA, Claim, content, start, tree_digest

from airunway_downloader import client, files
from airunway_downloader.cli import run
from airunway_testing.controlplane.certificates import new_authority
from airunway_testing.modelhub.hub import Hub, Repository, model_hub
from airunway_testing.modelhub.serving import (
    CutBody,
    ErrorPage,
    Fault,
    HttpError,
    IgnoredRange,
    LyingSize,
    Reset,
    ShortBody,
    Slow,
    Stall,
    SwappedWith,
    WrongByte,
)

LARGE, OTHER = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
SIZE = sum(map(len, FILES.values()))

POISON = [
    WrongByte(at=5),
    WrongByte(at=699_999),
    ShortBody(missing=10),
    SwappedWith(path=OTHER),
    ErrorPage(),
]


@pytest.mark.parametrize("fault", POISON, ids=repr)
async def test_poison_that_goes_away_is_fetched_again(hub: Hub, claim: Claim, fault: Fault) -> None:
    hub.inject(fault, path=LARGE, times=2)
    done = await claim.download(LLAMA)
    assert done.ok["digest"] == tree_digest(FILES)
    assert claim.files() == FILES


@pytest.mark.parametrize("fault", POISON, ids=repr)
async def test_a11_poison_that_stays_is_never_ready(hub: Hub, claim: Claim, fault: Fault) -> None:
    hub.inject(fault, path=LARGE, times=None)
    done = await claim.download(LLAMA)
    assert (done.code, done.reason) == (3, "VerificationFailed")
    assert LARGE in done.words
    assert LARGE not in claim.files()
    assert not (claim.folder / ".airunway/complete.json").exists()
    asked = [each for each in hub.requests if each.route == "file" and each.path == LARGE]
    assert len(asked) == 3
    hub.clear_faults()
    kept = claim.files()
    before = len(hub.requests)
    assert (await claim.download(LLAMA)).ok["digest"] == tree_digest(FILES)
    fetched = {each.path for each in hub.requests[before:] if each.route == "file"}
    assert fetched.isdisjoint(kept), "good files are not fetched again"


async def test_a_hub_that_lies_about_a_size_is_never_ready(hub: Hub, claim: Claim) -> None:
    for by in (10, -10):
        hub.clear_faults()
        hub.inject(LyingSize(by=by), path=LARGE)
        done = await claim.download(LLAMA)
        assert (done.code, done.reason) == (3, "VerificationFailed"), by


async def test_a_small_file_is_verified_too(hub: Hub, claim: Claim) -> None:
    hub.inject(WrongByte(at=1), path="config.json", times=None)
    done = await claim.download(LLAMA)
    assert (done.code, done.reason) == (3, "VerificationFailed")


async def test_a_body_that_is_cut_goes_on_where_it_ended(hub: Hub, claim: Claim) -> None:
    hub.inject(CutBody(after=400_000), path=LARGE, times=1)
    done = await claim.download(LLAMA)
    assert done.ok["digest"] == tree_digest(FILES)
    (first, second) = (each for each in hub.requests if each.route == "file" and each.path == LARGE)
    assert (first.range, second.range) == ("", "bytes=400000-")


async def test_a_body_that_is_always_empty_ends(hub: Hub, claim: Claim) -> None:
    hub.inject(CutBody(after=0), path=LARGE, times=None)
    done = await claim.download(LLAMA)
    assert (done.code, done.reason) == (3, "VerificationFailed")


async def test_a_server_without_ranges_begins_anew(hub: Hub, claim: Claim) -> None:
    hub.inject(CutBody(after=1000), path=LARGE, times=1)
    hub.inject(IgnoredRange(), path=LARGE, times=1)
    assert (await claim.download(LLAMA)).ok["digest"] == tree_digest(FILES)


async def test_links_that_expire_are_asked_for_again(hub: Hub, claim: Claim) -> None:
    hub.inject(HttpError(status=403), path=LARGE, times=2)
    assert (await claim.download(LLAMA)).ok["digest"] == tree_digest(FILES)


@pytest.mark.parametrize("fault", [Reset(), HttpError(status=503), HttpError(status=429, retry_after="0")], ids=repr)
async def test_a_short_fault_is_lived_through(hub: Hub, claim: Claim, fault: Fault) -> None:
    hub.inject(fault, path=LARGE, times=2)
    assert (await claim.download(LLAMA)).ok["digest"] == tree_digest(FILES)


TABLE: list[tuple[Fault, str, int]] = [
    (HttpError(status=500), "ServerError", 1),
    (HttpError(status=503, retry_after="120"), "ServerError", 3),
    (HttpError(status=429), "RateLimited", 1),
    (HttpError(status=429, retry_after="120"), "RateLimited", 3),
    (HttpError(status=401, message="Repository Not Found"), "SourceNotFound", 3),
    (HttpError(status=401, code="RepoNotFound"), "SourceNotFound", 3),
    (HttpError(status=401, message="Invalid credentials in Authorization header"), "Unauthorized", 3),
    (HttpError(status=403), "Forbidden", 3),
    (HttpError(status=404, code="RepoNotFound"), "SourceNotFound", 3),
    (Reset(), "DependenciesUnreachable", 1),
    (ErrorPage(), "ServerError", 1),
]


@pytest.mark.parametrize("command", ["check-size", "download"])
@pytest.mark.parametrize(("fault", "reason", "code"), TABLE, ids=repr)
async def test_faults_of_the_list(hub: Hub, claim: Claim, command: str, fault: Fault, reason: str, code: int) -> None:
    hub.inject(fault, route="revision", times=None)
    into = ["--into", str(claim.folder)] if command == "download" else []
    done = await claim.command(command, LLAMA, *into)
    assert (done.reason, done.code) == (reason, code)
    wait = getattr(fault, "retry_after", "")
    assert done.message["error"].get("retryAfter") == (int(wait) if wait else None)


async def test_faults_of_the_host(claim: Claim) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nothing listens
        refused = await claim.download(LLAMA, HF_ENDPOINT=f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (refused.reason, refused.code) == ("ConnectionRefused", 1)
    unknown = await claim.download(LLAMA, HF_ENDPOINT="http://hub.invalid")
    assert (unknown.reason, unknown.code) == ("DNSFailure", 1)
    assert "hub.invalid" in unknown.words


async def test_a22_a_server_that_falls_silent(hub: Hub, claim: Claim) -> None:
    hub.inject(Stall(after=100_000), path=LARGE, times=None)
    done = await claim.download(LLAMA, AIRUNWAY_STALL_SECONDS="0.3")
    assert (done.reason, done.code) == ("Timeout", 1)
    hub.clear_faults()
    before, had = len(hub.requests), hub.bytes_sent(LARGE)
    assert (await claim.download(LLAMA)).ok["digest"] == tree_digest(FILES)
    (again,) = (each for each in hub.requests[before:] if each.route == "file" and each.path == LARGE)
    assert again.range == f"bytes={had}-"


async def test_a18_a19_access(claim: Claim) -> None:
    gated = Repository("acme/gated", {"model.safetensors": content(100)}, gated="manual")
    hidden = Repository("acme/hidden", {"model.safetensors": content(100)}, private=True)
    tokens = {"hf_right": ["acme/gated", "acme/hidden"], "hf_other": []}
    async with model_hub([gated, hidden], tokens=tokens) as hub:
        claim.environment["HF_ENDPOINT"] = hub.endpoint
        for command in (["check-size"], ["download", "--into", str(claim.folder)]):

            async def outcome(name: str, token: str, command: list[str] = command) -> str:
                done = await claim.command(*command, f"hf://acme/{name}", HF_TOKEN=token)
                return done.reason if done.code else "ok"

            assert await outcome("gated", "") == "GatedModel"
            assert await outcome("gated", "hf_other") == "GatedModel"
            assert await outcome("gated", "hf_wrong") == "Unauthorized"
            assert await outcome("hidden", "") == "SourceNotFound"
            assert await outcome("none", "") == "SourceNotFound"
            assert await outcome("hidden", "hf_other") == "SourceNotFound"
            assert await outcome("gated", "hf_right") == "ok"
        assert not any(each.authorized for each in hub.requests if each.host == "cdn"), "the token stays at home"


@pytest.mark.parametrize("path", ["/nothing", "/tokenizer/nothing.json"])
async def test_what_a_uri_names_and_the_repository_lacks(hub: Hub, claim: Claim, path: str) -> None:
    done = await claim.download(f"{LLAMA}{path}")
    assert (done.reason, done.code) == ("SourceNotFound", 3)
    assert path[1:] in done.words


async def test_a_revision_that_is_not_there(hub: Hub, claim: Claim) -> None:
    done = await claim.download(LLAMA, "--revision", "v9")
    assert (done.reason, done.code) == ("SourceNotFound", 3)
    assert "v9" in done.words


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "",
            "acme/llama",
            "https://host/acme/llama",
            "hf://",
            "hf://acme",
            "hf://acme/llama/../../etc",
            "hf:///acme/llama",
        ),
        *("hf://acme/llama/a//b", "hf://acme/lla ma", "hf://acme/llama/a\nb", "hf://../llama", "s3://", "s3://../x"),
        *("s3://bucket/../x", "S3://bucket/x", "hf://user:pass@acme/llama"),
    ],
)
async def test_uris_that_are_none(claim: Claim, uri: str) -> None:
    done = await claim.download(uri)
    assert (done.reason, done.code) == ("InvalidSpec", 3)
    assert list(claim.folder.iterdir()) == []


async def test_arguments_that_are_none(claim: Claim) -> None:
    for arguments in ([], ["fetch", LLAMA], ["download", LLAMA], ["check-size", LLAMA, "--unknown"]):
        done = await claim.command(*arguments)
        assert (done.reason, done.code) == ("InvalidSpec", 3)


async def test_filters_that_leave_nothing(hub: Hub, claim: Claim) -> None:
    done = await claim.download(LLAMA, "--include", "*.gguf")
    assert (done.reason, done.code) == ("InvalidSpec", 3)


HOSTILE = [
    *(
        "../../etc/passwd",
        "../model.safetensors",
        "/etc/passwd",
        "a/../../b",
        "a//b",
        "./a",
        "a/./b",
        "a/",
        "a\0b",
        "a\nb",
    ),
    *("a\x1b[31mb", "n" * 255, "ü" * 125, "/".join(["d" * 200] * 11), "\ud800"),
]


class Listed:
    """A hub that lists what no hub would: entries as a test gives them."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        self.entries = entries
        self.fetched: list[str] = []
        self.echo = ""
        self.endless = 0
        """Entries of each page of a list that never ends; 0: it ends after one page."""
        self.status, self.words = 403, ""
        self.drips = False
        self.pages = 0

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/api/models/acme/llama/revision/main", self._revision)
        app.router.add_get("/api/models/acme/llama/tree/{commit}", self._tree)
        app.router.add_get("/{rest:.*}", self._file)
        return app

    async def _revision(self, request: web.Request) -> web.Response:
        return web.json_response({"sha": "a" * 40})

    async def _tree(self, request: web.Request) -> web.StreamResponse:
        self.pages += 1
        if self.drips:
            response = web.StreamResponse()
            await response.prepare(request)
            while not request.transport or not request.transport.is_closing():
                await response.write(b" ")
                await asyncio.sleep(0.02)
            return response
        page, headers = self.entries, {}
        if self.endless:
            at = self.pages
            page = [{"type": "directory", "path": f"d{at}-{each}"} for each in range(self.endless)]
            headers = {"Link": f'<{request.path}?cursor={at}>; rel="next"'}
        return web.Response(text=json.dumps(page), content_type="application/json", headers=headers)

    async def _file(self, request: web.Request) -> web.Response:
        self.fetched.append(request.path)
        message = self.words or f"{request.headers.get('Authorization')} {self.echo}"
        return web.json_response({"error": message}, status=self.status, headers={"X-Error-Message": message})


@pytest.fixture
async def listed(claim: Claim) -> AsyncIterator[Listed]:
    found = Listed([{"type": "file", "path": "config.json", "size": 2, "oid": "b" * 40}])
    runner = web.AppRunner(found.application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    claim.environment["HF_ENDPOINT"] = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


@pytest.mark.parametrize("path", HOSTILE, ids=lambda path: ascii(path)[:40])
async def test_a_repository_that_writes_elsewhere(listed: Listed, claim: Claim, path: str) -> None:
    listed.entries.append({"type": "file", "path": path, "size": 2, "oid": "c" * 40})
    done = await claim.download(LLAMA)
    assert (done.reason, done.code) == ("InvalidSpec", 3)
    assert "is refused" in done.words
    assert repr(path)[1:15] in done.words, "the file is named"
    assert done.words.isprintable()
    assert listed.fetched == []
    assert list(claim.folder.iterdir()) == []


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"type": "symlink", "path": "link", "size": 2, "oid": "c" * 40}, "InvalidSpec"),
        ({"type": "file", "path": "config.json", "size": 2, "oid": "c" * 40}, "InvalidSpec"),
        ({"type": "file", "path": "config.json/x", "size": 2, "oid": "c" * 40}, "InvalidSpec"),
        ({"type": "file", "path": "x", "size": -1, "oid": "c" * 40}, "InvalidSpec"),
        ({"type": "file", "path": "x", "size": 1 << 60, "oid": "c" * 40}, "InvalidSpec"),
        ({"type": "file", "path": "x", "size": "2", "oid": "c" * 40}, "ServerError"),
        ({"type": "file", "path": "x", "size": 2}, "ServerError"),
        ({"type": "file", "path": 7, "size": 2, "oid": "c" * 40}, "ServerError"),
        ({"type": "file", "path": "x", "size": 2, "lfs": {"oid": "short", "size": 2}}, "ServerError"),
    ],
    ids=str,
)
async def test_entries_that_are_none(listed: Listed, claim: Claim, entry: dict[str, Any], reason: str) -> None:
    listed.entries.append(entry)
    assert (await claim.download(LLAMA)).reason == reason
    assert list(claim.folder.iterdir()) == []


@pytest.mark.parametrize("command", [("check-size",), ("download", "--into")])
async def test_a_list_that_never_ends_is_counted_while_it_is_read(
    listed: Listed, claim: Claim, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a hostile hub sends it: page after page, of folders too, or of many bytes, or of one byte now and then."""

    async def outcome() -> tuple[str, int]:
        listed.pages = 0
        into = [str(claim.folder)] if len(command) > 1 else []
        done = await claim.command(*command, *into, LLAMA)
        return done.reason, listed.pages

    monkeypatch.setattr(files, "_MOST_ENTRIES", 50)
    listed.endless = 20
    assert await outcome() == ("InvalidSpec", 3), "the page after the limit is not asked for"
    monkeypatch.setattr(files, "_MOST_ENTRIES", 1 << 40)
    monkeypatch.setattr(files, "_MOST_LISTED", 1000)
    reason, pages = await outcome()
    assert (reason, pages < 5) == ("ServerError", True)
    monkeypatch.setattr(files, "LIST_SECONDS", 0.0)
    monkeypatch.setattr(files, "_MOST_LISTED", 1 << 40)
    assert await outcome() == ("Timeout", 1)
    listed.drips = True
    monkeypatch.setattr(client, "_BODY_S", 0.2)
    assert (await outcome())[0] == "Timeout"
    assert list(claim.folder.iterdir()) == []


async def test_a_token_that_was_not_given_is_not_called_refused(listed: Listed, claim: Claim) -> None:
    listed.status, listed.words = 401, "Invalid credentials in Authorization header"
    without, wrong = await claim.download(LLAMA), await claim.download(LLAMA, HF_TOKEN="hf_wrong")
    assert {without.reason, wrong.reason} == {"Unauthorized"}
    assert "none was given" in without.words
    assert "spec.secrets.huggingFaceToken" in without.words
    assert "refuses the token" in wrong.words


async def test_a_hub_of_a_private_authority_is_trusted_by_the_file_that_is_given(claim: Claim, tmp_path: Path) -> None:
    right, _ = (new_authority(tmp_path / name, name=name) for name in ("right", "other"))
    pair = right.server(tmp_path / "hub", name="hub", hosts=("127.0.0.1",))
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)
    runner = web.AppRunner(Listed([]).application(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    claim.environment["HF_ENDPOINT"] = f"https://127.0.0.1:{runner.addresses[0][1]}"
    nothing = tmp_path / "nothing.pem"
    nothing.write_text("no certificate")
    try:
        for file in ("", str(tmp_path / "other.crt")):
            done = await claim.command("check-size", LLAMA, AIRUNWAY_CA_FILE=file)
            assert done.reason == "DependenciesUnreachable"
            assert "caBundle" in done.words
        for path in (nothing, tmp_path / "missing.pem"):
            done = await claim.command("check-size", LLAMA, AIRUNWAY_CA_FILE=str(path))
            assert (done.reason, "caBundle" in done.words) == ("InvalidSpec", True)
        done = await claim.command("check-size", LLAMA, AIRUNWAY_CA_FILE=str(tmp_path / "right.crt"))
        assert (done.reason, "no files" in done.words) == ("SourceNotFound", True), "its list was read"
    finally:
        await runner.cleanup()


async def test_credentials_are_in_no_message_and_no_log(
    listed: Listed, claim: Claim, capfd: pytest.CaptureFixture[str]
) -> None:
    canary = "hf_Canary0123456789"
    listed.echo = f"https://cdn.example/x?X-Amz-Signature=Canary99 https://user:Canary77@host/ {canary}"
    done = await claim.download(LLAMA, HF_TOKEN=canary)
    assert done.reason == "Forbidden"
    out, err = capfd.readouterr()
    for text in (json.dumps(done.message), out, err):
        assert "Canary" not in text
    wrong = await claim.download("hf://user:Canary55@acme/llama")
    assert "Canary" not in json.dumps(wrong.message)


async def test_a_token_that_is_no_text_is_refused(listed: Listed, claim: Claim) -> None:
    done = await claim.download(LLAMA, HF_TOKEN="hf_x\r\nHost: evil")
    assert (done.reason, done.code) == ("Unauthorized", 3)
    assert "evil" not in done.words


async def test_a12_a_claim_that_is_too_small_is_found_before_anything_is_fetched(hub: Hub, claim: Claim) -> None:
    hub.inject(LyingSize(by=1 << 45), path=LARGE)
    done = await claim.download(LLAMA)
    assert (done.reason, done.code) == ("StorageFull", 3)
    assert "Set size to at least 36045Gi" in done.words  # 32 TiB and a tenth
    assert hub.bytes_sent() == 0


async def test_a12_a_claim_that_runs_full(hub: Hub, claim: Claim) -> None:
    """The kernel refuses to let files grow beyond 500 kB, as a full disk does; later there is room."""
    log = claim.folder.parent / "termination-log"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "airunway_downloader", "download", LLAMA, "--into", str(claim.folder)),
        env={"HF_ENDPOINT": hub.endpoint, "AIRUNWAY_PROGRESS_PORT": "0", "AIRUNWAY_TERMINATION_LOG": str(log)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, resource.RLIM_INFINITY)),
    )
    assert await process.wait() == 3
    error = json.loads(log.read_text())["error"]
    assert error["reason"] == "StorageFull"
    assert "Set size to at least" in error["message"]
    assert (await claim.download(LLAMA)).ok["digest"] == tree_digest(FILES)
    assert claim.files() == FILES


async def test_sigterm_ends_it_cleanly_and_the_next_goes_on(hub: Hub, claim: Claim) -> None:
    hub.inject(Stall(after=300_000), path=LARGE, times=1)
    process = await start(claim, LLAMA)
    while not any(each.path == LARGE and each.sent == 300_000 for each in hub.requests):
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, errors = await process.communicate()
    assert process.returncode == 143
    assert b"Traceback" not in errors
    assert not (claim.folder.parent / "termination-log").exists()
    assert (await claim.download(LLAMA)).ok["digest"] == tree_digest(FILES)


async def test_a_claim_that_cannot_be_written(hub: Hub, claim: Claim, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = await claim.command("download", LLAMA, "--into", str(file))
    assert (done.reason, done.code) == ("JobFailed", 1)
    assert str(file) in done.words


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    for option, words in (("--help", "check-size"), ("--version", "airunway-download 0.1.0")):
        with pytest.raises(SystemExit) as ended:
            run([option], {})
        assert ended.value.code == 0
        assert words in capsys.readouterr().out


async def test_a_slow_server_is_not_a_silent_one(hub: Hub, claim: Claim) -> None:
    hub.inject(Slow(bytes_per_second=1_000_000), path=LARGE)
    done = await claim.download(LLAMA, AIRUNWAY_STALL_SECONDS="0.5")
    assert done.ok["digest"] == tree_digest(FILES)
