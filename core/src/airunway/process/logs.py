"""Logging of a long-running process: one JSON object a line in a cluster, plain text on a terminal."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

__all__ = ["configure_logging"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "settings", "k8s_skip"}


class _JsonFormatter(logging.Formatter):
    """Fields: ts, level, logger, msg, whatever was given as `extra`, and the traceback as ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **{key: value for key, value in vars(record).items() if key not in _STANDARD},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def configure_logging(*, level: str, json: bool | None = None) -> None:
    """Set up the root logger. `json` None: text if standard error is a terminal, JSON otherwise.

    Raises ValueError for a level that does not exist.
    """
    handler = logging.StreamHandler()
    text = sys.stderr.isatty() if json is None else not json
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s") if text else _JsonFormatter()
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # kopf logs its own start-up routine at INFO; at that level only what our process does is of interest.
    for noisy in ("kopf", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
