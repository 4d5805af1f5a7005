"""What can go wrong on the way to a running control plane."""


class ControlPlaneError(Exception):
    """Anything that keeps a control plane from running; the message says what to do."""


class BinariesUnavailableError(ControlPlaneError):
    """No allowed source has the binaries that the level needs."""


class DownloadFailedError(ControlPlaneError):
    """A published file could not be fetched (not reachable, not found, cut short)."""


class ChecksumMismatchError(ControlPlaneError):
    """A fetched file is not the one that was published."""


class BuildFailedError(ControlPlaneError):
    """The Go toolchain is missing or failed."""


class StartFailedError(ControlPlaneError):
    """A component ended or did not become ready; the message carries the tail of its log."""
