"""Which environment variables the program has. Imported before what reads one: OpenSSL does as it is loaded."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping

NAMES = (
    "ALL_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "all_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""What users may give besides `FAMILIES`."""

FAMILIES = ("AIRUNWAY_", "AWS_", "HF_")
"""Beginnings of names that users may give."""

_OF_THE_SYSTEM = ("HOME", "LANG", "PATH", "TMPDIR", "TZ")


def is_read(name: str) -> bool:
    """Whether a variable of this name is for the downloader."""
    return name in NAMES or name.startswith(FAMILIES)


def keep_own(environment: MutableMapping[str, str]) -> None:
    """Remove every other variable: Python, OpenSSL and the C library load code that some of them name."""
    foreign: Iterable[str] = [name for name in environment if not is_read(name) and name not in _OF_THE_SYSTEM]
    for name in foreign:
        del environment[name]
