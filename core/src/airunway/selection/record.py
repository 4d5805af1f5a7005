"""Writes ``status.selection``: the verdict on every candidate, within 8 KiB (spec/api.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import orjson

from airunway.redaction import sanitized
from airunway.resource import Resource, dig
from airunway.selection.provider import DENIED, Candidate

__all__ = ["MAX_BYTES", "is_denied", "recorded"]

MAX_BYTES = 8 * 1024
"""Limit of the list, as JSON."""

_MAX_CANDIDATES = 32
_CONDITION = 96
_LEVELS = ((8, 256), (4, 192), (2, 128), (1, 96), (0, 0))
"""Reasons per candidate and characters per reason, tried in this order until the list is short enough."""


def recorded(candidates: Sequence[Candidate]) -> list[Resource]:
    """Returns the entries of ``status.selection.candidates``, by name.

    If the list is too long, reasons become fewer and shorter, and then candidates are dropped; eligible ones with the
    highest score stay longest.
    """
    # Rejected candidates without a refusal go first: a lost refusal would have to be requested again.
    kept = sorted(candidates, key=lambda c: (not c.eligible, c.refusal is None, -c.score if c.eligible else 0, c.name))[
        :_MAX_CANDIDATES
    ]
    entries: list[Resource] = []
    for number, length in _LEVELS:
        entries = [_entry(candidate, number, length) for candidate in kept]
        if len(orjson.dumps(entries)) <= MAX_BYTES:
            break
    while len(orjson.dumps(entries)) > MAX_BYTES:
        entries.pop()
    return sorted(entries, key=lambda entry: str(entry["name"]))


def is_denied(deployment: Resource, provider: str) -> bool:
    """Whether the policy denies the provider, or has not been applied to it yet, whatever wrote the choice.

    The verdicts are written together with that on the spec, so a provider that another writer chose must be among them.
    An entry that had no room for its reasons counts as a denial. Without any record nothing is denied.
    """
    candidates = dig(deployment, "status", "selection", "candidates")
    if not isinstance(candidates, list):
        return False
    entry: Resource | None = next((each for each in candidates if dig(each, "name") == provider), None)
    if entry is None:
        return True
    reasons = entry.get("reasons") or []
    return entry.get("eligible") is False and (not reasons or reasons[0].endswith(DENIED))


def _entry(candidate: Candidate, number: int, length: int) -> Resource:
    reasons = [_cut(sanitized(reason), length) for reason in list(_reasons(candidate))[:number]]
    entry = {"name": candidate.name, "eligible": candidate.eligible, "score": candidate.score, "reasons": reasons}
    if (refusal := candidate.refusal) is not None:
        entry["refusal"] = {
            "generation": refusal.generation,
            "reason": sanitized(refusal.reason),
            "message": sanitized(refusal.message),
        }
    return entry


def _reasons(candidate: Candidate) -> Iterator[str]:
    """Yields the failed checks, the errors of its rules, and the rules that are true, the most important first."""
    for check in candidate.failed:
        yield f"{check.path}: {check.message}" if check.path else check.message
    for rule in candidate.rules:
        if rule.value is None:
            yield f"rule '{_cut(rule.condition, _CONDITION)}' failed: {rule.error}"
    for rule in sorted(candidate.rules, key=lambda rule: -rule.priority):
        if rule.value:
            yield f"rule '{_cut(rule.condition, _CONDITION)}' ({rule.priority})"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
