"""The `airunway` command. Commands import what they need when they run: `airunway --help` stays fast."""

from airunway.cli.main import main

__all__ = ["main"]
