"""Fixtures of the contract's tests: the toy upstream, and every component of ours under an account of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.deployed_operator import Operator, deployed_operator

from airunway.kube import CONFIG_MAP, SERVICE, Client
from airunway_testing.controlplane import Cluster
from airunway_testing.simulators import load_simulator
from airunway_testing.toy.names import PART, TOY, TOY_BOX

collect_ignore = ["frozen"]
"""Tests of other distributions, which `test_frozen.py` runs."""


@pytest.fixture
async def operator(control_plane: Cluster, client: Client, namespace: str, audit_log: Path) -> AsyncIterator[Operator]:
    """The core runs; providers come with ``await operator.provider(host)``.

    After every test: nothing is written at rest, whatever the objects of the deployments are touched with; nobody was
    refused a right; the deployments go.
    """

    async def last(operator: Operator) -> None:
        assert await operator.at_rest(TOY, TOY_BOX, PART, SERVICE, CONFIG_MAP) == [], "at rest nothing is written"

    definitions = load_simulator("toy").custom_resource_definitions()
    async with deployed_operator(
        control_plane, client, namespace=namespace, audit_log=audit_log, definitions=definitions, last=last
    ) as found:
        yield found
