"""The view model of terminal and web UI: resources in, frozen dataclasses out. Pure, and without any markup.

Texts in a view are single lines without control characters, terminal sequences and what looks like a credential. What
could not be seen is an `Unseen`, never an empty list or 0.
"""

from airunway.view.base import Unseen, View, short_age
from airunway.view.deployment import (
    CauseView,
    ConditionRow,
    DeploymentSnapshot,
    DeploymentView,
    Outcome,
    TemplateUse,
    TimelineEntry,
    cause_of,
    deployment_view,
    event_time,
    outcome_of,
    timeline_of,
)
from airunway.view.pods import ContainerRow, EndingRow, Health, PodRow, container_names, pod_row, role_of
from airunway.view.tree import TreeNode, tree_of

__all__ = [
    "CauseView",
    "ConditionRow",
    "ContainerRow",
    "DeploymentSnapshot",
    "DeploymentView",
    "EndingRow",
    "Health",
    "Outcome",
    "PodRow",
    "TemplateUse",
    "TimelineEntry",
    "TreeNode",
    "Unseen",
    "View",
    "cause_of",
    "container_names",
    "deployment_view",
    "event_time",
    "outcome_of",
    "pod_row",
    "role_of",
    "short_age",
    "timeline_of",
    "tree_of",
]
