"""The policy as the core has it: the file that changes, and what it does to validation and selection."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airunway.controller.decision import decide
from airunway.controller.policies import PolicyFile
from airunway.resource import Resource, condition_of
from airunway.selection.choice import forbidden_by, forbidden_now, unsettled
from airunway.selection.facts import EngineFacts, ProviderFacts
from airunway.selection.provider import is_denied
from airunway.status.conditions import is_validated
from airunway.validation import Violation, validate
from airunway.validation.policy import NAMESPACE_NAME, Grants, PolicyError, parse_policy

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = {NAMESPACE_NAME: "team"}


def engine(name: str) -> EngineFacts:
    return EngineFacts(name=name, modes=frozenset(["aggregated"]), gpu=True, cpu=True, flags=frozenset())


def provider(name: str, *engines: str, installed: bool = True) -> ProviderFacts:
    return ProviderFacts(
        name=name,
        ready=True,
        heartbeat=NOW,
        explicit_only=False,
        engines=tuple(engine(each) for each in engines),
        rules=(),
        installed=installed,
    )


PROVIDERS = [provider("alpha", "vllm", "sglang"), provider("beta", "vllm", "sglang")]


def deployment(*, status: Resource | None = None, **spec: Any) -> Resource:
    return {
        "metadata": {"name": "llama", "namespace": "team", "generation": 2},
        "spec": {"model": {"id": "a"}, **spec},
        "status": status or {},
    }


def decided(obj: Resource, grants: Grants, providers: list[ProviderFacts] | None = None) -> Resource:
    known = PROVIDERS if providers is None else providers
    return decide(obj, violations=[], providers=known, selector=True, now=NOW, grants=grants).status


def test_without_a_policy_the_first_by_name_is_chosen() -> None:
    status = decided(deployment(), Grants())
    assert (status["provider"]["name"], status["engine"]["type"]) == ("alpha", "vllm")


def test_selection_keeps_to_what_the_namespace_may_use() -> None:
    status = decided(deployment(), Grants(providers=("beta",), engines=("sg*",)))
    assert (status["provider"]["name"], status["engine"]["type"]) == ("beta", "sglang")
    alpha = next(c for c in status["selection"]["candidates"] if c["name"] == "alpha")
    assert alpha["eligible"] is False
    assert alpha["reasons"] == ["spec.provider.name: the policy does not allow it in this namespace"]


def test_where_nothing_is_left_the_message_says_that_it_is_the_policy() -> None:
    status = decided(deployment(), Grants(engines=("llamacpp",)))
    assert status["phase"] == "Pending"
    assert "the policy of this namespace leaves out some of them" in status["message"]
    status = decided(deployment(), Grants(providers=()))
    told = "the policy of this namespace allows none of the registered providers (alpha, beta)"
    assert status["message"] == f"Engine selection failed: {told}"


def test_a_pinned_provider_keeps_its_engines_when_the_policy_moves_on() -> None:
    pinned = deployment(provider={"name": "alpha"})
    assert decided(pinned, Grants(providers=("beta",)))["engine"]["type"] == "vllm"


def test_a_provider_whose_upstream_is_absent_is_waited_for_with_the_seeds_words() -> None:
    status = decided(deployment(provider={"name": "alpha"}), Grants(), [provider("alpha", "vllm", installed=False)])
    assert status["message"] == "Provider 'alpha' CRD not installed in cluster"
    assert (status["phase"], status["reason"]) == ("Pending", "UpstreamNotInstalled")


def test_the_policy_judges_the_provider_that_is_named_or_settled() -> None:
    policy = parse_policy("rules: [{providers: [beta]}]")
    named = deployment(provider={"name": "alpha"})
    settled = deployment(status={"provider": {"name": "alpha"}})
    for obj in (named, settled):
        assert [v.path for v in forbidden_by(policy, obj, namespace_labels=LABELS)] == ["spec.provider.name"]
    assert forbidden_by(policy, deployment(), namespace_labels=LABELS) == []


@pytest.mark.parametrize(
    ("status", "generation", "accepted"), [("True", 2, True), ("True", 1, False), ("False", 2, False)]
)
def test_a_spec_that_has_passed_before_is_not_judged_again(status: str, generation: int, accepted: bool) -> None:
    condition = {"type": "Validated", "status": status, "observedGeneration": generation}
    assert is_validated(deployment(status={"conditions": [condition]})) is accepted
    assert not is_validated(deployment())


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"model": {"id": "a"}, "engine": {"type": "vllm"}}, False),
        ({"model": {}}, False),
        ({"model": {"id": 3}}, True),
        ({}, False),
        ("hello", True),
    ],
)
def test_a_rule_that_came_later_stops_nothing_that_has_passed(spec: Any, counts: bool) -> None:
    condition = {"type": "Validated", "status": "True", "observedGeneration": 2}
    kind = {"apiVersion": "airunway.ai/v1alpha1", "kind": "ModelDeployment"}
    obj = {**kind, **deployment(status={"conditions": [condition]}), "spec": spec}
    found = validate(obj)
    assert found
    assert bool(unsettled(obj, found, accepted=is_validated(obj))) is counts
    changed = {**obj, "metadata": {**obj["metadata"], "generation": 3}}
    assert unsettled(changed, found, accepted=is_validated(changed)) == found


def test_a_violation_is_told_in_the_status() -> None:
    policy = parse_policy("rules: [{engines: [vllm]}]")
    obj = deployment(engine={"type": "sglang"})
    found = forbidden_by(policy, obj, namespace_labels=LABELS)
    status = decide(obj, violations=found, providers=PROVIDERS, selector=True, now=NOW).status
    validated = condition_of({"status": status}, "Validated") or {}
    assert validated["reason"] == "ValidationFailed"
    assert validated["message"] == (
        "Validation failed: spec.engine.type: engine 'sglang' is not allowed in namespace 'team' "
        "(allowed by policy: vllm)"
    )


def test_the_file_is_read_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("default: Deny")
    file = PolicyFile(path)
    assert file.policy.deny
    assert not file.reread()
    for broken in ("default: Maybe", "[", ""):
        path.write_text(broken)
        assert not file.reread()
        assert file.policy.deny
    path.unlink()
    assert not file.reread()
    assert file.policy.deny
    path.write_text("default: Allow")
    assert file.reread()
    assert not file.policy.deny


def test_a_problem_with_the_file_is_told_once_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("default: Deny")
    file = PolicyFile(path)
    caplog.set_level("INFO")
    path.unlink()
    for _ in range(3):
        file.reread()
    [told] = caplog.messages
    assert told.startswith("the policy stays as it was (0 rules, default Deny), ")
    path.write_text("default: Deny")
    file.reread()
    file.reread()
    assert len(caplog.messages) == 2
    assert "can be read again" in caplog.messages[-1]


def test_a_file_that_cannot_be_read_at_the_start_is_named(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    with pytest.raises(PolicyError, match=r"policy\.yaml"):
        PolicyFile(path)
    path.write_text("rules: 1")
    with pytest.raises(PolicyError, match=r"policy\.yaml: rules must be a list"):
        PolicyFile(path)


def accepted(**provider: str) -> Resource:
    condition = {"type": "Validated", "status": "True", "observedGeneration": 2}
    return deployment(status={"conditions": [condition], "provider": provider})


def test_m6_the_provider_list_holds_for_what_is_chosen_after_the_spec_has_passed() -> None:
    policy = parse_policy("rules: [{providers: [beta], images: [x]}]")

    def told(obj: Resource) -> list[str]:
        found = forbidden_now(policy, obj, namespace_labels=LABELS, accepted=is_validated(obj))
        return [violation.path for violation in found]

    assert told(accepted(name="alpha")) == ["spec.provider.name"]
    assert told(accepted(name="beta")) == []
    assert told(accepted()) == []
    # What runs stays, and so does a spec that named its provider when it passed.
    assert told(accepted(name="alpha", resourceName="llama")) == []
    named = accepted(name="alpha")
    named["spec"] |= {"provider": {"name": "alpha"}, "image": "y"}
    assert told(named) == []
    named["metadata"]["generation"] = 3
    assert told(named) == ["spec.provider.name", "spec.image"]


@pytest.mark.parametrize(("manager", "kept"), [("airunway-controller", True), ("cost-selector", False)])
def test_m6_a_refused_choice_stays_with_whom_made_it(manager: str, kept: bool) -> None:
    obj = accepted(name="alpha")
    fields: Resource = {"f:status": {"f:provider": {"f:name": {}}}}
    obj["metadata"]["managedFields"] = [{"manager": manager, "operation": "Apply", "fieldsV1": fields}]
    violation = Violation(path="spec.provider.name", message="not allowed", reason="FieldValueForbidden")
    status = decide(obj, violations=[violation], providers=PROVIDERS, selector=False, now=NOW).status
    assert ("provider" in status) is kept


def test_m6_a_provider_knows_what_it_is_denied_before_anybody_can_choose_it() -> None:
    def judged(grants: Grants, *, selector: bool, **spec: Any) -> Resource:
        obj = deployment(**spec)
        known = {"providers": PROVIDERS, "selector": selector, "now": NOW, "grants": grants}
        return {**obj, "status": decide(obj, violations=[], **known).status}  # type: ignore[arg-type]

    by_others = judged(Grants(providers=("beta",)), selector=False)
    assert [is_denied(by_others, name) for name in ("alpha", "beta", "unknown")] == [True, False, True]
    free = judged(Grants(), selector=False)
    named = judged(Grants(providers=("beta",)), selector=False, provider={"name": "beta"})
    selected = judged(Grants(providers=("beta",)), selector=True)
    for obj in (free, named, selected):
        assert not is_denied(obj, "beta")
