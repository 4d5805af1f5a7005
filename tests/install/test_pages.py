"""docs/install does what it says, and names what there is."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tests.install.helm import APPLICATIONS, NAMESPACE, Helm, Major
from tests.install.node import processes
from tests.install.pages import BLOCK, ORDER, PAGES, follow

ELSEWHERE = {"without-helm.md", "moving.md"}
"""Of `airunway install`, which has tests of its own; and tables of what differs, without a command."""


def test_every_page_is_followed() -> None:
    assert {path.name for path in PAGES.glob("*.md")} == {*ORDER, "gitops.md", *ELSEWHERE}
    assert BLOCK.search((PAGES / "moving.md").read_text(encoding="utf-8")) is None


def test_every_chart_is_named() -> None:
    page = (PAGES / "README.md").read_text(encoding="utf-8")
    assert [chart for chart in APPLICATIONS if f"../../charts/{chart}/README.md" not in page] == []


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_commands_with_processes(helms: dict[Major, Helm], tmp_path: Path) -> None:
    follow(helms[3], tmp_path, processes)


@pytest.mark.chart
def test_the_manifests_of_gitops_name_charts_and_values_that_exist(helms: dict[Major, Helm]) -> None:
    page = (PAGES / "gitops.md").read_text(encoding="utf-8")
    objects = [obj for block in BLOCK.finditer(page) for obj in yaml.load_all(block["text"], Loader=yaml.CSafeLoader)]
    found: dict[str, list[tuple[str, object]]] = {"Application": [], "HelmRelease": []}
    for obj in objects:
        if obj["kind"] == "Application":
            source = obj["spec"]["source"]
            found["Application"].append((source["chart"], source["helm"]["valuesObject"]))
            assert obj["spec"]["destination"]["namespace"] == NAMESPACE
            assert "ServerSideApply=true" in obj["spec"]["syncPolicy"]["syncOptions"]
        elif obj["kind"] == "HelmRelease":
            found["HelmRelease"].append((obj["spec"]["chart"]["spec"]["chart"], obj["spec"].get("values", {})))
            assert obj["spec"]["targetNamespace"] == NAMESPACE
            # As `helm install` of the other pages has it: the selectors of Deployments have the release's name in them.
            assert obj["spec"]["storageNamespace"] == NAMESPACE
            assert obj["spec"]["releaseName"] == obj["metadata"]["name"]
    for tool, charts in found.items():
        assert [chart for chart, _ in charts] == ["airunway-crds", "airunway", "airunway-provider-vllm"], tool
        for chart, values in charts:
            path = helms[4].folder / "gitops-values.yaml"
            path.write_text(yaml.safe_dump(values))
            assert helms[4].render(chart, "-f", str(path))
