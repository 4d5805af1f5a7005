"""The names that the catalogue puts on objects."""

from __future__ import annotations

from airunway.api import names

CATALOGUE_MANAGER = "airunway-catalogue"
"""Field manager, and the name of the Lease."""

APP_COMPONENT = "app.kubernetes.io/component"
DISCOVERY = "discovery"
"""Value of `APP_COMPONENT` on discovery Jobs and their pods; also the name of their container."""

CATALOGUE_PART = "catalogue"
"""Value of the label `airunway.api.names.PART` on what the catalogue makes."""

WHY_NO_ENTRYPOINT = f"{names.GROUP}/why-no-entrypoint"
"""Annotation of a discovery Job: why the entrypoint of its image is not known."""
