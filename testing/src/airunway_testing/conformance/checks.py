"""What is wrong with an installed provider, in sentences that say what to change."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import Observed, UpstreamKind
from airunway.plugins.errors import PluginError
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.plugins.registry import discover, load
from airunway.resource import Resource, canonical_json
from airunway.runtime.crd_versions import crd_facts
from airunway_testing.conformance.cases import NAME, NOW, Base, bases, first_refusal, judged
from airunway_testing.conformance.fields import Answer, outcomes, replaced_labels, setting_outcomes
from airunway_testing.conformance.fingerprint import fingerprint
from airunway_testing.conformance.hostile import hostile_faults
from airunway_testing.conformance.paths import is_field
from airunway_testing.conformance.places import guarded_faults
from airunway_testing.conformance.written import (
    changed_arguments,
    fixed_names,
    refused_objects,
    refused_overrides,
    wrong_rules,
)
from airunway_testing.simulators import discover_simulators, simulators_for

_SEEDS = ("1", "2")


def problems(name: str) -> Iterator[str]:
    """What is wrong with the installed provider of that name; nothing if all is well.

    Whatever it does wrong when it is loaded or called is one of the sentences, and the last.
    """
    try:
        host = load(name)
        with ThreadPoolExecutor(len(_SEEDS)) as beside:
            answers = [beside.submit(_in_a_new_process, name, seed) for seed in _SEEDS]
            yield from _of_the_version(host)
            yield from _of_the_upstream(host)
            asked = bases(host)
            yield from wrong_rules(host)
            yield from _of_the_engines(host, asked)
            schemas = _schemas(host)
            yield from refused_objects(host, asked, schemas)
            yield from refused_overrides(host, asked, schemas)
            yield from fixed_names(host, asked)
            yield from changed_arguments(host, asked)
            yield from hostile_faults(host, asked)
            yield from _of_other_processes({answer.result() for answer in answers})
    except PluginError as error:
        yield str(error)


def uncompared(host: ProviderHost) -> Iterator[str]:
    """What `problems` found nothing wrong with because it had nothing to compare it with: kinds without a CRD."""
    played = {pair for simulator in discover_simulators().values() for pair in simulator.kinds}
    for kind in host.manifest.upstream:
        writing = {transformer.api_version for transformer in host.transformers_of(kind)}
        if kind.builtin or not kind.write or not writing:
            continue
        crd = _definitions(host).get((kind.group, kind.kind))
        if crd is None and (kind.group, kind.kind) not in played:
            yield (
                f"no installed simulator plays {kind.key}: its schema was compared with no CRD (name the kind in the "
                "kinds of a simulator that has its CRD)"
            )
        elif crd is None:
            yield f"the CRDs of the simulator that plays {kind.key} lack it: its schema was compared with none"
        else:
            served = {f"{kind.group}/{version}" for version, _ in crd_facts(crd).served}
            for version in sorted(writing - served):
                yield f"the CRD of {kind.key} does not serve {version}, which a transformer writes: it was not compared"


def _of_the_upstream(host: ProviderHost) -> Iterator[str]:
    """The CRDs that come with the simulators of its kinds, next to the manifest and the registry."""
    found = _definitions(host)
    for kind in host.manifest.upstream:
        if (crd := found.get((kind.group, kind.kind))) is not None:
            yield from _of_a_definition(host, kind, crd)


def _definitions(host: ProviderHost) -> dict[tuple[str, str], Resource]:
    """The CRDs of the simulators that act on kinds of the provider, by group and kind."""
    return _crds_of(frozenset((kind.group, kind.kind) for kind in host.manifest.upstream))


def _schemas(host: ProviderHost) -> dict[tuple[str, str], Resource]:
    """The schemas of these CRDs, by apiVersion and kind."""
    return {
        (f"{group}/{version['name']}", kind): version["schema"]["openAPIV3Schema"]
        for (group, kind), crd in _definitions(host).items()
        for version in crd["spec"]["versions"]
    }


@lru_cache(maxsize=1)
def _crds_of(kinds: frozenset[tuple[str, str]]) -> dict[tuple[str, str], Resource]:
    # An upstream's own CRDs have megabytes: they are read once for what is wrong and what was not compared.
    crds = (crd for simulator in simulators_for(kinds) for crd in simulator.custom_resource_definitions())
    return {(crd["spec"]["group"], crd["spec"]["names"]["kind"]): crd for crd in crds}


def _of_a_definition(host: ProviderHost, kind: UpstreamKind, crd: Resource) -> Iterator[str]:
    facts = crd_facts(crd)
    if not facts.namespaced:
        yield (
            f"{kind.key} has no namespace (scope: Cluster in its CRD): everything of a deployment lives in the "
            "deployment's namespace"
        )
    for version, found in facts.served:
        writing = [t for t in host.transformers_of(kind) if t.api_version == f"{kind.group}/{version}"]
        if writing and not any(found.startswith(known) for t in writing for known in t.schema_hashes):
            yield (
                f"{kind.key}: the schema of {version} has the hash {found[:12]}, which no transformer names: add it to "
                f"the schema_hashes of {writing[-1].name!r} if that fits the schema"
            )


def _release(version: str) -> str:
    """The numbers of a version: builds write what follows them (a pre-release, a local part) in a form of their own."""
    return re.match(r"[0-9.]*", version)[0]  # type: ignore[index]  # it matches anything


def _of_the_version(host: ProviderHost) -> Iterator[str]:
    for found in discover(on_request=True):
        if found.name == host.name and _release(found.version) != _release(host.manifest.version):
            yield (
                f"manifest.version is {host.manifest.version!r}, and the distribution {found.distribution} has the "
                f"version {found.version}: users see the manifest's"
            )


def _of_the_engines(host: ProviderHost, asked: Sequence[Base]) -> Iterator[str]:
    for engine in host.manifest.engines:
        if not any(base.engine == engine.name for base in asked):
            yield (
                f"{engine.name}: even plain deployments are refused ({first_refusal(host, engine.name)}): take the "
                "engine out of the manifest, or let can_handle pass what its capabilities promise"
            )
    for base in asked:
        found = judged(host, base, base.spec).objects
        if canonical_json(list(found)) != canonical_json(list(judged(host, base, base.spec).objects)):
            yield (f"{base.name}: translate_spec gave two answers to one deployment: it is to use its arguments alone")
            return
        yield from (f"{base.name}: {fault}" for fault in guarded_faults(host.manifest, NAME, found))
        yield from _of_the_status(host, base, found)
        for key in replaced_labels(host, base):
            yield (
                f"{base.name}: a propagated label {key} replaces the one that pods have: merge the labels of "
                "context.runtime first and the provider's own last, or name the key in the manifest's reserved_labels"
            )
    found_out = [*outcomes(host, asked), *setting_outcomes(host, asked)]
    for path in sorted({word.path for found in found_out for word in found.words if not is_field(word.path)}):
        yield f"a finding names the field {path}, which no ModelDeployment has: name the one that the user wrote"
    ignored = {(found.field, found.base) for found in found_out if found.answer is Answer.IGNORED}
    for field, base_name in sorted(ignored):
        yield f"{base_name}: {field} has no effect, and nothing says so: honour it, or let can_handle refuse or name it"


def _of_the_status(host: ProviderHost, base: Base, objects: Sequence[Resource]) -> Iterator[str]:
    """Nothing is there; all was just made; and a status that nobody expects. None may be taken for serving."""
    deployment = parse_deployment({"metadata": {"name": NAME, "namespace": "default"}, "spec": base.spec})
    context = assumed_context(host, engine=base.engine, now=NOW)
    strange = {**objects[0], "status": {"conditions": "none", "replicas": {"ready": "all"}}}
    for what, seen in (
        ("without any object", Observed(primary=None)),
        ("of objects that were just made", Observed(primary=objects[0], objects=tuple(objects))),
        ("of a primary object with a strange status", Observed(primary=strange, objects=(strange, *objects[1:]))),
    ):
        observation = host.translate_status(deployment, seen, context)
        if all(component.ready for component in observation.components):
            yield f"{base.name}: translate_status {what} says that all is ready: say so only where the upstream does"


def _of_other_processes(answers: Collection[str]) -> Iterator[str]:
    """The same objects in two more processes: the order of a set changes from one to the next."""
    if len(answers) > 1:
        yield "translate_spec gives other objects in another process: sort what it goes through (a set has no order)"


def _in_a_new_process(name: str, seed: str) -> str:
    program = f"from {fingerprint.__module__} import fingerprint; print(fingerprint({name!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout
