"""Who is answered: attacks by host, cookie, method, path, origin and form token, on a running server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
from tests.support.pages_of_ui import Caller, serving

from airunway_ui.guard import COOKIE, HEADERS, LINK_SECONDS, Guard


@pytest.fixture
async def caller() -> AsyncIterator[Caller]:
    async with serving() as found:
        yield found


class Attack(NamedTuple):
    """A request that a stranger sends, or has a browser send."""

    name: str
    method: str = "GET"
    path: str = "/"
    change: dict[str, str | None] = {}  # noqa: RUF012 - read only
    body: str = ""
    status: int = 403


EDIT = "/d/ml/llama/weight"

ATTACKS = (
    Attack("no cookie", change={"Cookie": None}),
    Attack("an invented cookie", change={"Cookie": f"{COOKIE}=0000"}),
    Attack("an empty cookie", change={"Cookie": f"{COOKIE}="}),
    Attack("the address in place of the name", change={"Host": "127.0.0.1:{port}"}),
    Attack("a name that was made to resolve to 127.0.0.1", change={"Host": "evil.example:{port}"}),
    Attack("localhost", change={"Host": "localhost:{port}"}),
    Attack("our name without the port", change={"Host": "{name}"}),
    Attack("our name with a dot", change={"Host": "{name}.:{port}"}),
    Attack("our name in capitals", change={"Host": "{NAME}:{port}"}),
    Attack("no host", change={"Host": ""}),
    Attack("a page of another site", change={"Sec-Fetch-Site": "cross-site"}),
    Attack("a page at another port of our name", change={"Sec-Fetch-Site": "same-site"}),
    Attack("a stream from another site", change={"Sec-Fetch-Site": "cross-site", "Accept": "text/event-stream"}),
    Attack("a form of another site", "POST", EDIT, {"Sec-Fetch-Site": "cross-site"}, "weight=1"),
    Attack("a form of a browser that does not say from where", "POST", EDIT, {"Sec-Fetch-Site": None}, "weight=1"),
    Attack("a form of another origin", "POST", EDIT, {"Origin": "http://evil.example"}, "weight=1"),
    Attack("a form of the null origin", "POST", EDIT, {"Origin": "null"}, "weight=1"),
    Attack("a form without a token", "POST", EDIT, {}, "weight=1"),
    Attack("a form with an invented token", "POST", EDIT, {}, "weight=1&token=0000"),
    Attack("a form with an empty token", "POST", EDIT, {}, "weight=1&token="),
    Attack("a form with the cookie as token", "POST", EDIT, {}, "weight=1&token={cookie}"),
    Attack("a change by a link", "GET", EDIT, status=405),
    Attack("another method", "DELETE", "/d/ml/llama", status=405),
    Attack("HEAD", "HEAD", "/", status=405),
    Attack("OPTIONS", "OPTIONS", "/", status=405),
    Attack("TRACE", "TRACE", "/", status=405),
    Attack("PUT", "PUT", EDIT, status=405),
    Attack("a login without a key", path="/login"),
    Attack("a login by a form", "POST", "/login", {}, "key=x", 405),
    Attack("a file beside the static ones", path="/static/..%2f..%2fguard.py", status=404),
    Attack("a file above the static ones", path="/static/../guard.py", status=404),
    Attack("a source file", path="/static/app.py", status=404),
    Attack("a name with a slash", path="/d/ml/..%2f..%2fsecrets", status=404),
    Attack("a name with dots", path="/d/../llama", status=404),
    Attack("a namespace with a line break", path="/d/ml%0d%0ax/llama", status=404),
    Attack("a name in capitals", path="/d/ml/LLAMA", status=404),
    Attack("a pod's name with a slash", path="/d/ml/llama/logs/a%2f..%2fb/c", status=404),
    Attack("a container's name with a query", path="/d/ml/llama/logs/a/c%3ffollow", status=404),
    Attack("a path that is not there", path="/api/v1/secrets", status=404),
)


async def test_attacks_get_an_answer_that_tells_nothing(caller: Caller) -> None:
    names = {"port": str(caller.guard.port), "name": caller.guard.name, "NAME": caller.guard.name.upper()}
    for attack in ATTACKS:
        headers = caller.as_browser()
        for name, value in attack.change.items():
            headers.pop(name, None)
            if value is not None:
                headers[name] = value.format(**names)
        body = attack.body.format(cookie=caller.cookie)
        answer = await caller.send(attack.method, attack.path, headers, body)
        assert answer.status == attack.status, attack
        if answer.status == 403:
            assert answer.body == "Forbidden", attack
        for name, value in HEADERS.items():
            assert answer.headers.get(name) == value, (attack, name)
        assert "Set-Cookie" not in answer.headers, attack


async def test_a_second_host_header_is_refused(caller: Caller) -> None:
    headers = {**caller.as_browser(), "host": "evil.example"}
    assert (await caller.send("GET", "/", headers)).status in (400, 403)


async def test_every_answer_has_the_headers(caller: Caller) -> None:
    for path in ("/static/app.js", "/static/style.css", "/static/icon.svg", "/d/ml/llama", "/nowhere"):
        answer = await caller.get(path)
        for name, value in HEADERS.items():
            assert answer.headers.get(name) == value, path
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "*" not in policy


async def test_a_link_works_once(caller: Caller) -> None:
    path = caller.guard.link().partition(caller.guard.host)[2]
    first = await caller.send("GET", path, {"Host": caller.guard.host})
    assert first.status == 200
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(first.headers["Set-Cookie"].split("; "))
    assert "Domain" not in first.headers["Set-Cookie"], "of this host only"
    second = await caller.send("GET", path, {"Host": caller.guard.host})
    assert (second.status, "Set-Cookie" in second.headers) == (403, False)


def test_a_link_ends_and_so_do_the_oldest_sessions() -> None:
    now = 0.0
    guard = Guard(port=1, clock=lambda: now)
    late = guard.link().partition("key=")[2]
    now = LINK_SECONDS + 1
    assert guard.log_in(late) is None
    cookies = [guard.log_in(guard.link().partition("key=")[2]) or "" for _ in range(20)]
    assert all(cookies)
    assert len(set(cookies)) == 20
    assert guard.token(cookies[0]) == ""
    assert guard.token_is_right(cookies[-1], guard.token(cookies[-1]))
    assert not guard.token_is_right(cookies[-1], guard.token(cookies[-2]))
    assert not guard.token_is_right("", "")


async def test_a_form_of_the_page_reaches_the_api_server(caller: Caller) -> None:
    body = urlencode({"token": caller.guard.token(caller.cookie), "weight": "1"})
    answer = await caller.send("POST", EDIT, caller.as_browser(), body)
    assert answer.status == 502, "the API server of these tests is not there"
    for weight in ("-1", "1001", "1.5", "", "٣", "1e3", "9" * 400):
        body = urlencode({"token": caller.guard.token(caller.cookie), "weight": weight})
        answer = await caller.send("POST", EDIT, caller.as_browser(), body)
        assert (answer.status, "is no weight" in answer.body) == (422, True), weight
