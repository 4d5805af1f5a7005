"""Parts of a provider's static data."""

from __future__ import annotations

from typing import Any

import yaml

from airunway.sdk import generation, helm_installation, yaml_json

ACME: dict[str, Any] = {"name": "acme", "version": "1.7.0", "namespace": "acme-system", "title": "Install", "note": "…"}


def test_a_generation_is_called_by_what_it_writes_and_since_when() -> None:
    found = generation("acme.io/v1beta1", "1.7", hashes=["0a"], features=["suspend"], immutable=["spec.size"])
    assert (found.name, found.api_version, found.kind) == ("v1beta1-1.7", "acme.io/v1beta1", "")
    assert (found.schema_hashes, found.features, found.immutable) == (("0a",), frozenset({"suspend"}), ("spec.size",))
    assert (found.since, found.until) == ("1.7", "")
    assert generation("v1", "1.7", "1.9", hashes=(), kind="ServerSet").name == "serverset-v1-1.7"


def test_a_chart_of_a_repository_is_installed_after_that_was_added() -> None:
    address = "https://charts.acme.example"
    found = helm_installation("Acme", chart="acme/operator", repository=address, publisher="Acme Inc.", **ACME)
    add, install = found.steps
    assert add["command"] == f"helm repo add acme {address}"
    assert add["description"] == "Acme Inc. publishes its charts there."
    assert install["command"].startswith("helm upgrade --install acme acme/operator --version 1.7.0 --namespace acme-")
    assert found.helm_repos == ({"name": "acme", "url": address},)
    assert "values" not in found.helm_charts[0]


def test_a_chart_with_an_address_of_its_own_needs_neither_repository_nor_version() -> None:
    values: dict[str, Any] = {"metrics": False, "size": 3, "mode": "small"}
    found = helm_installation("Acme", chart="https://acme.example/operator-1.7.0.tgz", values=values, **ACME)
    (install,) = found.steps
    assert install["command"] == (
        "helm upgrade --install acme https://acme.example/operator-1.7.0.tgz --namespace acme-system "
        "--create-namespace --set metrics=false --set size=3 --set mode=small"
    )
    assert found.helm_repos == ()
    assert found.helm_charts[0]["values"] == values


def test_json_for_yaml_is_read_as_it_was_written() -> None:
    said = {"float": "1e3", "odd": "a\x7fb\x85\u2028\ufeff\U0001f600", "list": [1, None, True, "no"], "": "\t\n"}
    assert yaml.safe_load(yaml_json(said)) == said
