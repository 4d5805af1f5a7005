"""The record of what transformers write: what counts as a change, and what `--write` may put on record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import discover, host_of, load
from airunway.resource import Resource
from airunway.sdk import (
    Compatibility,
    Component,
    Context,
    EngineCapability,
    Finding,
    ModelDeployment,
    Observation,
    Observed,
    Provider,
    ProviderManifest,
    Transformer,
    UpstreamKind,
)
from airunway_testing.conformance.digests import GIVEN, Record, digests, extended, fixed_set, main, problems

_SERVER = UpstreamKind(group="acme.io", kind="Server", plural="servers", versions=("v1",), primary=True)
_GROUP = UpstreamKind(group="acme.io", kind="Group", plural="groups", versions=("v1",))


def host(
    *names: str, writes: str = "a", refuses: str = "", groups: tuple[str, ...] = (), claim: str = "claim"
) -> ProviderHost:
    """A provider whose transformers all write `writes` and refuse deployments that set the field `refuses`.

    It writes variables, claim and pool of its context, the claim under the name `claim`. `groups` are transformers of
    a second kind; what is written says which of them was in use.
    """

    def can_handle(deployment: ModelDeployment, context: Context[Any]) -> Compatibility:
        refused = refuses and getattr(deployment.spec, refuses)
        found = (Finding(path=f"spec.{refuses}", reason="No", message="no"),) if refused else ()
        return Compatibility(blockers=found)

    def translate_spec(deployment: ModelDeployment, context: Context[Any]) -> list[Resource]:
        spec = {**deployment.to_resource()["spec"], "says": writes, "by": context.upstream.transformer.name}
        spec["shared"] = list(context.runtime.env)
        spec |= {claim: context.cache.claim} if context.cache is not None else {}
        spec |= {"pool": context.gateway.uses_pool} if context.gateway is not None else {}
        if groups:
            spec["beside"] = context.served[_GROUP.key].transformer.name
        return [{"apiVersion": "acme.io/v1", "kind": "Server", "metadata": {"name": "m"}, "spec": spec}]

    def translate_status(deployment: ModelDeployment, observed: Observed, context: Context[Any]) -> Observation:
        return Observation(components=(Component(name="Server", ready=None, reason="Unknown"),))

    manifest = ProviderManifest(
        name="acme",
        version="1",
        engines=(EngineCapability(name="vllm", gpu_support=True),),
        upstream=(_SERVER, _GROUP) if groups else (_SERVER,),
    )
    provider = Provider(
        manifest,
        [
            *(Transformer(name=name, api_version="acme.io/v1") for name in names),
            *(Transformer(name=name, api_version="acme.io/v1", kind="Group") for name in groups),
        ],
        can_handle=can_handle,
        translate_spec=translate_spec,
        translate_status=translate_status,
    )
    return host_of("acme", provider)


@pytest.fixture(scope="module")
def record() -> Record:
    deployments = fixed_set(host("one"))
    return Record(deployments=deployments, digests=digests(host("one"), Record(deployments=deployments)))


def test_nothing_is_said_of_what_is_on_record(record: Record, tmp_path: Path) -> None:
    assert problems(host("one"), record) == []
    record.write(tmp_path / "digests.json")
    assert Record.read(tmp_path / "digests.json") == record
    assert "vllm, spec.tolerations" in record.deployments


def test_another_output_of_a_released_transformer_is_said(record: Record) -> None:
    found = problems(host("one", writes="b"), record)
    (said,) = found
    more = len(record.digests["one"]) - 1
    assert f"transformer one writes 'vllm' and {more} more otherwise than on record" in said
    assert "ships as a new transformer" in found[0]


def test_what_is_written_of_a_cache_a_runtime_config_and_a_gateway_is_on_record(record: Record) -> None:
    of_contexts = {name: record.digests["one"][name] for name in ("vllm", *(f"vllm, {given}" for given in GIVEN))}
    assert len(set(of_contexts.values())) == 4, "both caches have the same claim"
    (said,) = problems(host("one", claim="claimName"), record)
    assert "transformer one writes 'vllm, model cache' and 1 more otherwise than on record" in said


def test_an_older_record_gets_the_deployments_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "digests.json"
    older = Record(deployments={"vllm": fixed_set(load("vllm"))["vllm"]})
    extended(load("vllm"), older).write(path)
    before = Record.read(path)
    assert main(["vllm", str(path), "--write"]) == 0
    now = Record.read(path)
    assert {"vllm", "vllm, model cache", "sglang, own image, gateway"} <= now.deployments.keys()
    for transformer, written in before.digests.items():
        assert written.items() <= now.digests[transformer].items(), "what is on record stays"


def test_many_gpus_stay_many_beside_every_other_field() -> None:
    of_several = {
        base.spec["resources"]["gpu"]["count"]
        for each in discover()
        for name, base in fixed_set(load(each.name)).items()
        if "16 GPUs" in name and "every field" in name
    }
    assert of_several == {16}


def test_what_is_refused_all_at_once_is_said(record: Record) -> None:
    found = problems(host("one", refuses="tolerations"), record)
    assert "transformer one refuses 'vllm, spec.tolerations', which it wrote before" in found
    assert not any("refuses 'vllm'," in problem for problem in found)


def test_a_transformer_that_is_gone_or_new_is_said(record: Record) -> None:
    gone, new = problems(host("two"), record)
    assert gone.startswith("transformer one is gone")
    assert new.startswith("transformer two: not on record: 'vllm'")
    assert new.endswith("run with --write")


def test_writing_adds_what_is_new_and_changes_nothing_that_is_on_record(record: Record) -> None:
    grown = extended(host("one", "two"), record)
    assert {*grown.digests} == {"one", "two"}
    assert grown.digests["one"] == record.digests["one"]
    changed = host("one", "two", writes="b")
    assert extended(changed, grown) == grown
    assert problems(changed, extended(changed, grown)) != []


def test_a_newer_transformer_of_another_kind_changes_nothing_that_is_on_record(tmp_path: Path) -> None:
    """A plan with both kinds is recorded as it was when the transformer was; the record says with which others."""
    first = Record(deployments=fixed_set(host("one", groups=("g1",))))
    old = replace(extended(host("one", groups=("g1",)), first), beside={})  # as records were before they said it
    both = host("one", "two", groups=("g1", "g2"))
    assert {problem.split(":")[0] for problem in problems(both, old)} == {"transformer two", "transformer g2"}
    grown = extended(both, old)
    assert problems(both, grown) == []
    assert grown.digests["one"] == old.digests["one"]
    kinds = ("Server.acme.io", "Group.acme.io")
    assert grown.beside == {
        "one": {kinds[1]: "g1"},
        "two": {kinds[1]: "g2"},
        "g1": {kinds[0]: "one"},
        "g2": {kinds[0]: "two"},
    }
    grown.write(tmp_path / "digests.json")
    assert Record.read(tmp_path / "digests.json") == grown
    assert problems(host("one", "two", "three", groups=("g1", "g2")), grown)[0].startswith("transformer three: not on")


def test_what_no_release_has_may_change(record: Record) -> None:
    changed = host("one", writes="b")
    assert problems(changed, extended(changed, record, unreleased=["one"])) == []


def test_the_command_checks_an_installed_provider(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (name, *_) = (found.name for found in discover())
    path = tmp_path / "digests.json"
    assert main([name, str(path)]) == 1
    assert "nothing that it writes is on record" in capsys.readouterr().out
    assert main([name, str(path), "--write"]) == 0
    assert main([name, str(path)]) == 0
