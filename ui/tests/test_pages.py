"""Pages as HTML: what is seen, that any text stays a text, and that a page says what it does not show and why."""

from __future__ import annotations

import string
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.pages_of_ui import DEPLOYMENT, EVENT, MARKUP, POD, Elements, hostile, serving

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.resource import ObjectKey, Resource, copy_of
from airunway.unseen import Unseen
from airunway.view import DeploymentSnapshot, deployment_view
from airunway.view.fleet import fleet_row
from airunway_ui.details import rights_for, yaml_of
from airunway_ui.identity import Right
from airunway_ui.listing import PAGE, shown, wanted_in
from airunway_ui.render import rendered
from airunway_ui.tree import Node, Patch, parsed, patches
from airunway_ui.watches import Entry, gpus_of

ALLOWED = frozenset(
    {"a", "br", "button", "code", "datalist", "dd", "div", "dl", "dt", "form", "h1", "h2", "h3", "input", "label", "li"}
    | {"nav", "ol", "optgroup", "option", "p", "pre", "section", "select", "small", "span", "strong", "table", "tbody"}
    | {"td", "textarea", "th", "thead", "time", "tr", "ul"}
)
CREATE = Right(verb="create", kind=MODEL_DEPLOYMENT, namespace="ml")


def listed(*deployments: Resource, query: dict[str, str] | None = None, **other: Any) -> str:
    entries = [Entry(row=fleet_row(each), gpus=gpus_of(each), share="") for each in deployments]
    values: dict[str, Any] = {
        **shown(entries, wanted_in(query or {})),
        "lost": None,
        "loading": False,
        "unseen": None,
        "installed": True,
        "cluster_unseen": None,
        "create": CREATE,
        "may_create": True,
    }
    return rendered("list.html", {**values, **other})


def one(snapshot: DeploymentSnapshot | None, **other: Any) -> str:
    rights = rights_for("ml")
    values: dict[str, Any] = {
        "key": ObjectKey("ml", "llama"),
        "base": "/d/ml/llama",
        "rights": rights,
        "may": dict.fromkeys(rights, True),
        "lost": None,
        "loading": False,
        "gone": False,
        "unseen": None,
        "tab": "overview",
        "token": "t",
        "view": deployment_view(snapshot) if snapshot is not None else None,
        "group": "chat",
        "weight": 9,
        "most_weight": 1000,
    }
    return rendered("deployment.html", {**values, **other})


def snapshot_of(deployment: Resource = DEPLOYMENT, pod: Resource = POD, event: Resource = EVENT) -> DeploymentSnapshot:
    return DeploymentSnapshot(deployment=deployment, pods=(pod,), events=(event,), objects=())


def named(name: str, *, reason: str = "CrashLoop", cause: str = "", namespace: str = "ml") -> Resource:
    made = copy_of(DEPLOYMENT)
    made["metadata"] |= {"name": name, "namespace": namespace}
    made["status"] |= {"reason": reason, "rootCause": {**made["status"]["rootCause"], "code": cause} if cause else None}
    return made


def check_harmless(html: str) -> None:
    """No element or attribute that a text could have made, and no address that leads away."""
    for tag, attributes in Elements(html).found:
        assert tag in ALLOWED, tag
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            assert name != "style", tag
            if name in ("href", "src", "action", "formaction"):
                assert value.startswith(("/", "#")), value
                assert not value.startswith("//"), value


def test_markup_in_every_text_of_a_deployment_stays_a_text() -> None:
    bad = hostile(DEPLOYMENT)
    assert isinstance(bad, dict)
    pages = [
        listed(bad),
        listed(bad, query={"group": "1"}),
        listed(
            bad,
            query={"q": MARKUP, "ns": MARKUP, "phase": MARKUP, "provider": MARKUP, "reason": MARKUP, "sort": MARKUP},
        ),
        one(snapshot_of(bad, hostile(POD), hostile(EVENT))),  # type: ignore[arg-type]
        one(None, unseen=Unseen(what=MARKUP, why=MARKUP, right=MARKUP)),
        rendered("problem.html", {"text": MARKUP}),
    ]
    for html in pages:
        check_harmless(html)
        parsed(html)
    # It is shown, not swallowed.
    assert "<script>alert(2)</script>" in Elements(pages[0]).text


def test_texts_that_reorder_hide_or_flood_are_tamed() -> None:
    bad = copy_of(DEPLOYMENT)
    bad["status"]["message"] = "a\u202eb\x00c\u2066" + "x" * 1_000_000
    bad["status"]["rootCause"]["message"] = "\x1b[2J" + "y" * 1_000_000
    for html in (listed(bad), one(snapshot_of(bad))):
        assert not set(html) & {"\u202e", "\x00", "\u2066", "\x1b"}
        assert len(html) < 40_000
    assert not set(yaml_of(bad)) - set(string.printable), "YAML escapes what is not ASCII"


def test_the_first_lines_of_a_deployment_say_cause_object_and_remedy() -> None:
    text = Elements(one(snapshot_of())).text
    place = [text.index(each) for each in ("ImagePull.NotFound", "Pod/ml/llama-0", "image x:1 not found", "Pods")]
    assert place == sorted(place)
    assert "Pending" in text
    assert "env HF_HOME" in text
    assert "before the restart" in text, "the log of the run that crashed"
    html = one(snapshot_of())
    assert 'href="/d/ml/llama/logs/llama-0/server?previous=1"' in html
    numbers = [each["value"] for tag, each in Elements(html).found if each.get("type") == "number"]
    assert numbers == ["9"], "the weight"


def test_loading_none_not_allowed_and_lost_are_four_things() -> None:
    right = Unseen(
        what="ModelDeployments", why="you have no right to it", right="list modeldeployments in namespace ml"
    )
    texts = {
        "loading": Elements(listed(loading=True)).text,
        "none": Elements(listed()).text,
        "right": Elements(listed(unseen=right)).text,
        "lost": Elements(listed(lost=datetime.now(UTC))).text,
    }
    assert "Loading the deployments" in texts["loading"]
    assert "There are no deployments" in texts["none"]
    assert "You may not list modeldeployments in namespace ml" in texts["right"]
    assert "There are no deployments" not in texts["right"] + texts["loading"]
    assert "Connection to the API server lost" in texts["lost"]
    assert "not installed" not in texts["none"]
    assert "does not serve the kinds of AI Runway" in Elements(listed(installed=False)).text
    pages = [
        Elements(one(None, loading=True)).text,
        Elements(one(None, gone=True)).text,
        Elements(one(None, unseen=right)).text,
    ]
    assert [
        "Loading llama" in pages[0],
        "There is no ModelDeployment llama" in pages[1],
        "You may not list" in pages[2],
    ] == [True] * 3


def test_a_part_that_may_not_be_read_is_not_an_empty_one() -> None:
    unseen = Unseen(what="pods", why="no right", right="list pods in namespace ml")
    found = DeploymentSnapshot(deployment=DEPLOYMENT, pods=unseen, events=unseen)
    text = Elements(one(found)).text
    assert "You may not list pods in namespace ml" in text
    assert "There are no pods" not in text
    empty = Elements(one(DeploymentSnapshot(deployment=DEPLOYMENT, pods=(), events=()))).text
    assert "There are no pods" in empty


def test_a_button_without_its_right_says_which_one() -> None:
    rights = rights_for("ml")
    html = one(snapshot_of(), may=dict.fromkeys(rights, False))
    elements = Elements(html)
    assert not [
        each for tag, each in elements.found if tag == "a" and each["href"].endswith(("/edit", "/ask", "/delete"))
    ][1:]
    for text in ("delete modeldeployments.airunway.ai in namespace ml", "create services/proxy in namespace ml"):
        assert f"you may not {text}" in elements.text
    assert "You may not patch modeldeployments.airunway.ai in namespace ml" in elements.text
    assert "You may not get pods/log in namespace ml" in elements.text
    assert "/logs/" not in html
    assert "you may not create modeldeployments" in Elements(listed(may_create=False)).text


def test_the_list_is_filtered_sorted_grouped_and_paged_by_its_address() -> None:
    every = [
        named(f"m-{number:03}", cause="ImagePull.NotFound" if number % 2 else "Quota.Exceeded") for number in range(150)
    ]
    html = listed(*every)
    assert html.count('class="row"') == PAGE
    assert "1 to 100 of 150" in html
    assert "75 deployments" in html, "what hits many"
    second = listed(*every, query={"page": "2", "sort": "name"})
    assert second.count('class="row"') == 50
    assert 'href="/?sort=name&amp;page=1"' in second
    assert listed(*every, query={"page": "99999"}).count('class="row"') == 50
    for bad in ("0", "-1", "x", "", "1" * 30, "٣"):
        assert "1 to 100 of 150" in listed(*every, query={"page": bad})
    only = listed(*every, query={"reason": "Quota.Exceeded"})
    assert "1 to 75" in only or only.count('class="row"') == 75
    grouped = listed(*every, query={"group": "1"})
    assert grouped.count("<tr id=") == 2
    assert 'href="/?phase=Degraded&amp;reason=ImagePull.NotFound"' in grouped
    assert "None of the 150 deployments is like that" in listed(*every, query={"q": "zzz"})


def test_what_changes_is_sent_by_cell_and_ages_are_not() -> None:
    first, other = named("a"), named("b")
    changed = copy_of(other)
    changed["status"]["replicas"]["summary"] = "2/3"
    old, new = (_main(listed(first, each)) for each in (other, changed))
    assert [_place(each) for each in patches(old, new)] == ["n-ml.b"]
    assert list(patches(old, _main(listed(first, other)))) == []
    (gone,) = (each for each in patches(old, _main(listed(first))) if isinstance(each, dict))
    assert gone == {"in": "list", "order": ["r-ml.a"], "made": []}
    more = list(patches(old, _main(listed(named("0"), first, changed))))
    assert {_place(each) for each in more} - {"tally", "notes"} == {"list", "n-ml.b"}
    (moved,) = (each for each in more if isinstance(each, dict))
    assert (moved["order"], list(map(_place, moved["made"]))) == (["r-ml.0", "r-ml.a", "r-ml.b"], ["r-ml.0"])
    aged = parsed('<p id="x"><time datetime="2026-11-01T10:00:00Z">5s</time></p>')
    assert list(patches(aged, parsed('<p id="x"><time datetime="2026-11-01T10:00:00Z">9s</time></p>'))) == []


def _place(patch: Patch) -> str:
    return str(patch["in"] if isinstance(patch, dict) else patch[1]["id"])


def _main(html: str) -> Node:
    return ["main", {"id": "main"}, parsed(html)[2]]


def test_pages_of_one_deployment_change_in_small_steps() -> None:
    before, after = copy_of(POD), copy_of(POD)
    after["status"]["containerStatuses"][0]["restartCount"] = 5
    found = list(patches(_main(one(snapshot_of(pod=before))), _main(one(snapshot_of(pod=after)))))
    assert list(map(_place, found)) == ["pod-llama-0"]


def test_a_tree_that_is_not_closed_is_an_error() -> None:
    for html in ("<p>", "</p>", "<p><b></p></b>"):
        with pytest.raises(ValueError, match=r"close"):
            parsed(html)


async def test_a_page_without_its_api_server_says_so() -> None:
    async with serving() as caller:
        for path in ("/", "/d/ml/llama"):
            answer = await caller.get(path)
            assert answer.status == 200, answer
            assert "Connection to the API server lost" in Elements(answer.body).text, path
            check_frame(answer.body)
        log = await caller.get("/d/ml/llama/logs/llama-0/server")
        assert log.status == 502


def check_frame(html: str) -> None:
    """Of the whole page: one script, one style sheet, both ours, nothing inline."""
    elements = Elements(html)
    assert [each for tag, each in elements.found if tag == "script"] == [{"type": "module", "src": "/static/app.js"}]
    assert not [each for tag, each in elements.found if tag == "style" or "style" in each]


def test_every_field_of_a_row_is_shown() -> None:
    assert {each.name for each in fields(Entry)} == {"row", "gpus", "share"}
    html = listed(DEPLOYMENT)
    for text in ("llama", "ml", "Degraded", "meta/llama", "kaito", "vllm", "1/3", ">6<", "ImagePull.NotFound"):
        assert text in html, text
