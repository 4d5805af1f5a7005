"""What the providers write is known to the parser of the engine that reads it: every sample, every toggled field, and
arguments that a user makes up; what it does not know, or not in that form, the user has been told.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airunway.api.modeldeployment import parse_deployment
from airunway.engines.options import _record, option_warnings, program_of, release_of
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import Distribution, discover, load
from airunway.resource import Resource
from airunway.sdk import pod_specs
from airunway_testing.conformance.cases import TOGGLES, Base, bases, judged, merged_spec
from airunway_testing.sandbox.samples import manifests_of

PROVIDERS = [found for found in discover() if found.distribution != "airunway-testing"]
TITLES = {"vllm": "vllm", "sglang": "sglang"}


def containers(objects: tuple[Resource, ...]) -> Iterator[Resource]:
    for obj in objects:
        for spec in pod_specs(obj):
            yield from spec["containers"]


def unknown_words(container: Resource) -> list[str]:
    """What the parser of the program that a container starts does not know of its words, or not in that form."""
    command = [*container.get("command", []), *container.get("args", [])]
    engine = next((word for word in command if word in TITLES or word.startswith("sglang.launch_server")), "")
    program = program_of(engine.partition(".")[0], command=command)
    words = [word for word in command if word not in ("-m", "-c")]
    spec = {"model": {"id": "org/model"}, "engine": {"extraArgs": words}}
    deployment = parse_deployment({"metadata": {"name": "a"}, "spec": spec})
    found = option_warnings(deployment, program, release_of(program, container.get("image", "")))
    return [remark.message for remark in found]


def unreported(host: ProviderHost, base: Base) -> tuple[int, list[str]]:
    """The containers that are written, and what their parsers do not know and the user is not told."""
    found = judged(host, base, base.spec)
    told = {warning.message for warning in found.warnings if warning.reason == "UnknownArgument"}
    written = [*containers(found.objects)]
    return len(written), [text for container in written for text in unknown_words(container) if text not in told]


def asked(provider: Distribution) -> Iterator[Base]:
    """The samples, and every base of the conformance suite with each field toggled that its engine could mind."""
    host = load(provider.name)
    for path in manifests_of(provider):
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
        engine = (spec.get("engine") or {}).get("type", "vllm")
        yield Base(name=path.stem, engine=engine, spec=spec)
    for base in bases(host):
        yield base
        for field, toggle in TOGGLES.items():
            spec = merged_spec(merged_spec(base.spec, toggle.before), toggle.values[0])
            yield Base(name=f"{base.name}, {field}", engine=base.engine, spec=spec)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_every_word_that_a_provider_writes_is_known_to_the_engine_s_parser(provider: Distribution) -> None:
    host = load(provider.name)
    checked, unknown = 0, {}
    for base in asked(provider):
        count, words = unreported(host, base)
        checked += count
        if words:
            unknown[base.name] = words
    assert checked
    assert unknown == {}


def test_a_word_that_no_parser_knows_is_found() -> None:
    image = "vllm/vllm-openai:v0.23.0"
    for command in (["vllm", "serve"], ["python3", "-m", "dynamo.vllm"]):
        (text,) = unknown_words({"image": image, "command": command, "args": ["m", "--max-model-length=8"]})
        assert "--max-model-length" in text


NAMES = sorted({name.lstrip("-") for program in ("vllm", "sglang") for name in _record(program).options})
ARGUMENTS = st.dictionaries(
    st.sampled_from(NAMES) | st.from_regex(r"[a-z]{3,9}(-[a-z]{3,9}){0,2}", fullmatch=True),
    st.sampled_from(["", "1", "true", "auto", '{"a": 1}', "a,b"]),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_of_arguments_that_somebody_makes_up_those_that_no_parser_knows_are_told(
    provider: Distribution, data: st.DataObject
) -> None:
    host = load(provider.name)
    known = [base for base in bases(host) if base.engine in TITLES]
    base, args = data.draw(st.sampled_from(known)), data.draw(ARGUMENTS)
    changed = merged_spec(base.spec, {"engine": {"args": args}})
    _, words = unreported(host, Base(name=base.name, engine=base.engine, spec=changed))
    assert words == []


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_an_option_of_nobody_is_told_by_every_provider(provider: Distribution) -> None:
    host = load(provider.name)
    for base in bases(host):
        if base.engine in TITLES and base.spec["model"].get("source") != "custom":
            changed = merged_spec(base.spec, {"engine": {"args": {"surely-no-such-option": "1"}}})
            found = judged(host, base, changed)
            assert [warning.path for warning in found.warnings if warning.reason == "UnknownArgument"] == [
                "spec.engine.args[surely-no-such-option]"
            ], base.name
