"""Removes credentials from texts: those of the environment by their value, others by how they look."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote, urlsplit

_SECRET_VARIABLES = ("HF_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_ADDRESS_VARIABLES = ("HF_ENDPOINT", "AWS_ENDPOINT_URL", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")

_PATTERNS = (
    (re.compile(r"(://)[^/\s?#\"'<>]*@"), r"\1***@"),
    (
        re.compile(r"(://[^\s?#\"'<>]{0,1024}\?)[^\s\"'<>]+"),
        r"\1***",
    ),  # signed URLs have their credentials in the query
    (re.compile(r"(?i)(bearer|basic)[\s:=\"']++[A-Za-z0-9._~+/=-]{8,}+"), r"\1 ***"),
    (
        re.compile(r"(?i)((?:token|secret|password|signature|credential|key)[\"']?\s*[=:]\s*[\"']?)[^\s&\"']{6,}+"),
        r"\1***",
    ),
    (re.compile(r"hf_[A-Za-z0-9]{8,}+"), "hf_***"),
    (re.compile(r"(AKIA|ASIA)[A-Z0-9]{12,}+"), r"\1***"),
)
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]+"
)
_SHORTEST = 4
"""Characters; removing shorter values would make messages unreadable and protect nothing."""
_READ = 16384
"""Characters of a text that are read: far more than are shown."""


class Redaction:
    """Knows the credentials of one process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        found = {environment.get(name, "") for name in _SECRET_VARIABLES}
        for name in _ADDRESS_VARIABLES:
            for variable in (name, name.lower()):
                found |= set(_credentials_of(environment.get(variable, "")))
        # Longest first: one may be part of another.
        self._values = sorted({form for value in found for form in _forms(value)}, key=len, reverse=True)

    def __call__(self, text: str, limit: int = 1024) -> str:
        """Returns one printable line without credentials, in `limit` bytes of UTF-8; an ellipsis marks a cut."""
        text = text[:_READ]
        for value in self._values:
            text = text.replace(value, "***")
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        encoded = one_line(text).encode("utf-8", errors="replace")
        if len(encoded) <= limit:
            return encoded.decode()
        return encoded[: limit - len("…".encode())].decode(errors="ignore") + "…"


def one_line(text: str) -> str:
    """Returns the text with control and invisible characters replaced by blanks."""
    return _UNPRINTABLE.sub(" ", text.encode("utf-8", errors="replace").decode()).strip()


def _credentials_of(address: str) -> Iterable[str]:
    """User, password and both as Basic authentication has them, of a URL."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        userinfo = parts.netloc.rpartition("@")[0]
    except ValueError:
        return
    if userinfo:
        user, _, password = userinfo.partition(":")
        yield from (userinfo, password, unquote(password))
        yield base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()


def _forms(value: str) -> set[str]:
    value = value.strip()
    return {form for form in (value, quote(value, safe=""), quote(value)) if len(form) >= _SHORTEST}
