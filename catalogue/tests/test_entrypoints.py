"""How entrypoints are read beside the passes of templates: once, with bounds, and with a reason where they are not."""

from __future__ import annotations

import asyncio
import base64
import json
import re

import pytest

from airunway.kube import Client
from airunway.resource import ObjectKey
from airunway_catalogue.discovery import Entrypoint
from airunway_catalogue.entrypoints import KEPT, MOST_KEPT, AskedImage, Entrypoints, KnownRegistry
from airunway_catalogue.pull_secrets import SECRET
from airunway_catalogue.registry import Limits
from airunway_testing.eventually import eventually
from airunway_testing.registry.faults import Hang, HttpStatus, Redirect
from airunway_testing.registry.server import Image, LocalRegistry, container_registry

pytestmark = pytest.mark.apiserver

PASSWORD = "hunter2-is-long-enough"
IMAGES = [Image("team/llama", "1.0", entrypoint=["serve"])]
LLAMA = ObjectKey("team", "llama")
VOUCHED = KnownRegistry(trusted=True, insecure=True)


class Reader:
    """The entrypoints, a clock, and the templates that were woken."""

    def __init__(
        self, client: Client, *, home: str = "home", known: KnownRegistry = VOUCHED, read_time: float = 20
    ) -> None:
        self.woken: list[ObjectKey] = []
        self.now = 0.0
        self.entrypoints = Entrypoints(
            client=client,
            home=home,
            registry_of=lambda _: known,
            wake=self.woken.append,
            limits=Limits(request=5),
            read_time=read_time,
            clock=lambda: self.now,
        )

    def known(self, asked: AskedImage, *, began: bool = False) -> Entrypoint | None:
        return self.entrypoints.known(asked, began=began)

    async def read(self, asked: AskedImage) -> Entrypoint:
        """The answer to a question, once the template is woken."""
        before = len(self.woken)
        self.entrypoints.ask(asked, template=LLAMA)
        assert self.known(asked) is None

        async def woken() -> bool:
            return len(self.woken) > before

        await eventually(woken)
        found = self.known(asked)
        assert found is not None
        return found


def image(registry: LocalRegistry, *secrets: str, tag: str = "1.0") -> AskedImage:
    return AskedImage(image=f"{registry.host}/team/llama:{tag}", secrets=secrets)


async def test_an_entrypoint_is_read_once_for_all_templates_of_an_image(client: Client) -> None:
    async with container_registry(IMAGES) as registry:
        reader = Reader(client)
        asked = image(registry)
        for number in range(10):
            reader.entrypoints.ask(asked, template=ObjectKey("team", str(number)))
        assert await reader.read(asked) == Entrypoint(words=("serve",))
        assert len(set(reader.woken)) == 11
        assert (reader.entrypoints.reads, registry.asked()) == (1, 2)


async def test_an_answer_holds_for_a_minute_and_for_a_try_that_began_with_it(client: Client) -> None:
    async with container_registry(IMAGES) as registry:
        reader = Reader(client)
        asked = image(registry)
        await reader.read(asked)
        reader.now = KEPT
        assert reader.known(asked) is None
        assert reader.known(asked, began=True) == Entrypoint(words=("serve",))
        await reader.read(asked)
        assert reader.entrypoints.reads == 2


async def test_so_many_answers_are_kept_and_no_more(client: Client) -> None:
    reader = Reader(client)
    for number in range(MOST_KEPT + 20):
        await reader.read(AskedImage(image=f"UPPER:{number}"))
    assert reader.known(AskedImage(image="UPPER:19")) is None
    assert reader.known(AskedImage(image="UPPER:20")) is not None


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (HttpStatus(status=404), "ImageNotFound: .* has no such image"),
        (HttpStatus(status=429, headers={"Retry-After": "30"}), "RateLimited: "),
        (HttpStatus(status=503), "ServerError: "),
        (Redirect(to="http://169.254.169.254/latest"), "ServerError: .*inside this network"),
        (Hang(seconds=5), r"Timeout: .* did not answer within 0\.5 s"),
    ],
    ids=["404", "429", "503", "metadata", "hang"],
)
async def test_what_cannot_be_read_has_a_reason(client: Client, fault: HttpStatus | Redirect | Hang, why: str) -> None:
    async with container_registry(IMAGES) as registry:
        registry.faults.inject(fault)
        found = await Reader(client, read_time=0.5).read(image(registry))
        assert found.words is None
        assert re.search(why, found.why), found.why


async def test_a_registry_that_only_a_user_names_is_asked_by_https_and_not_on_this_machine(client: Client) -> None:
    async with container_registry(IMAGES) as registry:
        found = await Reader(client, known=KnownRegistry()).read(image(registry))
        assert (found.words, registry.requests) == (None, [])
        assert "a loopback address" in found.why


def make_secret(name: str, namespace: str, host: str, password: str) -> dict[str, object]:
    auths = {"auths": {host: {"username": "robot", "password": password}}}
    data = {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}
    metadata = {"name": name, "namespace": namespace}
    kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson"}
    return {**kind, "metadata": metadata, "data": data}


async def test_pull_secrets_of_the_operator_s_namespace_are_used_and_never_shown(
    client: Client, namespace: str
) -> None:
    async with container_registry(IMAGES, auth="token", users={"robot": PASSWORD}) as registry:
        reader = Reader(client, home=namespace)
        await client.create(SECRET, make_secret("pull", namespace, registry.host, PASSWORD))
        await client.create(SECRET, make_secret("wrong", namespace, registry.host, f"{PASSWORD}-not"))
        assert await reader.read(image(registry, "pull")) == Entrypoint(words=("serve",))
        anonymous = await reader.read(image(registry))
        assert anonymous.why.startswith("Unauthorized: ")
        refused = await reader.read(image(registry, "wrong"))
        assert refused.why.startswith("AuthFailed: the token server"), refused.why
        missing = await reader.read(image(registry, "absent"))
        assert missing.why == (
            f"SecretNotFound: spec.imagePullSecrets: there is no Secret absent in namespace {namespace}: create it, or "
            "name another one"
        )
        assert PASSWORD not in anonymous.why + refused.why + missing.why


async def test_a_secret_that_is_missing_is_no_trouble_for_an_image_that_anyone_may_read(
    client: Client, namespace: str
) -> None:
    async with container_registry(IMAGES) as registry:
        found = await Reader(client, home=namespace).read(image(registry, "absent"))
        assert found == Entrypoint(words=("serve",))


async def test_a_slow_registry_delays_no_other_image(client: Client) -> None:
    async with container_registry(IMAGES) as slow, container_registry(IMAGES) as quick:
        slow.faults.inject(Hang(seconds=60))
        reader = Reader(client)
        reader.entrypoints.ask(image(slow), template=ObjectKey("team", "slow"))
        assert await reader.read(image(quick)) == Entrypoint(words=("serve",))
        assert reader.woken == [LLAMA]
        reader.entrypoints.stop()
        await asyncio.sleep(0)
        assert reader.known(image(quick)) is None


@pytest.mark.parametrize("reference", ["UPPER", "a b", "registry.example/", "http://registry.example/a"])
async def test_a_text_that_is_no_reference_is_not_asked_for(client: Client, reference: str) -> None:
    found = await Reader(client).read(AskedImage(image=reference))
    assert found.why.startswith("InvalidSpec: the image is no reference")
