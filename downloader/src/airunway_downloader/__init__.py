"""Fetches the weights of a model into a folder and verifies them; knows nothing of Kubernetes or the rest of AI Runway.

The modules, in the order of their imports: `failures` and `redaction` (what ended a download, and how it is reported),
`progress`, `client` (HTTP), `files` (which files of a source are fetched), `sources` with `hub` and `s3`, `tree` (what
is on the disk), `transfer` (the download), `cli`.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
