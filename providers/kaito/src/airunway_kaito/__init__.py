"""The AI Runway provider for KAITO (`kaito.sh` Workspaces)."""

__all__ = ["provider"]

provider = None
