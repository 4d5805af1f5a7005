"""Which Gateway a route attaches to."""

from __future__ import annotations

from collections.abc import Collection

import pytest
from core.tests.routing.builders import config, deployment, gateway, listener

from airunway.api import names
from airunway.resource import ObjectKey, Resource
from airunway.routing.gateways import ChosenGateway, Detection, Target, choose, usable

LABEL = names.INFERENCE_GATEWAY
LABELLED = {LABEL: "true"}


def chosen(
    gateways: list[Resource],
    *,
    ref: Resource | None = None,
    by_config: Resource | None = None,
    flag: str = "",
    trusted: Collection[str] = ("infra", "a", "z", "ml"),
    live: Resource | None = None,
) -> ChosenGateway:
    return choose(
        gateways,
        deployment=deployment(gateway={"gatewayRef": ref} if ref else {}),
        config=config(routing={"gatewayRef": by_config}) if by_config else config(),
        detection=Detection(flag=flag, namespaces=trusted),
        live=live,
    )


def key(choice: ChosenGateway) -> str:
    return str(choice.target.gateway) if choice.gateway is not None and choice.target is not None else choice.reason


@pytest.mark.parametrize(
    ("gateways", "expected"),
    [
        ([], "NoGateway"),
        ([gateway("a")], "infra/a"),
        ([gateway("c"), gateway("b"), gateway("a")], "AmbiguousGateway"),
        ([gateway("c", labels=LABELLED), gateway("b"), gateway("a")], "infra/c"),
        ([gateway("c", labels=LABELLED), gateway("b", labels=LABELLED), gateway("a")], "AmbiguousGateway"),
        ([gateway("a", "z", labels=LABELLED), gateway("z", "a", labels=LABELLED)], "AmbiguousGateway"),
        ([gateway("a"), gateway("b", labels={LABEL: "false"})], "AmbiguousGateway"),
        ([gateway("a"), gateway("b", listeners=[listener(allowedRoutes={})])], "infra/a"),
        ([gateway("a", listeners=[listener(allowedRoutes={})])], "infra/a"),
        (
            [gateway("a"), {"metadata": {**gateway("b")["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}],
            "infra/a",
        ),
    ],
    ids=[
        "none",
        "the only one",
        "three unlabelled",
        "one labelled",
        "two labelled",
        "labelled in two namespaces",
        "label false",
        "the only usable one",
        "one that admits nobody",
        "one in deletion",
    ],
)
def test_r15_detected(gateways: list[Resource], expected: str) -> None:
    assert key(chosen(gateways)) == expected
    assert key(chosen(gateways[::-1])) == expected


def test_r15_several_unlabelled_ones_are_named_with_the_label_to_set() -> None:
    message = chosen([gateway(name) for name in "abc"]).message
    assert "infra/a" in message
    assert f"{LABEL}=true" in message


def test_h1_a_gateway_of_a_namespace_that_no_administrator_named_draws_no_route() -> None:
    """Mallory may write Gateways in her namespace, and labels one."""
    hers = gateway("mine", "aaa", labels=LABELLED)
    assert key(chosen([gateway("a"), hers])) == "infra/a"
    alone = chosen([hers])
    assert key(alone) == "NoGateway"
    assert "kubectl label namespace aaa airunway.ai/gateways=allowed" in alone.message
    # Named by the deployment itself, it is hers to use.
    assert key(chosen([hers], ref={"name": "mine", "namespace": "aaa"})) == "aaa/mine"


def test_r15_a_route_keeps_its_gateway_while_that_exists_and_admits_it() -> None:
    live = {
        "metadata": {"namespace": "ml"},
        "spec": {"parentRefs": [{"name": "b", "namespace": "infra"}]},
    }
    two = [gateway("a", labels=LABELLED), gateway("b")]
    assert key(chosen(two)) == "infra/a"
    assert key(chosen(two, live=live)) == "infra/b"
    assert key(chosen([gateway("a", labels=LABELLED), gateway("b", labels=LABELLED)], live=live)) == "infra/b"
    closed = gateway("b", listeners=[listener(allowedRoutes={})])
    assert key(chosen([gateway("a", labels=LABELLED), closed], live=live)) == "infra/a"
    assert key(chosen([gateway("a")], live=live)) == "infra/a"
    assert key(chosen(two, live=live, flag="infra/a")) == "infra/a", "what an administrator names, moves"


def test_r15_a_reference_to_nothing_is_no_gateway_and_names_the_field() -> None:
    choice = chosen([gateway("a")], ref={"name": "other", "namespace": "infra"})
    assert key(choice) == "NoGateway"
    assert "spec.gateway.gatewayRef names Gateway infra/other" in choice.message
    assert choice.target == Target(gateway=ObjectKey("infra", "other"))


def test_the_deployments_reference_comes_before_the_configs_before_the_flag_before_detection() -> None:
    gateways = [gateway(name) for name in "abc"] + [gateway("d", labels=LABELLED)]
    ref, by_config = {"name": "a", "namespace": "infra"}, {"name": "b", "namespace": "infra"}
    assert key(chosen(gateways, ref=ref, by_config=by_config, flag="infra/c")) == "infra/a"
    assert key(chosen(gateways, by_config=by_config, flag="infra/c")) == "infra/b"
    assert key(chosen(gateways, flag="infra/c")) == "infra/c"
    assert key(chosen(gateways)) == "infra/d"


@pytest.mark.parametrize(
    ("flag", "expected"),
    [("infra/b", "infra/b"), ("other/b", "NoGateway"), ("infra/x", "NoGateway")],
)
def test_the_flag_is_a_namespace_and_a_name(flag: str, expected: str) -> None:
    choice = chosen([gateway("a"), gateway("b")], flag=flag)
    assert key(choice) == expected
    assert expected != "NoGateway" or f"--gateway-name of the controller names Gateway {flag}" in choice.message


def test_a_reference_without_namespace_means_the_deployments_and_a_section_is_kept() -> None:
    choice = chosen([gateway("a", "ml")], ref={"name": "a", "sectionName": "https"})
    assert choice.target == Target(gateway=ObjectKey("ml", "a"), section="https")


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (gateway(), True),
        (gateway(status={}), True),
        (gateway(listeners=[]), False),
        (gateway(listeners=[listener(protocol="TCP")]), False),
        (gateway(listeners=[listener(allowedRoutes={"namespaces": {"from": "Same"}})]), False),
        (gateway(listeners=[listener(allowedRoutes={})]), False),
        (gateway(namespace="ml", listeners=[listener(allowedRoutes={})]), True),
        (gateway(listeners=[listener(allowedRoutes={"namespaces": {"from": "Selector"}})]), True),
        (
            gateway(
                listeners=[listener(allowedRoutes={"namespaces": {"from": "All"}, "kinds": [{"kind": "GRPCRoute"}]})]
            ),
            False,
        ),
    ],
    ids=[
        "open",
        "no status yet",
        "no listener",
        "TCP",
        "same namespace",
        "default",
        "same one",
        "selector",
        "gRPC only",
    ],
)
def test_a_gateway_is_usable_without_being_asked_for_if_it_may_admit_the_namespace(
    one: Resource, expected: bool
) -> None:
    assert usable(chosen([one]), namespace="ml") is expected
