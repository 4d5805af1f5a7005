"""What runs on KubeRay is not touched by an upgrade of this provider: released transformers write what they wrote."""

from pathlib import Path

from airunway.plugins.registry import load
from airunway_testing.conformance.digests import Record, problems

RECORD = Path(__file__).with_name("digests.json")


def test_released_transformers_write_what_they_wrote() -> None:
    """A change ships as a new transformer: docs/providers/contract.md, "Versions and transformers"."""
    assert problems(load("kuberay"), Record.read(RECORD)) == []


def test_every_transformer_is_on_record_with_something_that_it_writes() -> None:
    record = Record.read(RECORD)
    assert {name: len(found) > 10 for name, found in record.digests.items()} == {
        transformer.name: True for transformer in load("kuberay").transformers
    }
