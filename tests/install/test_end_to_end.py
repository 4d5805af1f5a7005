"""`make e2e` on an installation by the charts. With images: tests/install/test_images.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.install.endtoend import live_through
from tests.install.helm import Helm, Major
from tests.install.installation import ALL_CHARTS_OF
from tests.install.node import processes


@pytest.mark.chart
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(580)
def test_every_step_of_every_provider_passes_on_an_installation_by_the_charts(
    helms: dict[Major, Helm], tmp_path: Path
) -> None:
    live_through(helms[4], tmp_path, processes, ALL_CHARTS_OF)
