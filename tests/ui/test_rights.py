"""Whose rights the pages have: of users who may view, who have one namespace, no nodes, or lose their rights."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import urlencode

import pytest
from tests.support.kubelet import Kubelet
from tests.support.pages_of_ui import Answer, Caller, Elements
from tests.support.served import create_deployment, serve
from tests.ui.conftest import Serve
from tests.view.conftest import ROLE_BINDING, Grant

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.resource import ObjectKey, dig
from airunway_testing.eventually import PATIENCE, Eventually
from airunway_testing.model_server import Serves, model_server

pytestmark = pytest.mark.cluster

YAML = """apiVersion: airunway.ai/v1alpha1
kind: ModelDeployment
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  model: {{id: meta-llama/Llama-3.1-8B-Instruct}}
  scaling: {{replicas: {replicas}}}
  gateway: {{group: chat}}
"""


async def sent(caller: Caller, path: str, **form: str) -> Answer:
    """The answer to a form of this caller's pages."""
    body = urlencode({"token": caller.guard.token(caller.cookie), **form})
    return await caller.send("POST", path, caller.as_browser(), body)


async def test_a_user_who_may_view_sees_every_page_and_changes_nothing(
    pages: Serve, grant: Grant, key: ObjectKey, client: Client
) -> None:
    caller = await pages(await grant("view"))
    base = f"/d/{key.namespace}/{key.name}"
    listed = await caller.get(f"/?ns={key.namespace}")
    assert (listed.status, f'href="{base}"' in listed.body) == (200, True), listed
    assert "you may not create modeldeployments.airunway.ai" in listed.body
    for path in ("", "/why", "/yaml", "/ask", "/edit", "/copy", "/beside", "/delete", "/logs/llama-0/model"):
        answer = await caller.get(base + path)
        assert answer.status == 200, (path, answer)
    overview = Elements((await caller.get(base)).body).text
    for right in ("update modeldeployments", "delete modeldeployments", "create services/proxy"):
        assert f"you may not {right}" in overview, right
    uid = str(dig(await client.get(MODEL_DEPLOYMENT, key), "metadata", "uid"))
    refused = [
        await sent(caller, f"{base}/weight", weight="5"),
        await sent(caller, f"{base}/delete", uid=uid),
        await sent(caller, f"{base}/ask", prompt="why"),
        await sent(
            caller, "/apply", yaml=YAML.format(name="other", namespace=key.namespace, replicas=1), source="yaml"
        ),
    ]
    assert [each.status for each in refused] in ([403, 403, 200, 422], [403, 403, 403, 422]), refused
    assert all("you have no right to" in each.body or "no endpoint" in each.body for each in refused), refused
    assert await client.find(MODEL_DEPLOYMENT, ObjectKey(key.namespace, "other")) is None
    assert await client.find(MODEL_DEPLOYMENT, key) is not None


async def test_a_user_of_one_namespace_sees_that_one_and_learns_which_right_is_missing(
    pages: Serve, grant: Grant, key: ObjectKey, client: Client
) -> None:
    other = ObjectKey(f"{key.namespace}-other", "secret-model")
    await create_deployment(client, ObjectKey(key.namespace, "llama-2"), alone=False)
    caller, admin = await pages(await grant("view")), await pages()
    for answer in (await caller.get("/"), await caller.get(f"/?ns={other.namespace}")):
        text = Elements(answer.body).text
        assert (answer.status, "You may not list" in text) == (200, True), text
        assert key.name not in text, "the namespace of the context is another one"
    one = Elements((await caller.get(f"/d/{other.namespace}/{other.name}")).body).text
    assert "You may not get and watch modeldeployments.airunway.ai" in one
    assert "There is no ModelDeployment" not in one, "that would tell what exists"
    # Two identities at once: what one may see is not in the other's pages.
    assert key.name in (await admin.get("/")).body
    assert key.name not in (await caller.get("/")).body
    check = await sent(caller, "/check", yaml=YAML.format(name="n", namespace=key.namespace, replicas=1), source="yaml")
    text = Elements(check.body).text
    assert check.status == 200
    assert "nodes" in text
    assert "You may not list nodes" in text or "list nodes" in text, text


async def test_what_was_seen_is_gone_with_the_right_to_it(
    pages: Serve, grant: Grant, key: ObjectKey, client: Client, eventually: Eventually
) -> None:
    caller = await pages(await grant("view"))
    path = f"/d/{key.namespace}/{key.name}"
    assert "meta-llama" in (await caller.get(path)).body
    for binding in await client.list_all(ROLE_BINDING, namespace=key.namespace):
        await client.delete(ROLE_BINDING, ObjectKey(key.namespace, binding["metadata"]["name"]))

    async def refused() -> bool:
        # A watch that is open stays open; a new one, as for a page that was closed, is refused.
        fresh = await pages(await grant(deployments="create"))
        answer = await fresh.get(path)
        return "meta-llama" not in answer.body and "You may not" in answer.body

    assert await eventually(refused)


async def test_a_first_model_is_deployed_edited_weighed_and_deleted_by_forms_alone(
    pages: Serve, client: Client, key: ObjectKey
) -> None:
    caller, name = await pages(), ObjectKey(key.namespace, "first")
    text = YAML.format(name=name.name, namespace=name.namespace, replicas=1)
    checked = await sent(
        caller,
        "/check",
        yaml=text,
        source="form",
        **{"f-model": "Qwen/Qwen3-8B", "f-gpus": "1"}
        | {"f-name": "first", "f-namespace": name.namespace, "f-replicas": "1"},
    )
    assert checked.status == 200
    assert "The API server admits it" in checked.body
    assert "Qwen/Qwen3-8B" in checked.body
    wrong = await sent(caller, "/apply", yaml=text.replace("replicas: 1", "replicas: 99999"), source="yaml")
    assert (wrong.status, "spec.scaling.replicas" in wrong.body) == (422, True), wrong
    unknown = await sent(caller, "/apply", yaml=f"{text}  nonsense: 1\n", source="yaml")
    assert (unknown.status, "nonsense" in Elements(unknown.body).text) == (422, True)
    made = await sent(caller, "/apply", yaml=text, source="yaml")
    assert (made.status, made.headers["Location"]) == (303, f"/d/{name.namespace}/first")
    again = await sent(caller, "/apply", yaml=text.replace("replicas: 1", "replicas: 2"), source="yaml")
    assert (again.status, "exists in namespace" in again.body) == (409, True)
    assert "replicas: 2" in again.body, "with what would change of it"

    form = (await caller.get(f"/d/{name.namespace}/first/edit")).body
    opened = {
        each: found[1]
        for each in ("uid", "generation")
        if (found := re.search(rf'name="{each}" value="([^"]+)"', form))
    }
    saved = await sent(
        caller, "/apply", yaml=text.replace("replicas: 1", "replicas: 2"), source="yaml", mode="edit", **opened
    )
    assert saved.status == 303, saved
    late = await sent(
        caller, "/apply", yaml=text.replace("replicas: 1", "replicas: 3"), source="yaml", mode="edit", **opened
    )
    assert (late.status, "was edited by another person" in late.body) == (409, True)
    live = await client.get(MODEL_DEPLOYMENT, name)
    assert live["spec"]["scaling"]["replicas"] == 2

    assert (await sent(caller, f"/d/{name.namespace}/first/weight", weight="3")).status == 303
    assert dig(await client.get(MODEL_DEPLOYMENT, name), "spec", "gateway", "weight") == 3
    stale = await sent(caller, f"/d/{name.namespace}/first/delete", uid="00000000-0000-0000-0000-000000000000")
    assert stale.status == 409
    gone = await sent(caller, f"/d/{name.namespace}/first/delete", uid=str(live["metadata"]["uid"]))
    assert gone.status == 303
    async with asyncio.timeout(PATIENCE):
        while await client.find(MODEL_DEPLOYMENT, name):
            await asyncio.sleep(0.1)


async def test_a_model_is_asked_and_what_it_answers_stays_a_text(
    pages: Serve, client: Client, kubelet: Kubelet, key: ObjectKey
) -> None:
    async with model_server(models={"llama": Serves.CHAT}) as server:
        await serve(client, kubelet, key, server)
        caller = await pages()
        path = f"/d/{key.namespace}/{key.name}/ask"
        page = Elements((await caller.get(path)).body).text
        for each in (f"service/llama 8000:80 -n {key.namespace}", "curl -N", "kubectl proxy"):
            assert each in page, each
        answer = await sent(caller, path, prompt="world <script>alert(1)</script> hello")
        elements = Elements(answer.body)
        assert "hello <script>alert(1)</script> world" in elements.text, elements.text
        assert [each for tag, each in elements.found if tag == "script"] == [
            {"type": "module", "src": "/static/app.js"}
        ]
        assert "first token after" in elements.text
        history = '[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]'
        body = urlencode({"token": caller.guard.token(caller.cookie), "prompt": "x y", "history": history})
        headers = {**caller.as_browser(), "Accept": "application/x-ndjson"}
        streamed = await caller.send("POST", path, headers, body)
        assert '{"text":"y' in streamed.body.replace(" ", ""), streamed.body
        assert '"end"' in streamed.body
        asked = [each.body for each in server.received if each.path == "/v1/chat/completions"][-1]
        assert [each["role"] for each in asked["messages"]] == ["user", "assistant", "user"]
        headers_of_model = {name.lower() for each in server.received for name in each.headers}
        assert not headers_of_model & {"authorization", "cookie", "sec-fetch-site"}
