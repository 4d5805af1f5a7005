"""What ``airunway chat`` makes of deployments and errors: of usual ones and of any."""

from __future__ import annotations

import json
import shlex
from random import Random
from typing import Any

import pytest
from click.exceptions import Exit
from click.testing import CliRunner
from core.tests.any_json import anything, changed
from core.tests.view.test_views import HOSTILE
from hypothesis import given, settings
from hypothesis import strategies as st

from airunway.cli.chat import LONGEST_PROMPT, _sentence, _served_name, _stated_task, _Talk, _Wanted, names_other_task
from airunway.cli.main import app
from airunway.kube import SERVICE, Client, ClusterConfig, ConnectionFailed, api_error
from airunway.resource import ObjectKey, Resource
from airunway.snapshots.serving import Endpoint, proxy_path
from airunway.view.answers import Task

ENDPOINT = Endpoint(kind=SERVICE, key=ObjectKey("ml", "llama"), port=8000)


def deployment(**status: Any) -> Resource:
    return {
        "metadata": {"name": "llama", "namespace": "ml"},
        "spec": {"model": {"id": "meta-llama/Llama-3.1-8B-Instruct"}},
        "status": {"endpoint": {"url": "http://llama.ml.svc:8000"}, **status},
    }


def talk(obj: Resource) -> _Talk:
    wanted = _Wanted(task="auto", model="", system="", documents=(), max_tokens=None, silence=1.0)
    client = Client(ClusterConfig(server="http://127.0.0.1:1"))
    return _Talk(
        client=client, deployment=obj, endpoint=ENDPOINT, wanted=wanted, model="m", tasks=[Task.CHAT], certain=True
    )


def test_through_the_gateway_the_name_is_the_gateways() -> None:
    gateway = {"ready": True, "url": "https://models.example/ml/llama/", "modelName": "team/llama"}
    first, command, _, own = talk(deployment(gateway=gateway)).curl("why?")
    assert first == "# through the gateway"
    words = shlex.split(command)
    assert words[2] == "https://models.example/ml/llama/v1/chat/completions"
    assert json.loads(words[-1])["model"] == "team/llama"
    assert json.loads(shlex.split(own)[-1])["model"] == "m"
    not_ready = talk(deployment(gateway={**gateway, "ready": False})).curl("why?")
    assert not_ready[0] == "# in a pod of the cluster"
    (_, only) = talk({"metadata": {}}).curl("why?")
    path = "/api/v1/namespaces/ml/services/llama:8000/proxy/v1/chat/completions"
    assert shlex.split(only)[2] == f"http://127.0.0.1:8001{path}"
    secure = Endpoint(kind=SERVICE, key=ObjectKey("ml", "llama"), port=443, scheme="https")
    assert proxy_path(secure, "/x") == "/api/v1/namespaces/ml/services/https:llama:443/proxy/x"


def test_the_served_name_by_the_deployment() -> None:
    assert _served_name(deployment()) == "Llama-3.1-8B-Instruct"
    assert _served_name(deployment(gateway={"modelName": "x"})) == "x"
    named = deployment()
    named["spec"]["model"]["servedName"] = "own"
    assert _served_name(named) == "own"
    assert _served_name({}) == ""


def test_the_task_of_the_deployment_decides_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    obj = deployment(endpoint={"service": "llama-api", "port": 8080})
    assert _stated_task(obj, asked="auto") is None
    for task, asked_for in (("generate", None), ("embed", Task.EMBEDDING), ("rerank", Task.RERANK)):
        obj["spec"]["model"]["task"] = task
        assert _stated_task(obj, asked="auto") is asked_for, task
    for task, path in (("transcribe", "/v1/audio/transcriptions"), ("classify", "/classify")):
        obj["spec"]["model"]["task"] = task
        assert _stated_task(obj, asked="chat") is None
        with pytest.raises(Exit):
            _stated_task(obj, asked="auto")
        said = capsys.readouterr().err
        assert f"spec.model.task {task}" in said
        assert "kubectl port-forward service/llama-api 8000:8080 -n ml" in said
        assert f"curl http://127.0.0.1:8000{path} " in said
        assert "Llama-3.1-8B-Instruct" in said


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (503, {"kind": "Status", "reason": "ServiceUnavailable", "message": "no endpoints available"}, "no pod of md/"),
        (401, {"error": {"message": "invalid key"}}, "asks for a key (HTTP 401)"),
        (500, {"detail": "boom"}, "HTTP 500: boom"),
        (500, {"error": {"code": 3}}, "HTTP 500: no message"),
        (403, {"error": "not for you"}, "HTTP 403: not for you"),
        (502, f"<html>{HOSTILE}", "HTTP 502: <html>"),
        (400, {"message": HOSTILE}, "HTTP 400: "),
        (400, {"error": {"message": {"deep": [[[[]]]]}}}, "HTTP 400: no message"),
        (418, "[" * 100_000, "HTTP 418: [[["),
    ],
)
def test_an_error_is_one_bounded_sentence(status: int, body: object, says: str) -> None:
    text = _sentence(api_error(status, body), ENDPOINT, deployment())
    assert says in text
    assert text.isprintable()
    assert len(text) < 400


@pytest.mark.parametrize(
    ("message", "other"),
    [
        ("The model does not support Chat Completions API", True),
        ("The model does not support /v1/chat/completions", True),
        ("default chat template is no longer allowed, so you must provide a chat template", True),
        ("Cannot use chat template functions because tokenizer.chat_template is not set", True),
        ("This model does not appear to be an embedding model by default.", True),
        ("This server does not support embeddings. Start it with `--embeddings`", True),
        ('"nomic" does not support generate', True),
        ("This model's maximum context length is 4096 tokens. However, you requested 5000", False),
        ("System role not supported", False),
        ("max_tokens is too large for a chat completion", False),
        ("The model does not support tools in chat completions", False),
        ("chat template rendering failed: roles must alternate", False),
        ("", False),
        (HOSTILE, False),
    ],
)
def test_a_message_about_the_task_is_known(message: str, *, other: bool) -> None:
    assert names_other_task(message) is other


def test_a_right_that_is_missing_is_the_api_servers_word_only() -> None:
    message = 'services "llama" is forbidden: User "u" cannot create resource "services/proxy" in API group "" in the …'
    own = api_error(403, {"kind": "Status", "reason": "Forbidden", "message": message})
    assert "no right to create services/proxy in namespace ml: ask for the ClusterRole edit" in _sentence(
        own, ENDPOINT, deployment()
    )
    assert _sentence(ConnectionFailed("reset"), ENDPOINT, deployment()) == "reset"


@pytest.mark.parametrize(
    ("words", "stdin", "says"),
    [
        (("chat", "md/x", " "), "", "the prompt is empty"),
        (("chat", "md/x"), "", "the prompt is empty"),
        (("chat", "md/x"), "x" * (LONGEST_PROMPT + 1), "the prompt has more than"),
        (("chat", "md/x", "hi", "--timeout", "0s"), "", "--timeout must be longer"),
        (("chat", "md/x", "hi", "--timeout", "soon"), "", "is not a duration"),
        (("chat", "pod/x", "hi"), "", "write md/NAME"),
        (("chat", "md/-rf", "hi"), "", "not a name"),
        (("top", "md/x", "-A"), "", "or use -A"),
        (("top", "--prometheus", "file:///etc/passwd"), "", "needs an http or https URL"),
        (("top", "--window", "0s"), "", "--window must be longer"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], stdin: str, says: str) -> None:
    done = CliRunner().invoke(app, list(words), input=stdin)
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())


@settings(max_examples=150, deadline=None)
@given(st.randoms())
def test_any_deployment_gives_commands_that_a_terminal_can_show(chance: Random) -> None:
    gateway = {"ready": True, "url": f"https://x/{HOSTILE[:200]}", "modelName": "a"}
    base = deployment(gateway=gateway)
    spoiled = {
        **base,
        "spec": changed(chance, base["spec"], anything),
        "status": changed(chance, base["status"], anything),
    }
    assert isinstance(_served_name(spoiled), str)
    for line in talk(spoiled).curl(HOSTILE[:500]):
        assert line.isprintable()
        assert line.startswith("#") or json.loads(shlex.split(line)[-1])["messages"][0]["content"] == HOSTILE[:500]
