"""Defines the options that several commands share; those of commands that start processes are in `process_options`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

Kubeconfig = Annotated[
    Path | None, typer.Option(help="Kubeconfig file (default: as kubectl; in a pod its service account).")
]
Context = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` texts as a map; the settings' types decide what a value means. Raises typer.BadParameter."""
    from airunway.plugins.settings import GivenText

    values: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE")
        values[key] = GivenText(value)
    return values
