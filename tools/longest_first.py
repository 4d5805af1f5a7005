"""A plugin of pytest: where several processes run the tests, they begin with the files that take longest.

A worker gets whole files (``--dist loadfile``), in the order of the collection: one that is given a file of five
minutes as the last of all works alone for that long.
"""

from __future__ import annotations

import os

import pytest

__all__ = ["LONGEST"]

LONGEST = (
    "tests/install/test_images.py",
    "tests/install/test_carried.py",
    "tests/install/test_upgrade.py",
    "tests/security/test_rights_in_use.py",
    "tests/test_examples.py",
    "tests/test_lives.py",
    "tests/e2e/test_end_to_end.py",
    "tests/rootcause/test_every_provider.py",
    "tests/install/test_install.py",
    "tests/test_tutorial.py",
    "tests/install/test_upgrade_of_all.py",
    "tests/install/test_end_to_end.py",
    "tests/doctor/test_doctor.py",
    "tests/diff/test_diff.py",
    "tests/platform/test_restart.py",
    "tests/platform/test_restart_templates.py",
    "tests/security/test_bounds.py",
    "tests/catalogue/test_discovery.py",
    "tests/install/test_pages.py",
    "tests/security/tenant/test_hostile_tenant.py",
    "tests/modelcache/test_restart.py",
)
"""Files that take about a minute and more, the longest first (`pytest --durations=100` lists the tests)."""

_RANK = {name: rank for rank, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of the longest files first, for workers; the others keep their order."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _RANK.get(item.nodeid.partition("::")[0], len(_RANK)))
