"""What admission says, by what it knows of the cluster: no API server is needed to see it wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from airunway.api import names
from airunway.configs.resolution import EffectiveConfig, resolve
from airunway.kube import ServerError
from airunway.resource import ObjectKey, Resource, dig
from airunway.selection.facts import ProviderFacts, UpstreamFacts, provider_facts
from airunway.templates.expansion import Expansion
from airunway.validation.policy import Policy, parse_policy
from airunway.webhook.admission import AccessReviewer, Admission, ReviewResult, User

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ADA = User(name="ada", extra={})


def provider(name: str, *, kind: str = "ConfigMap", rank: int = 0, **changes: Any) -> ProviderFacts:
    """One with vllm on GPUs and llamacpp on CPUs; a higher `rank` wins."""
    modes = ["aggregated"]
    config = {
        "metadata": {"name": name},
        "spec": {
            "selection": changes.pop("selection", "Automatic"),
            "capabilities": {
                "engines": [
                    {"name": "vllm", "servingModes": modes, "gpuSupport": True, "cpuSupport": False},
                    {"name": "llamacpp", "servingModes": modes, "gpuSupport": False, "cpuSupport": True},
                ]
            },
            "selectionRules": [{"condition": "true", "priority": rank}],
            "upstream": [{"group": "", "kind": kind, "versions": ["v1"], "requiresCRD": False}] if kind else [],
        },
        "status": {
            "ready": changes.pop("ready", True),
            "conditions": [
                {"type": "UpstreamInstalled", "status": "True" if changes.pop("installed", True) else "False"}
            ],
        },
    }
    assert not changes
    return provider_facts(config)


@dataclass
class Cluster:
    """What admission knows of one."""

    facts: Sequence[ProviderFacts] = ()
    selector: bool = True
    policy: Policy = field(default_factory=Policy)
    watched: Callable[[str], bool] = lambda _: True
    labels: Mapping[str, str] = field(default_factory=dict)
    trouble: Exception | None = None
    templates: Mapping[str, Resource] = field(default_factory=dict)
    """What each template gives, by its name."""

    def with_template(self, deployment: Resource) -> Expansion:
        named = dig(deployment, "spec", "templateRef", "name")
        if named is None:
            return Expansion(deployment=deployment)
        given = self.templates.get(named)
        if given is None:
            return Expansion(deployment=None, problem=f"spec.templateRef: there is no ModelTemplate {named}")
        spec = {key: value for key, value in deployment["spec"].items() if key != "templateRef"}
        return Expansion(deployment={**deployment, "spec": {**given, **spec}}, origin=f"ModelTemplate team/{named}")

    makes_routes: bool = False
    config: EffectiveConfig | None = None

    def config_of(self, deployment: Resource) -> EffectiveConfig | None:
        return self.config

    def watches(self, namespace: str) -> bool:
        return self.watched(namespace)

    def providers(self) -> Mapping[str, ProviderFacts]:
        return {facts.name: facts for facts in self.facts}

    async def labels_of(self, namespace: str) -> Mapping[str, str]:
        if self.trouble is not None:
            raise self.trouble
        return self.labels


class Rights:
    """Who may do what; `asked` are the questions."""

    def __init__(self, *denied: str) -> None:
        self.denied = denied
        self.asked: list[str] = []

    async def problem(self, user: User, upstream: UpstreamFacts, *, namespace: str, provider: str) -> str | None:
        self.asked.append(f"{user.name} {upstream.kind} {namespace} {provider}")
        return f"no {upstream.kind} for {user.name}" if upstream.kind in self.denied else None

    async def pods_problem(self, user: User, *, namespace: str) -> str | None:
        self.asked.append(f"{user.name} pods {namespace}")
        return f"no pods for {user.name}" if "pods" in self.denied else None

    async def routes_problem(self, user: User, *, namespace: str) -> str | None:
        self.asked.append(f"{user.name} routes {namespace}")
        return f"no routes for {user.name}" if "routes" in self.denied else None


def deployment(engine: str | None = "llamacpp", **spec: Any) -> Resource:
    engines = {} if engine is None else {"engine": {"type": engine}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "team"},
        "spec": {"model": {"id": "org/model"}, **engines, **spec},
    }


async def answer(
    cluster: Cluster, obj: Resource, *, old: Resource | None = None, rights: Rights | None = None, pods: bool = False
) -> ReviewResult:
    reviewer = cast("AccessReviewer", rights)
    admission = Admission(cluster, access=reviewer, pods=reviewer if pods else None, routes=reviewer)
    return await admission.review(obj, old=old, user=ADA)


def refusal_of(found: ReviewResult) -> tuple[int, str, list[tuple[str, str]]]:
    assert found.refusal is not None
    refusal = found.refusal
    return refusal.code, refusal.reason, [(cause.path, cause.reason) for cause in refusal.causes]


ACME = provider("acme")
BAD = {"resources": {"gpu": {"count": -1}}}


async def test_what_is_right_passes() -> None:
    assert await answer(Cluster([ACME]), deployment()) == ReviewResult()
    assert await answer(Cluster(), deployment()) == ReviewResult(), "a provider may be registered later"


async def test_what_the_object_alone_tells_is_refused_with_every_field() -> None:
    code, reason, causes = refusal_of(await answer(Cluster([ACME]), deployment("vllm")))
    assert (code, reason) == (422, "Invalid")
    assert causes == [("spec.resources.gpu.count", "FieldValueInvalid")]


async def test_other_namespaces_deletions_and_specs_that_stay_pass_whatever_is_in_them() -> None:
    bad = deployment("vllm")
    elsewhere = Cluster([ACME], watched=lambda namespace: namespace != "team")
    assert await answer(elsewhere, bad) == ReviewResult()
    assert (await answer(Cluster([ACME], watched=lambda namespace: namespace == "team"), bad)).refusal is not None
    deleted = {**bad, "metadata": {**bad["metadata"], "deletionTimestamp": "2026-11-21T12:00:00Z"}}
    assert await answer(Cluster([ACME]), deleted) == ReviewResult()
    labelled = {**bad, "metadata": {**bad["metadata"], "labels": {"a": "b"}}}
    assert await answer(Cluster([ACME]), labelled, old=bad) == ReviewResult()
    changed = deployment("vllm", model={"id": "org/other"})
    assert (await answer(Cluster([ACME]), changed, old=bad)).refusal is not None


@pytest.mark.parametrize("number", [1, 2**70])
async def test_specs_that_no_json_library_writes_are_compared_all_the_same(number: int) -> None:
    def nested(depth: int) -> Resource:
        node: Resource = {"x": number}
        for _ in range(depth):
            node = {"a": node}
        return deployment(provider={"overrides": node})

    elsewhere = Cluster()
    assert await answer(elsewhere, nested(300), old=nested(300)) == ReviewResult()
    assert (await answer(elsewhere, nested(300), old=nested(301))).refusal is not None
    code, _, _ = refusal_of(await answer(elsewhere, nested(100_000), old=nested(100_000)))
    assert code == 422, "deeper than can be compared: judged as new"


@pytest.mark.parametrize(
    ("facts", "name", "path", "reason", "text"),
    [
        ([ACME], "acne", "spec.provider.name", "FieldValueNotFound", "'acne' is not registered (registered: acme)"),
        ([provider("acme", installed=False)], "acme", "spec.provider.name", "FieldValueInvalid", "acme"),
    ],
    ids=["not registered", "not installed"],
)
async def test_a_provider_that_is_named_must_be_there(
    facts: list[ProviderFacts], name: str, path: str, reason: str, text: str
) -> None:
    found = await answer(Cluster(facts), deployment(provider={"name": name}))
    assert refusal_of(found) == (422, "Invalid", [(path, reason)])
    assert found.refusal is not None
    assert text in found.refusal.message
    assert await answer(Cluster(facts), deployment()) == ReviewResult(), "nobody named it"


async def test_a_provider_that_is_named_must_offer_the_engine() -> None:
    spec = {"provider": {"name": "acme"}, "resources": {"gpu": {"count": 1}}}
    code, reason, causes = refusal_of(await answer(Cluster([ACME]), deployment("sglang", **spec)))
    assert (code, reason) == (422, "Invalid")
    assert [path for path, _ in causes] == ["spec.engine.type"]
    assert (await answer(Cluster([ACME]), deployment("vllm", **spec))).refusal is None


async def test_a_deployment_with_a_template_is_judged_by_what_that_gives() -> None:
    asking = deployment(None, templateRef={"name": "fast"}, provider={"name": "acme"})
    del asking["spec"]["model"]
    gpu = {"model": {"id": "org/m"}, "resources": {"gpu": {"count": 1}}}
    assert (
        await answer(Cluster([ACME], templates={"fast": {**gpu, "engine": {"type": "vllm"}}}), asking)
    ).refusal is None
    found = await answer(Cluster([ACME], templates={"fast": {**gpu, "engine": {"type": "sglang"}}}), asking)
    assert refusal_of(found) == (422, "Invalid", [("spec.engine.type", "FieldValueInvalid")])
    assert found.refusal is not None
    assert found.refusal.message.endswith("(with ModelTemplate team/fast)"), "the user has not written that field"
    found = await answer(
        Cluster([ACME], templates={"fast": {"model": {"id": "org/m"}, "engine": {"type": "vllm"}}}), asking
    )
    assert found.refusal is not None
    assert "vLLM engine requires GPU" in found.refusal.message
    assert "(with ModelTemplate team/fast)" in found.refusal.message
    own = {**asking, "spec": {**asking["spec"], "provider": {"name": "acne"}}}
    found = await answer(Cluster([ACME], templates={"fast": {**gpu, "engine": {"type": "vllm"}}}), own)
    assert found.refusal is not None
    assert "ModelTemplate" not in found.refusal.message, "it is the user's own value"
    forbidden = "rules: [{images: ['good.example/*']}]"
    image = {**gpu, "engine": {"type": "vllm"}, "image": "bad.example/x"}
    found = await answer(Cluster([ACME], templates={"fast": image}, policy=policy(forbidden)), asking)
    assert refusal_of(found)[:2] == (403, "Forbidden")


async def test_while_a_template_is_not_known_only_what_the_deployment_says_itself_is_judged() -> None:
    asking = deployment(None, templateRef={"name": "fast"}, provider={"name": "acme"})
    del asking["spec"]["model"]
    found = await answer(Cluster([ACME]), asking)
    assert found.refusal is None
    assert found.warnings == (
        "spec.templateRef: there is no ModelTemplate fast. The deployment is stored all the same",
    )
    missing = {**asking, "spec": {**asking["spec"], "provider": {"name": "acne"}}}
    assert refusal_of(await answer(Cluster([ACME]), missing))[2] == [("spec.provider.name", "FieldValueNotFound")]
    free = {**asking, "spec": {"templateRef": {"name": "fast"}}}
    rights = Rights("ConfigMap")
    assert refusal_of(await answer(Cluster([ACME]), free, rights=rights))[:2] == (403, "Forbidden")


async def test_a_provider_that_is_not_ready_is_a_warning() -> None:
    found = await answer(Cluster([provider("acme", ready=False)]), deployment(provider={"name": "acme"}))
    assert found.refusal is None
    assert found.warnings == ("provider 'acme' is registered but not ready: the deployment waits until it is",)
    assert (await answer(Cluster([ACME]), deployment(provider={"name": "acme"}))).warnings == ()
    old = {**deployment(), "status": {"provider": {"name": "acme"}}}
    moved = await answer(Cluster([provider("acme", ready=False)]), deployment(image="a/b"), old=old)
    assert len(moved.warnings) == 1, "also of the one that it has"


# -------------------------------------------------------------------------------------------------------- the policy


def policy(text: str) -> Policy:
    return parse_policy(text)


async def test_what_the_policy_denies_is_forbidden_not_invalid() -> None:
    strict = Cluster([ACME], policy=policy("rules: [{images: ['ghcr.io/acme/*']}]"))
    code, reason, causes = refusal_of(await answer(strict, deployment(image="docker.io/x/y")))
    assert (code, reason, [path for path, _ in causes]) == (403, "Forbidden", ["spec.image"])
    assert await answer(strict, deployment(image="ghcr.io/acme/y:1")) == ReviewResult()
    # Beside something that is wrong with the object it is one cause more of that.
    both = deployment(image="docker.io/x/y", provider={"name": "nobody"})
    code, reason, causes = refusal_of(await answer(strict, both))
    assert (code, reason) == (422, "Invalid")
    assert {path for path, _ in causes} == {"spec.provider.name", "spec.image"}


async def test_the_policy_goes_by_the_labels_of_the_namespace() -> None:
    rules = policy("rules: [{namespaceSelector: {matchLabels: {team: a}}, images: []}]")
    assert (await answer(Cluster(policy=rules, labels={"team": "b"}), deployment(image="a/b"))).refusal is None
    assert (await answer(Cluster(policy=rules, labels={"team": "a"}), deployment(image="a/b"))).refusal is not None


async def test_the_provider_that_a_deployment_has_is_held_to_the_policy_too() -> None:
    rules = Cluster([ACME, provider("other")], policy=policy("rules: [{providers: [other]}]"))
    old = {**deployment(), "status": {"provider": {"name": "acme"}}}
    code, _, _ = refusal_of(await answer(rules, deployment(image="a/b"), old=old))
    assert code == 403
    assert (await answer(rules, deployment(image="a/b"), old=deployment())).refusal is None
    named = deployment(image="a/b", provider={"name": "other"})
    assert (await answer(rules, named, old=old)).refusal is None, "the spec's word comes first"


# -------------------------------------------------------------------------------------------------- the user's rights


async def test_the_user_is_asked_about_the_provider_that_is_named() -> None:
    rights, cluster = Rights(), Cluster([ACME, provider("big", kind="Secret", rank=9)])
    assert await answer(cluster, deployment(provider={"name": "acme"}), rights=rights) == ReviewResult()
    assert rights.asked == ["ada ConfigMap team acme"]
    found = await answer(cluster, deployment(provider={"name": "acme"}), rights=Rights("ConfigMap"))
    assert refusal_of(found) == (403, "Forbidden", [("spec.provider.name", "FieldValueForbidden")])
    assert found.refusal is not None
    assert "no ConfigMap for ada" in found.refusal.message


async def test_else_about_the_one_that_made_something_of_it() -> None:
    cluster = Cluster([ACME, provider("big", kind="Secret", rank=9)])
    made = {"provider": {"name": "acme", "resourceName": "llama"}}
    rights = Rights()
    await answer(cluster, deployment(image="a/b"), old={**deployment(), "status": made}, rights=rights)
    assert rights.asked == ["ada ConfigMap team acme"]


@pytest.mark.parametrize(
    ("old", "asked"),
    [
        (None, ["ConfigMap", "Secret"]),
        ({}, ["ConfigMap", "Secret"]),
        ({"provider": {"name": "big"}}, ["Secret", "ConfigMap"]),
        ({"provider": {"name": "explicit"}}, ["Pod", "ConfigMap", "Secret"]),
        ({"provider": {"name": "gone", "resourceName": "llama"}}, ["ConfigMap", "Secret"]),
    ],
    ids=["new", "none selected", "selected", "selected by name, no longer named", "its provider is gone"],
)
async def test_while_nothing_is_made_about_each_that_may_come_after_a_refusal(
    old: Resource | None, asked: list[str]
) -> None:
    """A user who may not use the second would get it by a spec that the first refuses."""
    cluster = Cluster([ACME, provider("big", kind="Secret", rank=9), EXPLICIT])
    before = None if old is None else {**deployment(provider={"name": "explicit"}), "status": old}
    for spec in (deployment(image="a/b"), deployment(None, image="a/b")):
        rights = Rights()
        assert await answer(cluster, spec, old=before, rights=rights) == ReviewResult()
        assert [question.split()[1] for question in rights.asked] == asked
        assert (await answer(cluster, spec, old=before, rights=Rights("ConfigMap"))).refusal is not None


async def test_a_finalizer_that_a_user_sets_does_not_settle_a_deployment() -> None:
    """She names a provider that she may use, sets a finalizer, takes the name out, and then the finalizer."""
    cluster = Cluster([ACME, provider("big", kind="Secret", rank=9)])
    before = {**deployment(provider={"name": "acme"}), "status": {"provider": {"name": "acme"}}}
    before["metadata"]["finalizers"] = [names.provider_finalizer("zzz")]
    rights = Rights()
    await answer(cluster, deployment(image="a/b"), old=before, rights=rights)
    assert [question.split()[1] for question in rights.asked] == ["ConfigMap", "Secret"]


async def test_a_finalizer_of_a_new_deployment_is_judged_as_the_name_of_its_provider() -> None:
    """A restored deployment keeps the provider whose finalizer it has; so would one that a user gives a finalizer."""
    cluster = Cluster([ACME, EXPLICIT], policy=policy("rules: [{providers: [acme, explicit]}]"))
    forged = deployment(image="a/b")
    forged["metadata"]["finalizers"] = [names.provider_finalizer("explicit")]
    rights = Rights()
    assert await answer(cluster, forged, rights=rights) == ReviewResult()
    assert {question.split()[1] for question in rights.asked} == {"Pod", "ConfigMap"}
    assert (await answer(cluster, forged, rights=Rights("Pod"))).refusal is not None
    cluster = Cluster([ACME, EXPLICIT], policy=policy("rules: [{providers: [acme]}]"))
    assert refusal_of(await answer(cluster, forged))[0] == 403


@pytest.mark.parametrize(
    ("status", "before", "after", "asked"),
    [
        pytest.param({}, [], ["explicit"], ["Pod"], id="none is chosen yet"),
        pytest.param({"provider": {"name": "acme"}}, ["acme"], ["acme", "explicit"], ["Pod"], id="another is chosen"),
        pytest.param({"provider": {"name": "explicit"}}, [], ["explicit"], [], id="as its provider does"),
        pytest.param({}, ["explicit"], ["explicit", "acme"], ["ConfigMap"], id="one more"),
        pytest.param({}, ["acme", "explicit"], ["explicit"], [], id="one less"),
    ],
)
async def test_a_finalizer_that_comes_later_is_judged_unless_its_provider_is_chosen(
    status: Resource, before: list[str], after: list[str], asked: list[str]
) -> None:
    def held(by: list[str]) -> Resource:
        obj = {**deployment(), "status": status}
        return {**obj, "metadata": {**obj["metadata"], "finalizers": [names.provider_finalizer(each) for each in by]}}

    cluster, rights = Cluster([ACME, EXPLICIT]), Rights()
    assert await answer(cluster, held(after), old=held(before), rights=rights) == ReviewResult()
    assert [question.split()[1] for question in rights.asked] == asked
    denied = await answer(cluster, held(after), old=held(before), rights=Rights("Pod", "ConfigMap"))
    assert [cause.path for cause in (denied.refusal.causes if denied.refusal else ())] == ["metadata.finalizers"][
        : len(asked)
    ]


async def test_two_finalizers_of_a_new_deployment_are_both_judged() -> None:
    """One of them can be taken off without a review. The rights on a provider that nobody knows cannot be checked."""
    cluster, forged = Cluster([ACME, EXPLICIT]), deployment()
    for other, denied in (("explicit", "Pod"), ("unknown", "")):
        forged["metadata"]["finalizers"] = [names.provider_finalizer(each) for each in ("acme", other)]
        found = await answer(cluster, forged, rights=Rights(denied))
        assert refusal_of(found) == (403, "Forbidden", [("metadata.finalizers", "FieldValueForbidden")])


async def test_a_provider_without_its_upstream_is_not_asked_about_unless_there_is_no_other() -> None:
    away = provider("big", kind="Secret", rank=9, installed=False)
    for providers, asked in (([ACME, away], ["ConfigMap"]), ([away], ["Secret"])):
        rights = Rights()
        await answer(Cluster(providers), deployment(), rights=rights)
        assert [question.split()[1] for question in rights.asked] == asked


PAUSED = {"annotations": {names.PAUSED: "true"}}
EXPLICIT = provider("explicit", kind="Pod", selection="Explicit")


@pytest.mark.parametrize(
    ("cluster", "metadata", "kinds"),
    [
        pytest.param(Cluster([ACME, provider("b", kind="Secret")]), PAUSED, ["ConfigMap", "Secret"], id="put off"),
        pytest.param(
            Cluster([ACME, provider("b", kind="Secret")], selector=False), {}, ["ConfigMap", "Secret"], id="no selector"
        ),
        pytest.param(
            Cluster([provider("a", ready=False), provider("b", kind="Secret", ready=False)]),
            {},
            ["ConfigMap", "Secret"],
            id="none ready",
        ),
        pytest.param(Cluster([ACME, EXPLICIT]), PAUSED, ["ConfigMap"], id="one is taken by name only"),
        pytest.param(Cluster([ACME, EXPLICIT], selector=False), {}, ["ConfigMap", "Pod"], id="somebody else selects"),
        pytest.param(Cluster([provider("a", kind=""), ACME]), PAUSED, ["ConfigMap"], id="one makes nothing"),
        pytest.param(
            Cluster([ACME, provider("b", kind="Secret")], policy=policy("rules: [{providers: [b]}]")),
            PAUSED,
            ["Secret"],
            id="one is denied",
        ),
    ],
)
async def test_without_a_name_all_count_that_may_be_chosen(
    cluster: Cluster, metadata: Resource, kinds: list[str]
) -> None:
    obj = deployment()
    obj["metadata"] |= metadata
    rights = Rights()
    assert (await answer(cluster, obj, rights=rights)).refusal is None
    assert [asked.split()[1] for asked in rights.asked] == kinds
    assert (await answer(cluster, obj, rights=Rights(kinds[-1]))).refusal is not None, "each of them"


async def test_who_does_not_offer_it_is_not_asked_about() -> None:
    obj = deployment("sglang", resources={"gpu": {"count": 1}})
    rights = Rights()
    await answer(Cluster([ACME], selector=False), obj, rights=rights)
    assert rights.asked == []


async def test_pods_are_asked_about_first_where_that_is_on() -> None:
    found = await answer(Cluster([ACME]), deployment(), rights=(rights := Rights("pods")), pods=True)
    assert refusal_of(found) == (403, "Forbidden", [("spec", "FieldValueForbidden")])
    assert rights.asked == ["ada pods team"]
    rights = Rights()
    assert await answer(Cluster([ACME]), deployment(), rights=rights, pods=True) == ReviewResult()
    assert rights.asked == ["ada pods team", "ada ConfigMap team acme"]


async def test_no_right_is_asked_about_for_what_is_wrong_anyway() -> None:
    rights = Rights()
    await answer(Cluster([ACME]), deployment("vllm"), rights=rights, pods=True)
    await answer(Cluster([ACME]), deployment(provider={"name": "nobody"}), rights=rights, pods=True)
    assert rights.asked == []


async def test_without_an_answer_of_the_api_server_nothing_passes_and_that_is_no_refusal() -> None:
    old = deployment(provider={"name": "acme"})
    cluster = Cluster([ACME], trouble=ServerError(503, message="etcd is away"))
    found = await answer(cluster, deployment(image="a/b"), old=old)
    code, reason, causes = refusal_of(found)
    assert (code, reason, causes) == (500, "InternalError", [])
    assert found.refusal is not None
    assert "etcd is away" in found.refusal.message


# --------------------------------------------------------------------------------------------------------- the words


@pytest.mark.parametrize(
    ("spec", "strict", "begins"),
    [
        ({"provider": {"name": "nobody"}}, "", 'ModelDeployment.airunway.ai "llama" is invalid: spec.provider.name: '),
        ({"image": "a/b"}, "rules: [{images: []}]", 'modeldeployments.airunway.ai "llama" is forbidden: spec.image: '),
    ],
)
async def test_the_words_are_those_of_an_api_server(spec: Resource, strict: str, begins: str) -> None:
    found = await answer(Cluster(policy=policy(strict) if strict else Policy()), deployment(**spec))
    assert found.refusal is not None
    status = found.refusal.status(ObjectKey("team", "llama"))
    assert status["message"].startswith(begins)
    assert (status["status"], status["code"], status["reason"]) == ("Failure", found.refusal.code, found.refusal.reason)
    details = status["details"]
    assert (details["group"], details["kind"], details["name"]) == ("airunway.ai", "ModelDeployment", "llama")
    assert [set(cause) for cause in details["causes"]] == [{"reason", "field", "message"}]


async def test_large_objects_are_judged_aside() -> None:
    """Whatever takes longer with size goes through `run`: comparing, and judging the object by itself."""
    ran: list[str] = []

    async def run(function: Callable[..., Any], *args: Any) -> Any:
        ran.append(function.__name__)
        return function(*args)

    admission = Admission(Cluster([ACME]), access=None)
    await admission.review(deployment(), old=None, user=ADA, run=run)
    assert ran == ["_new_holders", "_alone"]
    ran.clear()
    await admission.review(deployment(image="a/b"), old=deployment(), user=ADA, run=run)
    assert ran == ["_same_spec", "_new_holders", "_alone"]


@pytest.mark.parametrize(
    "gateway",
    [{"enabled": True}, {"pathTemplate": "/ml/a"}, {"modelName": "gpt"}],
    ids=["enabled", "a path", "a name"],
)
async def test_c1_a_user_who_may_not_create_routes_may_not_ask_for_one(gateway: Resource) -> None:
    """The core writes routes with its own right, which the user lacks."""
    asks = deployment(gateway=gateway)
    found = await answer(Cluster([ACME], makes_routes=True), asks, rights=Rights("routes"))
    assert refusal_of(found) == (403, "Forbidden", [("spec.gateway", "FieldValueForbidden")])
    assert await answer(Cluster([ACME], makes_routes=True), asks, rights=Rights()) == ReviewResult()
    assert await answer(Cluster([ACME]), asks, rights=Rights("routes")) == ReviewResult(), "nothing makes routes"


async def test_who_asks_for_no_route_or_for_none_that_is_new_needs_no_right_to_routes() -> None:
    cluster, rights = Cluster([ACME], makes_routes=True), Rights("routes")
    for quiet in ({}, {"enabled": False, "pathTemplate": "/ml/a"}, {"enabled": True, "httpRouteRef": "mine"}):
        assert await answer(cluster, deployment(gateway=quiet), rights=rights) == ReviewResult()
    before = deployment(gateway={"enabled": True})
    scaled = deployment(gateway={"enabled": True}, scaling={"replicas": 2})
    assert await answer(cluster, scaled, old=before, rights=rights) == ReviewResult()
    moved = deployment(gateway={"enabled": True, "pathTemplate": "/ml/b"})
    assert (await answer(cluster, moved, old=before, rights=rights)).refusal is not None


async def test_a_config_of_the_namespace_asks_for_its_users_and_one_of_the_cluster_for_its_administrator() -> None:
    routed = {"metadata": {"name": "default", "namespace": "team"}, "spec": {"routing": {"enabled": True}}}
    own = resolve("default", namespaced=routed, cluster=None).config
    theirs = resolve("default", namespaced=None, cluster=routed).config
    refused = await answer(Cluster([ACME], makes_routes=True, config=own), deployment(), rights=Rights("routes"))
    assert refused.refusal is not None
    granted = await answer(Cluster([ACME], makes_routes=True, config=theirs), deployment(), rights=Rights("routes"))
    assert granted == ReviewResult()
