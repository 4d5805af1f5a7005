"""``airunway chat`` through a real API server, with a model server behind a pod."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.kubelet import Kubelet
from tests.support.served import serve, write_status
from tests.view.conftest import Grant, Run, is_on_page

from airunway.kube import Client
from airunway.resource import ObjectKey
from airunway_testing.eventually import PATIENCE, Eventually
from airunway_testing.fixtures import Kubectl
from airunway_testing.model_server import ModelServer, Serves, answering, model_server, never, sending

pytestmark = pytest.mark.cluster

CHAT = "/v1/chat/completions"


@pytest.fixture
async def server(client: Client, kubelet: Kubelet, key: ObjectKey) -> AsyncIterator[ModelServer]:
    async with model_server(models={"llama": Serves.CHAT}) as server:
        await serve(client, kubelet, key, server)
        yield server


async def test_an_answer_is_streamed_and_counted(server: ModelServer, key: ObjectKey, run: Run) -> None:
    done = await run("chat", "md/llama", "why is the sky blue", "-n", key.namespace, "--system", "be short")
    assert (done.code, done.out) == (0, "blue sky the is why\n"), done
    assert "first token after" in done.err
    assert "5 tokens in, 5 out" in done.err
    assert is_on_page('chat md/llama "why is the sky blue" -n ml', done.out + done.err), done
    (asked,) = [each for each in server.received if each.path == CHAT]
    assert [each["role"] for each in asked.body["messages"]] == ["system", "user"]
    # Nothing of the caller reaches the model.
    assert not {name.lower() for name in asked.headers} & {"authorization", "impersonate-user", "cookie"}

    shown = await run("chat", "md/llama", "one two three", "-n", key.namespace, "-o", "json", "--max-tokens", "2")
    view = json.loads(shown.out)
    assert (view["text"], view["usage"]["completion"], view["model"]) == ("three two", 2, "llama")
    server.with_usage = False
    unknown = await run("chat", "md/llama", "one two", "-n", key.namespace)
    assert "tokens unknown: the server sent no counts of tokens" in unknown.err
    wrong = await run("chat", "md/llama", "one", "-n", key.namespace, "--model", "other")
    assert (wrong.code, "HTTP 404: The model `other` does not exist." in wrong.err) == (1, True), wrong


async def test_a_request_as_curl_can_be_pasted(server: ModelServer, key: ObjectKey, run: Run, kubectl: Kubectl) -> None:
    prompt = "it's $(reboot) `now` \x1b[2J \u202e"
    printed = await run("chat", "md/llama", prompt, "-n", key.namespace, "--raw")
    assert printed.code == 0, printed
    assert [each for each in server.received if each.path == CHAT] == []
    assert all(line.isprintable() for line in printed.out.splitlines())
    inside, outside = [line for line in printed.out.splitlines() if not line.startswith("#")]
    words = shlex.split(inside)
    assert words[2] == f"http://llama.{key.namespace}.svc:80{CHAT}"
    body = json.loads(words[-1])
    assert body["messages"][0]["content"] == prompt
    # The path that is printed for this machine is one that the API server has.
    path = shlex.split(outside)[2].removeprefix("http://127.0.0.1:8001")
    body["stream"] = False
    answered = await asyncio.to_thread(kubectl, "create", "--raw", path, "-f", "-", stdin=json.dumps(body))
    assert json.loads(answered.stdout)["usage"]["prompt_tokens"] == len(prompt.split())


@pytest.mark.parametrize("advertises", [True, False])
async def test_a_model_is_asked_for_what_it_does(
    server: ModelServer, key: ObjectKey, run: Run, *, advertises: bool
) -> None:
    server.advertises = advertises
    server.models = {"base": Serves.COMPLETION}
    base = await run("chat", "md/llama", "one two", "-n", key.namespace)
    assert base.out == "two one\n", base
    server.models = {"embedder": Serves.EMBEDDING}
    embedding = await run("chat", "md/llama", "one two", "-n", key.namespace)
    assert embedding.out == "[0.1, -0.2, 0.3, 0.4]\n", embedding
    assert "4 dimensions" in embedding.err
    tried = [each.path for each in server.received if each.method == "POST"][-3:]
    assert tried[-1] == "/v1/embeddings"
    assert ("/v1/completions" in tried[-2:]) is not advertises
    server.models = {"ranker": Serves.RERANK}
    documents = ("--document", "a long document", "--document", "short")
    ranked = await run("chat", "md/llama", "query", "-n", key.namespace, *documents)
    assert [line.split("  ")[1] for line in ranked.out.splitlines()] == ["short", "a long document"], ranked
    without = await run("chat", "md/llama", "query", "-n", key.namespace, "--as", "rerank")
    assert (without.code, "name them with --document" in without.err) == (1, True), without


async def test_what_is_no_utf_8_is_asked_with_replacements(
    server: ModelServer, key: ObjectKey, kubeconfig: Path
) -> None:
    async def ask(*arguments: bytes | str, stdin: bytes = b"") -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "airunway", "chat", "md/llama", *arguments),
            *("-n", key.namespace, "--kubeconfig", str(kubeconfig)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(stdin)
        assert process.returncode == 0, err
        return out.decode()

    assert await ask(stdin=b"caf\xe9 one") == "one caf\ufffd\n"
    assert await ask(b"caf\xe9 two", "--system", b"\xff") == "two caf\ufffd\n"
    asked = [each.body["messages"] for each in server.received if each.path == CHAT]
    assert asked[-1][0]["content"] == "\ufffd"
    server.models = {"ranker": Serves.RERANK}
    assert await ask("query", "--document", b"caf\xe9", "--as", "rerank") == "0.200000  caf\ufffd\n"


@pytest.mark.parametrize("advertises", [True, False])
async def test_a_request_that_the_model_refuses_is_not_asked_as_another_task(
    server: ModelServer, key: ObjectKey, run: Run, *, advertises: bool
) -> None:
    server.advertises = advertises
    too_long = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."
    for status in (400, 422):
        server.faults[CHAT] = answering(json.dumps({"error": {"message": too_long}}), status=status)
        done = await run("chat", "md/llama", "hello", "-n", key.namespace)
        assert (done.code, done.out) == (1, ""), done
        assert done.err == f"airunway: the model's server answered with HTTP {status}: {too_long}\n"
    assert {each.path for each in server.received if each.method == "POST"} == {CHAT}
    # What the server says of its task leads on, and is shown.
    server.models = {"base": Serves.COMPLETION}
    server.faults[CHAT] = answering(
        json.dumps({"error": {"message": "tokenizer.chat_template is not set"}}), status=400
    )
    base = await run("chat", "md/llama", "one two", "-n", key.namespace)
    assert (base.code, base.out) == (0, "two one\n"), base
    assert "refuses chat (HTTP 400: tokenizer.chat_template is not set): asking it for completion" in base.err


@pytest.mark.slow
async def test_what_is_no_answer_is_one_plain_sentence(server: ModelServer, key: ObjectKey, run: Run) -> None:
    hostile = json.dumps({"choices": [{"delta": {"content": "ok \x1b]0;owned\x07\x1b[2J\u202e\x9b5m bad"}}]})
    cases = {
        "HTTP 502: <html>": answering("<html>\x1b[2J</html>" * 1000, status=502, content_type="text/html"),
        "not JSON: <html>": answering("<html></html>", content_type="text/html"),
        "HTTP 500: out of memory": answering('{"error": {"message": "out of memory"}}', status=500),
        "asks for a key (HTTP 401)": answering('{"error": "Unauthorized"}', status=401),
        "sent an error: too long": answering('{"object": "error", "message": "too long"}'),
        "broke off": sending(f"data: {hostile}\n\n".encode(), breaks=True),
        "before its end": sending(f"data: {hostile}\n\n".encode()),
        "no answer in time": never(),
        "more than 8 MiB": sending(b"data: " + b"x" * 2**20, *[b"x" * 2**20] * 9),
    }
    for says, fault in cases.items():
        server.faults[CHAT] = fault
        done = await run("chat", "md/llama", "hello", "-n", key.namespace, "--timeout", "2s", "--as", "chat")
        assert done.code == 1, (says, done)
        assert says in done.err, (says, done)
        assert done.err.count("\n") == 1, done
        assert len(done.err) < 700
        assert all(line.isprintable() for line in (*done.out.splitlines(), *done.err.splitlines())), done
    # An endless line takes no memory: it is read to its bound, and the request ends.
    server.faults[CHAT] = sending(b"x" * 2**20, times=1024)
    endless = await run("chat", "md/llama", "hello", "-n", key.namespace)
    assert (endless.code, endless.err.count("\n")) == (1, 1), endless


async def test_a_deployment_without_an_endpoint_or_pods_is_explained(
    client: Client, kubelet: Kubelet, key: ObjectKey, run: Run
) -> None:
    early = await run("chat", "md/llama", "hello", "-n", key.namespace)
    assert early.code == 1
    assert "has no endpoint yet (it is Pending): airunway status md/llama" in early.err
    near = await run("chat", "md/lama", "hello", "-n", key.namespace)
    assert (near.code, "did you mean md/llama?" in near.err) == (1, True)
    await write_status(client, key, endpoint={"service": "../../secrets/x", "port": 80})
    hostile = await run("chat", "md/llama", "hello", "-n", key.namespace)
    assert (hostile.code, "no endpoint yet" in hostile.err) == (1, True), hostile
    await write_status(client, key, endpoint={"service": "gone", "port": 80})
    gone = await run("chat", "md/llama", "hello", "-n", key.namespace)
    assert (gone.code, gone.err.count("\n")) == (1, 1), gone
    nowhere = await run("chat", "md/llama", "hello", "--context", "nowhere")
    assert (nowhere.code, "nowhere" in nowhere.err) == (1, True)
    assert 'services "gone" not found' in gone.err


async def test_rights(server: ModelServer, key: ObjectKey, run: Run, grant: Grant) -> None:
    namespace = key.namespace
    reader = await grant("view")
    refused = await run("chat", "md/llama", "one two", "-n", namespace, kubeconfig=reader)
    assert (refused.code, refused.out, refused.err.count("\n")) == (1, "", 1), refused
    assert f"no right to create services/proxy in namespace {namespace}: ask for the ClusterRole edit" in refused.err
    # Without the right to `get` the list of models, the name is that of the deployment.
    server.models = {"Llama-3.1-8B-Instruct": Serves.CHAT}
    asker = await grant(rules=[("", "services/proxy", "create")])
    asked = await run("chat", "md/llama", "one two", "-n", namespace, kubeconfig=asker)
    assert (asked.code, asked.out) == (0, "two one\n"), asked


async def test_a_conversation_on_a_terminal(
    server: ModelServer, key: ObjectKey, kubeconfig: Path, eventually: Eventually
) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "airunway", "chat", "md/llama", "-n", key.namespace, "--kubeconfig", str(kubeconfig)),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""

    async def until(*texts: str) -> None:
        """Read what is on the screen until it has these texts after what was typed last."""
        nonlocal shown
        async with asyncio.timeout(PATIENCE):
            while not all(text in shown.decode(errors="replace") for text in texts):
                shown += await asyncio.to_thread(os.read, ours, 65536)
        shown = b""

    try:
        await until("llama of md/llama", "> ")
        os.write(ours, b"one two\n")
        await until("two one", "tokens in", "> ")
        server.pause = 0.2
        os.write(ours, b"a b c d e f g h i j k l m n o p q r s t\n")
        await until("t s r")
        process.send_signal(signal.SIGINT)
        await until("the answer was ended", "> ")
        await eventually(lambda: server.open == 0)  # the API server's request ends with the reader
        server.pause = 0.0
        os.write(ours, b"again\n")
        await until("again", "> ")
        bodies = [each.body for each in server.received if each.path == CHAT]
        # What was answered is part of the next request; an answer that was ended is not.
        assert [each["content"] for each in bodies[-1]["messages"]] == ["one two", "two one", "again"]
        # A server that has answered a chat does chat: what it refuses then is the request.
        server.advertises = False
        server.faults[CHAT] = answering('{"error": {"message": "does not support chat that long"}}', status=400)
        os.write(ours, b"more\n")
        await until("HTTP 400: does not support chat that long", "> ")
        assert {each.path for each in server.received if each.method == "POST"} == {CHAT}
        os.write(ours, b"\x04")
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        os.close(ours)
