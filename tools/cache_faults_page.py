"""Write docs/reference/model-cache-faults.md: what a model cache reports of each fault, as the test proves it.

python -m tools.cache_faults_page [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.support.cache_faults import CACHE_FAULTS, CacheFault
from tools.generated import write

PAGE = "docs/reference/model-cache-faults.md"
TEST = "tests/modelcache/test_fault_table.py"


def generated() -> dict[str, str]:
    """The page's text by its path from the root."""
    return {PAGE: "\n".join(_lines()) + "\n"}


def _lines() -> Iterator[str]:
    yield "<!-- Generated: python -m tools.cache_faults_page -->"
    yield "# Faults of the model cache"
    yield ""
    yield (
        "The reason is that of the condition `ModelCacheReady` of each deployment that waits for the weights, and of "
        "`DownloadReady` or `StorageReady` of the ModelArtifact. The phase is the artifact's; deployments have its "
        f"parent and root cause, too. `{TEST}` plays each fault, and its end, with the real downloader."
    )
    yield ""
    yield "| fault | reason | condition of the artifact | phase | parent that is False | root cause |"
    yield "|---|---|---|---|---|---|"
    for fault in CACHE_FAULTS:
        parent = f"`{fault.parent}`" if fault.parent else ""
        yield f"| {fault.what} | `{fault.reason}` | `{fault.child}` | {fault.phase} | {parent} | {_code(fault)} |"
    yield ""
    yield (
        "What is out of reach counts as Degraded after the grace period of the runtime config "
        "(`dependencyGracePeriod`, 10 s). An evicted pod and a lost node are no faults: the Job replaces the pod once "
        "the old one has ended, the download goes on where it was, and no attempt is counted."
    )
    yield ""
    yield "## What clears them"
    yield ""
    yield "| fault | what to do |"
    yield "|---|---|"
    for fault in CACHE_FAULTS:
        yield f"| {fault.what} | {fault.remedy} |"
    yield ""
    yield (
        "Attempts after a refusal or without an answer come after 60 s, 120 s, … up to an hour, or when the server "
        "asks for it; after an error in the configuration, every hour. `status.download.nextAttemptTime` has the time."
    )


def _code(fault: CacheFault) -> str:
    return f"[{fault.code}](conditions.md#{fault.code.lower().replace('.', '')})" if fault.code else ""


if __name__ == "__main__":
    sys.exit(write(generated()))
