"""What a plugin does wrong costs one clear sentence: at its load, or in the pass that asked it."""

from __future__ import annotations

import logging
import queue
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.plugins import host as host_module
from airunway.plugins import watchdog
from airunway.plugins.errors import PluginBroken, PluginFault
from airunway.plugins.host import LONG_WAIT, SLOW_HOOK, ProviderHost
from airunway.plugins.registry import host_of
from airunway.plugins.rules import MAX_OBJECT_BYTES, MAX_OBJECTS
from airunway.resource import Resource, copy_of
from airunway.sdk import (
    Compatibility,
    Component,
    Context,
    Endpoint,
    EngineCapability,
    Finding,
    Observation,
    Observed,
    Pool,
    Replicas,
    Transformer,
    Translation,
    Upstream,
    UpstreamKind,
    hookimpl,
    pod_specs,
    workloads,
)

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
V1 = Transformer(name="v1-a", api_version="toy.example.org/v1")
CONTEXT = Context(
    engine="vllm", upstream=Upstream(api_version="toy.example.org/v1", transformer=V1), settings=None, now=NOW
)
THING = UpstreamKind(group="toy.example.org", kind="Thing", plural="things", versions=("v1",), primary=True)
VLLM = EngineCapability(name="vllm", gpu_support=True)

MakeHost = Callable[..., ProviderHost]


@pytest.fixture
def typed(plain: Callable[..., Resource]) -> ModelDeployment:
    return parse_deployment(plain())


def thing(**fields: Any) -> Resource:
    return {"apiVersion": "toy.example.org/v1", "kind": "Thing", "metadata": {"name": "llama"}, **fields}


# --------------------------------------------------------------------------------------------------------- at load


@dataclass
class Thawed:
    size: int = 1


@dataclass(frozen=True)
class Demanding:
    size: int


@dataclass(frozen=True)
class Strange:
    call: Callable[[], int] = len  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "Two Words"}, "calls itself 'Two Words'"),
        ({"upstream": ()}, "at least one kind, its primary"),
        ({"upstream": ("Thing",)}, "at least one kind, its primary"),
        (
            {"upstream": (THING, replace(THING, kind="Other", plural="others"))},
            "exactly one kind as primary; marked: Thi",
        ),
        ({"upstream": (replace(THING, primary=False),)}, "exactly one kind as primary; marked: none"),
        ({"upstream": (THING, workloads.SERVICE, workloads.SERVICE)}, "has Service 2 times"),
        (
            {"upstream": (THING, UpstreamKind(group="", kind="Node", plural="nodes", versions=("v1",), builtin=True))},
            "Node has no namespace",
        ),
        ({"upstream": (replace(THING, versions=()),)}, "at least one version"),
        ({"upstream": (THING, replace(THING, kind="Child", primary=False, write=False))}, "no label (select) says"),
        ({"upstream": (replace(THING, required=False),)}, "must be written and required"),
        ({"upstream": (replace(THING, immutable=("spec.x",)),)}, "stand in its transformers"),
        ({"upstream": (replace(THING, labels={"spec.pod": "spec.labels"}),)}, "which is no place of its pods"),
        (
            {"upstream": (replace(THING, namesakes=("Service/predictor",)), workloads.SERVICE)},
            "the namesake Service/predictor is no name that follows from {name}",
        ),
        (
            {"upstream": (replace(THING, namesakes=("Service/{name}-predictor",)),)},
            "is of a kind that the manifest does not name",
        ),
        ({"upstream": (replace(THING, readings={"spec": "jinja"}),)}, "known are plain, shell, go-template, digest"),
        ({"engines": ()}, "engines is empty"),
        ({"engines": ("vllm",)}, "is a str, not an EngineCapability"),
        ({"engines": (replace(VLLM, name="v LLM"),)}, "small letters, digits, '-', '.' and '_' only"),
        ({"engines": (replace(VLLM, name="vLLM"),)}, "small letters, digits, '-', '.' and '_' only"),
        ({"engines": (VLLM, VLLM)}, "has 'vllm' 2 times"),
        ({"engines": (replace(VLLM, gpu_support=False),)}, "nothing could ever run on it"),
        ({"engines": (replace(VLLM, serving_modes=("both",)),)}, "known are aggregated and disaggregated"),
        ({"settings": dict}, "is no dataclass"),
        ({"settings": Thawed}, "Thawed is not frozen"),
        ({"settings": Demanding}, "Demanding.size has no default"),
        ({"settings": Strange}, "Strange has a field of a type that JSON cannot say"),
        ({"serving_roles": ("head",)}, "without a role_label"),
        ({"override_schema": "any"}, "no JSON schema"),
        ({"transformers": ()}, "no transformer writes the primary kind Thing.toy.example.org"),
        ({"transformers": ("v1",)}, "something that is no Transformer"),
        ({"transformers": (V1, V1)}, "stands in the registry 2 times"),
        ({"transformers": (replace(V1, api_version="toy.example.org/v9"),)}, "writes toy.example.org/v9; the manifest"),
        ({"transformers": (V1, replace(V1, name="x", kind="Unheard"))}, "for 'Unheard', which the manifest does not"),
    ],
    ids=lambda value: str(value)[:70],
)
def test_a_manifest_or_registry_that_breaks_a_rule_is_refused_at_load(
    toy: MakeHost, changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(PluginBroken) as refused:
        toy(**changes)
    assert text in str(refused.value)
    assert "toy 1.0" in str(refused.value)


def test_kinds_are_told_apart_by_group(toy: MakeHost) -> None:
    """G2: the same name in another group is another kind."""
    other = replace(THING, group="other.example.org", primary=False)
    host = toy(upstream=(THING, other), transformers=(V1,))
    assert {("toy.example.org", "Thing"), ("other.example.org", "Thing")} < set(host.kinds)
    assert host.primary_kind is THING


def test_a_misspelt_hook_and_a_missing_one_are_named() -> None:
    class Misspelt:
        @hookimpl
        def translate_sepc(self) -> None:
            """Nobody calls it."""

    class Little:
        @hookimpl
        def transformers(self) -> list[Transformer]:
            return []

    with pytest.raises(PluginBroken, match="translate_sepc"):
        host_of("toy", Misspelt(), origin="toy 1.0")
    with pytest.raises(PluginBroken, match="lacks the hooks can_handle, provider_manifest, translate_spec, transl"):
        host_of("toy", Little(), origin="toy 1.0")


# -------------------------------------------------------------------------------------------------------- per call


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "can_handle returned NoneType, not Compatibility"),
        (True, "can_handle returned bool, not Compatibility"),
        (Compatibility(blockers=("no",)), "Compatibility.blockers must be a tuple of Finding"),  # type: ignore[arg-type]
        (Compatibility(warnings="hm"), "Compatibility.warnings must be a tuple of Finding"),  # type: ignore[arg-type]
        (
            Compatibility(blockers=(Finding(path="a", reason="B", message=3),)),  # type: ignore[arg-type]
            "Compatibility.blockers must be a tuple of Finding",
        ),
    ],
    ids=str,
)
def test_a_wrong_word_on_compatibility(toy: MakeHost, typed: ModelDeployment, answer: Any, text: str) -> None:
    with pytest.raises(PluginFault) as fault:
        toy(can_handle=lambda d, c: answer).can_handle(typed, CONTEXT)
    assert text in str(fault.value)


DEEP: Resource = thing()
DEEP["spec"] = DEEP


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("Thing", "returned str, no Translation and no list"),
        (None, "returned NoneType, no Translation and no list"),
        ([], "it has no object"),
        ([1], "object 0 has no metadata.name"),
        ([{"kind": "Thing"}], "object 0 has no metadata.name"),
        ([thing(metadata={"name": "Llama_8B"})], "that Kubernetes takes (found 'Llama_8B')"),
        ([thing(kind="Unheard")], "object 0 is a Unheard of toy.example.org/v1, which the manifest does not name"),
        ([thing(apiVersion="toy.example.org/v9")], "of toy.example.org/v9, which the manifest does not name"),
        ([thing(metadata={"name": "llama", "namespace": "kube-system"})], "sets its namespace or owner"),
        ([thing(metadata={"name": "llama", "ownerReferences": []})], "sets its namespace or owner"),
        ([thing(), thing()], "Thing.toy.example.org 'llama' is wanted 2 times"),
        ([thing()] * 10_000, f"it has 10000 objects; at most {MAX_OBJECTS}"),
        ([thing(data="x" * MAX_OBJECT_BYTES)], f"at most {MAX_OBJECT_BYTES} are taken"),
        ([thing(spec={1, 2})], "object 0 is not JSON"),
        ([DEEP], "object 0 is not JSON"),
        (Translation(objects=(thing(),), replace_on={"roles": {1}}), "replace_on must be a mapping"),
        (Translation(objects=(thing(),), replace_on=3), "replace_on must be a mapping"),  # type: ignore[arg-type]
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_wrong_translation(toy: MakeHost, typed: ModelDeployment, answer: Any, text: str) -> None:
    with pytest.raises(PluginFault) as fault:
        toy(translate_spec=lambda d, c: answer).translate_spec(typed, CONTEXT)
    assert f"provider 'toy' (toy 1.0): translate_spec {'returned' if text.startswith('returned') else ''}" in str(
        fault.value
    )
    assert text in str(fault.value)


def test_an_object_that_is_only_read_cannot_be_wanted(toy: MakeHost, typed: ModelDeployment) -> None:
    child = replace(THING, kind="Child", primary=False, write=False, select="toy.example.org/of")
    host = toy(upstream=(THING, child), transformers=(V1,), translate_spec=lambda d, c: [thing(), thing(kind="Child")])
    with pytest.raises(PluginFault, match="which the manifest does not name as written"):
        host.translate_spec(typed, CONTEXT)


def test_a_bare_sequence_is_a_translation(toy: MakeHost, typed: ModelDeployment) -> None:
    host = toy(translate_spec=lambda d, c: [thing()])
    assert host.translate_spec(typed, CONTEXT) == Translation(objects=(thing(),))


READY = Component(name="Server", ready=True, reason="Ready")


def _wrong(**fields: Any) -> Component:
    """A component with fields of types that the contract does not have."""
    return Component(**{"name": "Server", "ready": True, "reason": "Ready", **fields})


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("fine", "translate_status returned str, not Observation"),
        (Observation(components=()), "it has no component"),
        (Observation(components=("Server",)), "a component is a str, not a Component"),  # type: ignore[arg-type]
        (Observation(components=(READY, READY)), "component 'Server' is reported 2 times"),
        (Observation(components=(_wrong(ready="Ready"),)), "ready is 'Ready'; it is True, False or None"),
        (Observation(components=(_wrong(ready=1),)), "ready is 1; it is True, False or None"),
        (Observation(components=(replace(READY, reason=""),)), "the reason is not empty"),
        (Observation(components=(_wrong(message=None),)), "reason and message are texts"),
        (Observation(components=(READY,), replicas=3), "replicas is a int, not a Replicas"),  # type: ignore[arg-type]
        (Observation(components=(READY,), replicas=Replicas(desired=-1)), "whole numbers, not below zero"),
        (Observation(components=(READY,), endpoint=Endpoint()), "or the upstream's own url"),
        (Observation(components=(READY,), endpoint=Endpoint(url="llama:80")), "an http or https address"),
        (Observation(components=(READY,), refused="no"), "refused is a Finding"),  # type: ignore[arg-type]
        (Observation(components=(READY,), endpoint="llama:80"), "endpoint is a str"),  # type: ignore[arg-type]
        (
            Observation(components=(READY,), endpoint=Endpoint(service="llama", port="80")),  # type: ignore[arg-type]
            "a Service's name and a port number",
        ),
        (Observation(components=(READY,), pool="pool"), "pool is a str, not a Pool"),  # type: ignore[arg-type]
        (Observation(components=(READY,), warnings=("hm",)), "warnings must be a tuple"),  # type: ignore[arg-type]
        *(
            (Observation(components=(replace(READY, name=name),)), "is a condition with another writer")
            for name in ("Pods", "Gateway", "ModelCache", "RuntimeConfig")
        ),
        *(
            (Observation(components=(replace(READY, name=name),)), "makes no name of a condition")
            for name in ("", "two words", "server", "X" * 400)
        ),
        *(
            (
                Observation(components=(replace(READY, reason=reason),)),
                f"component {READY.name}: the reason {reason[:64]!r} is",
            )
            for reason in ("not ready", "no-such-thing", "Ends.", "1st", "X" * 257)
        ),
    ],
    ids=lambda value: str(value)[:70],
)
def test_a_wrong_observation(toy: MakeHost, typed: ModelDeployment, answer: Any, text: str) -> None:
    """No condition has two writers, and no component is empty words."""
    with pytest.raises(PluginFault) as fault:
        toy(translate_status=lambda d, o, c: answer).translate_status(typed, Observed(primary=None), CONTEXT)
    assert text in str(fault.value)


def test_an_observation_with_everything_in_it_is_taken(toy: MakeHost, typed: ModelDeployment) -> None:
    whole = Observation(
        components=(READY, Component(name="Decode", ready=None, reason="Unknown", only_degrades=True)),
        replicas=Replicas(desired=2, ready=1),
        endpoint=Endpoint(service="llama", port=80),
        pool=Pool(name="llama", port=8000),
        warnings=(Finding(path="", reason="Odd", message="odd"),),
        unrecoverable="",
    )
    host = toy(translate_status=lambda d, o, c: whole)
    assert host.translate_status(typed, Observed(primary=None), CONTEXT) == whole


@pytest.mark.parametrize("hook", ["can_handle", "translate_spec", "translate_status"])
def test_what_a_hook_raises_is_a_fault_with_its_name(toy: MakeHost, typed: ModelDeployment, hook: str) -> None:
    def broken(*_: object) -> Any:
        raise ZeroDivisionError("oops")

    where = rf"test_host\.py:{broken.__code__.co_firstlineno + 1}"
    text = rf"provider 'toy' \(toy 1\.0\): {hook} raised ZeroDivisionError\('oops'\), at {where}"
    with pytest.raises(PluginFault, match=text):
        ask(toy(**{hook: broken}), hook, typed)


def test_a_hook_that_does_not_return_is_named_in_the_log(
    toy: MakeHost, typed: ModelDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probes of the process fail meanwhile, and nothing else would say why."""
    said: queue.Queue[str] = queue.Queue()
    lines = logging.Handler()
    lines.emit = lambda record: said.put(record.getMessage())  # type: ignore[method-assign]
    monkeypatch.setattr(watchdog.log, "handlers", [lines])
    monkeypatch.setattr(host_module, "_WATCHDOG", watchdog.Watchdog(patience=0.01))
    monkeypatch.setattr(host_module, "LONG_WAIT", 3600.0)
    heard: list[str] = []

    def waits(*_: object) -> Any:
        heard.append(said.get(timeout=60))
        return Compatibility()

    toy(can_handle=waits).can_handle(typed, CONTEXT)
    assert heard[0].startswith("provider 'toy' (toy 1.0): can_handle has not returned for ")
    assert f"at test_host.py:{waits.__code__.co_firstlineno + 1}; nothing else runs meanwhile" in heard[0]


@pytest.mark.parametrize("hook", ["can_handle", "translate_spec", "translate_status"])
def test_a_hook_that_ends_the_program_fails_one_deployment(toy: MakeHost, typed: ModelDeployment, hook: str) -> None:
    """As `argparse` does with arguments that it does not know."""

    def leaves(*_: object) -> Any:
        ArgumentParser(prog="engine").parse_args(["--unheard"])

    with pytest.raises(PluginFault, match=rf"{hook} raised SystemExit\(2\), at test_host\.py:\d+$"):
        ask(toy(**{hook: leaves}), hook, typed)


def ask(host: ProviderHost, hook: str, typed: ModelDeployment) -> object:
    match hook:
        case "can_handle":
            return host.can_handle(typed, CONTEXT)
        case "translate_spec":
            return host.translate_spec(typed, CONTEXT)
        case _:
            return host.translate_status(typed, Observed(primary=None), CONTEXT)


@pytest.mark.parametrize("hook", ["can_handle", "translate_spec", "translate_status"])
@pytest.mark.parametrize(
    ("taken", "worked"),
    [(SLOW_HOOK + 0.1, SLOW_HOOK + 0.1), (LONG_WAIT + 0.1, 0.0)],
    ids=["computes", "waits"],
)
def test_a_hook_that_takes_too_long_is_a_fault(
    toy: MakeHost, typed: ModelDeployment, hook: str, taken: float, worked: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(PluginFault, match=rf"{hook} took {taken} s \({worked} s of processor time\); a hook has 5 s"):
        ask(timed(toy(), taken, worked, monkeypatch), hook, typed)


def test_a_hook_that_other_processes_delay_is_no_fault(
    toy: MakeHost, typed: ModelDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = timed(toy(), LONG_WAIT - 0.1, SLOW_HOOK - 0.1, monkeypatch)
    assert host.can_handle(typed, CONTEXT).ok


def timed(host: ProviderHost, taken: float, worked: float, monkeypatch: pytest.MonkeyPatch) -> ProviderHost:
    """The host, where the next call takes so long by clocks that are moved by hand."""
    assert host.manifest.name == "toy"
    for clock, reading in {"monotonic": taken, "thread_time": worked}.items():
        monkeypatch.setattr(host_module, clock, iter([0.0, reading]).__next__)
    return host


# ----------------------------------------------------------------------------------- what a plugin is given is a copy


def test_a_plugin_that_changes_what_it_observes_changes_no_cache(toy: MakeHost, typed: ModelDeployment) -> None:
    def vandal(deployment: ModelDeployment, observed: Observed, context: Any) -> Observation:
        assert observed.primary is observed.objects[0], "the primary is one of the objects, as it was"
        for obj in observed.objects:
            obj["metadata"]["name"] = "mine now"
            obj.clear()
        return Observation(components=(READY,))

    primary, other = thing(status={"conditions": [{"type": "A"}]}), thing(kind="Child")
    before = copy_of(primary), copy_of(other)
    toy(translate_status=vandal).translate_status(typed, Observed(primary=primary, objects=(primary, other)), CONTEXT)
    assert (primary, other) == before


def test_a_primary_that_is_not_among_the_objects_is_a_copy_too(toy: MakeHost, typed: ModelDeployment) -> None:
    def vandal(deployment: ModelDeployment, observed: Observed, context: Any) -> Observation:
        assert observed.primary is not None
        observed.primary.clear()
        return Observation(components=(READY,))

    primary = thing()
    toy(translate_status=vandal).translate_status(typed, Observed(primary=primary), CONTEXT)
    assert primary == thing()


# ----------------------------------------------------------------------------------------------------------- wrappers


class Tolerant:
    """A site's own rule: every pod tolerates its GPU nodes. It names no provider and knows no upstream."""

    @hookimpl(wrapper=True)
    def translate_spec(self, deployment: ModelDeployment, context: Any) -> Any:
        found = yield
        for obj in getattr(found, "objects", found):
            for pod in pod_specs(obj):
                pod.setdefault("tolerations", []).append({"key": "gpu", "operator": "Exists"})
        return found


@pytest.mark.parametrize(
    "fields",
    [
        {"spec": {"template": {"spec": {"containers": [{"name": "model"}]}}}},
        {"inference": {"template": {"metadata": {}, "spec": {"containers": [{"name": "model"}]}}}},
        {"spec": {"services": {"a": {"extra": [{"spec": {"containers": [{"name": "m"}]}}]}}}},
        {"spec": {"worker": {"containers": [{"name": "model"}]}, "labels": {}}},
    ],
    ids=["a Deployment's way", "KAITO's way", "somewhere deep", "KServe's way, without a template"],
)
def test_a_site_s_wrapper_adds_a_toleration_to_every_pod_of_any_provider(
    toy: MakeHost, typed: ModelDeployment, fields: dict[str, Any]
) -> None:
    host = toy(translate_spec=lambda d, c: [copy_of(thing(**fields))], wrappers=(Tolerant(),))
    (obj,) = host.translate_spec(typed, CONTEXT).objects
    assert str(obj).count("'tolerations': [{'key': 'gpu', 'operator': 'Exists'}]") == 1


def test_what_a_wrapper_breaks_is_found_like_the_provider_s_own_mistakes(toy: MakeHost, typed: ModelDeployment) -> None:
    class Breaking:
        @hookimpl(wrapper=True)
        def translate_spec(self, deployment: ModelDeployment, context: Any) -> Any:
            found = yield
            return [*found.objects, thing(kind="Unheard")]

    with pytest.raises(PluginFault, match="which the manifest does not name"):
        toy(wrappers=(Breaking(),)).translate_spec(typed, CONTEXT)


def test_a_provider_without_an_own_check_handles_everything(toy: MakeHost, typed: ModelDeployment) -> None:
    assert toy().can_handle(typed, CONTEXT) == Compatibility()


def test_what_is_no_json_is_told_by_its_path(toy: MakeHost, typed: ModelDeployment) -> None:
    """`_View` said nothing of where (review of an author, finding 10)."""
    fields = {"spec": {"template": {"tolerations": typed.spec.tolerations, "image": typed.spec}}}
    with pytest.raises(
        PluginFault, match=r"object 0 is not JSON: spec\.template\.image is a \w+; airunway\.sdk\.as_json"
    ):
        toy(translate_spec=lambda d, c: [thing(**fields)]).translate_spec(typed, CONTEXT)


@dataclass(frozen=True, kw_only=True)
class Images:
    image: str = "acme/server:2.0"


@pytest.mark.parametrize(("given", "used"), [("acme/server:2.0", "acme/server:1.0"), ("mine:3", "mine:3")])
def test_a_transformer_keeps_the_default_image_it_was_released_with(
    toy: MakeHost, typed: ModelDeployment, given: str, used: str
) -> None:
    def translate(deployment: ModelDeployment, context: Context[Any]) -> list[Resource]:
        return [thing(spec={"image": context.settings.image})]

    older, newer = replace(V1, name="v1-old", defaults={"image": "acme/server:1.0"}), V1
    host = toy(translate_spec=translate)
    base: Context[Any] = CONTEXT
    images = {
        transformer.name: host.translate_spec(
            typed,
            replace(base, upstream=replace(base.upstream, transformer=transformer), settings=Images(image=given)),
        ).objects[0]["spec"]["image"]
        for transformer in (older, newer)
    }
    assert images == {older.name: used, newer.name: given}
