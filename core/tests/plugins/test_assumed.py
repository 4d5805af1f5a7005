"""What a plugin is told where there is no cluster to look at."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from airunway.plugins.contract import Transformer
from airunway.plugins.errors import PluginFault, SettingsError
from airunway.plugins.host import ProviderHost, assumed_context

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

MakeHost = Callable[..., ProviderHost]


def test_without_a_cluster_every_kind_is_in_its_preferred_version_by_its_newest_transformer(toy: MakeHost) -> None:
    context = assumed_context(toy(), engine="vllm", now=NOW)
    assert (context.upstream.api_version, context.upstream.transformer.name) == ("toy.example.org/v2", "v2-b")
    kinds = {"Thing.toy.example.org", "ConfigMap", "Option.toy.example.org", "ScaledObject.keda.sh"}
    assert set(context.served) == kinds
    assert context.served["ConfigMap"].api_version == "v1"
    assert context.served["Thing.toy.example.org"] is context.upstream


def test_an_absent_kind_is_not_served(toy: MakeHost) -> None:
    context = assumed_context(toy(), engine="vllm", now=NOW, absent=("Option.toy.example.org",))
    assert set(context.served) == {"Thing.toy.example.org", "ConfigMap", "ScaledObject.keda.sh"}


RELEASES = (
    Transformer(name="first", api_version="toy.example.org/v1", since="0.9", until="1.4"),
    Transformer(name="second", api_version="toy.example.org/v2", since="1.5", until="2"),
    Transformer(name="third", api_version="toy.example.org/v2", since="3"),
)


@pytest.mark.parametrize(
    ("release", "writer"),
    [
        ("", "third"),
        ("0.9", "first"),
        ("v0.9.3", "first"),
        ("1.4.7", "first"),
        ("1.10.0", "second"),
        ("2.9", "second"),
        ("v3.0.0-rc.1", "third"),
        ("12", "third"),
    ],
)
def test_the_upstream_s_version_chooses_the_transformer(toy: MakeHost, release: str, writer: str) -> None:
    host = toy(transformers=RELEASES)
    assert assumed_context(host, engine="vllm", now=NOW, upstream_version=release).upstream.transformer.name == writer


def test_a_release_that_nobody_covers_is_named(toy: MakeHost) -> None:
    with pytest.raises(PluginFault, match=r"no transformer for Thing in v2, v1 of release 0\.1"):
        assumed_context(toy(transformers=RELEASES), engine="vllm", now=NOW, upstream_version="0.1")


def test_settings_of_a_preview_are_checked_too(toy: MakeHost) -> None:
    with pytest.raises(SettingsError, match="unknown setting 'x'; known: none"):
        assumed_context(toy(), engine="vllm", now=NOW, settings={"x": 1})
