"""What can go wrong with a sandbox besides its control plane."""


class SandboxError(Exception):
    """The sandbox cannot start or go on; the message says which part, why, and what to do."""
