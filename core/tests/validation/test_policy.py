"""The policy: what namespaces may use, whatever the rules, the labels and the spec."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunway.validation.policy import (
    NAMESPACE_NAME,
    Grants,
    NamespaceRule,
    Policy,
    PolicyError,
    Selector,
    config_violations,
    parse_policy,
    violations,
)

POLICY = """
default: Allow
rules:
  - images: ["ghcr.io/acme/*", "vllm/*"]
  - namespaceSelector: {matchLabels: {team: search}}
    providers: [kaito]
    engines: [vllm, "llama*"]
  - namespaceSelector:
      matchExpressions:
        - {key: tier, operator: In, values: [gold, silver]}
        - {key: retired, operator: DoesNotExist}
    gpuTypes: [nvidia.com/gpu]
    providers: [dynamo]
"""
SEARCH = {"team": "search", NAMESPACE_NAME: "search"}
GOLD = {"tier": "gold", NAMESPACE_NAME: "gold"}


def judged(spec: Any, labels: dict[str, str], *, engine: str | None = None, provider: str | None = None) -> list[str]:
    found = violations(parse_policy(POLICY), spec, engine=engine, provider=provider, namespace_labels=labels)
    return [str(violation) for violation in found]


def test_what_no_rule_speaks_about_is_free() -> None:
    spec = {"model": {"id": "a"}, "resources": {"gpu": {"count": 1, "type": "amd.com/gpu"}}}
    assert judged(spec, {NAMESPACE_NAME: "other"}, engine="sglang", provider="llmd") == []


def test_each_refusal_names_field_value_namespace_and_what_is_allowed() -> None:
    spec = {"model": {"id": "a"}, "image": "evil/x:1", "engine": {"image": "ghcr.io/acme/x"}}
    assert judged(spec, SEARCH, engine="sglang", provider="dynamo") == [
        "spec.provider.name: provider 'dynamo' is not allowed in namespace 'search' (allowed by policy: kaito)",
        "spec.engine.type: engine 'sglang' is not allowed in namespace 'search' (allowed by policy: vllm, llama*)",
        "spec.image: image 'evil/x:1' is not allowed in namespace 'search' (allowed by policy: ghcr.io/acme/*, vllm/*)",
    ]


def test_rules_add_up() -> None:
    both = {**GOLD, "team": "search"}
    for provider in ("kaito", "dynamo"):
        assert judged({}, both, provider=provider) == []
    assert len(judged({}, both, provider="kuberay")) == 1


@pytest.mark.parametrize(
    ("labels", "allowed"),
    [
        ({"tier": "gold"}, False),
        ({"tier": "silver", "retired": "true"}, True),
        ({"tier": "bronze"}, True),
        ({}, True),
    ],
)
def test_selection_by_expressions(labels: dict[str, str], allowed: bool) -> None:
    spec = {"resources": {"gpu": {"count": 2, "type": "amd.com/gpu"}}}
    assert (judged(spec, labels) == []) is allowed


def test_gpu_types_count_where_there_are_gpus() -> None:
    amd = {"count": 1, "type": "amd.com/gpu"}
    assert judged({"resources": {"gpu": {"count": 0, "type": "amd.com/gpu"}}}, GOLD) == []
    assert judged({"resources": {"gpu": {"count": 1}}}, GOLD) == []
    disaggregated = {"serving": {"mode": "disaggregated"}, "scaling": {"prefill": {"gpu": amd}, "decode": {"gpu": amd}}}
    assert [text.split(":")[0] for text in judged(disaggregated, GOLD)] == [
        "spec.scaling.prefill.gpu.type",
        "spec.scaling.decode.gpu.type",
    ]


def test_overrides_are_no_way_around() -> None:
    deep = {"spec": {"template": [{"image": "evil/x", "resources": {"limits": {"amd.com/gpu": 1, "cpu": 1}}}]}}
    spec = {"provider": {"overrides": {**deep, "frontend": {"image": {"repository": "evil/y", "tag": "1"}}}}}
    found = judged(spec, GOLD)
    at = "spec.provider.overrides"
    assert sorted(text.split(" is not")[0] for text in found) == [
        f"{at}.frontend.image: image 'evil/y:1'",
        f"{at}.spec.template[0].image: image 'evil/x'",
        f"{at}.spec.template[0].resources.limits.amd.com/gpu: GPU type 'amd.com/gpu'",
    ]


@pytest.mark.parametrize(
    ("pattern", "image", "allowed"),
    [
        ("docker.io/vllm/*", "vllm/vllm-openai:v1", True),
        ("vllm/*", "vllm/vllm-openai:v1", True),
        ("docker.io/library/*", "busybox", True),
        ("ghcr.io/acme/*", "ghcr.io.example.com/acme/x", False),
        ("ghcr.io/acme/*", f"ghcr.io/acme/a/b@sha256:{'0' * 64}", True),
        ("docker.io/vllm/*", "docker.io/vllm/../evil/x:1", False),
        ("docker.io/vllm/*", "docker.io/vllm/ x:1", False),
        ("docker.io/vllm/*", "vllm/x:1\nevil", False),
        ("*", "docker.io/vllm/x@sha256:0", False),
        ("ghcr.io/acme/*", "GHCR.io/acme/x", False),
        ("*", "localhost:5000/x", True),
        ("docker.io/*", "localhost/x", False),
    ],
)
def test_images(pattern: str, image: str, allowed: bool) -> None:
    assert Grants(images=(pattern,)).allows_image(image) is allowed


@pytest.mark.parametrize(
    ("uri", "allowed"),
    [
        ("oci://ghcr.io/acme/weights:1", True),
        (f"oci://ghcr.io/acme/weights@sha256:{'0' * 64}", True),
        ("oci://registry.example/acme/weights:1", False),
        ("oci://ghcr.io/acme/../other/weights:1", False),
        ("oci://GHCR.io/acme/weights:1", False),
        ("oci://oci://ghcr.io/acme/weights:1", False),
    ],
)
def test_an_image_with_weights_is_an_image_too(uri: str, allowed: bool) -> None:
    policy = parse_policy("rules: [{images: ['ghcr.io/acme/*']}]")
    spec = {"model": {"source": "oci", "id": "a/b", "uri": uri}}
    found = violations(policy, spec, engine=None, provider=None, namespace_labels={NAMESPACE_NAME: "x"})
    assert [each.path for each in found] == ([] if allowed else ["spec.model.uri"])


def test_deny_by_default() -> None:
    policy = parse_policy("default: Deny\nrules: [{namespaceSelector: {matchLabels: {a: b}}, engines: [vllm]}]")
    found = violations(policy, {}, engine="vllm", provider="kaito", namespace_labels={NAMESPACE_NAME: "x"})
    assert [str(v) for v in found] == [
        "spec.provider.name: provider 'kaito' is not allowed in namespace 'x' (allowed by policy: none)",
        "spec.engine.type: engine 'vllm' is not allowed in namespace 'x' (allowed by policy: none)",
    ]
    assert violations(policy, {}, engine="vllm", provider="kaito", namespace_labels={"a": "b"}) == []


def test_a_policy_without_rules_allows_everything() -> None:
    assert parse_policy("{}") == parse_policy("rules: []") == Policy()
    assert parse_policy("{}").grants({}) == Grants()


def test_rules_that_match_no_namespace_are_found() -> None:
    policy = parse_policy(POLICY)
    assert policy.idle_rules([GOLD]) == [1]
    assert policy.idle_rules([]) == [0, 1, 2]
    assert str(policy) == "3 rules, default Allow"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the policy is empty: write {} for one that allows everything"),
        ("# nothing yet\n", "the policy is empty"),
        ("[", "the policy is not YAML: line 1, column 2"),
        ("rules: []\nrules: []\n", "the key rules is there twice"),
        ("rules: {}", "rules must be a list"),
        ("- a", "the policy must be an object"),
        ("rule: []", "the policy has the unknown key 'rule', did you mean rules?"),
        ("default: Refuse", "default must be Allow or Deny, not 'Refuse'"),
        ("rules: {a: b}\ndefault: 1", "default must be"),
        ("rules: {a: b}", "rules must be a list"),
        ("rules: [{engine: [a]}]", "rules[0] has the unknown key 'engine', did you mean engines?"),
        ("rules: [{engines: vllm}]", "rules[0].engines must be a list of texts"),
        ("rules: [{}, {images: [1]}]", "rules[1].images must be a list of texts"),
        ("rules: [{namespaceSelector: {matchLabels: {a: true}}}]", "matchLabels must map label names to texts"),
        ("rules: [{namespaceSelector: {matchExpressions: [{operator: In}]}}]", "key must be a label name"),
        ("rules: [{namespaceSelector: {matchExpressions: [{key: a, operator: Eq}]}}]", "operator must be one of In"),
        ("rules: [{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}]", "values must not be empty"),
        (
            "rules: [{namespaceSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}]",
            "values must be left out",
        ),
    ],
)
def test_a_mistake_is_named(text: str, problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text)
    assert problem in str(caught.value)


WORDS = st.sampled_from(["a", "b", "c", "a*", "*"])
LISTS = st.none() | st.lists(WORDS, max_size=3).map(tuple)
LABELS = st.dictionaries(st.sampled_from(["x", "y"]), st.sampled_from(["1", "2"]))
EXPRESSIONS = st.tuples(
    st.sampled_from(["x", "y"]), st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]), st.just(("1",))
)
RULES = st.builds(
    NamespaceRule,
    selector=st.builds(Selector, labels=LABELS, expressions=st.lists(EXPRESSIONS, max_size=2).map(tuple)),
    providers=LISTS,
    engines=LISTS,
    images=LISTS,
    gpu_types=LISTS,
)
POLICIES = st.builds(Policy, rules=st.lists(RULES, max_size=4).map(tuple), deny=st.booleans())


@given(POLICIES, RULES, LABELS, st.sampled_from(["a", "b", "c"]))
def test_one_more_rule_takes_nothing_away_that_another_rule_lists(
    policy: Policy, rule: NamespaceRule, labels: dict[str, str], provider: str
) -> None:
    before = policy.grants(labels)
    after = Policy(rules=(*policy.rules, rule), deny=policy.deny).grants(labels)
    if before.providers is not None and before.allows_provider(provider):
        assert after.allows_provider(provider)


@given(POLICIES, LABELS, st.randoms())
def test_the_order_of_rules_does_not_matter(policy: Policy, labels: dict[str, str], random: Any) -> None:
    rules = list(policy.rules)
    random.shuffle(rules)
    shuffled = Policy(rules=tuple(rules), deny=policy.deny)
    for name in ("a", "b", "c", "ab"):
        for question in ("allows_provider", "allows_engine", "allows_image", "allows_gpu_type"):
            assert getattr(policy.grants(labels), question)(name) == getattr(shuffled.grants(labels), question)(name)


@given(POLICIES, LABELS)
def test_a_rule_that_does_not_match_changes_nothing(policy: Policy, labels: dict[str, str]) -> None:
    never = Selector(labels={"never": "there"})
    more = Policy(rules=(*policy.rules, NamespaceRule(selector=never, providers=())), deny=policy.deny)
    assert more.grants(labels) == policy.grants(labels)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["image", "limits", "a/b", "provider", "overrides", "engine", "x"]), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@given(POLICIES, JSON, LABELS)
def test_any_spec_gets_a_verdict(policy: Policy, spec: Any, labels: dict[str, str]) -> None:
    found = violations(policy, spec, engine="a", provider="b", namespace_labels=labels)
    assert all(violation.path.startswith("spec.") for violation in found)


def test_what_a_namespace_may_have_at_a_gateway_is_listed_by_namespace() -> None:
    policy = parse_policy(
        "rules: [{pathPrefixes: ['/ml/{namespace}']}, "
        "{namespaceSelector: {matchLabels: {team: search}}, pathPrefixes: [/search], modelNames: [gpt-*]}]"
    )
    assert policy.grants({NAMESPACE_NAME: "other"}).uses == {"pathPrefixes": ("/ml/{namespace}",)}
    assert policy.grants(SEARCH).uses == {"pathPrefixes": ("/ml/{namespace}", "/search"), "modelNames": ("gpt-*",)}
    assert parse_policy("default: Deny").grants(SEARCH).uses["pathPrefixes"] == ()


def test_l3_annotations_of_routes_that_controllers_take_orders_from_are_refused_without_a_list() -> None:
    orders = ("external-dns.alpha.kubernetes.io/hostname", "konghq.com/plugins", "nginx.org/server-snippets")
    spec = {"gateway": {"annotations": {**dict.fromkeys(orders, "x"), "owner": "me", "app.kubernetes.io/part-of": "x"}}}
    found = judged(spec, {NAMESPACE_NAME: "other"})
    assert [line.partition(":")[0] for line in found] == [f"spec.gateway.annotations[{key}]" for key in orders]
    assert "annotation of the route 'konghq.com/plugins' is not allowed" in found[1]
    assert "only where the policy lists it under routeAnnotations" in found[1]
    of_config = {"routing": {"annotations": {"konghq.com/plugins": "x"}}}
    (told,) = config_violations(Grants(), of_config, namespace="other")
    assert told.path == "spec.routing.annotations[konghq.com/plugins]"
    listed = parse_policy("rules: [{routeAnnotations: [konghq.com/*]}]")
    assert config_violations(listed.grants({}), of_config, namespace="other") == []
