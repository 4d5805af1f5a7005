"""The pages in a real Chromium: live, by keyboard alone, without scripts, with hostile texts, and cut off."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from tests.rootcause.worked import FAULTS
from tests.support.faultproxy import Fault, FaultProxy
from tests.support.faults import has_cause, pod_of, write_pod
from tests.support.kubelet import Kubelet
from tests.support.pages_of_ui import MARKUP
from tests.support.served import create_deployment, serve, write_status
from tests.ui.browser import Window, needs_chromium, window
from tests.ui.conftest import Serve

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import ObjectKey, dig
from airunway_testing.model_server import Serves, model_server
from airunway_testing.operator import Deploy, until

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.browser, needs_chromium]

SHOTS = Path(__file__).parents[2] / "docs" / "images"
SEVEN = (
    "image-not-found",
    "private-image",
    "gated-model",
    "out-of-memory",
    "crash-loop",
    "bad-arguments",
    "secret-missing",
)


async def shot(found: Window, name: str) -> None:
    """Keep what is seen for the documentation, where asked for: pixels differ with the fonts of a machine."""
    import os

    if os.environ.get("AIRUNWAY_SCREENSHOTS"):
        SHOTS.mkdir(exist_ok=True)
        await found.page.screenshot(path=SHOTS / f"ui-{name}.png")


async def tab_to(found: Window, selector: str) -> None:
    """Press Tab until that has the focus. Raises AssertionError if nothing leads there."""
    for _ in range(80):
        if await found.page.evaluate("wanted => document.activeElement.matches(wanted)", selector):
            return
        await found.page.keyboard.press("Tab")
    raise AssertionError(f"no Tab leads to {selector}")


async def complaints_of_axe(found: Window) -> list[str]:
    """What axe finds on the page that is there."""
    source = (files("axe_playwright_python") / "axe.min.js").read_text()
    result: dict[str, Any] = await found.page.evaluate(f"async () => {{ {source}; return await axe.run(document); }}")
    return [
        f"{each['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for each in result["violations"]
        for node in each["nodes"][:2]
    ]


async def test_each_fault_shows_what_is_wrong_and_what_to_do_in_the_first_screen(
    deploy: Deploy, client: Client, pages: Serve
) -> None:
    faults = {name: FAULTS[name] for name in SEVEN if name in FAULTS}
    keys = {name: await deploy(name) for name in faults}
    for name, fault in faults.items():
        await write_pod(client, await pod_of(client, keys[name]), state=fault.state, last=fault.last)
    async with window(await pages()) as found:
        for name, fault in faults.items():
            deployment = await until(client, keys[name], has_cause(fault.code))
            cause = dig(deployment, "status", "rootCause")
            await found.open(f"/d/{keys[name].namespace}/{name}")
            await found.sees(fault.code, "#headline")
            text = await found.text("#headline")
            assert cause["object"] in text, (name, text)
            assert "What to do:" in text, (name, text)
            for each in fault.says:
                assert " ".join(each.split()).format(pod=f"{name}-0") in text, (name, each, text)
            box = await found.page.locator("#headline").bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= 900, (name, box)
        await shot(found, "deployment")
        await found.open(f"/?ns={keys['crash-loop'].namespace}")
        await found.sees("crash-loop")
        await shot(found, "deployments")
        assert found.wrong == []


async def test_a_first_model_runs_by_the_keyboard_alone(
    deploy: Deploy, client: Client, pages: Serve, namespace: str
) -> None:
    async with window(await pages()) as found:
        press, write = found.page.keyboard.press, found.page.keyboard.type
        await found.open(f"/?ns={namespace}")
        await found.sees("There are no deployments in namespace")
        await tab_to(found, "a[href^='/new']")
        await press("Enter")
        await found.sees("New deployment", "h1")
        await tab_to(found, "#f-model")
        await write("meta-llama/Llama-3.1-8B-Instruct")
        await tab_to(found, "#f-gpus")
        await press("Control+a")
        await write("1")
        await found.page.keyboard.press("Shift+Tab")
        for field, text in (("#f-name", "first"), ("#f-namespace", namespace)):
            await found.page.focus("#main")
            await tab_to(found, field)
            await press("Control+a")
            await write(text)
        await found.sees("The API server admits it", "#checks")
        await found.sees("fits", "#checks")
        await found.holds("name: first", "#yaml")
        await shot(found, "new")
        await tab_to(found, "button.main")
        await press("Enter")
        await found.page.wait_for_url(f"**/d/{namespace}/first")
        await found.sees("Running", "#head")
        await found.open(f"/?ns={namespace}")
        await press("/")
        assert await found.page.evaluate("document.activeElement.id") == "q"
        await press("Escape")
        await press("j")
        await press("Enter")
        await found.page.wait_for_url(f"**/d/{namespace}/first")
        await tab_to(found, "a[href$='/edit']")
        await press("Enter")
        await found.sees("Edit first", "h1")
        await tab_to(found, "#more > summary")
        await press("Enter")
        await tab_to(found, "#f-image")
        await write("registry.example/team/other:2")
        await found.sees("registry.example/team/other:2", "#checks")
        text = await found.text("#checks")
        assert any(word in text for word in ("restart", "recreate", "created again")), text
        await found.open(f"/d/{namespace}/first/delete")
        await tab_to(found, "button.danger")
        await press("Enter")
        await found.page.wait_for_url(f"**/?ns={namespace}")
        assert found.wrong == []


async def test_a_page_is_live_by_cells_and_says_when_the_connection_is_lost(
    client: Client, key: ObjectKey, kubeconfig: Path, pages: Serve
) -> None:
    await create_deployment(client, ObjectKey(key.namespace, "other"), alone=False)
    async with FaultProxy(kubeconfig) as proxy, window(await pages(proxy.kubeconfig)) as found:
        await found.open(f"/?ns={key.namespace}")
        await found.sees("llama")
        await found.page.evaluate("document.querySelectorAll('tr.row').forEach((each) => { each.kept = true; })")
        await write_status(client, key, phase="Running", replicas={"ready": 1, "desired": 1, "summary": "1/1"})
        await found.sees("Running", "#list")
        await found.sees("1/1", "#list")
        kept = await found.page.evaluate("[...document.querySelectorAll('tr.row')].filter((each) => each.kept).length")
        assert kept == 2, "a row that stays is not built anew, even where it moves"
        assert [each.strip() for each in await found.page.locator("a.open").all_inner_texts()] == ["other", "llama"]
        proxy.inject(Fault("status", status=503, count=None))
        proxy.cut_all()
        await found.sees("Connection to the API server lost", "#lost")
        assert "llama" in await found.text(), "what was known is still there"
        await write_status(client, key, phase="Degraded", reason="AfterTheCut")
        proxy.clear()
        await found.sees("Degraded", "#list")
        await found.page.wait_for_function("!document.getElementById('lost').textContent.trim()")
        before = len(proxy.requests)
        await found.page.wait_for_timeout(3000)
        assert [each for each in proxy.requests[before:] if each.verb != "watch"] == [], "at rest nothing is asked for"
        assert [each for each in found.wrong if "503" not in each] == []


async def test_pages_work_without_scripts(client: Client, key: ObjectKey, pages: Serve) -> None:
    async with window(await pages(), java_script_enabled=False) as found:
        await found.open(f"/?ns={key.namespace}")
        await found.page.click("a.open")
        await found.sees("llama", "h1")
        await found.page.click("a[href$='/copy']")
        await found.page.fill("#f-replicas", "3")
        await found.page.click("text=Take the form into the YAML")
        await found.holds("replicas: 3", "#yaml")
        await found.page.click("button.main")
        await found.sees("llama-copy", "h1")
        copied = await client.get(MODEL_DEPLOYMENT, ObjectKey(key.namespace, "llama-copy"))
        assert copied["spec"]["scaling"]["replicas"] == 3


async def test_hostile_texts_run_nothing_and_leave_the_layout(
    client: Client, kubelet: Kubelet, key: ObjectKey, pages: Serve
) -> None:
    bad = f"{MARKUP}\u202e\u2066 {'w' * 700}"
    cause = {
        "code": "ImagePull.NotFound",
        "object": f"Pod/{bad[:200]}",
        "message": bad,
        "since": "2026-11-01T10:00:00Z",
    }
    await write_status(client, key, phase="Degraded", reason=MARKUP, message=bad, rootCause=cause, warnings=[bad])
    async with model_server(models={"llama": Serves.CHAT}) as server:
        await serve(client, kubelet, key, server)
        async with window(await pages()) as found:
            for path in ("", "/yaml", "/why", "/edit"):
                await found.open(f"/d/{key.namespace}/llama{path}")
                await found.sees("llama", "h1")
                wide = await found.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, path
            await found.open(f"/?ns={key.namespace}&q={'%3Cscript%3E'}")
            await found.open(f"/d/{key.namespace}/llama/ask")
            await found.page.fill("#prompt", f"two {MARKUP} one")
            await found.page.keyboard.press("Enter")
            await found.sees("first token after", "#counts")
            assert "<script>alert(2)</script>" in await found.text("#dialogue")
            await shot(found, "ask")
            assert found.wrong == []


async def test_axe_finds_nothing(client: Client, key: ObjectKey, pages: Serve) -> None:
    cause = {"code": "ImagePull.NotFound", "object": "Pod/a/b", "message": "image x not found"}
    await write_status(client, key, phase="Degraded", reason="ImageNotFound", message="no", rootCause=cause)
    caller = await pages()
    looks: tuple[dict[str, Any], ...] = (
        {"color_scheme": "light"},
        {"color_scheme": "dark"},
        {"forced_colors": "active"},
        {"width": 360, "height": 700},
    )
    for look in looks:
        async with window(caller, **look) as found:
            for path in (f"/?ns={key.namespace}", f"/d/{key.namespace}/llama", f"/d/{key.namespace}/llama/ask", "/new"):
                await found.open(path)
                await found.page.wait_for_load_state()
                assert await complaints_of_axe(found) == [], (look, path)
            await found.page.evaluate("document.body.classList.add('stale')")
            assert await complaints_of_axe(found) == [], (look, "without a connection")
