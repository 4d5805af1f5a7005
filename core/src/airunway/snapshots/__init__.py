"""Reads what is below one deployment: once in a bounded number of requests, or for as long as it is looked at. Asks the
server of a deployment through the API server's proxy.
"""

from airunway.snapshots.following import Watched, follow_snapshots
from airunway.snapshots.reading import EVENT, MOST_REQUESTS, Source, all_pod_sources, read_snapshot, sources_of
from airunway.snapshots.serving import (
    Advertised,
    Endpoint,
    advertised,
    ask,
    endpoint_of,
    pod_endpoint,
    proxy_path,
    schema_tasks,
)

__all__ = [
    "EVENT",
    "MOST_REQUESTS",
    "Advertised",
    "Endpoint",
    "Source",
    "Watched",
    "advertised",
    "all_pod_sources",
    "ask",
    "endpoint_of",
    "follow_snapshots",
    "pod_endpoint",
    "proxy_path",
    "read_snapshot",
    "schema_tasks",
    "sources_of",
]
