"""The client of registries against a local one: lists, images, errors, credentials, bounds."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from airunway_catalogue.addresses import ImageReference, Kind, address_of, image_of, kind_of
from airunway_catalogue.credentials import Challenge, Credentials, UnreadableSecret, challenges_in, credentials_in
from airunway_catalogue.registry import Limits, Registry
from airunway_catalogue.registry_errors import (
    BadAnswer,
    BadImage,
    Denied,
    Missing,
    RateLimited,
    RegistryError,
    ServerFailed,
    Unreachable,
    retry_after_of,
)
from airunway_testing.registry.faults import Garbage, Hang, HttpStatus, Redirect, Route
from airunway_testing.registry.server import Auth, Image, LocalRegistry, container_registry

PASSWORD = "hunter2-is-long-enough"
USER = Credentials("robot", PASSWORD)
LABELS = {"org.example/model": "llama"}
IMAGES = [Image("team/llama", "1.0", labels=LABELS), Image("team/llama", "1.1"), Image("other/x", "latest")]


def client(
    registry: LocalRegistry,
    *,
    credentials: Credentials | None = None,
    limits: Limits | None = None,
    insecure: bool = True,
    kind: Callable[[str], Kind] = kind_of,
) -> Registry:
    address = address_of(registry.host, insecure=insecure)
    return Registry(address, credentials=credentials, limits=limits or Limits(request=5), kind=kind)


def guarded(auth: Auth) -> AbstractAsyncContextManager[LocalRegistry]:
    """A registry that the user of this module may read."""
    return container_registry(IMAGES, auth=auth, users={"robot": PASSWORD})


async def listed(names: AsyncGenerator[str]) -> list[str]:
    return [name async for name in names]


# ------------------------------------------------------------------------------------------------------------- reading


async def test_tags_and_repositories_come_page_after_page() -> None:
    images = [Image("team/llama", f"1.{number}") for number in range(25)] + IMAGES[2:]
    async with container_registry(images, page_size=10) as local, client(local) as registry:
        assert len(await listed(registry.tags("team/llama"))) == 25
        assert local.asked("tags") == 3
        assert await listed(registry.repositories()) == ["other/x", "team/llama"]


async def test_the_labels_of_an_image() -> None:
    async with container_registry(IMAGES) as local, client(local) as registry:
        assert (await registry.labels("team/llama", "1.0"))[0] == LABELS
        assert (await registry.labels("team/llama", "1.1"))[0] == {}
        _, digest = await registry.labels("team/llama", "1.0")
        assert (await registry.labels("team/llama", digest))[0] == LABELS, "by the digest the same is read again"


@pytest.mark.parametrize(
    ("given", "words"),
    [(["python3", "/serve.py"], ("python3", "/serve.py")), (None, ()), ([], ()), ("", ())],
)
async def test_the_entrypoint_of_an_image(given: object, words: tuple[str, ...]) -> None:
    image = Image("a", "1", entrypoint=given, platforms=("windows/amd64", "linux/arm64", "linux/amd64"))
    async with container_registry([image]) as local, client(local) as registry:
        assert await registry.entrypoint("a", "1") == words, "the arguments of Cmd are none of it"
        assert await registry.entrypoint("a", local._tags["a"]["1"]) == words


@pytest.mark.parametrize("given", ["serve", {"a": 1}, 5, [1], [None], ["a" * 1025], ["a\0b"], ["a"] * 33])
async def test_an_entrypoint_that_cannot_be_is_the_fault_of_the_image(given: object) -> None:
    async with container_registry([Image("a", "1", entrypoint=given)]) as local, client(local) as registry:
        with pytest.raises(BadImage, match="its entrypoint"):
            await registry.entrypoint("a", "1")


@pytest.mark.parametrize(
    ("reference", "host", "repository", "version"),
    [
        ("vllm", "docker.io", "vllm", "latest"),
        ("vllm/vllm-openai:v0.11.0", "docker.io", "vllm/vllm-openai", "v0.11.0"),
        ("registry.example/team/llama:1.0", "registry.example", "team/llama", "1.0"),
        ("REGISTRY.example:5000/llama", "registry.example:5000", "llama", "latest"),
        ("localhost/llama", "localhost", "llama", "latest"),
        ("[::1]:5000/llama:2", "[::1]:5000", "llama", "2"),
        (f"registry.example/llama:1@sha256:{'a' * 64}", "registry.example", "llama", f"sha256:{'a' * 64}"),
    ],
)
def test_a_reference_is_read_as_container_runtimes_read_it(
    reference: str, host: str, repository: str, version: str
) -> None:
    assert image_of(reference) == ImageReference(host=host, repository=repository, version=version)


@pytest.mark.parametrize(
    "reference",
    [
        "",
        "/",
        ":",
        "a/",
        "a:b:c",
        "a b",
        "a:é",
        "a@",
        "a@sha256:1",
        "UPPER",
        "-/a",
        "registry.example/",
        "registry.example/a?b",
        "registry.example/../a",
        "registry.example/a:" + "b" * 129,
        "http://registry.example/a",
        "user@registry.example/a:1",
        "x:99999/a",
        "[:::::]/a",
    ],
)
def test_a_text_that_is_no_reference_is_none(reference: str) -> None:
    assert image_of(reference) is None


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        (Kind.LOOPBACK, False),
        (Kind.LINK_LOCAL, False),
        (Kind.OTHER, False),
        (Kind.PRIVATE, False),
        (Kind.OUTSIDE, True),
    ],
)
async def test_a_registry_that_no_administrator_has_named_is_asked_at_public_addresses_only(
    kind: Kind, *, asked: bool
) -> None:
    async with container_registry([Image("a", "1", entrypoint=["x"])]) as local:
        address = address_of(local.host, insecure=True)
        async with Registry(address, trusted=False, kind=lambda _: kind) as registry:
            if asked:
                assert await registry.entrypoint("a", "1") == ("x",)
            else:
                with pytest.raises(BadAnswer, match="only if a ModelSource names it"):
                    await registry.entrypoint("a", "1")
        assert bool(local.requests) == asked


@pytest.mark.parametrize(
    ("platforms", "chosen"),
    [
        (("linux/arm64", "linux/amd64", "windows/amd64"), "linux/amd64"),
        (("windows/amd64", "linux/arm64"), "linux/arm64"),
    ],
)
async def test_of_an_index_the_image_for_linux_amd64_is_read(platforms: tuple[str, ...], chosen: str) -> None:
    image = Image("a", "1", labels=LABELS, platforms=platforms)
    async with container_registry([image]) as local, client(local) as registry:
        assert (await registry.labels("a", "1"))[0] == {**LABELS, "platform": chosen}


async def test_blobs_may_come_from_another_host() -> None:
    async with container_registry(IMAGES) as local, container_registry(IMAGES) as cdn, client(local) as registry:
        digest = json.loads(local._manifests["team/llama", local._tags["team/llama"]["1.0"]][1])["config"]["digest"]
        local.faults.inject(Redirect(to=f"http://{cdn.host}/v2/team/llama/blobs/{digest}"), route="blob")
        assert (await registry.labels("team/llama", "1.0"))[0] == LABELS
        assert cdn.asked("blob") == 1


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("status", "tree", "of_tags", "of_image"),
    [
        (401, Denied, "Unauthorized", "Unauthorized"),
        (403, Denied, "Forbidden", "Forbidden"),
        (404, Missing, "SourceNotFound", "ImageNotFound"),
        (429, RateLimited, "RateLimited", "RateLimited"),
        (500, ServerFailed, "ServerError", "ServerError"),
        (503, ServerFailed, "ServerError", "ServerError"),
        (418, ServerFailed, "ServerError", "ServerError"),
    ],
)
async def test_each_status_has_its_reason(status: int, tree: type[RegistryError], of_tags: str, of_image: str) -> None:
    async with container_registry(IMAGES) as local, client(local) as registry:
        local.faults.inject(HttpStatus(status=status, headers={"Retry-After": "30"}))
        with pytest.raises(tree) as tags:
            await listed(registry.tags("team/llama"))
        with pytest.raises(tree) as image:
            await registry.labels("team/llama", "1.0")
    assert (tags.value.reason, image.value.reason) == (of_tags, of_image)
    assert tags.value.retry_after == (30 if status in (429, 500, 503, 418) else None)
    assert local.host in tags.value.message


async def test_refused_credentials_are_AuthFailed() -> None:  # noqa: N802 - the reason
    wrong = Credentials("robot", "other than the password")
    async with guarded("basic") as local, client(local, credentials=wrong) as registry:
        with pytest.raises(Denied) as refused:
            await listed(registry.tags("team/llama"))
    assert refused.value.reason == "AuthFailed"


async def test_no_answer_has_the_reason_why() -> None:
    async with container_registry(IMAGES) as local:
        gone = local.host
        async with client(local, limits=Limits(request=0.3)) as registry:
            local.faults.inject(Hang(seconds=2), times=1)
            with pytest.raises(Unreachable, match=r"0\.3 s") as slow:
                await listed(registry.tags("team/llama"))
    async with Registry(address_of(gone, insecure=True)) as registry:
        with pytest.raises(Unreachable) as refused:
            await listed(registry.tags("team/llama"))
    async with Registry(address_of("registry.invalid", insecure=True)) as registry:
        with pytest.raises(Unreachable) as unknown:
            await listed(registry.tags("team/llama"))
    assert [slow.value.reason, refused.value.reason, unknown.value.reason] == [
        "Timeout",
        "ConnectionRefused",
        "DNSFailure",
    ]


async def test_a_registry_that_speaks_plain_http_is_no_secure_connection() -> None:
    async with container_registry(IMAGES) as local, client(local, insecure=False) as registry:
        with pytest.raises(Unreachable) as refused:
            await listed(registry.tags("team/llama"))
    assert refused.value.reason == "DependenciesUnreachable"


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after_of({"Retry-After": "17"}) == 17
    assert retry_after_of({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert retry_after_of({"Retry-After": "9" * 11}) == 24 * 3600
    for text in ("", "soon", "-1", "٣", "1e9", "Wed, 99 Oct 2015 07:28:00 GMT", "9" * 5000):
        assert retry_after_of({"Retry-After": text}) is None


# --------------------------------------------------------------------------------------------------------- credentials


async def test_a_token_is_fetched_once_for_a_repository() -> None:
    async with guarded("token") as local:
        async with client(local, credentials=USER) as registry:
            await listed(registry.tags("team/llama"))
            assert (await registry.labels("team/llama", "1.0"))[0] == LABELS
            await listed(registry.repositories())
        assert [each.target.partition("?")[2] for each in local.requests if each.host == "token"] == [
            "service=local&scope=repository:team/llama:pull",
            "service=local&scope=registry:catalog:*",
        ]


async def test_a_token_that_is_no_longer_good_is_fetched_again_once() -> None:
    async with guarded("token") as local, client(local, credentials=USER) as registry:
        await listed(registry.tags("team/llama"))
        again = {"WWW-Authenticate": f'Bearer realm="{local._token_url}",service="local"'}
        local.faults.inject(HttpStatus(status=401, headers=again), times=1)
        assert len(await listed(registry.tags("team/llama"))) == 2
        assert [each.host for each in local.requests].count("token") == 2
        local.faults.inject(HttpStatus(status=401, headers=again))
        with pytest.raises(Denied):
            await listed(registry.tags("team/llama"))
        assert [each.host for each in local.requests].count("token") == 3


async def test_a_token_for_everyone_needs_no_credentials() -> None:
    async with container_registry(IMAGES, auth="token") as local, client(local) as registry:
        assert await listed(registry.tags("team/llama")) == ["1.0", "1.1"]
        assert {each.authorization for each in local.requests if each.host == "token"} == {""}


async def test_basic_credentials_go_to_the_registry() -> None:
    async with guarded("basic") as local, client(local, credentials=USER) as registry:
        assert (await registry.labels("team/llama", "1.0"))[0] == LABELS


@pytest.mark.parametrize("auth", ["basic", "token"])
@pytest.mark.parametrize("route", ["tags", "manifest", "blob"])
async def test_credentials_never_go_to_a_host_that_a_redirect_names(auth: Auth, route: Route) -> None:
    async with guarded(auth) as local:
        async with client(local, credentials=USER) as registry:
            await registry.labels("team/llama", "1.0")  # it has all that it needs to ask
            local.faults.inject(Redirect(to=f"{local.other}/stolen"), route=route)
            with pytest.raises(RegistryError):
                await (listed(registry.tags("team/llama")) if route == "tags" else registry.labels("team/llama", "1.0"))
        stolen = [each for each in local.requests if each.host == "other"]
        assert stolen
        assert {each.authorization for each in stolen} == {""}
        assert all(PASSWORD not in each.target for each in local.requests)


async def test_a_thief_that_is_asked_after_a_redirect_gets_no_credentials_for_its_own_challenge() -> None:
    async with container_registry(IMAGES) as local, container_registry(auth="basic", users={"a": "b"}) as thief:
        async with client(local, credentials=USER) as registry:
            local.faults.inject(Redirect(to=f"http://{thief.host}/v2/team/llama/tags/list"))
            with pytest.raises(Denied):
                await listed(registry.tags("team/llama"))
        assert [each.authorization for each in thief.requests] == [""]


async def test_a_redirect_away_and_back_has_no_credentials_either() -> None:
    async with guarded("basic") as local:
        async with container_registry(IMAGES) as between, client(local, credentials=USER) as registry:
            await listed(registry.tags("team/llama"))
            local.faults.inject(Redirect(to=f"http://{between.host}/v2/team/llama/tags/list"), times=1)
            between.faults.inject(Redirect(to=f"http://{local.host}/v2/team/llama/tags/list"))
            with pytest.raises(Denied):
                await listed(registry.tags("team/llama"))
        assert local.requests[-1].authorization == ""


@pytest.mark.parametrize("to", ["other", "path"])
async def test_a_token_server_that_redirects_gets_nothing_more(to: str) -> None:
    async with guarded("token") as local:
        local.faults.inject(Redirect(to=f"{local.other}/x" if to == "other" else "/again"), route="token")
        async with client(local, credentials=USER) as registry:
            with pytest.raises(ServerFailed):
                await listed(registry.tags("team/llama"))
        assert [each.host for each in local.requests] == ["registry", "token"]


@pytest.mark.parametrize(
    "realm",
    [
        "http://auth.example/token",
        "ftp://auth.example/",
        "/token",
        "",
        "https://u:p@auth.example/",
        "http://[",
        "https://",
    ],
)
async def test_a_token_server_that_is_not_https_gets_no_credentials(realm: str) -> None:
    """The registry speaks HTTPS here as far as its client knows: only the answer to the challenge is looked at."""
    address = address_of("registry.example", insecure=False)
    async with Registry(address, credentials=USER) as registry:
        with pytest.raises(BadAnswer) as refused:
            await registry._token(Challenge(scheme="bearer", realm=realm), "repository:a:pull")
    assert PASSWORD not in refused.value.message


async def test_no_credential_is_in_any_message_or_repr() -> None:
    said = [repr(USER), str(USER)]
    for status in (401, 403, 404, 429, 500):
        async with guarded("token") as local:
            local.faults.inject(HttpStatus(status=status), route="token")
            async with client(local, credentials=USER) as registry:
                with pytest.raises(RegistryError) as error:
                    await listed(registry.tags("team/llama"))
                said += [str(error.value), repr(error.value), error.value.message]
    encoded = base64.b64encode(f"robot:{PASSWORD}".encode()).decode()
    assert not any(PASSWORD in text or encoded in text for text in said)


def secret(auths: object, **data: str) -> dict[str, object]:
    encoded = base64.b64encode(json.dumps({"auths": auths}).encode()).decode()
    return {"data": {".dockerconfigjson": encoded, **data}}


def entry(user: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:p".encode()).decode()}


@pytest.mark.parametrize(
    ("host", "folder", "user"),
    [
        ("registry.example", "", "whole"),
        ("registry.example", "team/inner", "team"),
        ("registry.example", "teams", "whole"),
        ("registry.example:5000", "", "port"),
        ("registry-1.docker.io", "", "hub"),
        ("evil-registry.example", "", None),
        ("registry.example.evil", "", None),
        ("example", "", None),
    ],
)
def test_a_secret_gives_credentials_for_its_own_registries_only(host: str, folder: str, user: str | None) -> None:
    entries = {
        "https://registry.example/v2/": {"username": "whole", "password": "p"},
        "registry.example/team": entry("team"),
        "registry.example:5000": entry("port"),
        "https://index.docker.io/v1/": entry("hub"),
        "broken.example": {"auth": "%"},
        "also-broken.example": 7,
    }
    found = credentials_in([secret({}), secret(entries)], host=host, folder=folder)
    assert (found.user if found else None) == user


@pytest.mark.parametrize(
    ("place", "host", "found"),
    [
        ("*.azurecr.io", "team.azurecr.io", True),
        ("https://*.azurecr.io", "team.azurecr.io", True),
        ("*.dkr.ecr.*.amazonaws.com", "1234.dkr.ecr.eu-west-1.amazonaws.com", True),
        ("t?am-[ab].azurecr.io", "team-a.azurecr.io", True),
        ("*.azurecr.io", "a.team.azurecr.io", False),
        ("*.azurecr.io", "azurecr.io", False),
        ("*.azurecr.io", "team.azurecr.io.evil.example", False),
        ("*.azurecr.io/team", "team.azurecr.io", True),
        ("*.azurecr.io/other", "team.azurecr.io", False),
        ("*.docker.io", "docker.io", True),
        ("registry.example:443", "registry.example", True),
        ("registry.example", "registry.example:443", True),
        ("registry.example:5000", "registry.example", False),
        ("*.example:5000", "registry.example:5000", True),
        ("[::1]:5000", "[::1]:5000", True),
    ],
)
def test_credentials_are_found_by_the_rules_of_kubelets(place: str, host: str, found: bool) -> None:
    entry = {"username": "robot", "password": PASSWORD}
    assert (credentials_in([secret({place: entry})], host=host, folder="team") is not None) == found


def test_the_entry_that_names_the_host_comes_before_a_pattern() -> None:
    entries = {
        f"{pattern}.example": {"username": pattern, "password": PASSWORD} for pattern in ("[r-s]egistry", "registry")
    }
    found = credentials_in([secret(entries)], host="registry.example", folder="")
    assert (found.user if found else None) == "registry"


@pytest.mark.parametrize("data", [{}, {".dockerconfigjson": "%"}, {".dockerconfigjson": "e30="}, {"password": "x"}])
def test_a_secret_that_is_none_for_registries_is_refused_without_its_content(data: dict[str, str]) -> None:
    with pytest.raises(UnreadableSecret, match="dockerconfigjson"):
        credentials_in([{"data": data}], host="a", folder="")


def test_challenges() -> None:
    [found] = challenges_in(['Bearer realm="https://a.example/token",service="r, e",scope="x"'])
    assert found == Challenge(scheme="bearer", realm="https://a.example/token", service="r, e")
    found, other = challenges_in(['Basic realm="x"', "Bearer realm=https://b.example"])
    assert (found.scheme, found.realm, other.scheme) == ("bearer", "https://b.example", "basic")
    both = list(challenges_in(['Basic realm="x", Bearer realm="https://c.example"']))
    assert [each.scheme for each in both] == ["bearer", "basic"]
    for hostile in ("", "=", ",,,", '"', "Bearer", 'Bearer realm="', "Bearer " * 5000, "\\" * 9000):
        list(challenges_in([hostile]))


# -------------------------------------------------------------------------------------------------- hostile registries


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", Kind.OUTSIDE),
        ("2606:4700::1111", Kind.OUTSIDE),
        ("127.0.0.1", Kind.LOOPBACK),
        ("127.9.9.9", Kind.LOOPBACK),
        ("::1", Kind.LOOPBACK),
        ("::ffff:127.0.0.1", Kind.LOOPBACK),
        ("64:ff9b::7f00:1", Kind.LOOPBACK),
        ("2002:7f00:1::", Kind.LOOPBACK),
        ("169.254.169.254", Kind.LINK_LOCAL),
        ("fe80::1%eth0", Kind.LINK_LOCAL),
        ("fd00:ec2::254", Kind.LINK_LOCAL),
        ("10.0.0.1", Kind.PRIVATE),
        ("172.16.3.4", Kind.PRIVATE),
        ("192.168.0.1", Kind.PRIVATE),
        ("100.64.0.1", Kind.PRIVATE),
        ("fd12::1", Kind.PRIVATE),
        ("0.0.0.0", Kind.OTHER),
        ("::", Kind.OTHER),
        ("224.0.0.1", Kind.OTHER),
        ("255.255.255.255", Kind.OTHER),
        ("nonsense", Kind.OTHER),
    ],
)
def test_kinds_of_addresses(address: str, kind: Kind) -> None:
    assert kind_of(address) is kind


def pretended(address: str) -> Kind:
    """As if 127.0.0.2 were on the internet; all else is what it is."""
    return Kind.OUTSIDE if address == "127.0.0.2" else kind_of(address)


@pytest.mark.parametrize("target", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001"])
async def test_a_registry_outside_cannot_lead_to_an_address_inside(target: str) -> None:
    async with container_registry(IMAGES, address="127.0.0.2") as outside, container_registry(IMAGES) as inside:
        async with client(outside, kind=pretended) as registry:
            assert await listed(registry.tags("team/llama"))
            port = inside.host.partition(":")[2]
            outside.faults.inject(Redirect(to=f"http://{target}:{port}/v2/team/llama/tags/list"))
            with pytest.raises(BadAnswer, match=r"inside this network|an address that is none"):
                await listed(registry.tags("team/llama"))
        assert inside.requests == []


@pytest.mark.parametrize("target", ["169.254.169.254", "[fd00:ec2::254]", "10.0.0.1", "[::]", "0.0.0.0"])
async def test_a_registry_on_this_machine_cannot_lead_to_other_kinds_of_addresses(target: str) -> None:
    async with container_registry(IMAGES) as local, client(local) as registry:
        local.faults.inject(Redirect(to=f"http://{target}/latest/meta-data"))
        with pytest.raises(BadAnswer, match="inside this network"):
            await listed(registry.tags("team/llama"))


async def test_a_token_server_inside_is_not_asked() -> None:
    async with container_registry() as inside:
        realm = f"http://{inside.host}/v2/_catalog"
        async with (
            container_registry(IMAGES, auth="token", realm=realm, address="127.0.0.2") as outside,
            client(outside, kind=pretended, credentials=USER) as registry,
        ):
            with pytest.raises(BadAnswer, match="inside this network"):
                await listed(registry.tags("team/llama"))
        assert inside.requests == []


async def test_redirects_end() -> None:
    async with container_registry(IMAGES) as local, client(local) as registry:
        local.faults.inject(Redirect(to="/v2/team/llama/tags/list"))
        with pytest.raises(BadAnswer, match="redirects more than 5 times"):
            await listed(registry.tags("team/llama"))
        assert local.asked() == 6


@pytest.mark.parametrize("location", ["", "http://", "ftp://x/", "file:///etc/passwd", "http://[", "//\x00"])
async def test_a_redirect_to_no_address_is_refused(location: str) -> None:
    async with container_registry(IMAGES) as local, client(local) as registry:
        if "\x00" in location:
            location = "gopher://x"
        local.faults.inject(Redirect(to=location))
        with pytest.raises(BadAnswer):
            await listed(registry.tags("team/llama"))


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b"7", b'{"tags": 7}', b'{"tags": "x"}', b"[" * 100_000, b'{"tags": [' + b"1," * 10 + b"1"],
)
async def test_a_list_of_any_shape_is_an_error_and_no_traceback(body: bytes) -> None:
    async with container_registry(IMAGES) as local, client(local) as registry:
        local.faults.inject(Garbage(body=body))
        with pytest.raises(BadAnswer, match="answered with") as error:
            await listed(registry.tags("team/llama"))
    assert not error.value.image


async def test_tags_that_no_tag_may_be_called_are_left_out() -> None:
    hostile = ["ok", "ok", "", "a/b", "../x", "a b", "x" * 129, 7, None, ["a"], "-x", "a\n"]
    async with container_registry(IMAGES) as local, client(local) as registry:
        local.faults.inject(Garbage(body=json.dumps({"tags": hostile}).encode()))
        assert await listed(registry.tags("team/llama")) == ["ok"]
        local.faults.clear()
        local.faults.inject(Garbage(body=b'{"repositories": ["a", "A", "../b", "a//b", 3, null]}'))
        assert await listed(registry.repositories()) == ["a"]
        local.faults.clear()
        local.faults.inject(Garbage(body=b'{"tags": null}'))
        assert await listed(registry.tags("team/llama")) == []


async def test_a_list_without_end_ends() -> None:
    again = Garbage(body=b'{"tags": ["1"]}', headers={"Link": '</v2/team/llama/tags/list>; rel="next"'})
    async with container_registry(IMAGES) as local, client(local) as registry:
        local.faults.inject(again)
        assert await listed(registry.tags("team/llama")) == ["1"]
        assert local.asked() == 2
    images = [Image("a", f"{number:03}") for number in range(50)]
    async with container_registry(images, page_size=5) as local, client(local, limits=Limits(names=12)) as registry:
        assert len(await listed(registry.tags("a"))) == 13
        assert local.asked() == 3


async def test_the_next_page_is_on_the_same_host() -> None:
    async with guarded("basic") as local:
        elsewhere = {"Link": f'<{local.other}/v2/x>; rel="next"'}
        local.faults.inject(Garbage(body=b'{"tags": ["1"]}', headers=elsewhere))
        async with client(local, credentials=USER) as registry:
            with pytest.raises(BadAnswer, match="another host for the next page"):
                await listed(registry.tags("team/llama"))
        assert [each for each in local.requests if each.host == "other"] == []


async def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    async with container_registry(IMAGES) as local, client(local, limits=Limits(page=10_000)) as registry:
        local.faults.inject(Garbage(body=b'{"tags": ["' + b"a" * 10_000_000 + b'"]}'))
        with pytest.raises(BadAnswer, match="more than 10000 bytes"):
            await listed(registry.tags("team/llama"))
    large = Image("a", "1", labels={"x": "y" * 10_000_000})
    async with container_registry([large]) as local, client(local) as registry:
        with pytest.raises(BadAnswer, match="more than 4194304 bytes") as error:
            await registry.labels("a", "1")
        assert error.value.image


async def test_a_compressed_answer_is_not_unpacked() -> None:
    import gzip

    bomb = Garbage(body=gzip.compress(b"[" * 50_000_000), headers={"Content-Encoding": "gzip"})
    async with container_registry(IMAGES) as local, client(local) as registry:
        local.faults.inject(bomb)
        with pytest.raises(BadAnswer, match="something else than a list"):
            await listed(registry.tags("team/llama"))


MANIFESTS: list[tuple[object, str]] = [
    (b"<html>", "no JSON object"),
    ([], "no JSON object"),
    ({}, "no configuration"),
    ({"config": 7}, "no configuration"),
    ({"config": {"mediaType": "application/vnd.cncf.helm.config.v1+json"}}, "no container image"),
    ({"config": {"mediaType": "application/vnd.oci.image.config.v1+json"}}, "no sha256"),
    ({"config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": "sha256:../../x"}}, "no sha256"),
    ({"manifests": 7}, "no variant for linux"),
    ({"manifests": []}, "no variant for linux"),
    ({"manifests": [7, {"platform": {"os": "windows"}}, {"platform": 3}]}, "no variant for linux"),
    ({"manifests": [{"platform": {"os": "linux", "architecture": "amd64"}, "digest": "md5:x"}]}, "no sha256"),
]


@pytest.mark.parametrize(("manifest", "said"), MANIFESTS)
async def test_a_manifest_of_any_shape_is_the_fault_of_its_image(manifest: object, said: str) -> None:
    async with container_registry(IMAGES) as local, client(local) as registry:
        local.put_manifest("a", "1", manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode())
        with pytest.raises(BadImage, match=said):
            await registry.labels("a", "1")


async def test_an_index_that_names_an_index_is_not_followed() -> None:
    async with container_registry(IMAGES) as local, client(local) as registry:
        platform = {"os": "linux", "architecture": "amd64"}
        inner = local.put_manifest("a", "inner", json.dumps({"manifests": []}).encode())
        local.put_manifest("a", "1", json.dumps({"manifests": [{"platform": platform, "digest": inner}]}).encode())
        with pytest.raises(BadImage, match="names another index"):
            await registry.labels("a", "1")


@pytest.mark.parametrize("labels", [None, 7, "x", ["a"]])
async def test_labels_of_any_shape(labels: object) -> None:
    async with container_registry() as local, client(local) as registry:
        config = local.put_blob(json.dumps({"config": {"Labels": labels}}).encode())
        described = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config}
        local.put_manifest("a", "1", json.dumps({"config": described}).encode())
        assert (await registry.labels("a", "1"))[0] == {}


async def test_content_that_is_not_what_its_digest_says_is_refused() -> None:
    async with container_registry(IMAGES) as local, client(local) as registry:
        local.corrupt()
        with pytest.raises(BadImage, match="other content than the digest"):
            await registry.labels("team/llama", "1.0")


def test_addresses_of_registries() -> None:
    hub = address_of("docker.io", insecure=False)
    assert (hub.host, hub.repository("alpine"), hub.repository("team/x")) == (
        "registry-1.docker.io",
        "library/alpine",
        "team/x",
    )
    folder = address_of("registry.example:5000/team/", insecure=False)
    assert str(folder.url) == "https://registry.example:5000"
    assert folder.repository("llama") == "team/llama"
    assert (folder.image("team/llama"), folder.image("teams/llama"), folder.image("team")) == ("llama", None, None)
