"""What the core notes for the guards of providers (docs/decisions/0030)."""

from __future__ import annotations

from typing import Any

from airunway.controller.guarded import MAX_ACCOUNTS, _text, needed, noted, providers_of
from airunway.resource import Resource


def deployment(namespace: str = "team", *, provider: str = "kaito", account: str = "", valid: bool = True) -> Resource:
    spec: Resource = {"serviceAccountName": account} if account else {}
    conditions = [{"type": "Validated", "status": "True" if valid else "False"}]
    status = {"provider": {"name": provider}, "conditions": conditions}
    return {"metadata": {"name": "llama", "namespace": namespace}, "spec": spec, "status": status}


def test_namespaces_go_to_the_provider_that_has_the_deployment() -> None:
    found = needed([deployment("a"), deployment("b", provider="vllm"), deployment("b", account="models")], {})
    assert found == {"kaito": {"a": frozenset(), "b": frozenset({"models"})}, "vllm": {"b": frozenset()}}


def test_who_holds_a_deployment_still_writes() -> None:
    """Another provider takes over, and the one before cleans up."""
    held = deployment(provider="vllm")
    held["metadata"]["finalizers"] = ["airunway.ai/kaito-provider", "example.com/other"]
    assert providers_of(held) == {"kaito", "vllm"}


def test_an_account_comes_with_a_verdict_and_goes_with_the_last_that_names_it() -> None:
    refused = deployment(account="admin", valid=False)
    assert needed([refused], {}) == {"kaito": {"team": frozenset()}}
    known = {"kaito": {"team": frozenset({"admin", "gone"})}}
    assert needed([refused], known) == {"kaito": {"team": frozenset({"admin"})}}


def test_what_a_policy_lets_an_accepted_deployment_use_comes_and_goes_with_it() -> None:
    everywhere = deployment(account="models")
    everywhere["spec"]["tolerations"] = [{"operator": "Exists"}]
    asked = frozenset({"models", "tolerations=*"})
    assert needed([everywhere], {}) == {"kaito": {"team": asked}}
    refused = {**everywhere, "status": deployment(valid=False)["status"]}
    assert needed([refused], {}) == {"kaito": {"team": frozenset()}}
    assert needed([refused], {"kaito": {"team": asked}}) == {"kaito": {"team": asked}}, "its pods run"


def test_what_no_account_can_be_called_is_left_out() -> None:
    strange: tuple[Any, ...] = ("a b", "A", "a\nkube-system", "-a", ["a"], "a" * 254)
    assert needed([deployment(account=each) for each in strange], {}) == {"kaito": {"team": frozenset()}}


def test_what_stands_on_a_config_is_read_again() -> None:
    config = {"status": {"namespaces": {"a": "", "b": "models trainers"}}}
    assert noted(config) == {"a": frozenset(), "b": frozenset({"models", "trainers"})}
    assert noted(None) == {}


def test_one_tenant_has_a_bound_and_takes_no_account_from_what_runs() -> None:
    before = {"zz-in-use"}
    many = {f"account-{number:04}" for number in range(1000)} | before
    text = _text(many, before)
    assert len(text) <= MAX_ACCOUNTS
    assert "zz-in-use" in text.split()
    assert set(text.split()) <= many
