"""The words that providers write are parsed by the program that reads them: every sample, every toggled field, and
arguments that a user makes up. What the program would exit with is refused before anything is created.

The parsers are argparse's own, made from the recorded options: they are as strict as those of the programs.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from functools import cache
from typing import NoReturn

import pytest
import yaml

from airunway.engines.options import PROGRAMS, _options, _record, program_of, release_of
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import Distribution, discover, load
from airunway.resource import Resource
from airunway.sdk import pod_specs
from airunway_testing.conformance.cases import TOGGLES, Base, bases, judged, merged_spec
from airunway_testing.sandbox.samples import manifests_of

PROVIDERS = [found for found in discover() if found.distribution != "airunway-testing"]
ENGINES = {program.engine for program in PROGRAMS.values()}


class Strict(argparse.ArgumentParser):
    """A parser that raises what it would exit with."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


@cache
def parser_of(program: str, release: str) -> Strict:
    """The recorded parser of a release."""
    record = _record(program)
    parser = Strict(add_help=False)
    parser.add_argument("model", nargs="?")
    for option, kinds in _options(program, record.releases.index(release)).items():
        (kind,) = kinds
        if kind in ("flag", "switch"):
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, nargs="?" if kind == "maybe" else None)
    return parser


def newest_release(program: str, image: str) -> str:
    """The recorded release of an image; the newest one for an image of another kind."""
    releases, own = _record(program).releases, release_of(program, image)
    position = len(releases) - 1 if own is None else _record(program).position(own)
    assert position is not None
    return releases[position]


def spelled(word: str) -> str:
    """A word as the programs read it before argparse: ``-`` for ``_``, and only the first key of ``--a.b.c``."""
    name, equals, value = word.partition("=")
    if not name.startswith("--"):
        return "-O=1" if name.startswith("-O") else word
    return name.replace("_", "-").partition(".")[0] + equals + value


def parses(command: list[str], image: str) -> str:
    """What the program that a command line starts would exit with; empty if it starts."""
    engine = next((word.partition(".")[0] for word in command if word.partition(".")[0] in ENGINES), "")
    program = program_of(engine, command=command)
    if program not in PROGRAMS:
        return ""
    module = program if program.startswith("dynamo.") else {"vllm": "serve", "sglang": "sglang.launch_server"}[program]
    start = command.index(module)
    try:
        parser_of(program, newest_release(program, image)).parse_args([spelled(word) for word in command[start + 1 :]])
    except ValueError as error:
        return f"{program}: {error}"
    return ""


def unknown_keywords(config: str) -> list[str]:
    """The keyword arguments of a Serve application that vLLM's classes in the image of `RELEASED` lack."""
    position = _record("ray").releases.index("0.22.0")
    known = {name.lstrip("-").replace("-", "_") for name in _options("ray", position)}
    found = []
    for application in yaml.safe_load(config)["applications"]:
        args = application["args"]
        for model in args.get("llm_configs") or [args["prefill_config"], args["decode_config"]]:
            found += [f"ray: {name}" for name in model["engine_kwargs"] if name not in known]
    return found


def failures(objects: tuple[Resource, ...]) -> tuple[int, list[str]]:
    """The number of command lines that are written, and what the programs that they start would exit with."""
    lines = [
        ([*map(str, container.get("command", [])), *map(str, container.get("args", []))], container.get("image", ""))
        for obj in objects
        for spec in pod_specs(obj)
        for container in spec["containers"]
    ]
    for obj in objects:
        for service in ((obj.get("spec") or {}).get("services") or {}).values():
            main = service.get("extraPodSpec", {}).get("mainContainer", {})
            lines.append(([*main.get("command", []), *main.get("args", [])], main.get("image", "")))
    found = [text for command, image in lines if (text := parses(command, image))]
    configs = [config for obj in objects if (config := (obj.get("spec") or {}).get("serveConfigV2"))]
    return len(lines) + len(configs), found + [text for config in configs for text in unknown_keywords(config)]


def told(host: ProviderHost, base: Base) -> tuple[int, list[str]]:
    """As `failures`, of a deployment; nothing is written if it is refused, and warnings tell of the rest."""
    found = judged(host, base, base.spec)
    if found.blockers:
        return 0, []
    count, texts = failures(found.objects)
    return count, [] if any(warning.reason == "UnknownArgument" for warning in found.warnings) else texts


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
def test_every_word_that_a_provider_writes_is_parsed_by_the_program(provider: Distribution) -> None:
    host = load(provider.name)
    checked, unknown = 0, {}
    for base in asked(provider):
        count, words = told(host, base)
        checked += count
        if words:
            unknown[base.name] = words
    assert checked
    assert unknown == {}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["vllm", "serve", "m", "--max-model-length=8"], "vllm: unrecognized arguments: --max-model-length=8"),
        (["vllm", "serve", "m", "--enable-auto-tool-choice=true"], "ignored explicit argument"),
        (["vllm", "serve", "m", "--enable-auto-tool-choice", "--tool-call-parser=hermes"], ""),
        (["python3", "-m", "dynamo.vllm", "--model", "m", "--enable-auto-tool-choice"], "unrecognized arguments"),
        (["python3", "-m", "dynamo.vllm", "--model", "m", "--dyn-tool-call-parser=hermes"], ""),
        (["python3", "-m", "sglang.launch_server", "--model-path", "m", "--max-model-len=8"], "unrecognized"),
    ],
)
def test_the_recorded_parsers_are_strict(command: list[str], says: str) -> None:
    found = parses(command, "")
    assert says in found
    assert bool(says) == bool(found)


NAMES = {
    program: sorted(name.lstrip("-") for name in _record(program).options)
    for program in ("vllm", "sglang", "dynamo.vllm", "dynamo.sglang", "dynamo.trtllm")
}
VALUES = ("", "1", "true", "false", "auto", "hermes", '{"a": 1}', "a,b")


RELEASED = {
    "dynamo": {engine: f"nvcr.io/nvidia/ai-dynamo/{engine}-runtime:1.3.1" for engine in ENGINES},
    "kuberay": {"vllm": "rayproject/ray-llm:2.56.0"},
}
OWN = {"vllm": "vllm/vllm-openai:v0.23.0", "sglang": "lmsysorg/sglang:v0.5.9"}
"""Images whose very release is recorded, by provider and engine, for bases that name one of another kind."""


def released(base: Base, provider: str) -> Resource:
    """The spec of a base with an image whose release is recorded."""
    image = RELEASED.get(provider, OWN).get(base.engine, "")
    named = {key: image for key in ("image",) if base.spec.get(key)}
    engine = {"image": image} if (base.spec.get("engine") or {}).get("image") else {}
    return merged_spec(base.spec, {**named, **({"engine": engine} if engine else {})})


def made_up(rng: random.Random) -> dict[str, str]:
    """Engine arguments: mostly options that some program has, with any value."""
    names = NAMES[rng.choice([*NAMES])] if rng.random() < 0.9 else ["foo-bar", "host-name", "no-tokens", "enable-max"]
    return {name: rng.choice(VALUES) for name in rng.sample(names, rng.choice((1, 1, 2)))}


@pytest.mark.parametrize(
    "number",
    [40, pytest.param(400, marks=pytest.mark.slow), pytest.param(2_000, marks=pytest.mark.soak)],
)
@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_arguments_that_a_user_makes_up_are_parsed_or_refused(provider: Distribution, number: int) -> None:
    host = load(provider.name)
    known = [base for base in bases(host) if base.engine in ENGINES]
    engines = sorted({base.engine for base in known})
    rng, written = random.Random(f"{provider.name} {number}"), 0
    for engine in engines:
        plain = [base for base in known if base.engine == engine]
        for _ in range(number):
            base, args = rng.choice(plain), made_up(rng)
            spec = merged_spec(released(base, provider.name), {"engine": {"args": args}})
            count, words = outcome(host, Base(name=base.name, engine=engine, spec=spec))
            written += count
            assert words == [], json.dumps(args)
    assert written or not engines


def outcome(host: ProviderHost, base: Base) -> tuple[int, list[str]]:
    """As `failures`: nothing is written if the deployment is refused."""
    found = judged(host, base, base.spec)
    return (0, []) if found.blockers else failures(found.objects)


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_an_option_that_no_program_has_is_named_by_every_provider(provider: Distribution) -> None:
    host = load(provider.name)
    for base in bases(host):
        if base.engine in ("vllm", "sglang") and base.spec["model"].get("source") != "custom":
            changed = merged_spec(base.spec, {"engine": {"args": {"surely-no-such-option": "1"}}})
            found = judged(host, base, changed)
            named = [finding.path for finding in (*found.blockers, *found.warnings) if "such-option" in finding.message]
            assert named == ["spec.engine.args[surely-no-such-option]"], base.name
