"""All five providers are upgraded from the release before, and rolled back: nothing that they wrote is written anew."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.install.fleet import TEAM, fleet_of
from tests.install.helm import Helm, Major
from tests.install.installation import ALL_CHARTS_OF
from tests.install.kept import Release

from airunway.resource import Resource, dig
from airunway_testing.sandbox.samples import secrets_of


def gpus_of(deployment: Resource) -> int:
    """All that a deployment asks for: no fewer than its pods request together."""
    roles = [dig(deployment, "spec", "scaling", role, default={}) for role in ("prefill", "decode")]
    replicas = dig(deployment, "spec", "scaling", "replicas", default=1)
    whole = {"replicas": replicas, **dig(deployment, "spec", "resources", default={})}
    return sum(dig(part, "replicas", default=1) * dig(part, "gpu", "count", default=0) for part in (whole, *roles))


@pytest.mark.chart
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(580)
def test_an_upgrade_and_back_writes_nothing_that_is_a_model_s(
    helms: dict[Major, Helm], before: Release, tmp_path: Path
) -> None:
    """All five providers: what the release before wrote for its samples keeps uid, generation and resourceVersion."""
    charts = ALL_CHARTS_OF
    samples = {provider: before.samples(provider) for provider in charts if provider != "core"}
    gpus = sum(gpus_of(yaml.safe_load(sample.path.read_text("utf-8"))) for each in samples.values() for sample in each)
    with fleet_of(helms[4], before, tmp_path, charts, pods=1, gpus=gpus) as fleet:
        made = fleet.made
        for name in secrets_of([sample for found in samples.values() for sample in found]):
            made.kubectl("create", "secret", "generic", name, "-n", TEAM, "--from-literal=HF_TOKEN=none")
        for provider, found in samples.items():
            for sample in found:
                body = yaml.safe_load(sample.path.read_text(encoding="utf-8"))
                body["spec"]["provider"] = {**body["spec"].get("provider", {}), "name": provider}
                made.kubectl("apply", "-n", TEAM, "-f", "-", stdin=yaml.safe_dump(body))
        fleet.running()
        fleet.passed()
        was = fleet.identities()
        assert len(was) >= 3 * sum(map(len, samples.values()))
        fleet.upstream_writes()
        for part in ("crds", *charts):
            fleet.move(part)
        fleet.passed()
        assert fleet.identities() == was
        for part in reversed(("crds", *charts)):
            fleet.back(part)
        fleet.passed()
        assert fleet.identities() == was
        assert fleet.upstream_writes() == []
        fleet.running()
