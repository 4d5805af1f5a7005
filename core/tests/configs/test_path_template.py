"""Path templates: every row of a table kept beside the checkout, and what no input may do."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.configs.path_template import MAX_RENDERED, PathTemplateError, parse_template, render_path
from airunway.configs.resolution import path_of, resolve

TABLE = Path(os.environ.get("AIRUNWAY_SPEC", Path(__file__).parents[4] / "shared" / "spec")) / "paths.md"
REFUSED = None

DEPLOYMENT: dict[str, Any] = {
    "metadata": {
        "namespace": "ml-team",
        "name": "llama-chat",
        "uid": "12345678-90ab",
        "generation": 2,
        "resourceVersion": "55",
        "managedFields": [{"time": "2026-11-20T00:00:00Z"}],
        "labels": {
            "project": "conversational-ai",
            "team": "Platform_ML",
            "example.com/tier": "Gold.1",
            **{f"l{number}": "x" * 63 for number in range(4)},
        },
        "annotations": {"route.suffix": "Team-A/B", "blank": "", "dots": "..", "long": "y" * 200},
        "finalizers": ["x.io/a", "x.io/b"],
    },
    "spec": {
        "replicas": 3,
        "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
        "runtimeConfigName": "gpu",
        "gateway": {"enabled": True},
        "image": "registry.example/a/b:1@sha256:c",
    },
    "status": {"routing": {"path": "/x"}},
}

ROWS: tuple[tuple[str, str, str | None], ...] = (
    ("1", "/ml/{.metadata.namespace}/{.metadata.labels['project']}", "/ml/ml-team/conversational-ai"),
    ("2", "/custom/{.metadata.name}", "/custom/llama-chat"),
    ("3", "/{.metadata.namespace}/{.metadata.labels['team']}/", "/ml-team/platform_ml"),
    ("6", "   ", REFUSED),
    ("7", "/", REFUSED),
    ("8", "models/{.metadata.name}", "/models/llama-chat"),
    ("9", "//a///{.metadata.name}//", "/a/llama-chat"),
    ("10", "/{.metadata.labels['missing']}", REFUSED),
    ("11", '/{.metadata.labels["team"]}', "/platform_ml"),
    ("12", "/{.metadata.labels.team}", "/platform_ml"),
    ("13", r"/{.metadata.labels.example\.com/tier}", "/gold.1"),
    ("14", "/{.metadata.annotations['route.suffix']}", "/team-a/b"),
    ("15", "/{.spec.model.id}", "/meta-llama/llama-3.1-8b-instruct"),
    ("16", "/{.spec['runtimeConfigName']}", "/gpu"),
    ("17", "/{.metadata[}", REFUSED),
    ("18", "/{.metadata.finalizers[*]}", REFUSED),
    ("19", "/{.metadata.finalizers[0]}", "/x.io/a"),
    ("20", "/{.metadata.labels}", REFUSED),
    ("21", "/a/{}/b", REFUSED),
    ("22", "/x/{.metadata.name", REFUSED),
    ("23", "/{.metadata.name}-{.metadata.namespace}", "/llama-chat-ml-team"),
    ("24", "/svc/{.spec.serviceAccountName}", REFUSED),
    ("25", "/svc/{.metadata.annotations['blank']}", REFUSED),
    ("26", "/r/{.spec.replicas}", "/r/3"),
    ("27", "/{.spec.gateway.enabled}", "/true"),
    ("28", "/{.status.routing.path}", REFUSED),
    ("29", "".join(f"/{{.metadata.labels.l{number}}}" for number in range(4)), REFUSED),
    ("30-accepted", "/" + "a" * 199, "/" + "a" * 199),
    ("30-refused", "/" + "a" * 200, REFUSED),
    ("31", "/" + "é" * 40, REFUSED),
    ("32", "/a b/c", "/a%20b/c"),
    ("33", "/v1.2/x", "/v1.2/x"),
    ("34", "/a/../b", REFUSED),
    ("35", "/50%25", "/50%2525"),
    ("36", "/{.metadata.name}?x=1", "/llama-chat%3Fx%3D1"),
    ("37", "/a#b", "/a%23b"),
    ("38", "/{range .metadata.finalizers[*]}{@}{end}", REFUSED),
    ("39-dollar", "/{$.metadata.name}", "/llama-chat"),
    ("39-blanks", "/{ .metadata.name }", "/llama-chat"),
    ("40", "/{..name}", REFUSED),
    ("41", "/a/---/b", "/a/---/b"),
    ("42", "/ÜNÏ/x", "/%C3%BCn%C3%AF/x"),
    ("43", "/{.spec.aimImageName}", REFUSED),
    ("44", "/{.spec.image}", "/registry.example/a/b%3A1%40sha256%3Ac"),
    ("grammar-filter", "/{.metadata.finalizers[?(@)]}", REFUSED),
    ("grammar-slice", "/{.metadata.finalizers[0:1]}", REFUSED),
    ("grammar-union", "/{.metadata.finalizers[0,1]}", REFUSED),
    ("grammar-status-in-brackets", "/{['status'].routing.path}", REFUSED),
    ("grammar-star-hides-the-status", "/{[*].routing.path}", REFUSED),
    ("grammar-resource-version", "/{.metadata.resourceVersion}", REFUSED),
    ("grammar-resource-version-in-brackets", "/{.metadata['resourceVersion']}", REFUSED),
    ("grammar-star-hides-the-resource-version", "/{[*].resourceVersion}", REFUSED),
    ("grammar-managed-fields", "/{.metadata.managedFields[0].time}", REFUSED),
    ("grammar-generation", "/{.metadata.generation}", "/2"),
    ("grammar-root", "/{$}", REFUSED),
    ("grammar-two-fields", "/{.metadata.name .metadata.namespace}", REFUSED),
    ("grammar-no-dot", "/{metadata.name}", REFUSED),
    ("grammar-closing-brace", "/a}b", REFUSED),
    ("grammar-nested-brace", "/{.metadata.{.metadata.name}}", REFUSED),
    ("grammar-index-out-of-range", "/{.metadata.finalizers[2]}", REFUSED),
    ("grammar-dots-in-a-value", "/a/{.metadata.annotations.dots}", REFUSED),
    ("R4-slash-encoded", "/a%2Fb", "/a%252fb"),
    ("R4-200-characters-of-a-value", "/{.metadata.annotations.long}", REFUSED),
)


@pytest.mark.parametrize(("template", "path"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_r1_row(template: str, path: str | None) -> None:
    if path is not None:
        assert render_path(template, DEPLOYMENT) == path
        return
    with pytest.raises(PathTemplateError):
        render_path(template, DEPLOYMENT)


@pytest.mark.skipif(not TABLE.exists(), reason="the spec is not here")
def test_r1_the_rows_of_the_spec() -> None:
    section = TABLE.read_text(encoding="utf-8").split("## 2 ")[0]
    checked = 0
    for line in section.splitlines():
        found = re.match(r"\| (\d+) \| (.+) \| (.+) \|$", line)
        if found is None:
            continue
        expected = found[3].strip("`") if found[3].startswith("`") else REFUSED
        for template in re.findall(r"`([^`]+)`", found[2].split(", `registry")[0]):
            if template in ("é", '""'):
                continue
            template = template.strip('"')
            checked += 1
            if expected is not None:
                assert render_path(template, DEPLOYMENT) == expected, found[1]
            else:
                with pytest.raises(PathTemplateError):
                    render_path(template, DEPLOYMENT)
    assert checked >= 38


@pytest.mark.parametrize("template", [None, ""], ids=["4", "5"])
def test_r1_without_a_template_the_path_is_namespace_and_uid(template: str | None) -> None:
    deployment = {**DEPLOYMENT, "spec": {"gateway": {"pathTemplate": template}}}
    assert path_of(deployment, None) == "/ml-team/12345678-90ab"


def test_the_template_of_the_deployment_is_before_that_of_the_config() -> None:
    config = resolve("default", namespaced=None, cluster={"spec": {"routing": {"pathTemplate": "/c"}}}).config
    assert path_of(DEPLOYMENT, config) == "/c"
    assert path_of({**DEPLOYMENT, "spec": {"gateway": {"pathTemplate": "/d"}}}, config) == "/d"


def test_an_empty_template_of_the_namespace_is_the_default_path_over_the_clusters() -> None:
    config = resolve(
        "default",
        namespaced={"spec": {"inherit": "Cluster", "routing": {"pathTemplate": ""}}},
        cluster={"spec": {"routing": {"pathTemplate": "/c"}}},
    ).config
    assert path_of(DEPLOYMENT, config) == "/ml-team/12345678-90ab"


def test_43_the_message_names_our_field() -> None:
    with pytest.raises(PathTemplateError, match=r"\.spec\.image") as refusal:
        render_path("/{.spec.aimImageName}", DEPLOYMENT)
    assert refusal.value.expression == "{.spec.aimImageName}"


@pytest.mark.parametrize(
    ("template", "expression", "position"),
    [
        ("/x/{.metadata[}", "{.metadata[}", 14),
        ("/x/{.metadata.name", "{.metadata.name", 3),
        ("/a}b", "/a}b", 2),
        ("/a/{}/b", "{}", 3),
        ("/{.metadata.labels['missing']}", "{.metadata.labels['missing']}", 1),
    ],
)
def test_a_refusal_names_expression_and_position(template: str, expression: str, position: int) -> None:
    with pytest.raises(PathTemplateError) as refusal:
        render_path(template, DEPLOYMENT)
    assert (refusal.value.expression, refusal.value.position) == (expression, position)
    assert refusal.value.reason in str(refusal.value)
    assert f"character {position + 1}" in str(refusal.value)


def test_one_result_of_a_star_is_a_value() -> None:
    assert render_path("/{.metadata.finalizers[*]}", {"metadata": {"finalizers": ["only"]}}) == "/only"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "status"]), inner, max_size=3)
    ),
    max_leaves=8,
)
PIECES = st.sampled_from(
    [
        "{",
        "}",
        "[",
        "]",
        "'",
        '"',
        ".",
        "..",
        "$",
        "*",
        "[*]",
        "\\",
        "/",
        " ",
        "a",
        "b",
        "0",
        "{.a}",
        "{.a.b}",
        "%",
        "é",
    ]
)
TEMPLATES = st.lists(PIECES, max_size=12).map("".join) | st.text(st.characters(), max_size=20)
HTTP_ROUTE_PATH = re.compile(r"/(?:[A-Za-z0-9._~-]|%[0-9A-F]{2}|/)+", re.ASCII)


def no_traceback(template: str, deployment: Any) -> None:
    position: int | None = None
    path = ""
    try:
        path = render_path(template, deployment)
    except PathTemplateError as refusal:
        position = refusal.position
    if position is not None:
        assert 0 <= position <= len(template)
        return
    assert len(path) <= MAX_RENDERED
    assert HTTP_ROUTE_PATH.fullmatch(path)
    assert not path.endswith("/")
    assert not {"", ".", ".."} & set(path.split("/")[1:])
    # Nothing below the status can change a path.
    if isinstance(deployment, dict):
        assert render_path(template, {**deployment, "status": {"a": "other"}}) == path


@given(template=TEMPLATES, deployment=JSON)
def test_any_template_gives_a_path_or_a_refusal(template: str, deployment: Any) -> None:
    no_traceback(template, deployment)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=100_000, deadline=None)
@given(template=TEMPLATES, deployment=JSON)
def test_any_of_100_000_templates_gives_a_path_or_a_refusal(template: str, deployment: Any) -> None:
    no_traceback(template, deployment)


@pytest.mark.parametrize("piece", ["{", "}", "{.a", "{.a[", "[", "\\", "{.a['", "/", "{.a}", "..", " "])
def test_a_long_template_gives_a_path_or_a_refusal(piece: str) -> None:
    no_traceback("/" + piece * 20_000, {"a": "x"})


@pytest.mark.parametrize("value", [7, ["/a"], {"a": "/b"}, True])
def test_a_template_that_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(PathTemplateError):
        path_of({"spec": {"gateway": {"pathTemplate": value}}}, None)
    with pytest.raises(PathTemplateError):
        parse_template(value)
