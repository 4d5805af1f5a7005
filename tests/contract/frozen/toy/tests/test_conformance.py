"""What every provider must hold; no Kubernetes needed."""

from pathlib import Path

from airunway.plugins.registry import load
from airunway_testing.conformance.checks import problems
from airunway_testing.conformance.digests import Record
from airunway_testing.conformance.digests import problems as changes


def test_it_holds_the_contract() -> None:
    """Load checks, the schema of the CRD, determinism within and between processes, statuses of any shape."""
    assert list(problems("frozen-toy")) == []


def test_released_transformers_write_what_they_wrote() -> None:
    assert changes(load("frozen-toy"), Record.read(Path(__file__).with_name("digests.json"))) == []
