"""``airunway controlplane``, ``simulate`` and ``sandbox``. Commands import what they need when they run."""

from airunway_testing.cli.commands import app

__all__ = ["app"]
