"""The plan of a pass: what becomes of each object, and why (docs/providers/contract.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.owned.objects import identity_in, our_labels
from airunway.owned.plan import Action, Plan, conflict_text
from airunway.owned.writer import missing_of
from airunway.resource import Resource, copy_of, key_of
from airunway.runtime.apply import in_own_name, trial_of
from airunway.runtime.plan import plan_of
from airunway.runtime.state import provider_mark
from airunway.runtime.translate import complete
from airunway.sdk import workloads

MANAGER = "airunway-provider-toy"
OWNER: Resource = {
    "apiVersion": "airunway.ai/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {"name": "llama", "namespace": "ns", "uid": "1234"},
    "spec": {"model": {"id": "org/model"}},
}


def thing(*, name: str = "llama", kind: str = "Thing", version: str = "v1", **spec: Any) -> Resource:
    return {"apiVersion": f"example.org/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}


def binding(role: str = "a") -> Resource:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "llama"},
        "roleRef": {"name": role},
    }


def config(name: str = "llama-config") -> Resource:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def wanted(*objects: Resource, topology: object = None, provider: str = "toy") -> list[Resource]:
    paths = {"RoleBinding": ("roleRef.*",), "Thing": ("spec.size",)}
    return complete(
        objects,
        OWNER,
        labels=our_labels(OWNER, provider_mark(provider)),
        transformer="only",
        wanted_for="now",
        identity={},
        topology={"roles": topology},
        immutable=[paths.get(obj["kind"], ()) for obj in objects],
    )


def existing(*objects: Resource) -> list[Resource]:
    """The objects as they are once we have applied them: with what the API server notes about our fields."""
    return [applied(obj) for obj in objects]


def applied(obj: Resource) -> Resource:
    obj = copy_of(obj)
    fields = owned({key: value for key, value in obj.items() if key not in ("apiVersion", "kind")})
    for gone in ("f:name", "f:namespace"):
        fields["f:metadata"].pop(gone, None)
    references: Resource = {f'k:{{"uid":"{ref["uid"]}"}}': {} for ref in obj["metadata"].get("ownerReferences", ())}
    fields["f:metadata"]["f:ownerReferences"] = references
    entry = {"manager": MANAGER, "operation": "Apply", "apiVersion": obj["apiVersion"], "fieldsV1": fields}
    obj["metadata"] |= {"uid": f"uid-of-{obj['metadata']['name']}", "managedFields": [entry]}
    return obj


def owned(value: Any) -> Any:
    return {f"f:{key}": owned(below) for key, below in value.items()} if isinstance(value, dict) else {}


def plan(desired: Sequence[Resource], live: Sequence[Resource], **more: Any) -> Plan:
    found = {identity_in(obj): obj for obj in live}
    return plan_of(desired, found, deployment=OWNER, provider="toy", **more)


def acts(found: Plan) -> list[tuple[Action, str]]:
    return [(step.action, key_of(step.subject).name) for step in found.steps]


def test_what_is_not_there_is_created_the_primary_last() -> None:
    found = plan(wanted(thing(), config("a"), config("b")), [])
    assert acts(found) == [(Action.CREATE, "llama"), (Action.CREATE, "a"), (Action.CREATE, "b")]
    assert found.primary.primary
    assert [key_of(step.subject).name for step in found.writes] == ["a", "b", "llama"]


def test_what_is_as_it_should_be_is_kept() -> None:
    desired = wanted(thing(size=1), config())
    found = plan(desired, existing(*desired))
    assert acts(found) == [(Action.KEEP, "llama"), (Action.KEEP, "llama-config")]
    assert found.writes == ()
    assert found.primary.text() == "leave Thing 'llama' as it is"


def test_a_change_in_place_is_an_update() -> None:
    found = plan(wanted(thing(size=1, image="new"), config()), existing(*wanted(thing(size=1, image="old"), config())))
    assert acts(found) == [(Action.UPDATE, "llama"), (Action.KEEP, "llama-config")]


def test_an_object_that_is_known_in_another_version_only_is_updated_whatever_it_seems_to_be() -> None:
    desired = wanted(thing(size=1))
    assert acts(plan(desired, existing(*desired))) == [(Action.KEEP, "llama")]
    found = plan(desired, [{**obj, "apiVersion": "example.org/v9"} for obj in existing(*desired)])
    assert acts(found) == [(Action.UPDATE, "llama")]


def test_what_cannot_be_changed_in_place_is_replaced_and_says_why() -> None:
    found = plan(wanted(thing(size=2), topology=2), existing(*wanted(thing(size=1), topology=1)))
    assert acts(found) == [(Action.REPLACE, "llama")]
    assert found.primary.causes == ("roles", "spec.size")
    text = "delete Thing 'llama' and make it again (roles, spec.size cannot be changed in place)"
    assert found.primary.text() == text


@pytest.mark.parametrize(
    ("new", "cause"),
    [(thing(name="llama-2"), "the name llama to llama-2"), (thing(kind="Group"), "Thing to Group")],
    ids=["another name", "another kind"],
)
def test_a_primary_of_another_kind_or_name_replaces_the_old_one(new: Resource, cause: str) -> None:
    (old,) = existing(*wanted(thing()))
    found = plan(wanted(new), [old])
    (step,) = found.steps
    assert (step.action, step.live, step.primary, step.causes) == (Action.REPLACE, old, True, (cause,))
    assert step.wanted is not None
    assert identity_in(step.wanted) != identity_in(old)
    assert step.subject is old, "it is the old one that goes"


def test_the_same_kind_in_another_version_is_the_same_object() -> None:
    (old,) = existing(*wanted(thing(version="v1", size=1)))
    assert acts(plan(wanted(thing(version="v2", size=1)), [old]))[0][0] is not Action.REPLACE


def test_a_dependent_is_replaced_by_itself_and_the_primary_stays() -> None:
    found = plan(wanted(thing(), binding("b")), existing(*wanted(thing(), binding("a"))))
    assert [step.action for step in found.steps] == [Action.KEEP, Action.REPLACE]
    assert found.steps[1].causes == ("roleRef.*",)


def servers(component: str, *, kind: str = "Thing", name: str = "", pods: bool = True) -> Resource:
    """What runs the pods of a component."""
    labels = {"airunway.ai/component": component} if component else {}
    template = {"spec": {"containers": [{"name": "model"}]}} if pods else {}
    metadata = {"name": name or f"llama-{component}", "labels": labels}
    return {**thing(kind=kind), "metadata": metadata, "spec": {"template": template}}


def test_real_llmd_3_a_component_that_moves_to_another_kind_is_replaced_by_itself() -> None:
    before = existing(*wanted(servers("decode"), servers("prefill"), config()))
    found = plan(
        wanted(servers("decode"), servers("prefill", kind="Group", name="llama-prefill-lws"), config()), before
    )
    assert [step.action for step in found.steps] == [Action.KEEP, Action.REPLACE, Action.KEEP]
    step = found.steps[1]
    assert (step.live, step.primary, step.causes) == (before[1], False, ("Thing to Group",))
    assert step.subject is before[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (servers("prefill"), servers("router", kind="Group")),
        (servers("prefill", pods=False), servers("prefill", kind="Group", pods=False)),
        (servers("", name="a"), servers("", kind="Group", name="b")),
    ],
    ids=["another component", "nothing that runs pods", "of no component"],
)
def test_real_llmd_3_what_takes_no_one_s_place_is_made_and_the_old_one_goes_later(old: Resource, new: Resource) -> None:
    found = plan(wanted(thing(), new), existing(*wanted(thing(), old)))
    assert [step.action for step in found.steps] == [Action.KEEP, Action.CREATE, Action.DELETE]


def test_what_is_no_longer_wanted_is_deleted() -> None:
    found = plan(wanted(thing()), existing(*wanted(thing(), config())))
    assert acts(found) == [(Action.KEEP, "llama"), (Action.DELETE, "llama-config")]
    assert found.steps[1].text() == "delete ConfigMap 'llama-config'"


@pytest.mark.parametrize("provider", ["other", ""], ids=["another provider's", "nobody's"])
def test_an_object_of_somebody_else_is_left_alone_whether_its_name_is_wanted_or_not(provider: str) -> None:
    if provider:
        foreign = existing(*wanted(thing(), config(), config("further"), provider=provider))
    else:
        foreign = [applied({**obj, "metadata": {**obj["metadata"], "namespace": "ns"}})
                   for obj in (thing(), config(), config("further"))]  # fmt: skip
    found = plan(wanted(thing(), config()), foreign)
    assert acts(found) == [(Action.FOREIGN, "llama"), (Action.FOREIGN, "llama-config")]
    assert found.writes == ()


def test_a_foreign_dependent_stops_nothing_but_itself() -> None:
    found = plan(wanted(thing(), config()), existing(*wanted(config(), provider="other")))
    assert [step.action for step in found.steps] == [Action.CREATE, Action.FOREIGN]


def test_what_is_said_of_a_foreign_object_names_its_owner_and_what_to_do() -> None:
    (want,) = wanted(config())
    owner = {"kind": "Helm", "name": "x", "uid": "7", "controller": True}
    foreign = {**config(), "metadata": {"name": "llama-config", "namespace": "ns", "ownerReferences": [owner]}}
    text = conflict_text(want, foreign)
    assert "ConfigMap ns/llama-config exists but is not managed by this ModelDeployment (owned by Helm/x)" in text
    assert text.endswith("rename one of them or delete it")
    foreign["metadata"]["ownerReferences"] = []
    assert "(no owner references)" in conflict_text(want, foreign)
    group = {**thing(kind="Group"), "metadata": {"name": "llama-config", "namespace": "ns"}}
    text = conflict_text(group, foreign)
    assert text.startswith("ConfigMap ns/llama-config exists")
    assert ", and the Group of that name needs a ConfigMap of its own; rename" in text


def test_a_dead_primary_is_made_anew_and_a_dependent_never_for_it() -> None:
    desired = wanted(thing(), config())
    found = plan(desired, existing(*desired), unrecoverable="the Thing is dead")
    assert acts(found) == [(Action.REPLACE, "llama"), (Action.KEEP, "llama-config")]
    assert found.primary.causes == ("the Thing is dead",)


def test_an_object_that_is_being_deleted_is_made_again_once_it_is_gone() -> None:
    desired = wanted(thing(), config())
    live = existing(*desired)
    for obj in live:
        obj["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    found = plan(desired, live)
    assert [(step.action, step.causes) for step in found.steps] == [
        (Action.REPLACE, ("an object that is being deleted",))
    ] * 2


@given(st.lists(st.sampled_from(["a", "b", "c"]), unique=True), st.lists(st.sampled_from(["a", "b", "c"]), unique=True))
def test_every_object_has_exactly_one_step(desired: list[str], live: list[str]) -> None:
    want = wanted(thing(), *(config(name) for name in desired))
    found = plan(want, existing(*wanted(thing(), *(config(name) for name in live))))
    assert sorted(key_of(step.subject).name for step in found.steps) == sorted({"llama", *desired, *live})
    assert found.primary.subject["kind"] == "Thing"
    kept = {key_of(step.subject).name for step in found.of(Action.DELETE)}
    assert kept == set(live) - set(desired)


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ('configmaps "llama-config" not found', True),
        ('failed to get ConfigMap ns/llama-config: configmaps "llama-config" not found', True),
        ("there is no llama-config.", True),
        ('configmaps "llama-config-2" not found', False),
        ('configmaps "my-llama-config" not found', False),
        ('configmaps "llama-config.v2" not found', False),
        ('configmaps "other" not found', False),
        ('things "llama" not found', False),
        ("", False),
    ],
)
def test_g7_only_the_exact_name_of_an_object_that_is_yet_to_be_made_excuses_a_refusal(
    message: str, named: bool
) -> None:
    primary, other = wanted(thing(), config())
    assert missing_of(message, primary, [other]) is (other if named else None)


def test_g7_an_object_never_excuses_its_own_refusal_nor_one_of_the_same_name() -> None:
    primary, service = wanted(thing(), {**config("llama"), "kind": "Service"})
    assert missing_of('Thing "llama" is invalid: spec.size', primary, [primary, service]) is None


def test_g8_a_role_that_comes_with_its_binding_excuses_it_although_they_share_a_name() -> None:
    user, role, bound = workloads.account("llama", [])
    assert missing_of('roles.rbac.authorization.k8s.io "llama" not found', bound, [user, role, bound]) == role
    assert missing_of('services "llama" not found', bound, [service("llama"), bound]) == service("llama")
    assert missing_of('roles.rbac.authorization.k8s.io "llama" not found', bound, [user, bound]) is None


def test_g8_what_is_to_be_made_and_is_not_found_misses_something_else_of_its_plan() -> None:
    _, role, bound = workloads.account("llama", [])
    itself = 'rolebindings.rbac.authorization.k8s.io "llama" not found'
    assert missing_of(itself, bound, [role, bound]) == role
    assert missing_of(itself, bound, [bound]) is None
    assert missing_of('namespaces "llama" not found', bound, [role, bound]) is None


def service(name: str) -> Resource:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}}


@given(st.from_regex(r"[a-z]([a-z0-9-]{0,60}[a-z0-9])?", fullmatch=True))
def test_g9_a_trial_has_another_name_of_the_same_length(name: str) -> None:
    obj = config(name)
    trial = trial_of(obj)["metadata"]["name"]
    assert trial != name
    assert len(trial) == len(name)
    assert trial.isascii()
    assert trial[0].isalpha()
    assert trial[-1].isalnum()
    assert obj["metadata"]["name"] == name


def test_g9_a_trial_is_the_object_in_all_else() -> None:
    obj = {**config("llama-config"), "metadata": {"name": "llama-config", "labels": {"a": "b"}}}
    trial = trial_of(obj)
    assert trial == {**obj, "metadata": {"name": trial["metadata"]["name"], "labels": {"a": "b"}}}
    assert trial["metadata"]["name"].startswith("llam")


@pytest.mark.parametrize("name", ["llama", "my-model-70b", "x"])
def test_the_message_about_a_trial_names_the_object_itself(name: str) -> None:
    obj = config(name)
    trial = trial_of(obj)
    tried = trial["metadata"]["name"]
    message = f'configmaps "{tried}" is forbidden: {tried}-head has a name like {tried}2, not {tried}.'
    expected = f'configmaps "{name}" is forbidden: {name}-head has a name like {tried}2, not {name}.'
    assert in_own_name(message, trial, obj) == expected
    assert in_own_name(message, obj, obj) == message, "what was tried under its own name"
