"""Checks for what cannot be done to a real API server: a snapshot in, findings out. And that no check goes untested."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway import __version__
from airunway.api.crds import custom_resource_definitions
from airunway.cli.doctor import _add_ons
from airunway.doctor import CHECKS, Snapshot, run_checks
from airunway.doctor.checks_accounts import expected_guards, expected_rights, shuts_out
from airunway.doctor.checks_processes import rivals
from airunway.doctor.findings import AREAS
from airunway.doctor.report import document, lines
from airunway.doctor.snapshot import ProcessDeployment, Right, SeenPolicyFile, components_in
from airunway.process.effective_settings import ANNOTATION, PART_OF, EffectiveSettings, published_in
from airunway.rbac.admission_policies import status_guard
from airunway.rbac.rights import ADD_ONS, AddOn, Rights
from airunway.resource import ObjectKey, Resource, copy_of, format_time, key_of
from airunway.unseen import Unseen
from airunway.webhook.certificates import AUTHORITY_LIFETIME, new_authority
from airunway.webhook.configuration import CONFIGURATION, configuration_object, webhook_settings

NOW = datetime(2026, 9, 1, 12, tzinfo=UTC)
EMPTY = Snapshot(server="https://cluster", kubernetes=(1, 34), now=NOW, namespace="airunway-system", plugins={})
CORE = ProcessDeployment(
    key=ObjectKey("airunway-system", "core"),
    core=True,
    available=1,
    options={"webhook-bind-address": ":9443", "webhook-service": "hook"},
)


def newer_definitions() -> dict[str, Resource]:
    found = {key_of(crd).name: copy_of(crd) for crd in custom_resource_definitions()}
    for crd in found.values():
        crd["status"] = {"conditions": [{"type": "Established", "status": "True"}], "storedVersions": ["v1alpha1"]}
    schema = found["modeldeployments.airunway.ai"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["colour"] = {"type": "string"}
    return found


def configuration(*, age: timedelta) -> dict[str, Resource]:
    settings = webhook_settings(bind_address=":9443", service="hook")
    assert settings is not None
    bundle = new_authority(now=NOW - age, hosts=settings.hosts).authority
    return {CONFIGURATION: configuration_object(settings, bundle=bundle)}


def provider(**engine: bool) -> Resource:
    return {
        "metadata": {"name": "p"},
        "spec": {"capabilities": {"engines": [{"name": "vllm", **engine}]}},
        "status": {"ready": True, "lastHeartbeat": format_time(NOW)},
    }


def held(*, seconds: int) -> Resource:
    since = format_time(NOW - timedelta(seconds=seconds))
    metadata = {"namespace": "ml", "name": "gone", "deletionTimestamp": since, "finalizers": ["corp.example/hold"]}
    return {"metadata": metadata}


def leaving(*, seconds: int) -> Resource:
    since = format_time(NOW - timedelta(seconds=seconds))
    metadata = {"namespace": "ml", "name": "old", "deletionTimestamp": since}
    return {"metadata": {**metadata, "finalizers": ["airunway.ai/gone-provider", "airunway.ai/p-provider"]}}


CASES: dict[str, tuple[Snapshot, str]] = {
    "ARW0101": (replace(EMPTY, kubernetes=(1, 29)), "It runs Kubernetes 1.29."),
    "ARW0106": (replace(EMPTY, definitions=newer_definitions()), f"spec.colour, which airunway {__version__}"),
    "ARW0108": (replace(EMPTY, ahead=timedelta(seconds=-90)), "Its clock is 90 s behind this machine's."),
    "ARW0303": (
        replace(EMPTY, components=(CORE,), configurations=configuration(age=AUTHORITY_LIFETIME + timedelta(days=1))),
        "Every certificate in its caBundle ended by 2026-08-31.",
    ),
    "ARW0304": (
        replace(EMPTY, components=(CORE,), configurations=configuration(age=AUTHORITY_LIFETIME - timedelta(days=30))),
        "Its caBundle ends on 2026-10-01.",
    ),
    "ARW0701": (
        replace(EMPTY, nodes=({"metadata": {"name": "a"}},), providers=(provider(gpuSupport=True),)),
        "None of 1 nodes has one to allocate.",
    ),
    "ARW0803": (
        replace(EMPTY, deployments=(held(seconds=61),), artifacts=()),
        "Its deletion was asked for at 2026-09-01 11:58Z, and corp.example/hold holds it.",
    ),
    "ARW0802": (
        replace(EMPTY, deployments=(leaving(seconds=301),), providers=(provider(cpuSupport=True),)),
        "It waits for gone since 2026-09-01 11:54Z.",
    ),
}
"""Code → a snapshot on which nothing but it is found, and what is said."""


@pytest.mark.parametrize("code", CASES)
def test_what_no_test_can_do_to_an_api_server_is_found_too(code: str) -> None:
    snapshot, says = CASES[code]
    found = run_checks(snapshot).findings
    assert [finding.code for finding in found] == [code]
    assert says in found[0].what


@pytest.mark.parametrize(
    "snapshot",
    [
        replace(EMPTY, ahead=timedelta(seconds=20)),
        replace(EMPTY, components=(CORE,), configurations=configuration(age=timedelta(days=400))),
        replace(EMPTY, nodes=({"metadata": {"name": "a"}},), providers=(provider(cpuSupport=True),)),
        replace(EMPTY, deployments=(leaving(seconds=299),), providers=(provider(cpuSupport=True),)),
        replace(EMPTY, deployments=(held(seconds=59), leaving(seconds=200)), artifacts=()),
    ],
)
def test_on_the_good_side_of_a_limit_nothing_is_found(snapshot: Snapshot) -> None:
    assert run_checks(snapshot).findings == ()


def test_every_check_is_seen_to_find_something() -> None:
    table = yaml.safe_load((Path(__file__).parent / "misconfigurations.yaml").read_text())
    seen = {code for case in table for code in case["finds"]} | set(CASES)
    assert sorted(CHECKS) == sorted(seen)
    assert not set(CASES) & {code for case in table for code in case["finds"]}, "what can be injected is not invented"


def test_every_check_says_what_to_do_in_whole_sentences() -> None:
    for code, check in CHECKS.items():
        assert code[:3] == "ARW"
        assert code[3:5] in AREAS
        assert not check.title.endswith(".")
        assert check.why.endswith("."), code
        assert len(check.do) > 20, code
        assert all(hasattr(EMPTY, part) for part in check.needs), code


def test_a_code_is_given_once() -> None:
    from airunway.doctor.findings import Severity
    from airunway.doctor.findings import check as enter

    with pytest.raises(ValueError, match="ARW0101 is taken by"):
        enter(Severity.ERROR, "ARW0101", "again", why="", do="")(lambda _: iter(()))


# ------------------------------------------------------------------------------------------------------ what is read


def deployment(key: str = "d", /, *, image: str = "ghcr.io/x/airunway:v0.3.1", **labels: str) -> Resource:
    """A Deployment as our charts label it, with ``name`` and ``version`` as `labels` have them."""
    pod = {"serviceAccountName": "sa", "containers": [{"name": "c", "image": image}]}
    spec = {"replicas": 2, "template": {"spec": pod}}
    given = {f"app.kubernetes.io/{key}": value for key, value in labels.items()}
    metadata = {"namespace": "system", "name": key, "labels": {**given, **dict([PART_OF])} if labels else {}}
    return {"metadata": metadata, "spec": spec, "status": {"availableReplicas": 1}}


def published(manager: str, pod: str = "d-5d4f-x7k2", **rest: Any) -> EffectiveSettings:
    return EffectiveSettings(manager=manager, pod=pod, namespace="system", **rest)


def test_a_process_is_known_by_what_its_pods_publish() -> None:
    options = {"leader-elect": "true", "watch-namespaces": "x,y"}
    said = [published(f"airunway-{name}", options=options, version="0.3.1") for name in ("provider-b", "provider-a")]
    (component,) = components_in([deployment()], said)
    assert (component.core, component.providers, component.known) == (False, ("a", "b"), True)
    assert component.leases == ["airunway-provider-a", "airunway-provider-b"]
    assert component.watched == ("x", "y")
    assert (component.user, component.version) == ("system:serviceaccount:system:sa", "0.3.1")
    assert (component.wanted, component.available) == (2, 1)


def test_of_two_names_that_fit_a_pod_the_longer_one_is_its_deployment() -> None:
    said = [published("airunway-controller", "d-b-5d4f-x7k2")]
    (component,) = components_in([deployment("d"), deployment("d-b")], said)
    assert component.key.name == "d-b"


def test_a_part_that_has_ended_is_no_part_of_the_process() -> None:
    said = [published("airunway-provider-a"), published("airunway-provider-b", held=False)]
    assert components_in([deployment()], said)[0].providers == ("a",)
    assert components_in([deployment()], said[1:])[0].providers == ("b",), "all were released: how it last ran"


def test_a_process_that_never_led_is_known_by_its_chart_and_how_it_runs_is_not_known() -> None:
    (component,) = components_in([deployment(name="airunway-controller", version="0.4.0")], [])
    assert (component.core, component.providers, component.known) == (True, (), False)
    assert component.version == "0.4.0"
    found = run_checks(replace(EMPTY, components=(component,)))
    assert f"how {component.name} runs" in {unseen.what for unseen in found.unseen}


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"pod": "d-1"}', '{"pod": "", "version": "", "options": []}'])
def test_a_lease_that_says_something_else_publishes_nothing(text: str) -> None:
    lease = {"metadata": {"namespace": "system", "name": "airunway-controller", "annotations": {ANNOTATION: text}}}
    assert published_in([lease]) == []


def test_what_is_published_is_read_again() -> None:
    said = published("airunway-provider-a", options={"unknown-schema": "Fail"}, settings={"size": 1, "zone": "east"})
    lease = {
        "metadata": {"namespace": "system", "name": said.manager, "annotations": said.annotations()},
        "spec": {"holderIdentity": said.pod},
    }
    assert published_in([lease]) == [said]


def pod(**status: Any) -> Resource:
    return {"metadata": {"name": "core-0", "labels": {"app": "core", "hash": "1"}}, "status": status}


def waiting(reason: str, message: str = "", **rest: Any) -> Resource:
    return pod(containerStatuses=[{"state": {"waiting": {"reason": reason, "message": message}}, **rest}])


ENDED: dict[str, Any] = {"lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "no such option"}}}


@pytest.mark.parametrize(
    ("live", "said"),
    [
        (waiting("ImagePullBackOff", "not found"), "Pod core-0: ImagePullBackOff: not found."),
        (
            waiting("CrashLoopBackOff", **ENDED),
            "Pod core-0: CrashLoopBackOff: its last run ended with exit code 1 (Error no such option).",
        ),
        (
            pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}]),
            "Pod core-0: 0/3 nodes are available",
        ),
        (waiting("ContainerCreating"), "It has no quota."),
        (pod(), "It has no quota."),
        ({"metadata": {"name": "another"}}, "It has no quota."),
    ],
)
@pytest.mark.parametrize(("available", "code"), [(0, "ARW0202"), (1, "ARW0203")])
def test_a_process_without_its_pods_says_why_in_the_pod_s_words(
    live: Resource, said: str, available: int, code: str
) -> None:
    core = replace(
        CORE, wanted=2, available=available, selector={"app": "core"}, trouble="It has no quota.", options={}
    )
    found = run_checks(replace(EMPTY, components=(core,), pods=(pod(phase="Running"), live)))
    (finding,) = [each for each in found.findings if each.code == code]
    assert finding.what == f"{available} of 2 pods are available. {said}"


def component(namespace: str, *, core: bool = False, watched: str = "", **rest: Any) -> ProcessDeployment:
    key, options = ObjectKey(namespace, "a"), {"watch-namespaces": watched}
    return ProcessDeployment(key=key, core=core, options=options, providers=tuple(rest.get("providers", ())))


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        (component("a", core=True), component("b", core=True), True),
        (component("a", core=True), component("a", core=True), False),
        (component("a", core=True), component("b", providers=["p"]), False),
        (component("a", core=True, watched="x,y"), component("b", core=True, watched="y"), True),
        (component("a", core=True, watched="x"), component("b", core=True, watched="y"), False),
        (component("a", core=True, watched="x"), component("b", core=True), True),
        (component("a", providers=["p", "q"]), component("b", providers=["q"]), True),
        (component("a", providers=["p"]), component("b", providers=["q"]), False),
        (component("a", core=True), replace(component("b", core=True), options={}), False),
    ],
)
def test_rivals_do_the_same_on_the_same_deployments(
    one: ProcessDeployment, other: ProcessDeployment, found: bool
) -> None:
    assert bool(list(rivals([one], [other]))) is found
    assert bool(list(rivals([other], [one]))) is found


CATALOGUE = ProcessDeployment(
    key=ObjectKey("airunway-system", "cat"),
    core=False,
    add_ons=("airunway-catalogue",),
    options={"leader-elect": "true", "watch-namespaces": "x"},
    available=1,
)


@pytest.mark.parametrize(
    ("live", "said"),
    [
        (deployment(name="airunway-catalogue", version="0.3.1"), []),
        (deployment(), [published("airunway-catalogue", version="0.3.1", options={"leader-elect": "true"})]),
    ],
    ids=["by its chart", "by its Lease"],
)
def test_the_catalogue_is_a_component(live: Resource, said: list[EffectiveSettings]) -> None:
    (component,) = components_in([live], said)
    assert (component.core, component.providers, component.add_ons) == (False, (), ("airunway-catalogue",))
    assert (component.leases, component.version) == (["airunway-catalogue"], "0.3.1")


@pytest.mark.parametrize(
    ("change", "seen", "code"),
    [
        ({"available": 0}, {}, "ARW0202"),
        ({"wanted": 2}, {}, "ARW0203"),
        ({}, {"leases": {}}, "ARW0205"),
        ({"version": "99.0.0"}, {}, "ARW0206"),
        ({}, {"accounts": {ObjectKey("airunway-system", "default"): None}}, "ARW0209"),
        ({}, {"elsewhere": (replace(CATALOGUE, key=ObjectKey("b", "cat")),)}, "ARW0211"),
        (
            {},
            {"rights": {Right(user=CATALOGUE.user, verb="list", group="", resource="secrets", wanted=False): True}},
            "ARW0402",
        ),
    ],
)
def test_the_processes_of_the_catalogue_are_checked_as_others(
    change: dict[str, Any], seen: dict[str, Any], code: str
) -> None:
    """Its crash loop was called "Nothing is wrong"."""
    components = (replace(CORE, options={"watch-namespaces": "y"}), replace(CATALOGUE, **change))
    found = run_checks(replace(EMPTY, components=components, **seen))
    assert code in [each.code for each in found.findings]
    about = [each.code for each in found.findings if "core" not in each.object]
    assert set(about) == {code}


def test_the_catalogue_is_asked_for_no_secrets_and_its_rights_are_not_judged_where_it_is_not_installed() -> None:
    (asked,) = expected_rights([CATALOGUE], [], {})
    assert (asked.resource, asked.verb, asked.wanted) == ("secrets", "list", False)
    report = run_checks(replace(EMPTY, components=(CORE, CATALOGUE)))
    assert "rights and guards of airunway-catalogue" in [each.what for each in report.unseen]


def never(*_: object) -> None:
    raise AssertionError("there is no fault")


def install(folder: Path, distribution: str, point: str, module: str) -> None:
    """A distribution whose module describes an add-on."""
    info = folder / f"{distribution}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ADD_ONS}]\n{point} = {distribution}:ADD_ON\n")
    (folder / f"{distribution}.py").write_text(module)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("ADD_ON = {}", "TypeError: the entry point must name an airunway.rbac.rights.AddOn, not dict"),
        ("raise SystemExit('no licence')", "SystemExit: no licence"),
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ],
    ids=["no add-on", "exit", "import"],
)
def test_an_add_on_that_cannot_be_loaded_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, why: str
) -> None:
    name = f"airunway-{tmp_path.name.replace('_', '-')}"
    install(tmp_path, f"broken_{abs(hash(why))}", name, module)
    monkeypatch.syspath_prepend(tmp_path)
    add_ons, broken = _add_ons()
    assert (list(add_ons), broken) == (["airunway-catalogue"], {f"add-on {name}": why})
    unseen = {"plugins": tuple(Unseen(what=what, why=text) for what, text in broken.items())}
    runs = replace(CATALOGUE, add_ons=(name,))
    report = run_checks(replace(EMPTY, components=(CORE, runs), add_ons=frozenset(add_ons), unseen=unseen))
    assert [each.why for each in report.unseen if name in each.what] == [why]


def test_two_distributions_with_one_add_on_are_both_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "thief", "airunway-catalogue", "ADD_ON = None")
    monkeypatch.syspath_prepend(tmp_path)
    add_ons, broken = _add_ons()
    assert not add_ons, "neither counts"
    (why,) = broken.values()
    assert why == f"more than one distribution has it: airunway-catalogue {__version__}, thief 1.0; uninstall one"


@pytest.mark.parametrize("made", [None, [{}], [None]])
def test_an_add_on_whose_guards_cannot_be_made_does_not_end_the_command(made: Any) -> None:
    def guard(*_: object, **__: object) -> Any:
        if made is None:
            raise SystemExit("no")
        return made

    add_ons = {"airunway-catalogue": AddOn(rights=Rights(), guard=guard)}
    faults: list[str] = []
    guarded = replace(CATALOGUE, core=True, guarded="airunway-system")
    guards = expected_guards(guarded, [], add_ons, on_fault=lambda name, _: faults.append(name))
    assert faults == ["airunway-catalogue"]
    assert guards == expected_guards(guarded, [], {}, on_fault=never), "those of the other parts are known"
    assert guards


def test_the_rights_and_guards_of_the_catalogue_are_those_that_its_distribution_names() -> None:
    add_ons, broken = _add_ons()
    assert (list(add_ons), broken) == (["airunway-catalogue"], {})
    guarded = replace(CATALOGUE, guarded="airunway-system")
    rights = expected_rights([guarded], [], add_ons)
    nodes = Right(user=CATALOGUE.user, verb="list", group="", resource="nodes")
    assert {nodes, replace(nodes, group="batch", resource="jobs", verb="create", namespace="x")} <= set(rights)
    guards = expected_guards(guarded, [], add_ons, on_fault=never)
    policies = {key_of(each).name for each in guards if each["kind"] == "ValidatingAdmissionPolicy"}
    assert {f"cat-airunway-system-guard-{part}" for part in ("discovery", "templates")} <= policies
    report = run_checks(
        replace(
            EMPTY,
            components=(guarded,),
            add_ons=frozenset(add_ons),
            rights={each: each.wanted and each != nodes for each in rights},
            guards={guarded.name: guards},
            policies=(),
            bindings=(),
        )
    )
    found = [(each.code, each.what) for each in report.findings if each.code.startswith("ARW04")]
    assert ("ARW0401", "It may not list nodes.") in found
    assert [code for code, _ in found].count("ARW0405") == len(policies)
    assert "rights and guards of airunway-catalogue" not in [each.what for each in report.unseen]


def test_a_guard_of_the_status_need_not_know_the_catalogue_which_writes_none() -> None:
    policy, binding = status_guard(["nobody"])
    snapshot = replace(EMPTY, components=(CATALOGUE,), policies=(policy,), bindings=(binding,), namespaces={})
    assert "ARW0404" not in [finding.code for finding in run_checks(snapshot).findings]


def test_what_is_not_ours_is_no_component() -> None:
    others = [deployment("airunway-controller"), deployment("e", name="dashboard"), {"metadata": {"name": "odd"}}]
    elsewhere = replace(published("airunway-controller", "airunway-controller-1"), namespace="elsewhere")
    assert components_in(others, [elsewhere]) == []


@pytest.mark.parametrize(
    ("condition", "shut_out"),
    [
        ("!(request.userInfo.username in ['system:serviceaccount:airunway-system:default'])", False),
        ("!(request.userInfo.username in ['system:serviceaccount:elsewhere:default'])", True),
        ("!request.userInfo.username.startsWith('system:serviceaccount:airunway-system:')", False),
        ("this is no expression", False),
    ],
)
def test_a_guard_of_the_status_is_asked_for_each_account(condition: str, shut_out: bool) -> None:
    (policy, binding) = status_guard(["nobody"])
    assert shuts_out(policy, [binding], CORE, {})
    policy["spec"]["matchConditions"] = [{"name": "account", "expression": condition}]
    assert shuts_out(policy, [binding], CORE, {}) is shut_out
    snapshot = replace(EMPTY, components=(CORE,), policies=(policy,), bindings=(binding,), namespaces={})
    assert [finding.code for finding in run_checks(snapshot).findings] == ["ARW0404"] * shut_out


def follows(kind: str, config: str = "gpu", namespace: str = "") -> Resource:
    metadata = {"name": "x", **({"namespace": namespace} if namespace else {})}
    return {"kind": kind, "metadata": metadata, "spec": {"runtimeConfigName": config}}


NOT_USED = replace(
    EMPTY,
    runtime_configs=({"metadata": {"name": "gpu", "namespace": "ml"}, "spec": {}},),
    cluster_runtime_configs=({"metadata": {"name": "gpu"}, "spec": {}},),
    deployments=(follows("ModelDeployment", "other", "ml"),),
    artifacts=(),
    templates=(),
    sources=(),
)
"""Of the RuntimeConfig ml/gpu and the ClusterRuntimeConfig gpu neither is used."""


@pytest.mark.parametrize(
    ("change", "unused"),
    [
        ({}, ["ClusterRuntimeConfig/gpu", "RuntimeConfig/ml/gpu"]),
        ({"artifacts": (follows("ModelArtifact", namespace="ml"),)}, ["ClusterRuntimeConfig/gpu"]),
        ({"artifacts": (follows("ModelArtifact", namespace="other"),)}, ["RuntimeConfig/ml/gpu"]),
        ({"templates": (follows("ModelTemplate", namespace="ml"),)}, []),
        ({"templates": (follows("ClusterModelTemplate"),)}, ["RuntimeConfig/ml/gpu"]),
        ({"templates": (follows("ClusterModelTemplate"),), "namespace": "ml"}, []),
        ({"sources": (follows("ModelSource"),)}, ["RuntimeConfig/ml/gpu"]),
        ({"sources": None}, []),
        ({"unseen": {"templates": (Unseen(what="modeltemplates after the first 500", why="no more"),)}}, []),
    ],
)
def test_a_config_that_any_object_follows_is_not_called_unused(change: dict[str, Any], unused: list[str]) -> None:
    found = run_checks(replace(NOT_USED, **change)).findings
    assert sorted(finding.object for finding in found if finding.code == "ARW0907") == unused


# ------------------------------------------------------------------------------------------------------ what is said


def told(snapshot: Snapshot, *, width: int | None = None, ascii_only: bool = False) -> list[str]:
    return [line.text for line in lines(run_checks(snapshot), width=width, ascii_only=ascii_only)]


def test_what_was_not_seen_is_said_and_not_taken_for_good() -> None:
    unseen = Unseen(what="nodes", why="you may not: nodes is forbidden")
    text = "\n".join(told(replace(EMPTY, unseen={"nodes": (unseen,)}, storage_classes=())))
    assert "◌ nodes: you may not: nodes is forbidden" in text
    assert "◌ Webhook                     0 of 8 checks" in text
    assert "⚠ Nodes, storage, gateway     2 of 9 checks: ARW0705" in text
    assert "Nothing is wrong" not in text
    blind = "\n".join(told(EMPTY))
    assert blind.endswith(f"Nothing wrong was found by 2 of {len(CHECKS)} checks; the others could not be made.")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    snapshot, _ = CASES["ARW0802"]
    folded = told(snapshot, width=width)
    below = folded.index("") + 1 + len(AREAS)  # the head and the areas are as wide as they are
    # An address is one word, which no terminal could open if it were cut.
    assert max(len(line) for line in folded[below:] if "://" not in line) <= min(width, 120)
    assert " ".join(" ".join(folded).split()) == " ".join(" ".join(told(snapshot)).split())


def test_a_terminal_without_unicode_gets_letters() -> None:
    text = "\n".join(told(CASES["ARW0101"][0], ascii_only=True))
    assert text.isascii()
    assert "!! ARW0101 error: The cluster is too old" in text


def test_the_document_has_what_the_text_has() -> None:
    found = document(run_checks(CASES["ARW0101"][0]))
    assert (found["errors"], found["warnings"]) == (1, 0)
    (finding,) = found["findings"]
    assert set(finding) == {"code", "severity", "title", "object", "what", "why", "do", "docs"}
    assert finding["docs"].endswith("/reference/doctor.md#arw0101")


def test_a_finding_says_where_it_is_explained_as_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wheel brings no documentation: what counts is where its own metadata says that it is."""
    from email.message import Message

    from airunway.doctor import findings

    metadata = Message()
    metadata["Project-URL"] = "Homepage, https://example.org"
    metadata["Project-URL"] = "Documentation, https://example.org/docs/"
    monkeypatch.setattr(findings, "metadata", lambda _: metadata)
    findings._documentation.cache_clear()
    try:
        assert CHECKS["ARW0212"].docs == "https://example.org/docs/reference/doctor.md#arw0212"
    finally:
        findings._documentation.cache_clear()


def test_a_bundle_that_is_no_certificate_is_said() -> None:
    settings = webhook_settings(bind_address=":9443", service="hook")
    assert settings is not None
    live = configuration_object(settings, bundle=b"nonsense")
    snapshot = replace(EMPTY, components=(CORE,), configurations={CONFIGURATION: live})
    assert [finding.what for finding in run_checks(snapshot).findings] == ["Its caBundle holds no certificate."]
    assert b64encode(b"nonsense").decode() == live["webhooks"][0]["clientConfig"]["caBundle"]


JUNK: Resource = {"metadata": {"name": "x", "namespace": "y"}}


@pytest.mark.parametrize("obj", [{}, JUNK, {**JUNK, "spec": {}, "status": {}}, {**JUNK, "spec": None, "status": None}])
def test_checks_take_any_object(obj: Resource) -> None:
    """What an API server gives has passed a schema, but it need not be one of ours."""
    several = (obj,)
    snapshot = replace(
        EMPTY,
        components=(CORE, replace(CORE, core=False, providers=("p",), wanted=0, available=0)),
        namespaces={},
        accounts={},
        definitions={"modeldeployments.airunway.ai": obj},
        leases={"airunway-controller": obj},
        configurations={CONFIGURATION: obj},
        elsewhere=(CORE,),
        endpoints={},
        rights={},
        policy_files={"Deployment/a/b": SeenPolicyFile(config_map=ObjectKey("a", "p"), key="policy.yaml", text="[")},
        policies=several,
        bindings=several,
        guards={"Deployment/a/b": ({"kind": "ValidatingAdmissionPolicy", **JUNK, "spec": {}},)},
        replica_sets=several,
        releases=several,
        pods=several,
        providers=several,
        served={},
        controllers={"": several},
        nodes=several,
        storage_classes=several,
        gateway_classes=several,
        gateways=several,
        picker_roles={"airunway-endpoint-picker": obj},
        runtime_configs=several,
        cluster_runtime_configs=several,
        deployments=several,
        artifacts=several,
        templates=several,
        sources=several,
    )
    found = run_checks(snapshot)
    assert len(found.done) == len(CHECKS) - 1, "all but that of the rehearsed creation"
    assert list(lines(found, width=80))


def test_ignored_checks_are_not_made() -> None:
    found = run_checks(CASES["ARW0101"][0], ignored=frozenset({"ARW0101"}))
    assert found.findings == ()
    assert "ARW0101" not in {check.code for check in (*found.done, *found.skipped)}


def lapsed(name: str) -> Resource:
    spec = {"holderIdentity": f"{name}-0", "renewTime": format_time(NOW - timedelta(minutes=7))}
    return {"metadata": {"namespace": "airunway-system", "name": name}, "spec": spec}


def test_tokens_that_are_refused_are_one_finding_and_not_one_for_each_lease_and_provider() -> None:
    """Every Lease of every process ended, and every provider fell silent: seven findings named no cause."""
    components = tuple(
        ProcessDeployment(
            key=ObjectKey("airunway-system", name),
            core=name == "core",
            providers=(name,) if name != "core" else (),
            options={"gateway": "auto", "model-cache": "on"},
            account=name,
            available=1,
            selector={"app": name},
        )
        for name in ("core", "p", "q")
    )
    silent = tuple(
        {
            **provider(cpuSupport=True),
            "metadata": {"name": name},
            "status": {"lastHeartbeat": format_time(NOW - timedelta(minutes=7))},
        }
        for name in ("p", "q")
    )
    leases = {name: lapsed(name) for component in components for name in component.leases}
    early, late = (format_time(NOW - timedelta(minutes=minutes)) for minutes in (60, 8))
    snapshot = replace(
        EMPTY,
        components=components,
        providers=silent,
        leases=leases,
        pods=tuple(
            {"metadata": {"name": f"{name}-0", "labels": {"app": name}, "creationTimestamp": early}}
            for name in ("core", "p", "q")
        ),
        accounts={
            ObjectKey("airunway-system", name): {"metadata": {"creationTimestamp": late if name == "p" else early}}
            for name in ("core", "p", "q")
        },
    )
    (finding,) = run_checks(snapshot).findings
    assert (finding.code, finding.object) == ("ARW0205", "Namespace/airunway-system")
    assert finding.what.startswith("3 processes do not renew their Leases. core: Lease airunway-controller: ")
    assert "Account p was made anew after the pods: the API server refuses their tokens (401)." in finding.what
    assert finding.do == "kubectl rollout restart deployment/p --namespace airunway-system"


def test_a_sandbox_gets_no_tick_for_processes_that_are_not_in_the_cluster() -> None:
    available = {"type": "Available", "status": "True"}
    outside = {**provider(cpuSupport=True)}
    outside["status"] = {**outside["status"], "conditions": [available]}
    text = told(replace(EMPTY, components=(), elsewhere=(), providers=(outside,)))
    assert any(line.startswith("◌ Processes") for line in text)
    assert not any(line.startswith("✔ Processes") for line in text)


def test_an_area_of_which_checks_were_skipped_gets_no_tick() -> None:
    assert [line for line in told(EMPTY) if line.startswith("✔")] == []
