"""What the cluster has: its nodes, which providers run, and the upstreams of those that are installed here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import CUSTOM_RESOURCE_DEFINITION, NODE, Client, Kind
from airunway.plugins.contract import UpstreamKind
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import discover, load
from airunway.quantity import parse_quantity
from airunway.resource import Resource, age_seconds, annotations_of, dig, key_of
from airunway.runtime.crd_versions import crd_facts
from airunway.selection.facts import STALE_AFTER
from airunway_testing.sandbox.samples import Sample, samples_of


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A provider that is installed here, with its samples. `lacks` says which CRD the cluster does not have; `upstream`
    names the kinds that it has, with their versions. `runs` is whether the provider is alive in the cluster."""

    host: ProviderHost
    samples: tuple[Sample, ...]
    upstream: tuple[str, ...]
    lacks: str
    runs: bool

    @property
    def name(self) -> str:
        return self.host.name


@dataclass(frozen=True, kw_only=True)
class Survey:
    """`simulated` is whether the nodes are played."""

    kubernetes: str
    nodes: str
    simulated: bool
    candidates: tuple[Candidate, ...]


async def survey(client: Client, *, names: tuple[str, ...] = ()) -> Survey:
    """Look, and change nothing. `names` are the providers that are asked for; all that are installed without any."""
    version = await client.get_path("/version")
    nodes = await client.list_all(NODE)
    definitions = {key_of(crd).name: crd for crd in await client.list_all(CUSTOM_RESOURCE_DEFINITION)}
    ours = f"{MODEL_DEPLOYMENT.plural}.{MODEL_DEPLOYMENT.group}" in definitions
    configs = await client.list_all(INFERENCE_PROVIDER_CONFIG) if ours else []
    alive = {key_of(config).name for config in configs if _is_alive(config)}
    candidates = []
    for found in discover(on_request=bool(names)):
        if names and found.name not in names:
            continue
        host = load(found.name)
        there, lacks = _upstream(host, definitions)
        candidates.append(
            Candidate(host=host, samples=samples_of(found), upstream=there, lacks=lacks, runs=host.name in alive)
        )
    return Survey(
        kubernetes=str(version.get("gitVersion")),
        nodes=_nodes_text(nodes),
        simulated=bool(nodes) and all("kwok.x-k8s.io/node" in annotations_of(node) for node in nodes),
        candidates=tuple(candidates),
    )


def _upstream(host: ProviderHost, definitions: dict[str, Resource]) -> tuple[tuple[str, ...], str]:
    """The kinds of a provider that the cluster serves, and the name of a CRD that it needs and has not."""
    there, lacks = [], ""
    for kind in host.manifest.upstream:
        if kind.builtin:
            continue
        served = _served(kind, definitions.get(f"{kind.plural}.{kind.group}"))
        if served:
            there.append(f"{kind.kind} {', '.join(served)}")
        elif kind.required:
            lacks = lacks or f"{kind.plural}.{kind.group} in {' or '.join(kind.versions)}"
    return tuple(there), lacks


def _served(kind: UpstreamKind, crd: Resource | None) -> list[str]:
    served = dict(crd_facts(crd).served) if crd is not None else {}
    return [f"{version} (schema {served[version][:12]})" for version in kind.versions if version in served]


def kinds_of(candidate: Candidate) -> list[Kind]:
    """The kinds that the provider writes, as far as the cluster serves them, each in the version that it prefers."""
    there = {text.partition(" ")[0]: text for text in candidate.upstream}
    found = []
    for kind in candidate.host.manifest.upstream:
        versions = [v for v in kind.versions if kind.builtin or f"{v} (" in there.get(kind.kind, "")]
        if kind.write and versions:
            found.append(Kind(kind.group, versions[0], kind.kind, kind.plural))
    return found


def _is_alive(config: Resource) -> bool:
    """Whether a provider has given a sign of life lately, and does not say that it is leaving."""
    age = age_seconds(dig(config, "status", "lastHeartbeat"), datetime.now(UTC))
    return bool(dig(config, "status", "ready")) and age is not None and age < STALE_AFTER.total_seconds()


def _nodes_text(nodes: list[Resource]) -> str:
    gpus: Counter[str] = Counter()
    for node in nodes:
        for name, amount in (dig(node, "status", "allocatable") or {}).items():
            if "/" in name and "gpu" in name:
                gpus[name] += int(parse_quantity(amount))
    devices = ", ".join(f"{count} {name}" for name, count in sorted(gpus.items()) if count)
    return f"{len(nodes)} with {devices or 'no GPU'}"
