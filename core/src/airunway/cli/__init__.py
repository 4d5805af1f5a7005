"""The `airunway` command. Commands import their dependencies when they run, so that `airunway --help` stays fast."""

from airunway.cli.main import main

__all__ = ["main"]
