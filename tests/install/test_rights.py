"""What the charts grant is what the code's own functions say, for every combination that changes it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from tests.install.helm import NAMESPACE, Helm, Major
from tools.charts.generate import manifests
from tools.charts.package import UNRELEASED

from airunway import __version__
from airunway.api import names
from airunway.doctor.checks_accounts import difference
from airunway.plugins.registry import load
from airunway.rbac.admission_policies import (
    core_guard,
    gateway_guard,
    model_cache_guard,
    provider_guard,
    status_guard,
)
from airunway.rbac.policy_rules import repository_of
from airunway.rbac.rights import (
    Rights,
    core_rights,
    gateway_rights,
    leader_election_rights,
    model_cache_rights,
    picker_role,
    provider_rights,
    roles,
    webhook_rights,
)
from airunway.resource import Resource, canonical_json
from airunway.webhook import webhook_settings
from airunway.webhook.configuration import configuration_object
from airunway_catalogue.rights import ADD_ON

pytestmark = pytest.mark.chart

WATCHED = ["team-b", "team-a", NAMESPACE]
PROVIDERS = [manifest.name for manifest in manifests()]


def granted(objects: Sequence[Resource]) -> dict[str, set[bytes]]:
    """The rules that roles with a binding grant, by where they hold (the empty text: everywhere)."""
    found: dict[str, set[bytes]] = {}
    by_name = {(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"]): obj for obj in objects}
    for (kind, namespace, _), binding in by_name.items():
        if kind in ("RoleBinding", "ClusterRoleBinding"):
            (subject,) = binding["subjects"]
            assert subject["namespace"] == NAMESPACE
            role = by_name[(binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"])]
            found.setdefault(namespace or "", set()).update(
                canonical_json({key: sorted(value) for key, value in rule.items()}) for rule in role["rules"]
            )
    return found


def wanted(rights: Rights, watched: Sequence[str]) -> dict[str, set[bytes]]:
    subject = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "anybody"}
    return granted(roles(rights, name="wanted", namespace=NAMESPACE, subject=subject, watched=watched))


def options(watched: Sequence[str]) -> list[str]:
    return [f"--set=watchNamespaces={{{','.join(watched)}}}"] if watched else []


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize("watched", [[], WATCHED], ids=["everywhere", "namespaces"])
def test_a_provider_is_granted_its_rights(helms: dict[Major, Helm], name: str, watched: list[str]) -> None:
    objects = helms[4].render(f"airunway-provider-{name}", *options(watched))
    assert granted(objects) == wanted(provider_rights(load(name).manifest), watched)


@pytest.mark.parametrize("watched", [[], WATCHED], ids=["everywhere", "namespaces"])
@pytest.mark.slow
def test_the_core_is_granted_the_rights_of_what_is_switched_on(helms: dict[Major, Helm], watched: list[str]) -> None:
    switches = [(*each, each[-1]) for each in product([True, False], repeat=5)] + [
        (True,) * 5 + (False,),
        (False,) * 5 + (True,),
    ]
    for webhook, review, pods, policy, gateway, cache in switches:
        values = [
            *options(watched),
            f"--set=webhook.enabled={str(webhook).lower()}",
            f"--set=webhook.accessReview={str(review).lower()}",
            f"--set=webhook.accessReviewPods={str(pods).lower()}",
            f"--set-string=gateway.mode={'auto' if gateway else 'off'}",
            f"--set=modelCache.enabled={str(cache).lower()}",
            *(["--set=policy.default=Deny"] if policy else []),
        ]
        rights = core_rights(policy=policy, namespaces=watched) + leader_election_rights(names.CORE_MANAGER)
        if webhook:
            settings = webhook_settings(
                bind_address=":9443",
                service="any",
                configuration=f"airunway-controller-{NAMESPACE}",
                access_review=review,
                access_review_pods=pods,
            )
            assert settings is not None
            rights += webhook_rights(settings)
        if gateway:
            rights += gateway_rights()
        if cache:
            rights += model_cache_rights()
        assert granted(helms[4].render("airunway", *values)) == wanted(rights, watched), values


def bare(objects: Sequence[Resource], kind: str) -> dict[str, Resource]:
    return {obj["metadata"]["name"]: obj["spec"] for obj in objects if obj["kind"].startswith(kind)}


def guards(objects: Sequence[Resource]) -> dict[str, list[Resource]]:
    found: dict[str, list[Resource]] = {}
    for obj in objects:
        if obj["kind"].startswith("ValidatingAdmissionPolicy"):
            found.setdefault(obj["metadata"]["name"], []).append(obj["spec"])
    return found


@pytest.mark.parametrize("core", ["", "core-s"])
@pytest.mark.parametrize("watched", [[], WATCHED], ids=["everywhere", "namespaces"])
@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_is_kept_to_what_is_its_own(
    helms: dict[Major, Helm], name: str, watched: list[str], core: str
) -> None:
    manifest = load(name).manifest
    account = f"system:serviceaccount:{NAMESPACE}:somebody"
    values = [*options(watched), "--set=serviceAccount.name=somebody", f"--set=guard.coreNamespace={core}"]
    objects = helms[4].render(f"airunway-provider-{name}", *values)
    name_of = f"airunway-provider-{name}-{NAMESPACE}-guard"
    expected = provider_guard(
        manifest, account, own=NAMESPACE, core=core or NAMESPACE, namespaces=watched, name=name_of
    )
    assert guards(objects) == guards(expected)
    assert not guards(helms[4].render(f"airunway-provider-{name}", "--set=guard.enabled=false"))


@pytest.mark.parametrize("watched", [[], WATCHED], ids=["everywhere", "namespaces"])
def test_rights_and_guard_of_the_catalogue_are_those_that_doctor_expects(
    helms: dict[Major, Helm], watched: list[str]
) -> None:
    account, name = f"system:serviceaccount:{NAMESPACE}:airunway-catalogue", f"airunway-catalogue-{NAMESPACE}-guard"
    objects = helms[4].render("airunway-catalogue", *options(watched))
    assert guards(objects) == guards(ADD_ON.guard(account, own=NAMESPACE, namespaces=watched, name=name))
    there = granted(objects)
    assert all(rules <= there[where] for where, rules in wanted(ADD_ON.rights, watched).items())


@pytest.mark.parametrize("watched", [[], WATCHED], ids=["everywhere", "namespaces"])
def test_the_core_and_the_status_are_kept(helms: dict[Major, Helm], watched: list[str]) -> None:
    account, name = f"system:serviceaccount:{NAMESPACE}:airunway-controller", f"airunway-controller-{NAMESPACE}-guard"
    expected = [
        *core_guard(account, name=name),
        *status_guard([], accounts_of=NAMESPACE, namespaces=watched, name=name),
    ]
    off = [*options(watched), "--set-string=gateway.mode=off", "--set=modelCache.enabled=false"]
    assert guards(helms[4].render("airunway", *off)) == guards(expected)
    expected += gateway_guard(account, own=NAMESPACE, namespaces=watched, name=name)
    images = [f"{UNRELEASED}/airunway/model-downloader"]
    expected += model_cache_guard(account, own=NAMESPACE, namespaces=watched, images=images, name=name)
    assert guards(helms[4].render("airunway", *options(watched))) == guards(expected)


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("ghcr.io/x/epp:v0.10.0", "ghcr.io/x/epp"),
        ("registry:5000/x/epp", "registry:5000/x/epp"),
        (f"registry:5000/epp:v1@sha256:{'0' * 64}", "registry:5000/epp"),
    ],
)
def test_the_guard_knows_the_images_of_endpoint_pickers(helms: dict[Major, Helm], image: str, repository: str) -> None:
    assert repository_of(image) == repository
    account, name = f"system:serviceaccount:{NAMESPACE}:airunway-controller", f"airunway-controller-{NAMESPACE}-guard"
    values = [f"--set-string=endpointPicker.image={image}", "--set=endpointPicker.images={a.io/b}"]
    made = gateway_guard(account, own=NAMESPACE, images=["a.io/b", repository], name=name)
    rendered = helms[4].render("airunway", *options([]), *values)
    found = [obj for obj in rendered if obj["metadata"]["name"] == f"{name}-gateway"]
    assert guards(found) == guards(made)
    # Doctor knows only the image of the process: what the chart lists in addition is no difference.
    expected = gateway_guard(account, own=NAMESPACE, images=[repository], name=name)
    live = next(obj for obj in found if obj["kind"] == "ValidatingAdmissionPolicy")
    assert difference(expected[0], live) == ""
    other = gateway_guard(account, own=NAMESPACE, images=["evil.io/epp"], name=name)
    assert "variables" in difference(other[0], live)


@pytest.mark.parametrize(
    ("values", "image"),
    [
        (["image.registry=a.io/x"], f"a.io/x/airunway/model-downloader:{__version__}"),
        (
            ["image.registry=a.io", "modelCache.image.registry=b.io:5000"],
            f"b.io:5000/airunway/model-downloader:{__version__}",
        ),
        (["global.imageRegistry=m.io", "modelCache.image.tag=v2"], "m.io/airunway/model-downloader:v2"),
        (
            [f"modelCache.image.digest=sha256:{'0' * 64}", "global.imageRegistry=m.io"],
            f"m.io/airunway/model-downloader@sha256:{'0' * 64}",
        ),
    ],
    ids=["beside the core", "of its own", "mirrored", "by digest"],
)
def test_the_guard_knows_the_image_of_download_jobs(helms: dict[Major, Helm], values: list[str], image: str) -> None:
    account, name = f"system:serviceaccount:{NAMESPACE}:airunway-controller", f"airunway-controller-{NAMESPACE}-guard"
    chosen = [*(f"--set-string={value}" for value in values), "--set=modelCache.images={a.io/other}"]
    rendered = helms[4].render("airunway", *chosen)
    (args,) = [
        obj["spec"]["template"]["spec"]["containers"][0]["args"] for obj in rendered if obj["kind"] == "Deployment"
    ]
    assert {f"--downloader-image={image}", "--max-downloads=10"} <= set(args)
    found = [obj for obj in rendered if obj["metadata"]["name"] == f"{name}-model-cache"]
    images = ["a.io/other", repository_of(image)]
    made = model_cache_guard(account, own=NAMESPACE, images=images, name=name)
    assert guards(found) == guards(made[:2])
    expected = model_cache_guard(account, own=NAMESPACE, images=images[1:], name=name)
    live = next(obj for obj in found if obj["kind"] == "ValidatingAdmissionPolicy")
    assert difference(expected[0], live) == ""


@pytest.mark.parametrize(
    ("values", "there"),
    [
        ([], True),
        (["--set-string=gateway.mode=off"], False),
        (["--set=endpointPicker.createClusterRole=false"], False),
        (["--set=rbac.create=false"], False),
    ],
    ids=["by default", "part off", "left to another", "no roles"],
)
def test_endpoint_pickers_have_one_role_of_a_fixed_name(
    helms: dict[Major, Helm], values: list[str], there: bool
) -> None:
    objects = helms[4].render("airunway", *values)
    found = [obj for obj in objects if obj["metadata"]["name"] == names.ENDPOINT_PICKER_ROLE]
    assert [obj["rules"] for obj in found] == [picker_role()["rules"]] * there
    assert all(obj["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for obj in found)


def test_users_read_configs_and_edit_those_of_their_namespace(helms: dict[Major, Helm]) -> None:
    roles_ = {obj["metadata"]["name"]: obj for obj in helms[4].render("airunway") if obj["kind"] == "ClusterRole"}
    allowed = {
        suffix: {
            (verb, resource)
            for rule in roles_[f"airunway-controller-{NAMESPACE}-{suffix}"]["rules"]
            for verb in rule["verbs"]
            for resource in rule["resources"]
        }
        for suffix in ("view", "edit")
    }
    assert {("get", "runtimeconfigs"), ("get", "clusterruntimeconfigs")} <= allowed["view"]
    assert {("patch", "runtimeconfigs"), ("patch", "modelartifacts")} <= allowed["edit"]
    assert ("get", "modelartifacts") in allowed["view"]
    assert "modelartifacts/status" not in {resource for _, resource in allowed["edit"]}
    assert "clusterruntimeconfigs" not in {resource for _, resource in allowed["edit"]}


def test_who_else_may_write_the_status_is_a_further_condition(helms: dict[Major, Helm]) -> None:
    objects = helms[4].render("airunway", '--set-json=guard.statusWriters=["it\'s\\\\me"]')
    policy, _ = guards(objects)[f"airunway-controller-{NAMESPACE}-guard-status"]
    assert policy["matchConditions"][1]["expression"] == r"!(request.userInfo.username in ['it\'s\\me'])"


@pytest.mark.parametrize("watched", [[], WATCHED], ids=["everywhere", "namespaces"])
@pytest.mark.parametrize("url", ["", "https://webhook.example:9443"])
def test_the_webhook_is_configured_as_the_core_would_do_it_itself(
    helms: dict[Major, Helm], watched: list[str], url: str
) -> None:
    settings = webhook_settings(
        bind_address=":9443", url=url, service="" if url else f"airunway-controller-webhook.{NAMESPACE}"
    )
    assert settings is not None
    (expected,) = configuration_object(settings, bundle=b"", namespaces=watched)["webhooks"]
    del expected["clientConfig"]["caBundle"]
    objects = helms[4].render("airunway", *options(watched), f"--set=webhook.url={url}")
    (configuration,) = [obj for obj in objects if obj["kind"] == "ValidatingWebhookConfiguration"]
    assert configuration["webhooks"] == [expected]
