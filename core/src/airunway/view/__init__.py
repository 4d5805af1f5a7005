"""The view model of terminal and web UI: resources in, frozen dataclasses out. Pure, and without any markup.

Texts in a view are single lines without control characters, terminal sequences and what looks like a credential. What
could not be seen is an `Unseen`, never an empty list or 0.
"""

from airunway.unseen import Unseen
from airunway.view.base import short_age
from airunway.view.deployment import (
    DeploymentSnapshot,
    DeploymentView,
    TimelineEntry,
    cause_of,
    deployment_view,
    event_time,
    outcome_of,
)
from airunway.view.fleet import FleetView, fleet_view
from airunway.view.pods import ContainerRow, EndingRow, Health, PodRow, container_names, pod_row, role_of
from airunway.view.tree import TreeNode

__all__ = [
    "ContainerRow",
    "DeploymentSnapshot",
    "DeploymentView",
    "EndingRow",
    "FleetView",
    "Health",
    "PodRow",
    "TimelineEntry",
    "TreeNode",
    "Unseen",
    "cause_of",
    "container_names",
    "deployment_view",
    "event_time",
    "fleet_view",
    "outcome_of",
    "pod_row",
    "role_of",
    "short_age",
]
