"""Discovery on a real cluster: the Job controller and the scheduler are the real ones, the image is a played one."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from functools import partial

import pytest
from tests.catalogue.conftest import Ground, reasons, running_catalogue
from tests.support.faultproxy import Fault, FaultProxy, ProxiedRequest

from airunway.api import names
from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_SOURCE, MODEL_TEMPLATE, RUNTIME_CONFIG
from airunway.kube import JOB, POD, Client, Kind, Reflector, load_config
from airunway.kube.reflector import Handler
from airunway.resource import ObjectKey, Resource, dig, is_deleting, key_of, labels_of, uid_of
from airunway_catalogue import templates
from airunway_catalogue.application import CatalogueApplication
from airunway_catalogue.discovery import job_name, request_of, spec_hash
from airunway_catalogue.pull_secrets import SECRET
from airunway_testing.background import in_background
from airunway_testing.eventually import eventually
from airunway_testing.registry import model_image
from airunway_testing.registry.model_image import MODEL_SERVER
from airunway_testing.registry.server import Image, LocalRegistry, container_registry
from airunway_testing.storage.pod_runner import PodRunner

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
IMAGE = {"image": "registry.example/model:1", "command": [MODEL_SERVER]}
PASSWORD = "hunter2-is-long-enough"
WRITES = {"apply", "create", "patch", "update", "delete"}


async def test_a_success_fills_profile_and_sources(
    ground: Ground, runner: PodRunner, catalogue: CatalogueApplication
) -> None:
    """Of a template of a namespace, and of one of the cluster."""
    discovery = {**IMAGE, "args": ["--seconds=1"]}
    keys = [await ground.template(cluster=shared, discovery=discovery) for shared in (False, True)]
    for key, where in zip(keys, (ground.namespace, ground.home), strict=True):
        await ground.until(key, "Progressing", reason="JobRunning")
        (job,) = await ground.jobs(where)
        assert labels_of(job)["airunway.ai/template"] == key.name
        assert labels_of(job)["app.kubernetes.io/component"] == "discovery"
        (owner,) = job["metadata"]["ownerReferences"]
        template = await ground.get(key)
        assert (owner["kind"], owner["name"], owner["uid"]) == (template["kind"], key.name, uid_of(template))
    for key, where in zip(keys, (ground.namespace, ground.home), strict=True):
        ready = await ground.until(key, "Ready")
        status = ready["status"]
        (job,) = await ground.jobs(where)
        assert reasons(ready)["DiscoveryReady"] == ("True", "Discovered")
        assert status["profile"] == model_image.REPORT["profile"]
        assert status["modelSources"] == [{"modelId": "acme/tiny", "uri": "hf://acme/tiny", "size": "1610612736"}]
        assert (status["discovery"]["attempts"], status["discovery"]["job"]) == (1, key_of(job).name)
    # Events of cluster-scoped objects are in the namespace default, which is not watched here.
    await ground.event(keys[0], "DiscoveryStarted")
    await ground.event(keys[0], "TemplateReady")


async def test_a_failure_backs_off_and_the_next_try_comes_when_it_is_due(
    ground: Ground, runner: PodRunner, client: Client
) -> None:
    key = await ground.template(discovery={**IMAGE, "args": ["--exit=1", "--stderr=no torch\n"]})
    spaces = [ground.namespace, ground.home]
    async with running_catalogue(client, namespaces=spaces, home=ground.home):
        failed = await ground.until(key, "Failed", reason="JobFailed")
        assert "exit code 1: no torch" in failed["status"]["message"]
        assert "INFO done" in failed["status"]["message"], "the end of what it printed, too"
        assert failed["status"]["discovery"]["attempts"] == 1
        assert failed["status"]["discovery"]["nextAttemptTime"]
        await ground.event(key, "DiscoveryFailed")
    async with running_catalogue(client, namespaces=spaces, home=ground.home, later=timedelta(seconds=90)):

        async def second() -> bool:
            return bool(dig(await ground.get(key), "status", "discovery", "attempts") == 2)

        await ground.eventually(second)
        await ground.template(discovery={**IMAGE, "args": []})  # another spec: counted anew
        ready = await ground.until(key, "Ready")
    assert ready["status"]["discovery"]["attempts"] == 1


UNREADABLE = "the output is no JSON"
OUTPUTS = {
    "noise": (["--output=INFO it starts"], UNREADABLE),
    "nested": ([f"--output={'[' * 3000}"[:1024]], UNREADABLE),
    "nan": (['--output={"profile": NaN}'], UNREADABLE),
    "small": (["--bytes=3000"], ""),
    "medium": (["--bytes=32768"], ""),
    "most": (["--bytes=45000"], ""),
    "file": (["--into=file"], ""),
    "endless": (["--endless"], "printed more than 262144 bytes"),
    "large": (["--bytes=200000"], "at most 12288 can be read"),
}
"""Arguments of the image, and why what it prints is a failed try; nothing: a pod can carry it, and it is read."""


async def test_an_output_is_read_if_a_pod_can_carry_it_and_is_else_a_failed_try(
    ground: Ground, runner: PodRunner, catalogue: CatalogueApplication
) -> None:
    keys = {
        name: await ground.template(name, discovery={**IMAGE, "args": arguments})
        for name, (arguments, _) in OUTPUTS.items()
    }
    for name, (_, why) in OUTPUTS.items():
        if why:
            failed = await ground.until(keys[name], "Failed", reason="JobFailed")
            assert why in failed["status"]["message"], name
        else:
            ready = await ground.until(keys[name], "Ready")
            assert ready["status"]["profile"] == model_image.REPORT["profile"], name
            assert ready["status"]["discovery"]["attempts"] == 1, name


@asynccontextmanager
async def source_of(ground: Ground, registry: LocalRegistry) -> AsyncIterator[None]:
    """While it lasts there is a ModelSource by which an administrator vouches for a registry of plain HTTP."""
    key = ObjectKey("", ground.namespace)
    metadata = {"name": key.name}
    body = {"apiVersion": names.API_VERSION, "kind": MODEL_SOURCE.kind, "metadata": metadata}
    spec = {"registry": registry.host, "insecure": True, "filters": [{"image": "other/*"}]}
    await ground.client.apply(MODEL_SOURCE, {**body, "spec": spec}, manager="platform", force=True)
    try:
        yield
    finally:
        await ground.client.delete(MODEL_SOURCE, key)


async def test_the_program_of_an_image_is_known_from_its_registry(
    ground: Ground, runner: PodRunner, catalogue: CatalogueApplication
) -> None:
    """Of a template of a namespace, and of one of the cluster with an image of its own."""
    images = {False: "team/tiny", True: "platform/tiny"}
    platforms = ("linux/arm64", "linux/amd64")
    offered = [Image(name, "1.0", entrypoint=[MODEL_SERVER], platforms=platforms) for name in images.values()]
    async with container_registry(offered) as registry, source_of(ground, registry):
        keys = {
            shared: await ground.template(cluster=shared, discovery={"image": f"{registry.host}/{name}:1.0"})
            for shared, name in images.items()
        }
        for shared, name in images.items():
            ready = await ground.until(keys[shared], "Ready")
            assert ready["status"]["profile"] == model_image.REPORT["profile"]
            asked = [each.repository for each in registry.requests].count(name)
            assert asked == 3, "index, manifest and configuration, once"
            (job,) = await ground.jobs(ground.home if shared else ground.namespace)
            first = dig(job, "spec", "template", "spec", "initContainers")[0]
            assert first["args"] == [MODEL_SERVER, "dry-run", "--format=json"]
        await asyncio.sleep(1)
        again = Counter(each.repository for each in registry.requests)
        assert {name: again[name] for name in images.values()} == dict.fromkeys(images.values(), 3), "none at rest"


def login(namespace: str, host: str) -> Resource:
    """A pull Secret for a registry."""
    auths = {"auths": {host: {"username": "robot", "password": PASSWORD}}}
    data = {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}
    kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson"}
    return {**kind, "metadata": {"name": "login", "namespace": namespace}, "data": data}


async def test_pull_secrets_are_used_where_the_catalogue_may_read_them_and_nowhere_else(
    ground: Ground, runner: PodRunner, catalogue: CatalogueApplication
) -> None:
    image = Image("team/tiny", "1.0", entrypoint=[MODEL_SERVER])
    async with (
        container_registry([image], auth="basic", users={"robot": PASSWORD}) as registry,
        source_of(ground, registry),
    ):
        for space in (ground.namespace, ground.home):
            await ground.client.create(SECRET, login(space, registry.host))
        discovery = {"image": f"{registry.host}/team/tiny:1.0"}
        key = await ground.template(discovery=discovery, imagePullSecrets=[{"name": "login"}])
        failed = await ground.until(key, "Failed", reason="JobFailed")
        assert "its entrypoint is not known (Unauthorized: " in failed["status"]["message"]
        assert [each.authorization for each in registry.requests if each.repository == "team/tiny"] == [""]
        body = {
            "apiVersion": names.API_VERSION,
            "kind": RUNTIME_CONFIG.kind,
            "metadata": {"name": "team", "namespace": ground.home},
            "spec": {"imagePullSecrets": [{"name": "login"}]},
        }
        await ground.client.apply(RUNTIME_CONFIG, body, manager="platform", force=True)
        shared = await ground.template(cluster=True, discovery=discovery, runtimeConfigName="team")
        await ground.until(shared, "Ready")
        assert PASSWORD not in str([await ground.get(each) for each in (key, shared)])


async def test_an_entrypoint_that_cannot_be_read_is_named_with_its_remedy(
    ground: Ground, runner: PodRunner, catalogue: CatalogueApplication
) -> None:
    image = Image("team/tiny", "1.0", entrypoint=[MODEL_SERVER])
    async with (
        container_registry([image], auth="basic", users={"robot": PASSWORD}) as registry,
        source_of(ground, registry),
    ):
        discovery = {"image": f"{registry.host}/team/tiny:1.0"}
        key = await ground.template(discovery=discovery)
        failed = await ground.until(key, "Failed", reason="JobFailed")
        assert "its entrypoint is not known (Unauthorized: " in failed["status"]["message"]
        assert "spec.discovery.command" in failed["status"]["message"]
        await ground.template(discovery={**discovery, "args": ["--into=file"]})  # it writes its report itself
        await ground.until(key, "Ready")


async def test_an_image_that_cannot_be_pulled_says_so_and_its_job_goes(
    ground: Ground, runner: PodRunner, catalogue: CatalogueApplication
) -> None:
    key = await ground.template(discovery={**IMAGE, "image": "registry.example/no-such-image:1"})
    failed = await ground.until_discovery(key, "ImageNotFound")
    assert failed["status"]["rootCause"]["code"] == "ImagePull.NotFound"
    assert failed["status"]["discovery"]["nextAttemptTime"]

    async def gone() -> bool:
        return not await ground.client.list_all(JOB, namespace=ground.namespace)

    await ground.eventually(gone)


async def test_jobs_go_with_their_template(ground: Ground, runner: PodRunner, catalogue: CatalogueApplication) -> None:
    """With one of a namespace, and with one of the cluster, whose Jobs are in the operator's namespace."""
    kinds = {ground.namespace: MODEL_TEMPLATE, ground.home: CLUSTER_MODEL_TEMPLATE}
    keys = {
        where: await ground.template(
            cluster=kind is CLUSTER_MODEL_TEMPLATE, discovery={**IMAGE, "args": ["--seconds=600"]}
        )
        for where, kind in kinds.items()
    }
    for where, key in keys.items():
        await ground.until(key, "Progressing")
        assert await ground.jobs(where)
    for where, kind in kinds.items():
        await ground.client.delete(kind, keys[where])

    async def gone(where: str) -> bool:
        jobs = await ground.client.list_all(JOB, namespace=where)
        return not jobs and not await ground.client.list_all(POD, namespace=where)

    for where in kinds:
        await ground.eventually(partial(gone, where))


async def test_a_job_of_another_owner_is_left_alone_and_named(
    ground: Ground, runner: PodRunner, client: Client
) -> None:
    key = await ground.template(discovery=IMAGE)
    template = await ground.get(key)
    request = request_of(template)
    assert request is not None
    name = job_name(key.name, uid=uid_of(template), hash_=spec_hash(request), attempt=1)
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "registry.example/other:1"}]}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": ground.namespace},
        "spec": {"suspend": True, "template": {"spec": pod}},
    }
    foreign = await client.create(JOB, job)
    async with running_catalogue(client, namespaces=[ground.namespace, ground.home], home=ground.home):
        failed = await ground.until(key, "Failed", reason="ResourceConflict")
        assert f"Job {ground.namespace}/{name} exists" in failed["status"]["message"]
    live = await client.get(JOB, ObjectKey(ground.namespace, name))
    assert (uid_of(live), live["spec"]) == (uid_of(foreign), foreign["spec"])
    assert not live["metadata"].get("ownerReferences")


async def test_a_job_that_a_quota_refuses_takes_no_place_from_others(
    ground: Ground, runner: PodRunner, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "REFUSED_RETRY", 2.0)
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": ground.namespace},
        "spec": {"hard": {"count/jobs.batch": "0"}},
    }
    await client.create(RESOURCE_QUOTA, quota)

    async def in_force() -> bool:
        live = await client.get(RESOURCE_QUOTA, ObjectKey(ground.namespace, "none"))
        return bool(dig(live, "status", "hard", "count/jobs.batch") == "0")

    await ground.eventually(in_force)
    async with running_catalogue(
        client, namespaces=[ground.namespace, ground.home], home=ground.home, max_discoveries=1
    ):
        refused = await ground.template(discovery=IMAGE)
        live = await ground.until_discovery(refused, "QuotaExceeded")
        assert "exceeded quota" in live["status"]["message"]
        other = await ground.template("other", cluster=True, discovery=IMAGE)
        await ground.until(other, "Ready")
        await client.delete(RESOURCE_QUOTA, ObjectKey(ground.namespace, "none"))
        ready = await ground.until(refused, "Ready")  # it is tried again
    assert ready["status"]["discovery"]["attempts"] == 1


async def test_at_most_so_many_run_at_once_and_the_others_in_their_turn(
    ground: Ground, runner: PodRunner, client: Client
) -> None:
    most, number = 3, 8  # one namespace never takes the last of four
    async with running_catalogue(
        client, namespaces=[ground.namespace, ground.home], home=ground.home, max_discoveries=most + 1
    ):
        for each in range(number):
            await ground.template(f"t{each}", discovery={**IMAGE, "args": ["--seconds=1"]})
        seen = set[int]()

        async def all_ready() -> bool:
            jobs = await ground.jobs()
            seen.add(sum(not dig(each, "status", "completionTime") for each in jobs))
            there = await ground.client.list_all(MODEL_TEMPLATE, namespace=ground.namespace)
            return [dig(each, "status", "phase") for each in there] == ["Ready"] * number

        await ground.eventually(all_ready)
    assert max(seen) == most
    assert len(await made(ground, runner)) == number


async def made(ground: Ground, runner: PodRunner) -> Counter[str]:
    """The pods that ever ran, by the name of their Job."""
    return Counter(
        each.key.name.rpartition("-")[0] for each in runner.pods.values() if each.key.namespace == ground.namespace
    )


class Crashes:
    """The catalogue behind a proxy. `crash` ends it at its next write, once that has been carried out."""

    def __init__(self, ground: Ground, proxy: FaultProxy) -> None:
        self._ground, self._proxy = ground, proxy
        self._stack = AsyncExitStack()
        self.struck = Counter[str]()

    async def start(self, *, later: timedelta = timedelta()) -> None:
        client = await self._stack.enter_async_context(Client(load_config(kubeconfig=self._proxy.kubeconfig)))
        ground = self._ground
        await self._stack.enter_async_context(
            running_catalogue(client, namespaces=[ground.namespace, ground.home], home=ground.home, later=later)
        )

    async def stop(self) -> None:
        await self._stack.aclose()
        self._stack = AsyncExitStack()

    async def live(self, done: asyncio.Event, *, skip: int) -> None:
        """End the catalogue at every so-many-th write until it is done."""

        def ours(request: ProxiedRequest) -> bool:
            return request.verb in WRITES and request.resource != "events"

        while not done.is_set():
            self._proxy.inject(Fault("late", seconds=3600, where=ours, skip=skip))
            while self._proxy.pending and not done.is_set():
                await asyncio.sleep(0.02)
            if not self._proxy.pending:
                self.struck["crash"] += 1
                await self.stop()
                await self.start()
            self._proxy.clear()


@pytest.mark.parametrize("skip", [0, 1, 2])
async def test_a_process_that_ends_at_any_write_makes_one_job_for_each_try(
    ground: Ground, runner: PodRunner, skip: int
) -> None:
    """Two templates succeed and one fails, while the process is ended after every write, every second, every third."""
    async with FaultProxy(ground.kubeconfig) as proxy:
        part = Crashes(ground, proxy)
        await part.start()
        done = asyncio.Event()
        killing = asyncio.create_task(part.live(done, skip=skip))
        try:
            good = [await ground.template(f"good{n}", discovery={**IMAGE, "args": ["--seconds=1"]}) for n in range(2)]
            bad = await ground.template("bad", discovery={**IMAGE, "args": ["--exit=1"]})
            for key in good:
                await ground.until(key, "Ready")
            await ground.until(bad, "Failed")
        finally:
            done.set()
            await killing
            with suppress(ExceptionGroup):
                await part.stop()
    assert part.struck["crash"] >= 3
    for key in (*good, bad):
        assert (await attempts(ground, key)) == 1, key
    pods = await made(ground, runner)
    assert len(pods) == 3
    assert set(pods.values()) == {1}


@asynccontextmanager
async def watched(ground: Ground, kind: Kind, handler: Handler) -> AsyncIterator[None]:
    """While it lasts, `handler` hears of every change of the namespace's objects of a kind."""
    reflector = Reflector(ground.client, kind, namespace=ground.namespace)
    reflector.add_handler(handler)
    async with in_background(reflector.run()):
        await reflector.synced.wait()
        yield


async def attempts(ground: Ground, key: ObjectKey) -> int:
    template: Resource = await ground.get(key)
    found: int = dig(template, "status", "discovery", "attempts")
    return found


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_life_behind_a_proxy_that_breaks_things_ends_the_same(
    ground: Ground, runner: PodRunner, seed: int
) -> None:
    async with FaultProxy(ground.kubeconfig) as proxy:
        part = Crashes(ground, proxy)
        proxy.unleash(seed=seed, rate=0.1)
        await part.start()
        try:
            keys = [
                await ground.template(f"t{each}", discovery={**IMAGE, "args": ["--seconds=1"]}) for each in range(5)
            ]
            for key in keys:
                await ground.until(key, "Ready")
            assert any(request.fault for request in proxy.requests)
        finally:
            await part.stop()
    for key in keys:
        assert (await attempts(ground, key)) == 1, key
    pods = await made(ground, runner)
    assert (len(pods), set(pods.values())) == (5, {1})


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("number", "skip"), [pytest.param(40, 9, id="40"), pytest.param(100, 23, id="100", marks=pytest.mark.soak)]
)
async def test_many_templates_ten_at_once_and_a_process_that_is_ended_again_and_again(
    ground: Ground, runner: PodRunner, number: int, skip: int
) -> None:
    async with FaultProxy(ground.kubeconfig) as proxy, AsyncExitStack() as watching:
        part = Crashes(ground, proxy)
        await part.start()
        done, most = asyncio.Event(), 0
        running, ready = set[ObjectKey](), set[ObjectKey]()

        def on_job(key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
            nonlocal most
            works = new is not None and not is_deleting(new) and not dig(new, "status", "completionTime")
            (running.add if works else running.discard)(key)
            most = max(most, len(running))

        def on_template(key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
            (ready.add if dig(new, "status", "phase") == "Ready" else ready.discard)(key)

        killing = asyncio.create_task(part.live(done, skip=skip))
        try:
            discovery = {**IMAGE, "args": ["--seconds=0.3"]}
            await watching.enter_async_context(watched(ground, JOB, on_job))
            await watching.enter_async_context(watched(ground, MODEL_TEMPLATE, on_template))
            keys = [await ground.template(f"t{each}", discovery=discovery) for each in range(number)]

            await eventually(lambda: len(ready) == number, patience=600)
        finally:
            done.set()
            await killing
            with suppress(ExceptionGroup):
                await part.stop()
    assert part.struck["crash"] >= 10
    assert most <= 10
    pods = await made(ground, runner)
    assert set(pods.values()) == {1}
    assert len(pods) == sum([await attempts(ground, key) for key in keys])
