"""What a released transformer writes stays as it is: digests of it over a fixed set of deployments, on record.

What runs keeps the transformer that wrote it, so that an upgrade of a provider restarts nothing. That
holds only if the transformer goes on writing the same: any other output is an apply to everything that runs. A change
therefore ships as a new transformer. The record lies beside the provider's tests, with the deployments in it:

    def test_released_transformers_write_what_they_wrote():
        assert problems(load("mine"), Record.read(Path(__file__).with_name("digests.json"))) == []

``python -m airunway_testing.conformance.digests NAME FILE --write`` adds what is not on record yet, also deployments
that get something from outside (`GIVEN`); a digest that is there changes only for a transformer that no release has
(``--unreleased TRANSFORMER``).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
import yaml

from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import (
    Context,
    Gateway,
    ModelCache,
    RuntimeSettings,
    Transformer,
    Upstream,
)
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import Resource, dig, digest
from airunway_testing.conformance.cases import NAME, NOW, TOGGLES, Base, bases, merged_spec
from airunway_testing.conformance.fields import Answer, outcomes

_LENGTH = 12

GIVEN: Mapping[str, Mapping[str, Any]] = {
    "pod settings": {
        "runtime": RuntimeSettings(
            env=({"name": "SHARED", "value": "1"}, {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s"}}}),
            labels={"example.org/team": "a"},
            image_pull_secrets=("pull",),
            token="hub",
        )
    },
    "model cache": {"cache": ModelCache(claim="weights", sub_path="model", access_mode="ReadWriteMany")},
    "cached file": {"cache": ModelCache(claim="weights", sub_path="model", path="/model-cache/model/file.gguf")},
    "gateway": {"gateway": Gateway(name="inference", namespace="gateways", uses_pool=True)},
}
"""What reaches a provider from outside of the deployment, by name: parts of its context. It never changes."""

_TURNS = ("spec.model.source",)
"""Fields that make most others mean nothing; a base of its own has them."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """The deployments, by name, and of each transformer the digest of what it writes for those that it can write.

    A plan has objects of other kinds too: `beside` says of each transformer by which transformers these were written
    when it was put on record, by the key of their kind. A newer one of those changes nothing of what is on record.
    """

    deployments: Mapping[str, Base] = field(default_factory=dict)
    digests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    beside: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Record:
        """The record in a file; an empty one where there is none. Raises ValueError for what is no record."""
        if not path.exists():
            return cls()
        found = orjson.loads(path.read_bytes())
        deployments = {name: Base(name=name, **given) for name, given in found["deployments"].items()}
        return cls(deployments=deployments, digests=found["digests"], beside=found.get("beside", {}))

    def write(self, path: Path) -> None:
        """One line for each deployment and each digest, so that a review shows what is new."""
        given = {name: _plain(base) for name, base in self.deployments.items()}
        of = ",\n".join(f'"{name}": {_lines(found)}' for name, found in self.digests.items())
        beside = f'"beside": {_lines(self.beside)},\n' if self.beside else ""
        text = f'{{\n"deployments": {_lines(given)},\n{beside}"digests": {{\n{of}\n}}\n}}\n'
        path.write_text(text, encoding="utf-8")


def _plain(base: Base) -> Resource:
    settings = {"settings": dict(base.settings)} if base.settings else {}
    given = {"given": base.given} if base.given else {}
    return {"engine": base.engine, "spec": base.spec, **settings, **given}


def _lines(entries: Mapping[str, object]) -> str:
    lines = (f"  {orjson.dumps(key).decode()}: {orjson.dumps(value).decode()}" for key, value in entries.items())
    return "{\n" + ",\n".join(lines) + "\n}" if entries else "{}"


def fixed_set(
    host: ProviderHost, *, samples: Collection[Path] = (), settings: Collection[Mapping[str, Any]] = ()
) -> dict[str, Base]:
    """What a new record begins with, by name.

    The samples and what the provider runs (`bases`), with its default settings and with each of `settings` (older
    releases may need some); each base also with every field at once that it honours; and where the provider chooses
    the image, with each of these fields alone, since an image may lead it another way. Then those of `given_to`.
    """
    found = _named([*(_sample(host, path) for path in samples), *bases(host)])
    for values in settings:
        words = " ".join(f"{key}={value}" for key, value in values.items())
        plain = [base for base in found.values() if not base.settings]
        found |= _named(replace(base, name=f"{base.name}, {words}", settings=values) for base in plain)
    for base in bases(host):
        honoured = [o.field for o in outcomes(host, [base]) if o.answer is Answer.HONOURED and o.field not in _TURNS]
        found |= _named([_with(base, "every field", honoured)])
        if "image" not in base.spec:
            found |= _named(_with(base, name, [name]) for name in honoured)
    return found | given_to(host)


def given_to(host: ProviderHost) -> dict[str, Base]:
    """What the provider runs of each engine, with each of `GIVEN`, by name."""
    of_engines = {base.engine: base for base in reversed(bases(host))}
    return _named(
        replace(base, name=f"{base.name}, {name}", given=name) for base in of_engines.values() for name in GIVEN
    )


def _named(found: Iterable[Base]) -> dict[str, Base]:
    return {base.name: base for base in found}


def _sample(host: ProviderHost, path: Path) -> Base:
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]
    engine = (spec.get("engine") or {}).get("type") or host.manifest.engines[0].name
    return Base(name=path.stem, engine=engine, spec=spec)


def _with(base: Base, what: str, names: Sequence[str]) -> Base:
    spec = base.spec
    for name in names:
        spec = merged_spec(spec, TOGGLES[name].before, TOGGLES[name].values[0])
    gpus = dig(base.spec, "resources", "gpu", "count", default=0)
    if gpus > 1 and len(names) > 1:  # what the base is about: with one GPU in their place there would be one node
        spec = merged_spec(spec, {}, {"resources": {"gpu": {"count": gpus}}})
    return replace(base, name=f"{base.name}, {what}", spec=spec)


def digests(host: ProviderHost, record: Record) -> dict[str, dict[str, str]]:
    """Of each transformer: the digest of what it writes for each deployment that it can write. Raises PluginFault."""
    beside = _beside(host, record)
    return {
        transformer.name: {
            name: found
            for name, base in record.deployments.items()
            if (found := _digest(host, base, transformer, beside.get(transformer.name, {})))
        }
        for transformer in host.transformers
    }


def _beside(host: ProviderHost, record: Record) -> dict[str, dict[str, str]]:
    """Of each transformer: by which others the other kinds are written, where there are any.

    As it is on record. A record that does not say it was made when the newest were those that it knows.
    """
    found: dict[str, dict[str, str]] = {}
    for transformer in host.transformers:
        noted = record.beside.get(transformer.name, {})
        for kind in host.manifest.upstream:
            known = [other.name for other in host.transformers_of(kind)]
            if not known or transformer.name in known:
                continue
            then = [name for name in known if name in record.digests] if transformer.name in record.digests else []
            newest = (then or known)[-1]
            named = noted.get(kind.key, newest)
            found.setdefault(transformer.name, {})[kind.key] = named if named in known else newest
    return found


def _digest(host: ProviderHost, base: Base, transformer: Transformer, beside: Mapping[str, str]) -> str:
    """Empty for what is refused."""
    deployment = parse_deployment({"metadata": {"name": NAME, "namespace": "default"}, "spec": base.spec})
    context = _context(host, base, transformer, beside)
    if not host.can_handle(deployment, context).ok:
        return ""
    translation = host.translate_spec(deployment, context)
    return digest([list(translation.objects), dict(translation.replace_on)], length=_LENGTH)


def _context(host: ProviderHost, base: Base, transformer: Transformer, beside: Mapping[str, str]) -> Context[Any]:
    """The transformer's own kind as it has it, every other as it was `beside` that."""
    served = {}
    for kind in host.manifest.upstream:
        known = host.transformers_of(kind)
        of_others = next((other for other in known if other.name == beside.get(kind.key)), None)
        own = transformer if transformer in known else of_others
        version = own.api_version if own else f"{kind.group}/{kind.versions[0]}".removeprefix("/")
        served[kind.key] = Upstream(
            api_version=version, transformer=own or Transformer(name="", api_version=version, kind=kind.kind)
        )
    return Context(
        contract_version=host.contract_version,
        engine=base.engine,
        upstream=served[host.primary_kind.key],
        served=served,
        settings=host.settings(base.settings),
        now=NOW,
        **GIVEN.get(base.given, {}),
    )


def problems(host: ProviderHost, record: Record) -> list[str]:
    """What has changed, and what is not on record, in sentences. Raises PluginFault."""
    return [*_problems(record, digests(host, record))]


def _problems(record: Record, found: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for transformer, recorded in record.digests.items():
        if transformer not in found:
            yield f"transformer {transformer} is gone: what it wrote would be written anew; keep it"
            continue
        for name in recorded:
            if name not in found[transformer]:
                yield f"transformer {transformer} refuses {name!r}, which it wrote before"
        changed = [name for name, was in recorded.items() if found[transformer].get(name, was) != was]
        if changed:
            yield (
                f"transformer {transformer} writes {_shown(changed)} otherwise than on record: a change of what a "
                "released transformer writes ships as a new transformer; where no release has it, run with --write "
                f"--unreleased {transformer}"
            )
    for transformer, now_written in found.items():
        missing = [name for name in now_written if name not in record.digests.get(transformer, {})]
        if transformer not in record.digests and not missing:
            yield f"transformer {transformer}: nothing that it writes is on record; run with --write"
        if missing:
            yield f"transformer {transformer}: not on record: {_shown(missing)}; run with --write"


def _shown(names: Sequence[str]) -> str:
    return f"{names[0]!r}" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def extended(host: ProviderHost, record: Record, *, unreleased: Collection[str] = ()) -> Record:
    """The record with what is new. What is on record stays as it is, but for transformers that no release has."""
    kept = {name: known for name, known in record.digests.items() if name not in unreleased}
    of_released = {name: known for name, known in record.beside.items() if name not in unreleased}
    released = replace(record, digests=kept, beside=of_released)
    found = digests(host, released)
    written = {name: {**now, **kept.get(name, {})} for name, now in found.items()}
    return replace(record, digests=written, beside=_beside(host, released))


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if what is on record does not hold."""
    parser = argparse.ArgumentParser(prog="python -m airunway_testing.conformance.digests", description=__doc__)
    parser.add_argument("provider", help="its name: that of its entry point")
    parser.add_argument("record", type=Path, help="the file")
    parser.add_argument("--write", action="store_true", help="add what is not on record")
    parser.add_argument("--sample", type=Path, action="append", default=[], help="a ModelDeployment for a new record")
    parser.add_argument(
        "--settings", type=orjson.loads, action="append", default=[], help="settings for a new record, as JSON"
    )
    parser.add_argument("--unreleased", action="append", default=[], help="a transformer that no release has")
    given = parser.parse_args(arguments)
    host, record = load(given.provider), Record.read(given.record)
    if given.write:
        deployments = record.deployments or fixed_set(host, samples=given.sample, settings=given.settings)
        deployments = {
            **deployments,
            **{name: base for name, base in given_to(host).items() if name not in deployments},
        }
        record = extended(host, replace(record, deployments=deployments), unreleased=given.unreleased)
        record.write(given.record)
    found = problems(host, record)
    for problem in found:
        sys.stdout.write(f"{problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
