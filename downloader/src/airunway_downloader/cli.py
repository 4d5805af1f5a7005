"""The command ``airunway-download``: arguments and environment in, a termination message and an exit code out.

airunway-download check-size hf://owner/name
airunway-download download s3://bucket/prefix --into /cache
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import secrets
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn, TextIO

from airunway_downloader import __version__
from airunway_downloader.adapter import adapter_in
from airunway_downloader.client import Client
from airunway_downloader.failures import Failure
from airunway_downloader.files import Filters, Uri, parse_uri
from airunway_downloader.progress import Progress, leave_signals_to_main, serve_progress
from airunway_downloader.redaction import Redaction
from airunway_downloader.sources import Source, source_of
from airunway_downloader.transfer import PARALLEL, Download, Stop, patiently, request_key
from airunway_downloader.tree import Tree, node_identity

_TERMINATION_LOG = "/dev/termination-log"
_PORT = 8080
_STALL_S = 120.0
_TERMINATED = 128 + signal.SIGTERM
_LOG_EVERY_S = 30.0


class _Terminated(BaseException):
    """SIGTERM or SIGINT arrived."""


@dataclass(frozen=True, kw_only=True)
class _Order:
    """What the command line asks for."""

    command: str
    uri: Uri
    revision: str
    filters: Filters
    into: Path


def run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Carry out a command; returns the exit code after the termination message is written."""
    redaction = Redaction(environment)
    stop = Stop()
    with contextlib.redirect_stderr(_RedactedLines(sys.stderr, redaction)):
        return _run(arguments, environment, redaction, stop)


def _run(arguments: Sequence[str], environment: Mapping[str, str], redaction: Redaction, stop: Stop) -> int:
    command = arguments[0] if arguments and arguments[0] in ("check-size", "download") else ""
    failure: Failure
    try:
        found = _carry_out(_order(arguments), environment, stop)
    except _Terminated:
        stop.set()
        sys.stderr.write("terminated: the next attempt goes on from here\n")
        return _TERMINATED
    except Failure as raised:
        failure = raised
    except OSError as error:  # of the claim: those of the network are failures
        failure = Failure("JobFailed", f"{error.filename or 'the claim'}: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - a defect: its traceback is logged, and the message names it
        sys.stderr.write(traceback.format_exc())
        failure = Failure("JobFailed", f"the downloader failed: {type(error).__name__}: {error}")
    else:
        return _end({"v": 1, "command": command, "ok": found}, 0, environment)
    return _end({"v": 1, "command": command, "error": _error(failure, redaction)}, failure.exit_code, environment)


def _end(content: dict[str, object], code: int, environment: Mapping[str, str]) -> int:
    message = json.dumps(content, ensure_ascii=False)
    sys.stdout.write(f"{message}\n")
    _write_termination_message(message, environment)
    return code


def main() -> NoReturn:
    """The entry point. Ends the process at once: a thread that waits for a server would hold it up."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _terminate)
    try:
        code = run(sys.argv[1:], os.environ)
    except _Terminated:
        code = _TERMINATED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise _Terminated


def _carry_out(order: _Order, environment: Mapping[str, str], stop: Stop) -> dict[str, object]:
    stall = _number(environment, "AIRUNWAY_STALL_SECONDS", _STALL_S)
    client = Client(stall=stall, connections=PARALLEL, ca_file=environment.get("AIRUNWAY_CA_FILE", ""))
    source = source_of(
        order.uri, revision=order.revision, filters=order.filters, client=client, environment=environment
    )
    if order.command == "check-size":
        listing = patiently(source.listing, stop)
        patiently(lambda: source.check_access(listing), stop)
        return {"bytes": listing.size, "files": len(listing.files), "revision": listing.revision}
    progress = Progress(environment.get("AIRUNWAY_ARTIFACT_UID", ""))
    port = int(_number(environment, "AIRUNWAY_PROGRESS_PORT", _PORT))
    serve_progress(progress, host=environment.get("AIRUNWAY_PROGRESS_HOST", ""), port=port)
    ended = threading.Event()
    threading.Thread(target=_log, args=(progress, ended), name="log", daemon=True).start()
    try:
        claim = environment.get("AIRUNWAY_CLAIM_UID", "")
        return _download(order, source, progress, stop=stop, stall=stall, claim=claim)
    finally:
        ended.set()


def _download(
    order: _Order, source: Source, progress: Progress, *, stop: Stop, stall: float, claim: str
) -> dict[str, object]:
    os.umask(0o022)  # engines read the files under other accounts
    order.into.mkdir(parents=True, exist_ok=True)
    tree = Tree(order.into, node=node_identity(), writer=secrets.token_hex(6), goes_on=stop.check, claim=claim)
    tree.claimed()
    if marker := tree.complete(request_key(order.uri, order.revision, order.filters)):
        progress.enter("Done")
        kept = {name: marker[name] for name in ("bytes", "revision", "digest")}
        return {**kept, "files": len(marker["files"]), **_adapter(order)}
    download = Download(source, tree, progress=progress, stop=stop, stall=stall)
    # The commit that was found counts as asked for, too.
    result = download.run(
        lambda found: [request_key(order.uri, revision, order.filters) for revision in {order.revision, found}]
    )
    found = {"bytes": result.bytes, "files": result.files, "revision": result.revision, "digest": result.digest}
    return {**found, **_adapter(order)}


def _adapter(order: _Order) -> dict[str, object]:
    """What the finished tree says of an adapter, if it is one. It keeps a path of the hub, and no prefix of S3."""
    below = order.uri.path if order.uri.scheme == "hf" else ""
    found = adapter_in(order.into / "model" / below)
    return {"adapter": found} if found else {}


def _order(arguments: Sequence[str]) -> _Order:
    """Raises Failure (InvalidSpec) for what cannot be understood."""
    parser = _Parser(prog="airunway-download", description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--version", action="version", version=f"airunway-download {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)
    for name, text in (
        ("check-size", "print how many bytes and files a download would fetch, and its commit"),
        ("download", "fetch the files into a folder, verified; a later run goes on where an earlier one ended"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("uri", metavar="URI", help="hf://owner/name[/path] or s3://bucket[/prefix]")
        command.add_argument("--revision", default="", help="branch, tag or commit of the hub (default: main)")
        command.add_argument("--include", action="append", default=[], metavar="GLOB", help="only these files")
        command.add_argument("--exclude", action="append", default=[], metavar="GLOB", help="not these files")
        if name == "download":
            command.add_argument("--into", required=True, type=Path, metavar="DIR", help="files come into DIR/model")
    parsed = parser.parse_args(arguments)
    return _Order(
        command=parsed.command,
        uri=parse_uri(parsed.uri),
        revision=parsed.revision,
        filters=Filters(include=tuple(parsed.include), exclude=tuple(parsed.exclude)),
        into=getattr(parsed, "into", Path()),
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Failure("InvalidSpec", f"{message}\n{self.format_usage()}")


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e6:
        raise Failure("InvalidSpec", f"{name} is {text!r}, which is no number of seconds or of a port")
    return value


def _error(failure: Failure, redaction: Redaction) -> dict[str, object]:
    found: dict[str, object] = {"reason": failure.reason, "message": redaction(failure.message)}
    if failure.retry_after is not None:
        found["retryAfter"] = math.ceil(failure.retry_after)
    return found


def _write_termination_message(message: str, environment: Mapping[str, str]) -> None:
    """In one write: the file is a mount of the kubelet's, which nothing can be renamed onto."""
    named = environment.get("AIRUNWAY_TERMINATION_LOG", "")
    path = Path(named or _TERMINATION_LOG)
    if not named and not path.exists():  # not in a pod
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.write(descriptor, message.encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        sys.stderr.write(f"the termination message cannot be written to {path}: {error.strerror}\n")


def _log(progress: Progress, ended: threading.Event) -> None:
    leave_signals_to_main()
    while not ended.wait(_LOG_EVERY_S):
        sys.stderr.write(f"{progress.answer().decode()}\n")


class _RedactedLines(io.TextIOBase):
    """Standard error without credentials; each line has at most 1 KiB."""

    def __init__(self, to: TextIO, redaction: Redaction) -> None:
        self._to, self._redaction = to, redaction

    def write(self, text: str) -> int:
        for line in text.splitlines():
            if line:
                self._to.write(f"{self._redaction(line)}\n")
        self._to.flush()
        return len(text)
