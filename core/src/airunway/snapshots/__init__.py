"""Reads what is below one deployment: once in a bounded number of requests, or for as long as it is looked at."""

from airunway.snapshots.following import follow_snapshots
from airunway.snapshots.reading import MOST_REQUESTS, read_snapshot
from airunway.snapshots.sources import EVENT, Source, all_pod_sources, sources_of

__all__ = ["EVENT", "MOST_REQUESTS", "Source", "all_pod_sources", "follow_snapshots", "read_snapshot", "sources_of"]
