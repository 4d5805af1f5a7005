"""Reads what is below one deployment: once in a bounded number of requests, or for as long as it is looked at."""

from airunway.snapshots.following import follow_snapshots
from airunway.snapshots.reading import MOST_REQUESTS, read_snapshot
from airunway.snapshots.sources import Source, pod_sources, sources_of

__all__ = ["MOST_REQUESTS", "Source", "follow_snapshots", "pod_sources", "read_snapshot", "sources_of"]
