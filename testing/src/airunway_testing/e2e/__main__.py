"""``python -m airunway_testing.e2e --kubeconfig FILE``: see the package."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from airunway.kube import KubeError
from airunway_testing.e2e.report import Report, as_junit, as_markdown
from airunway_testing.e2e.run import end_to_end, new_report

_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 if nothing failed, 1 if something did, 2 if there was no talking to the cluster, 130 when
    interrupted."""
    parser = argparse.ArgumentParser(prog="python -m airunway_testing.e2e", description=__doc__)
    parser.add_argument(
        "--kubeconfig", type=Path, required=True, help="the cluster; only a namespace of its own is used"
    )
    parser.add_argument("--context", default="", help="of the kubeconfig")
    parser.add_argument("--providers", default="", help="names, separated by commas (default: all that are installed)")
    parser.add_argument("--set", action="append", default=[], help="PROVIDER.KEY=VALUE, of providers started here")
    parser.add_argument("--patience", type=float, default=900.0, help="seconds for each step (default: 900)")
    parser.add_argument("--reports", type=Path, default=Path("e2e-reports"), help="folder for report.md and junit.xml")
    given = parser.parse_args(arguments)
    report = new_report()
    try:
        code = asyncio.run(_run(report, given))
    except KubeError as error:
        sys.stderr.write(f"e2e: {error}\n")
        report.ended_early, code = str(error), 2
    given.reports.mkdir(parents=True, exist_ok=True)
    (given.reports / "report.md").write_text(as_markdown(report), encoding="utf-8")
    (given.reports / "junit.xml").write_text(as_junit(report), encoding="utf-8")
    _say(f"Reports: {given.reports / 'report.md'}, {given.reports / 'junit.xml'}.")
    return code


async def _run(report: Report, given: argparse.Namespace) -> int:
    work = asyncio.ensure_future(
        end_to_end(
            report,
            kubeconfig=given.kubeconfig,
            context=given.context,
            providers=tuple(name for part in given.providers.split(",") if (name := part.strip())),
            settings=tuple(given.set),
            patience=given.patience,
            say=_say,
        )
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        return _INTERRUPTED
    return 0 if report.ok else 1


_STARTED = time.monotonic()


def _say(text: str) -> None:
    sys.stdout.write(f"[{time.monotonic() - _STARTED:6.1f} s] {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
