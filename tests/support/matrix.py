"""What runs where: samples asked of providers, on every release of their upstreams that is kept, under Strict.

Each question takes the way of a deployment: admission and selection as the core does them, then the provider, with the
transformer that the release's own schema asks for, and what comes of it is given to an API server with that CRD.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import yaml
from tests.support.releases import Release, definition, stored_releases

from airunway.api.names import API_VERSION
from airunway.kube import Client, Kind
from airunway.plugins.contract import Context, ModelCache, UpstreamKind
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.resource import Resource
from airunway.runtime.crd_versions import CrdFacts, crd_facts, detect
from airunway.runtime.translate import parsed, translate
from airunway.tools.assignment import Unchosen, choose, ready_configs
from airunway_testing.acceptance import in_namespace, installed_alone, refusal, without_owner
from airunway_testing.conformance.cases import NOW

_UID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A deployment that came with the provider `of`."""

    name: str
    of: str
    deployment: Resource

    def for_provider(self, provider: str) -> Resource:
        """The deployment, with that provider named. What it says to its own provider in overrides is no other's."""
        spec = self.deployment["spec"]
        named = spec.get("provider") or {}
        kept = named if provider == self.of else {}
        return {**self.deployment, "spec": {**spec, "provider": {**kept, "name": provider}}}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What becomes of a sample with a provider on a release (None: on Kubernetes, before any upstream matters).

    `kinds` are those of the release that are written; without a `refusal` they are accepted. `writer` is the
    transformer of the release's schema.
    """

    sample: str
    provider: str
    release: Release | None
    writer: str = ""
    kinds: tuple[str, ...] = ()
    refusal: str = ""


def samples_in_files(of: str, paths: Sequence[Path]) -> list[Sample]:
    """The samples of manifests that have one deployment each, in a namespace of that name."""
    found = []
    for path in paths:
        manifest: Resource = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        metadata = {"namespace": "default", **manifest["metadata"], "uid": _UID}
        found.append(Sample(name=metadata["name"], of=of, deployment={**manifest, "metadata": metadata}))
    return found


# ---------------------------------------------------------------------------------------------------- samples, releases


async def asked(
    client: Client,
    namespace: str,
    *,
    hosts: Sequence[ProviderHost],
    samples: Sequence[Sample],
    folder: Path,
    account: Client | None = None,
    of: Literal["every release", "the oldest and the newest", "each transformer"] = "every release",
) -> list[Answer]:
    """Every sample of every provider on Kubernetes, and on each release kept in `folder` of the kinds that it writes.

    The CRDs of these kinds are installed and removed: nobody else may need them on this API server meanwhile.
    `account` asks as a provider does, with the owners on its objects; else `client` asks, who is the administrator.
    `of` says which releases of an upstream are asked; those of which a file is not kept give no answer. Raises
    PluginFault and TimeoutError.
    """
    wanted = {_definition_name(kind) for host in hosts for kind in _custom(host)}
    by_upstream: dict[str, list[Release]] = {}
    for release in stored_releases(folder, wanted):
        if release.is_kept:
            by_upstream.setdefault(release.upstream, []).append(release)
    ask = _Asking(client=client, namespace=namespace, hosts=hosts, samples=samples, account=account)
    wanted_of = list(by_upstream.values())
    if of == "the oldest and the newest":
        wanted_of = [list(dict.fromkeys((each[0], each[-1]))) for each in wanted_of]
    elif of == "each transformer":
        wanted_of = [list({ask.writers(release): release for release in each}.values()) for each in wanted_of]
    everywhere = await asyncio.gather(ask.of_kubernetes(), *map(ask.of_upstream, wanted_of))
    return [answer for answers in everywhere for answer in answers]


@dataclass(frozen=True, kw_only=True)
class _Asking:
    client: Client
    namespace: str
    hosts: Sequence[ProviderHost]
    samples: Sequence[Sample]
    account: Client | None

    async def of_kubernetes(self) -> list[Answer]:
        """Of the built-in kinds, with the newest of everything else."""
        return [
            await self._answer(host, sample, None, {kind.key: kind for kind in host.manifest.upstream if kind.builtin})
            for host in self.hosts
            for sample in self.samples
        ]

    def writers(self, release: Release) -> tuple[str, ...]:
        """The transformers that write for a release; empty names where none does."""
        facts = _facts([definition(path) for path in release.files.values() if path is not None])
        found = [
            detect(kind, host.transformers_of(kind), facts.get(_definition_name(kind))).upstream
            for host in self.hosts
            for kind in _custom(host)
        ]
        return tuple(upstream.transformer.name if upstream is not None else "" for upstream in found)

    async def of_upstream(self, releases: Sequence[Release]) -> list[Answer]:
        """Of one release after the other, since their CRDs have the same names."""
        names = {name for release in releases for name in release.files}
        found = []
        for release in releases:
            crds = [definition(path) for path in release.files.values() if path is not None]
            facts = _facts(crds)
            async with AsyncExitStack() as stack:
                for crd in crds:
                    await stack.enter_async_context(installed_alone(self.client, crd, _kind_of(crd)))
                for host in self.hosts:
                    kinds = {kind.key: kind for kind in _custom(host) if _definition_name(kind) in names}
                    if kinds:
                        found += [
                            await self._answer(host, sample, release, kinds, facts=facts) for sample in self.samples
                        ]
        return found

    async def _answer(
        self,
        host: ProviderHost,
        sample: Sample,
        release: Release | None,
        kinds: Mapping[str, UpstreamKind],
        *,
        facts: Mapping[str, CrdFacts] | None = None,
    ) -> Answer:
        answer = Answer(sample=sample.name, provider=host.name, release=release)
        deployment = sample.for_provider(host.name)
        try:
            context = _context(host, deployment)
            if facts is not None:
                context = _on_release(host, context, kinds, facts)
            objects = _objects(host, deployment, context)
        except Unchosen as refused:
            return replace(answer, refusal="; ".join(refused.reasons))
        ours = [(obj, kind) for obj in objects if (kind := _upstream_kind(obj, kinds)) is not None]
        writer = next((context.served[kind.key].transformer.name for _, kind in ours), "")
        for obj, kind in ours:
            written = Kind(kind.group, obj["apiVersion"].rpartition("/")[2], kind.kind, kind.plural)
            asked_for = in_namespace(obj if self.account is not None else without_owner(obj), self.namespace)
            if why := await refusal(
                self.account or self.client, written, asked_for, manager=f"airunway-provider-{host.name}"
            ):
                words = _settled(why.replace(f"{self.namespace}/", ""))
                return replace(answer, writer=writer, kinds=(kind.kind,), refusal=words)
        return replace(answer, writer=writer, kinds=tuple(dict.fromkeys(kind.kind for _, kind in ours)))


def _settled(why: str) -> str:
    """An API server's words as they are each time: of undeclared fields it names sometimes more, sometimes fewer."""
    undeclared = re.findall(r"(\.\S+): field not declared in schema", why)
    if not undeclared:
        return why
    return f"the CRD does not declare {min(undeclared, key=lambda path: (path.count('.'), path))}"


def _context(host: ProviderHost, deployment: Resource) -> Context[Any]:
    """With the newest of everything. Raises Unchosen with what admission or selection has against the deployment."""
    choice = choose(deployment, ready_configs([host]), provider=host.name, now=NOW)
    return assumed_context(host, engine=choice.engine, now=NOW)


def _objects(host: ProviderHost, deployment: Resource, context: Context[Any]) -> tuple[Resource, ...]:
    """Raises Unchosen with what the provider has against it."""
    resolved = {**deployment, "status": {"engine": {"type": context.engine}}}
    judgement = translate(host, resolved, parsed(resolved), context)
    if judgement.blockers:
        raise Unchosen([f"{finding.path}: {finding.message}" for finding in judgement.blockers])
    return judgement.objects


def _on_release(
    host: ProviderHost, context: Context[Any], kinds: Mapping[str, UpstreamKind], facts: Mapping[str, CrdFacts]
) -> Context[Any]:
    """The context with what is served there. Raises Unchosen where the provider cannot do without what is not."""
    served = dict(context.served)
    for key, kind in kinds.items():
        found = detect(kind, host.transformers_of(kind), facts.get(_definition_name(kind)))
        if found.upstream is not None:
            served[key] = found.upstream
        elif kind.primary:
            raise Unchosen([found.message])
        else:
            served.pop(key, None)
    return replace(context, served=served, upstream=served[host.primary_kind.key])


def _facts(crds: Sequence[Resource]) -> dict[str, CrdFacts]:
    return {crd["metadata"]["name"]: replace(crd_facts(crd), established=True) for crd in crds}


def _custom(host: ProviderHost) -> Iterator[UpstreamKind]:
    return (kind for kind in host.manifest.upstream if kind.write and not kind.builtin)


def _definition_name(kind: UpstreamKind) -> str:
    return f"{kind.plural}.{kind.group}"


def _upstream_kind(obj: Resource, kinds: Mapping[str, UpstreamKind]) -> UpstreamKind | None:
    group = obj["apiVersion"].rpartition("/")[0]
    return next((kind for kind in kinds.values() if (kind.group, kind.kind) == (group, obj["kind"])), None)


def _kind_of(crd: Resource) -> Kind:
    """In its newest version: once that is served, the others are."""
    spec = crd["spec"]
    served = [version["name"] for version in spec["versions"] if version.get("served")]
    return Kind(spec["group"], served[-1], spec["names"]["kind"], spec["names"]["plural"])


# ---------------------------------------------------------------------------------------------------- engines and modes

_ROLE = {"replicas": 1, "gpu": {"count": 1}, "memory": "16Gi"}
FORMS: Mapping[str, Resource] = {
    "one GPU": {"resources": {"gpu": {"count": 1}}},
    "no GPU": {"resources": {"memory": "8Gi", "cpu": "4"}},
    "16 GPUs": {"resources": {"gpu": {"count": 16}}},
    "disaggregated": {"serving": {"mode": "disaggregated"}, "scaling": {"prefill": _ROLE, "decode": _ROLE}},
    "model cache": {"resources": {"gpu": {"count": 1}}, "model": {"cache": {"mode": "Shared"}}},
}
"""What is asked of each engine, by name; aggregated where nothing else is said."""

_IMAGE = "registry.example/engine:1.0.0"
_IMAGES = {"llamacpp": "registry.example/llama.cpp:server"}
"""Images with a name by which providers choose the engine's own program."""
_CACHE = ModelCache(claim="weights", sub_path="model")


class Run(StrEnum):
    """Whether a provider runs an engine in a form."""

    YES = "yes"
    WITH_IMAGE = "with an image"
    NO = "no"


def engine_answers(host: ProviderHost, engine: str) -> dict[str, tuple[Run, str]]:
    """For each of `FORMS` whether this provider runs the engine so, and why not. Raises PluginFault."""
    return {form: _runs(host, engine, spec) for form, spec in FORMS.items()}


def _runs(host: ProviderHost, engine: str, spec: Resource) -> tuple[Run, str]:
    model = {"id": "org/model/file.gguf" if engine == "llamacpp" else "org/model"}
    asked_for = {"engine": {"type": engine}, **spec, "model": {**model, **spec.get("model", {})}}
    if not (plain := _against(host, asked_for)):
        return Run.YES, ""
    with_image = _against(host, {**asked_for, "image": _IMAGES.get(engine, _IMAGE)})
    return (Run.NO, with_image) if with_image else (Run.WITH_IMAGE, plain)


def _against(host: ProviderHost, spec: Resource) -> str:
    """What core and provider have against a deployment, in their words; empty if nothing."""
    metadata = {"name": "model", "namespace": "default", "uid": _UID}
    whole = {"apiVersion": API_VERSION, "kind": "ModelDeployment", "metadata": metadata, "spec": spec}
    deployment = Sample(name="model", of="", deployment=whole).for_provider(host.name)
    cached = "cache" in spec["model"]
    try:
        context = _context(host, deployment)
        _objects(host, deployment, replace(context, cache=_CACHE) if cached else context)
    except Unchosen as refused:
        return "; ".join(refused.reasons)
    return ""
