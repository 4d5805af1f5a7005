"""Redaction and sanitizing of texts that users, engines, registries, upstreams and servers wrote.

Every foreign text in a status, an event, a log or on a terminal passes `bounded` or its parts: they remove what looks
like a credential (`redacted`), make one line without control characters (`printable`), and cut. They take time linear
in the text, for any content; of a very long text they read only as much as can be shown.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import NamedTuple

MESSAGE_LIMIT = 1024
"""Longest message, in bytes of UTF-8."""

_WINDOW = 8
"""How many times the limit is read: redaction makes texts shorter."""

_SHORT = 256
"""Characters; longer texts are rarely repeated."""

# CSI and OSC sequences, then two-character ones. An unterminated OSC hides at most 256 characters.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]?|\x1b\][^\x07\x1b\x9c]{0,256}(?:\x07|\x1b\\|\x9c)?|\x1b[ -~]?"
)
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Bidirectional overrides and isolates, zero-width and other format characters, tags: they reorder or hide text.
_INVISIBLE = re.compile(
    "[\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]+"
)


class _Credential(NamedTuple):
    """One kind of credential."""

    hints: tuple[str, ...]
    """Words in lower case; a text with none of them is not searched for the pattern."""
    pattern: re.Pattern[str]
    instead: str
    """The replacement."""


_NAMES = (
    "token|secret|password|passwd|pwd|passphrase|credentials?|signature"
    "|(?:api|access|account|private|shared|secret)[_-]?key"
)
_HINTS = ("token", "secret", "passw", "pwd", "passphrase", "credential", "signature", "key")
# A quoted value ends at its quote or at the end of the text; any other value at a blank or an ampersand.
_VALUE = r"""(?:"[^"]*+"?|'[^']*+'?|[^\s&]{6,}+)"""
# `token: unexpected status` is prose, as in messages of registry clients. After `failed to get secret: ` the rest is
# the name of an object (recorded, KAITO), which is not a credential.
_VERBS = "|".join(f"(?<={verb} secret: )" for verb in ("get", "find", "read", "fetch", "load", "mount", "retrieve"))
_OBJECT = r"[A-Z]?[a-z0-9][a-z0-9.-]{0,62}"
_PROSE = rf"(?!(?:(?<=oken: )(?-i:[a-z]{{1,15}})|(?:{_VERBS})(?-i:{_OBJECT}))[:,.;]?(?:\s|$))"

_SECRETS: tuple[_Credential, ...] = (
    _Credential(
        ("private key",),
        re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+(?:-----END [A-Z ]{0,40}-----)?"),
        "***",
    ),
    _Credential(("bearer",), re.compile(r"(?i)(bearer)[\s:=\"']++[A-Za-z0-9._~+/=-]{8,}+"), r"\1 ***"),
    _Credential(
        ("basic",),
        re.compile(r"(?i)(basic)[\s:=\"']++(?!(?-i:[a-z]{1,15})[:,.;]?(?:\s|$))[A-Za-z0-9._~+/=-]{8,}+"),
        r"\1 ***",
    ),
    # The digest of an image is not a host: `docker://name@sha256:…` has no credentials.
    _Credential(("://",), re.compile(r"(://)[^/\s?#\"'<>]*@(?!sha(?:256|512):)"), r"\1***@"),
    _Credential(
        ("authorization",),
        re.compile(
            r"(?i)(authorization[\s\\\"']*+[=:][\s\\\"']*+(?:(?:basic|bearer|token|digest|negotiate)[\s]++)?)[^\s&\"',]{6,}+"
        ),
        r"\1***",
    ),
    # --key value, and the same as a list of quoted arguments
    _Credential(_HINTS, re.compile(rf"(?i)((?<=-)(?:{_NAMES})(?:[\"']?\s*+,\s*+|\s++)){_VALUE}"), r"\1***"),
    # key=value, "key": "value", key => value, key=['value']
    _Credential(
        _HINTS,
        re.compile(rf"(?i)((?:{_NAMES})[\s\\\"'\])]*+(?:[=:]|%3d)>?[\s\\\[(]*+){_PROSE}{_VALUE}"),
        r"\1***",
    ),
    # Azure signs URLs with `sig`, and uses that name for nothing else; a registry's login is under `auth`.
    _Credential(("sig=", "sig%3d"), re.compile(r"(?i)((?:[?&;]|%3f|%26)sig(?:=|%3d))[^\s&\"'<>]{6,}+"), r"\1***"),
    _Credential(("auth",), re.compile(r"(?i)([\"']auth[\\\"']++\s*+:[\s\\\"']*+)[^\s\\\"',}]{6,}+"), r"\1***"),
    _Credential(("eyj",), re.compile(r"eyJ[A-Za-z0-9_.-]{20,}+"), "eyJ***"),
    _Credential(("hf_",), re.compile(r"hf_[A-Za-z0-9]{8,}+"), "hf_***"),
    _Credential(("akia", "asia"), re.compile(r"(AKIA|ASIA)[A-Z0-9]{12,}+"), r"\1***"),
    _Credential(
        ("gh", "glpat-", "nvapi-", "sk-", "xox", "dckr_pat_", "aiza", "ya29."),
        re.compile(r"(gh[opsu]_|github_pat_|glpat-|nvapi-|sk-|xox[bp]-|dckr_pat_|AIza|ya29\.)[A-Za-z0-9_-]{16,}+"),
        r"\1***",
    ),
)


def redacted(text: str) -> str:
    """Returns `text` without what looks like a credential; termination messages and conditions may have any content."""
    lower = text.lower()
    for secret in _SECRETS:
        if any(hint in lower for hint in secret.hints):
            text = secret.pattern.sub(secret.instead, text)
    return text


def printable(text: str) -> str:
    """Returns `text` as one visible line: no terminal sequences, control characters or bidirectional overrides.

    Line breaks and other control characters become blanks; invisible characters are removed.
    """
    if text.isprintable():
        return text
    text = text.encode(errors="replace").decode()
    return _CONTROLS.sub(" ", _INVISIBLE.sub("", _ESCAPES.sub("", text))).rstrip()


def sanitized(text: str) -> str:
    """Returns `text` as one plain line without credentials.

    Redaction runs first, because removing a terminal sequence may also remove letters by which a credential is
    recognized. It runs again afterwards, because a sequence inside a credential hides it.
    """
    return redacted(text) if text.isprintable() else redacted(printable(redacted(text)))


def escaped(document: str) -> str:
    """Returns a JSON document in which every unprintable character except line breaks is escaped as ``\\uXXXX``."""
    if document.isprintable():
        return document
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in document)


def bounded(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Returns `text` as one plain line without credentials, in `limit` bytes of UTF-8; an ellipsis marks a cut."""
    return _short_bounded(text, limit) if len(text) <= _SHORT else _bounded(text, limit)


def _bounded(text: str, limit: int) -> str:
    window = limit * _WINDOW
    if long := len(text) > window:
        # A credential that is cut in two might not be recognized: remove the last word.
        text = text[:window].rpartition(" ")[0] or text[:window]
    clean = sanitized(text)
    encoded = clean.encode("utf-8", errors="replace")
    if len(encoded) <= limit and not long:
        return encoded.decode()
    return encoded[: limit - len("…".encode())].decode(errors="ignore") + "…"


_short_bounded = lru_cache(maxsize=1024)(_bounded)
"""Cached: the same few messages are used for thousands of objects, and for one object in every pass."""


def tail(text: str, limit: int) -> str:
    """Returns the last `limit` characters of `text`: plain lines without credentials.

    An ellipsis marks a cut; the words beside it are removed, because they may be half a credential.
    """
    window = limit * 2
    long = len(text) > window
    if long:
        # A credential and its name are at most two words; parts of them would not be recognized.
        text = "".join(text[-window:].split(None, 2)[-1:])
    if text.isprintable():
        clean = redacted(text)
    else:
        clean = redacted("\n".join(printable(line) for line in redacted(text).splitlines()))
    return clean if len(clean) <= limit and not long else "…" + clean[1 - limit :]
