"""Everything that a pass of the gateway part reads of a deployment brings a pass when another writer changes it."""

from __future__ import annotations

from dataclasses import replace

from core.tests.reading import unheeded
from core.tests.routing.builders import ENGINE, NAMELESS, asked, config, deployment, facts, serving, with_pool

from airunway.api import names
from airunway.configs.resolution import CONFIG_READY, awaits_verdict, is_refused
from airunway.gateway.application import RELEVANT, references
from airunway.gateway.reconciler import serves, serves_generation
from airunway.process.predicates import needs_reconcile
from airunway.resource import Resource, is_deleting
from airunway.routing.claims import claimant_of
from airunway.routing.decision import decide
from airunway.routing.intent import CONDITION, Facts, Probe, claims_of, intent_of, served_of
from airunway.selection.facts import engine_entry

OWN = {("status", "gateway"), ("status", "conditions", CONDITION)}
PROVIDER: Resource = {"spec": {"capabilities": {"engines": [{**ENGINE, "name": "vllm"}, {"name": "another"}]}}}
JUDGED = [
    {"type": CONFIG_READY, "status": "True", "reason": "ConfigFound", "observedGeneration": 1},
    {"type": "Validated", "status": "True", "reason": "ValidationPassed", "observedGeneration": 1},
    {"type": "Served", "status": "True", "reason": "Served", "observedGeneration": 1},
]
STATUS: Resource = {
    "phase": "Running",
    "engine": {"type": "vllm"},
    "provider": {"name": "kaito"},
    "effectiveRuntimeConfig": config().status(),
    "effectiveTemplate": {"hash": "a", "asked": "b"},
    "revision": {"template": {"hash": "a", "asked": "b"}},
    "conditions": JUDGED,
}
CORPUS = [
    deployment(gateway=asked(), status=STATUS),
    deployment(gateway=asked(gatewayRef={"name": "gw", "namespace": "infra"}), status=STATUS),
    deployment(gateway=asked(httpRouteRef="mine"), status=STATUS),
    deployment(gateway=asked(group="chat", weight=3), status={**STATUS, "replicas": {"ready": 1}}),
    deployment(gateway=asked(), model=NAMELESS, image="me/mine:1", status=STATUS),
    deployment(gateway=asked(), status={**STATUS, "endpoint": {"pool": {"name": "theirs"}, "service": "x", "port": 1}}),
    deployment(gateway=asked(), status={"phase": "Pending", "conditions": []}),
    deployment(
        gateway=asked(),
        status={**STATUS, "gateway": {"modelName": "Llama-8B", "backend": "Service", "gatewayName": "gw"}},
    ),
]


def one_pass(base: Facts, obj: Resource) -> object:
    """All that a pass makes of a deployment."""
    if is_deleting(obj):
        return None
    seen = replace(base, deployment=obj, config_unusable=is_refused(obj), engine=engine_entry(PROVIDER, obj))
    intent = intent_of(seen)
    claims = claims_of(seen, intent)
    asks = serves(obj) and serves_generation(obj)
    found = (
        decide(seen, intent),
        claims,
        served_of(seen, claims, claimant_of(obj)),
        asks,
        claimant_of(obj),
        tuple(references(obj)),
    )
    return awaits_verdict(obj, base.config), found


def wakes(old: Resource, new: Resource) -> bool:
    return needs_reconcile(old, new, manager=names.GATEWAY_MANAGER, echo=False, relevant=RELEVANT)


def test_a_pass_reads_nothing_of_a_deployment_whose_change_brings_no_pass() -> None:
    probed = facts(probe=Probe(generation=1, name="inner"))
    for base in (facts(config=config()), serving(with_pool()), probed):
        assert unheeded(lambda obj, base=base: one_pass(base, obj), wakes, CORPUS, besides=OWN) == set()  # type: ignore[misc]
