"""What a release was made of, and by what: SLSA provenance v1 as in-toto statements.

The fields are those of https://slsa.dev/spec/v1.0/provenance. Nothing in it is the time of day: the same commit makes
the same provenance. It claims no more than build level 1: with a key it is vouched for by the owner of that key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tools.generated import ROOT
from tools.home import home

if TYPE_CHECKING:
    from airunway.resource import Resource

__all__ = ["BILL", "PREDICATE", "Build", "bill_statement", "statement"]

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BILL = "https://cyclonedx.org/bom"
_INPUTS = ("uv.lock", "images/base.lock.yaml", "images/base.yaml")


@dataclass(frozen=True, kw_only=True)
class Build:
    """One run of `make release`: `builder` is the URI of what ran it, `run` that of the run, if it has one."""

    version: str
    registry: str
    commit: str
    builder: str = ""
    run: str = ""


def statement(subjects: Mapping[str, str], build: Build) -> Resource:
    """The statement about these, by name, with their SHA-256 (hexadecimal)."""
    source = f"git+{home()}"
    files = [{"uri": path, "digest": {"sha256": _sha256(ROOT / path)}} for path in _INPUTS]
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": f"{home()}/blob/main/docs/releases/verify.md#what-the-provenance-says",
                "externalParameters": {
                    "command": f"make release VERSION={build.version} REGISTRY={build.registry}",
                    "source": {"uri": source, "digest": {"gitCommit": build.commit}},
                },
                "resolvedDependencies": [{"uri": source, "digest": {"gitCommit": build.commit}}, *files],
            },
            "runDetails": {
                "builder": {"id": build.builder or f"{home()}#make-release"},
                "metadata": {"invocationId": build.run} if build.run else {},
            },
        },
    }


def bill_statement(subjects: Mapping[str, str], bill: Resource) -> Resource:
    """The statement that these, by name with their SHA-256, have this bill of materials (CycloneDX)."""
    subject = [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())]
    return {"_type": STATEMENT, "subject": subject, "predicateType": BILL, "predicate": bill}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
