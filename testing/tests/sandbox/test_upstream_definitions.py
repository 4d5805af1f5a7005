"""CRDs of an upstream's own, given to the sandbox as a directory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import yaml

from airunway.resource import Resource
from airunway_testing.sandbox.errors import SandboxError
from airunway_testing.sandbox.stack import _upstream_definitions
from airunway_testing.simulators import Simulator

SIMULATORS = [cast("Simulator", SimpleNamespace(kinds=[("acme.example", "Server")]))]


def crd(kind: str = "Server") -> Resource:
    spec = {
        "group": "acme.example",
        "names": {"kind": kind, "plural": f"{kind.lower()}s"},
        "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {"name": "acme"}}}},
    }
    return {"kind": "CustomResourceDefinition", "metadata": {"name": f"{kind.lower()}s.acme.example"}, "spec": spec}


def test_conversion_webhooks_are_left_out_because_no_operator_answers(tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all([crd(), {"kind": "Service"}, crd("Part")]))
    found = _upstream_definitions(SIMULATORS, tmp_path)
    assert [each["spec"]["names"]["kind"] for each in found] == ["Server", "Part"]
    assert all("conversion" not in each["spec"] for each in found)


def test_a_directory_with_several_releases_is_refused_with_both_files(tmp_path: Path) -> None:
    for release in ("v1.0.0", "v1.1.0"):
        (tmp_path / release).mkdir()
        (tmp_path / release / "servers.yaml").write_text(yaml.safe_dump(crd()))
    with pytest.raises(SandboxError, match="one release of each upstream") as refused:
        _upstream_definitions(SIMULATORS, tmp_path)
    assert all(f"{release}/servers.yaml" in str(refused.value) for release in ("v1.0.0", "v1.1.0"))
