"""Loading plugins: what is wrong with one is said with its name, and what to do."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from airunway import __version__
from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.plugins import registry
from airunway.plugins.contract import (
    Compatibility,
    Component,
    Context,
    EngineCapability,
    Finding,
    Observation,
    Observed,
    ProviderManifest,
    Transformer,
    Upstream,
    UpstreamKind,
)
from airunway.plugins.errors import ContractMismatch, PluginBroken, PluginFault, PluginNotFound
from airunway.plugins.hookspecs import WRAPPERS, hookimpl
from airunway.plugins.registry import discover, host_of, load, wrappers


def test_a_provider_on_request_takes_part_where_it_is_named() -> None:
    """Author-review, finding 15: whoever has airunway-testing installed has no toy in his cluster."""
    assert "toy" not in [found.name for found in discover()]
    assert "toy" in [found.name for found in discover(on_request=True)]
    assert load("toy").name == "toy"


class Plugin:
    """A provider that does as little as the contract allows."""

    name = "tiny"
    contract_versions: tuple[str, ...] = ("v1",)

    @hookimpl
    def provider_manifest(self) -> ProviderManifest:
        return ProviderManifest(
            name=self.name,
            version="1.0",
            contract_versions=self.contract_versions,
            engines=(EngineCapability(name="vllm", gpu_support=True),),
            upstream=(
                UpstreamKind(group="example.org", kind="Thing", plural="things", versions=("v1",), primary=True),
            ),
        )

    @hookimpl
    def transformers(self) -> Sequence[Transformer]:
        return (Transformer(name="only", api_version="example.org/v1", schema_hashes=()),)

    @hookimpl
    def can_handle(self, deployment: ModelDeployment, context: Context) -> Compatibility:
        return Compatibility()

    @hookimpl
    def translate_spec(self, deployment: ModelDeployment, context: Context) -> Sequence[dict[str, Any]]:
        return [{"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": deployment.metadata.name}}]

    @hookimpl
    def translate_status(self, deployment: ModelDeployment, observed: Observed, context: Context) -> Observation:
        return Observation(components=(Component(name="Thing", ready=True, reason="Ready"),))


DEPLOYMENT = parse_deployment(
    {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "default"},
        "spec": {"model": {"id": "org/model"}},
    }
)
UPSTREAM = Upstream(api_version="example.org/v1", transformer=Transformer(name="only", api_version="example.org/v1"))
CONTEXT = Context(engine="vllm", upstream=UPSTREAM, settings=None, now=datetime(2026, 11, 21, tzinfo=UTC))


def test_a_provider_that_nobody_installed_names_those_that_are() -> None:
    with pytest.raises(PluginNotFound, match=r"no installed distribution provides 'nosuch'.*kaito"):
        load("nosuch")


def test_a_host_speaks_the_newest_common_contract_and_asks_the_plugin() -> None:
    host = host_of("tiny", Plugin(), origin="tiny 1.0")
    assert host.contract_version == "v1"
    assert host.primary_kind.kind == "Thing"
    assert host.translate_spec(DEPLOYMENT, CONTEXT).objects[0]["metadata"]["name"] == "llama"
    assert host.can_handle(DEPLOYMENT, CONTEXT).ok


def test_a_missing_hook_is_named() -> None:
    class Incomplete(Plugin):
        translate_status = None  # type: ignore[assignment]

    with pytest.raises(PluginBroken, match="lacks the hooks translate_status"):
        host_of("tiny", Incomplete(), origin="tiny 1.0")


def test_a_misspelt_hook_is_named() -> None:
    class Misspelt(Plugin):
        @hookimpl
        def translate_sepc(self) -> None:
            """Nobody calls it."""

    with pytest.raises(PluginBroken, match="translate_sepc"):
        host_of("tiny", Misspelt(), origin="tiny 1.0")


def test_an_argument_that_the_contract_does_not_have_is_refused() -> None:
    class Greedy(Plugin):
        @hookimpl
        def can_handle(  # type: ignore[override]
            self, deployment: ModelDeployment, context: Context, client: object
        ) -> Compatibility:
            return Compatibility()

    with pytest.raises(PluginBroken, match="client"):
        host_of("tiny", Greedy(), origin="tiny 1.0")


def test_a_contract_of_another_age_is_refused_with_both_versions() -> None:
    class Future(Plugin):
        contract_versions = ("v9",)

    with pytest.raises(ContractMismatch, match=r"speaks contract v9, this core speaks v1"):
        host_of("tiny", Future(), origin="tiny 9.0")


def test_an_entry_point_must_carry_the_plugins_own_name() -> None:
    with pytest.raises(PluginBroken, match="calls itself 'tiny'"):
        host_of("huge", Plugin(), origin="tiny 1.0")


def test_what_a_hook_raises_or_returns_wrongly_is_the_plugins_fault() -> None:
    class Faulty(Plugin):
        @hookimpl
        def can_handle(self, deployment: ModelDeployment, context: Context) -> Compatibility:
            raise ZeroDivisionError("oops")

        @hookimpl
        def translate_spec(self, deployment: ModelDeployment, context: Context) -> Sequence[dict[str, Any]]:
            return [{"kind": "Thing"}]

        @hookimpl
        def translate_status(self, deployment: ModelDeployment, observed: Observed, context: Context) -> Observation:
            return "fine"  # type: ignore[return-value]

    host = host_of("tiny", Faulty(), origin="tiny 1.0")
    with pytest.raises(PluginFault, match=r"can_handle raised ZeroDivisionError\('oops'\)"):
        host.can_handle(DEPLOYMENT, CONTEXT)
    with pytest.raises(PluginFault, match=r"object 0 has no metadata\.name"):
        host.translate_spec(DEPLOYMENT, CONTEXT)
    with pytest.raises(PluginFault, match="returned str, not Observation"):
        host.translate_status(DEPLOYMENT, Observed(primary=None), CONTEXT)


def test_a_site_can_wrap_a_hook_without_forking_the_provider() -> None:
    class Policy:
        @hookimpl(wrapper=True)
        def can_handle(self, deployment: ModelDeployment, context: Context) -> Any:
            result: Compatibility = yield
            finding = Finding(path="spec.model.id", reason="NotHere", message="not on this site")
            return Compatibility(blockers=(*result.blockers, finding))

    host = host_of("tiny", Plugin(), origin="tiny 1.0", wrappers=(Policy(),))
    assert [finding.reason for finding in host.can_handle(DEPLOYMENT, CONTEXT).blockers] == ["NotHere"]


def test_wrappers_are_found_by_their_entry_points_in_the_order_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint(name=name, group=WRAPPERS, value="collections:OrderedDict" if name == "a" else "collections:deque")
        for name in ("b", "a")
    ]
    monkeypatch.setattr(registry, "entry_points", lambda *, group: points if group == WRAPPERS else [])
    assert wrappers() == (OrderedDict, deque)


def test_a_wrapper_that_cannot_be_imported_is_never_left_out_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a site demands of every pod must hold or stop the process."""
    broken = EntryPoint(name="tolerations", group=WRAPPERS, value="no.such.module:site")
    monkeypatch.setattr(registry, "entry_points", lambda *, group: [broken] if group == WRAPPERS else [])
    with pytest.raises(PluginBroken, match="wrapper 'tolerations' cannot be imported: ModuleNotFoundError"):
        wrappers()


@pytest.mark.parametrize(
    ("value", "of_another_release"),
    [
        ("airunway.sdk:tenant_of.x", False),  # an attribute of a module that is there
        ("tests_of_a_newer_sdk:provider", True),
        ("not_installed:provider", False),
    ],
)
def test_a_plugin_for_another_release_names_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, of_another_release: bool
) -> None:
    (tmp_path / "tests_of_a_newer_sdk.py").write_text("from airunway.sdk import tenant_of\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("newer", value, WRAPPERS)
    monkeypatch.setattr(registry, "entry_points", lambda **_: (point,))
    with pytest.raises(PluginBroken, match="wrapper 'newer' cannot be imported") as caught:
        wrappers()
    assert ("written for another release of AI Runway" in str(caught.value)) is of_another_release
    assert (f"{__version__} is installed" in str(caught.value)) is of_another_release
