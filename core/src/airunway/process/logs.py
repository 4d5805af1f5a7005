"""Logging of a long-running process: one JSON object per line in a cluster, plain text on a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType

import orjson

from airunway.redaction import escaped, printable, redacted, sanitized
from airunway.resource import Resource, dig

log = logging.getLogger(__name__)

_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "settings", "k8s_skip"}

_fields: ContextVar[Mapping[str, str]] = ContextVar("airunway_log_fields")


def set_log_fields(**fields: str) -> None:
    """Add these fields (those that are not empty) to all log records of the current task from now on."""
    _fields.set({name: value for name, value in fields.items() if value})


def log_fields() -> Mapping[str, str]:
    """The log fields of the current task."""
    return _fields.get({})


def log_phase(deployment: Resource, status: Resource) -> None:
    """Log a change of the phase, or of its reason, by `status`."""
    before = (dig(deployment, "status", "phase"), dig(deployment, "status", "reason"))
    if "phase" in status and (status["phase"], status.get("reason")) != before:
        was = before[0] or "nothing"
        log.info("phase %s (was %s), %s: %s", status["phase"], was, status.get("reason"), status.get("message"))


class _JsonFormatter(logging.Formatter):
    """Logs JSON with the fields ts, level, logger and msg, the task's fields (controller, object, provider,
    reconcile_id), the fields passed as `extra`, and the traceback as ``exception``.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": redacted(record.getMessage()),
            **log_fields(),
            **{key: value for key, value in vars(record).items() if key not in _STANDARD},
        }
        if record.exc_info:
            line["exception"] = redacted(self.formatException(record.exc_info))
        return escaped(orjson.dumps(line, default=str).decode())


class _TextFormatter(logging.Formatter):
    """Logs text, with the task's fields at the end of the message.

    A record is one line. Lines of a traceback are marked, so that no foreign text can pass for a record.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        text = super().formatMessage(record)
        fields = log_fields()
        return sanitized(f"{text} [{' '.join(fields.values())}]" if fields else text)

    def formatException(self, ei: _Raised) -> str:  # noqa: N802 - the name is logging's
        return "\n".join(f"  | {printable(line)}" for line in redacted(super().formatException(ei)).splitlines())

    def formatStack(self, stack_info: str) -> str:  # noqa: N802 - the name is logging's
        return "\n".join(f"  | {printable(line)}" for line in redacted(stack_info).splitlines())


def configure_logging(*, level: str, json: bool | None = None) -> None:
    """Set up the root logger. `json` None: text if standard error is a terminal, JSON otherwise.

    Raises ValueError for a level that does not exist.
    """
    handler = logging.StreamHandler()
    text = sys.stderr.isatty() if json is None else not json
    handler.setFormatter(_TextFormatter() if text else _JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # kopf logs its own start at INFO; at that level only our own records are of interest.
    for noisy in ("kopf", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
