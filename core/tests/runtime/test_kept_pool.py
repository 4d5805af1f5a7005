"""Frontend or pool is decided once, before a Dynamo graph is made: a gateway that comes or goes recreates nothing."""

from __future__ import annotations

import pytest
from core.tests.conftest import MakeDeployment
from core.tests.runtime.views import made, state, stored

from airunway.owned.plan import Action
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import load
from airunway.resource import Resource
from airunway.revisions.revision import pending_parts, waits_for
from airunway.runtime.plan import Decision, Do, decide

ASKED: Resource = {"enabled": True}
OFF: Resource = {"enabled": False}
CHANGED: Resource = {"engine": {"contextLength": 4096}}


@pytest.fixture(scope="module")
def dynamo() -> ProviderHost:
    return load("dynamo")


def deployment(plain: MakeDeployment, gateway: Resource, **spec: Resource) -> Resource:
    """One whose route a gateway part has decided to send to a pool."""
    status = {
        "provider": {"name": "dynamo"},
        "parts": ["gateway"],
        "gateway": {"backend": "Pool", "gatewayName": "edge", "gatewayNamespace": "gateways"},
    }
    return plain(status=status, gateway=gateway, **spec)


def graph(host: ProviderHost, of: Resource) -> Resource:
    """The graph that an earlier pass made of the deployment."""
    return made(host, of)[0]


def pass_over(host: ProviderHost, of: Resource, *live: Resource) -> Decision:
    return decide(state(host, of, *live), host, settings=host.settings({}))


def components(decision: Decision) -> list[str]:
    return [component["name"] for component in decision.objects[0]["spec"]["components"]]


def is_replaced(decision: Decision) -> bool:
    assert decision.plan is not None
    return Action.REPLACE in [step.action for step in decision.plan.steps]


def unchanged(decision: Decision, live: Resource) -> bool:
    """Whether the desired graph is the live one, its annotations included: nothing is written."""
    return stored(decision.objects[0], says="Ready") == live


def test_a_new_graph_is_made_for_the_pool_that_was_decided_on(dynamo: ProviderHost, plain: MakeDeployment) -> None:
    assert components(pass_over(dynamo, deployment(plain, ASKED))) == ["Epp", "worker"]
    assert components(pass_over(dynamo, deployment(plain, OFF))) == ["Frontend", "worker"]


def test_r14_a_gateway_that_comes_later_leaves_the_graph_with_its_frontend(
    dynamo: ProviderHost, plain: MakeDeployment
) -> None:
    live = graph(dynamo, deployment(plain, OFF))
    decision = pass_over(dynamo, deployment(plain, ASKED), live)
    assert unchanged(decision, live)
    changed = pass_over(dynamo, deployment(plain, ASKED, **CHANGED), live)
    assert (components(changed), is_replaced(changed)) == (["Frontend", "worker"], False)


def test_routing_switched_off_writes_nothing_and_says_what_the_next_change_does(
    dynamo: ProviderHost, plain: MakeDeployment
) -> None:
    live = graph(dynamo, deployment(plain, ASKED))
    off = state(dynamo, deployment(plain, OFF), live)
    decision = pass_over(dynamo, off.deployment, live)
    assert components(decision) == ["Epp", "worker"]
    assert unchanged(decision, live)
    assert off.revision["pending"]["changes"] == ["gateway none"]
    assert pending_parts(off.deployment) == frozenset(), "which is nothing for a wave"
    changed = pass_over(dynamo, deployment(plain, OFF, **CHANGED), live)
    assert components(changed) == ["Frontend", "worker"]
    assert is_replaced(changed)


def test_routing_that_stays_keeps_the_pool_over_a_change_of_the_spec(
    dynamo: ProviderHost, plain: MakeDeployment
) -> None:
    live = graph(dynamo, deployment(plain, ASKED))
    changed = pass_over(dynamo, deployment(plain, ASKED, **CHANGED), live)
    assert (components(changed), is_replaced(changed)) == (["Epp", "worker"], False)


def test_a_status_that_is_wiped_recreates_no_graph(dynamo: ProviderHost, plain: MakeDeployment) -> None:
    live = graph(dynamo, deployment(plain, ASKED))
    anew = state(dynamo, deployment(plain, ASKED)).deployment
    assert unchanged(pass_over(dynamo, anew, live), live), "once the gateway part has answered again"
    wiped = deployment(plain, ASKED)
    del wiped["status"]["gateway"]
    early = state(dynamo, wiped).deployment
    assert waits_for(early) == "gateway"
    assert pass_over(dynamo, early, live).do is Do.OBSERVE_ONLY
