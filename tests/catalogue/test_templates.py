"""The state of templates on a real API server: configs, hardware, users; no Jobs."""

from __future__ import annotations

import pytest
from tests.catalogue.conftest import Ground, reasons

from airunway_catalogue.application import CatalogueApplication

pytestmark = pytest.mark.apiserver

MI300X = {"amd.com/gpu.device-id": "74a1", "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}


@pytest.mark.parametrize("shared", [False, True], ids=["namespaced", "cluster"])
async def test_a_template_without_demands_is_ready_at_once(
    ground: Ground, catalogue: CatalogueApplication, *, shared: bool
) -> None:
    key = await ground.template(cluster=shared)
    ready = await ground.until(key, "Ready")
    assert reasons(ready) == {
        "AuthValid": ("True", "AuthenticationValid"),
        "CacheReady": ("True", "NotEnabled"),
        "ConfigValid": ("True", "ConfigurationValid"),
        "DependenciesReachable": ("True", "Reachable"),
        "DiscoveryReady": ("True", "NotRequested"),
        "HardwareReady": ("True", "NotRequested"),
        "Ready": ("True", "Ready"),
        "RuntimeConfigReady": ("True", "UsingDefaults"),
    }
    assert catalogue.unready() is None
