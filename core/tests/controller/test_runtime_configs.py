"""Runtime configs as the core follows them, on a real API server; the providers' statuses are written by the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.audit import AuditReader
from tests.support.fault_plan import Fault
from tests.support.faultproxy import FaultProxy

from airunway.api import names
from airunway.configs.resolution import resolve
from airunway.controller.application import CoreSettings
from airunway.kinds import (
    CLUSTER_RUNTIME_CONFIG,
    INFERENCE_PROVIDER_CONFIG,
    MODEL_DEPLOYMENT,
    RUNTIME_CONFIG,
)
from airunway.kube import EVENT, Client, Kind, NotFound, Priority
from airunway.resource import ObjectKey, Resource, condition_of, dig, format_time, key_of
from airunway_testing.eventually import eventually
from airunway_testing.operator import install_definitions, remove_definition, remove_leftovers, running_core, until

pytestmark = pytest.mark.apiserver

PROVIDER = names.provider_manager("toy")
DEFINITIONS = tuple(f"{kind.plural}.{kind.group}" for kind in (RUNTIME_CONFIG, CLUSTER_RUNTIME_CONFIG))
CACHED: Resource = {"id": "org/model", "cache": {"mode": "Shared"}}
MANY_BYTES = "x" * 4000


@pytest.fixture
async def installed(client: Client) -> AsyncIterator[None]:
    """Our CRDs, one registered provider, and no config of an earlier test."""
    await install_definitions(client)
    await remove_leftovers(client)
    await _no_cluster_configs(client)
    engines = [{"name": "vllm", "servingModes": ["aggregated"], "gpuSupport": True, "cpuSupport": True,
                "modelCache": True}]  # fmt: skip
    spec = {"capabilities": {"engines": engines}, "selectionRules": [{"condition": "true", "priority": 1}]}
    body = {
        "apiVersion": names.API_VERSION,
        "kind": INFERENCE_PROVIDER_CONFIG.kind,
        "metadata": {"name": "toy"},
        "spec": spec,
    }
    await client.create(INFERENCE_PROVIDER_CONFIG, body)
    conditions = [{"type": "UpstreamInstalled", "status": "True", "reason": "Found", "message": "",
                   "lastTransitionTime": format_time(datetime.now(UTC))}]  # fmt: skip
    status = {"ready": True, "conditions": conditions, "translation": {"transformers": {}, "settings": {}}}
    await client.apply(
        INFERENCE_PROVIDER_CONFIG, {**body, "spec": None, "status": status} | {"spec": spec}, manager=PROVIDER,
        force=True, subresource="status",
    )  # fmt: skip
    yield
    await _no_cluster_configs(client)


async def _no_cluster_configs(client: Client) -> None:
    for config in await client.list_all(CLUSTER_RUNTIME_CONFIG):
        await client.delete(CLUSTER_RUNTIME_CONFIG, key_of(config))


class Stage:
    """One namespace of the API server, and its deployments and configs."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    def key(self, name: str) -> ObjectKey:
        return ObjectKey(self.namespace, name)

    async def deployment(self, name: str = "llama", **spec: Any) -> ObjectKey:
        body = {
            "apiVersion": names.API_VERSION,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": self.key(name)._asdict(),
            "spec": {"model": {"id": "org/model"}, "resources": {"gpu": {"count": 1}}, **spec},
        }
        await self.client.create(MODEL_DEPLOYMENT, body)
        return self.key(name)

    async def config(self, name: str = "default", **spec: Any) -> Resource:
        metadata = self.key(name)._asdict()
        return await self._config(RUNTIME_CONFIG, metadata, spec)

    async def cluster_config(self, name: str = "default", **spec: Any) -> Resource:
        return await self._config(CLUSTER_RUNTIME_CONFIG, {"name": name}, spec)

    async def _config(self, kind: Kind, metadata: Resource, spec: Resource) -> Resource:
        body = {"apiVersion": names.API_VERSION, "kind": kind.kind, "metadata": metadata, "spec": spec}
        return await self.client.apply(kind, body, manager="platform", force=True)

    async def effective(self, key: ObjectKey) -> Resource:
        found: Resource = dig(await self.client.get(MODEL_DEPLOYMENT, key), "status", "effectiveRuntimeConfig") or {}
        return found

    async def until(self, key: ObjectKey, condition: tuple[str, str]) -> Resource:
        """The deployment once ``RuntimeConfigReady`` is so."""
        return await until(self.client, key, lambda found: ready(found) == condition)

    async def until_hash(self, key: ObjectKey, hash_: str | None) -> Resource:
        return await until(
            self.client, key, lambda found: dig(found, "status", "effectiveRuntimeConfig", "hash") == hash_
        )

    async def serves(self, key: ObjectKey, *, phase: str = "Running") -> None:
        """The provider says that it serves, with the revision that the deployment has."""
        live = await self.client.get(MODEL_DEPLOYMENT, key)
        ready_ = "True" if phase == "Running" else "False"
        written = dig(live, "status", "revision", "hash")
        await self._say(
            live, PROVIDER, {"Ready": ready_, "Served": "True"}, phase=phase,
            observedGeneration=live["metadata"]["generation"], provider={"resourceName": key.name, "revision": written},
        )  # fmt: skip

    async def fetched(self, key: ObjectKey, claim: str) -> None:
        """The model cache part says that the weights are Ready on a claim."""
        live = await self.client.get(MODEL_DEPLOYMENT, key)
        cache = {"artifactName": "weights", "claimName": claim, "ready": True}
        await self._say(live, names.MODEL_CACHE_MANAGER, {"ModelCacheReady": "True"}, modelCache=cache)

    async def _say(self, live: Resource, manager: str, conditions: dict[str, str], **status: Any) -> None:
        about = {"reason": "Said", "message": "", "observedGeneration": live["metadata"]["generation"],
                 "lastTransitionTime": format_time(datetime.now(UTC))}  # fmt: skip
        body = {
            "apiVersion": names.API_VERSION,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": key_of(live)._asdict(),
            "status": {**status, "conditions": [{"type": t, "status": s, **about} for t, s in conditions.items()]},
        }
        await self.client.apply(MODEL_DEPLOYMENT, body, manager=manager, force=True, subresource="status")

    async def with_value(self, value: str) -> list[str]:
        """The deployments whose revision has this value of the config's variable."""
        found = await self.client.list_all(MODEL_DEPLOYMENT, namespace=self.namespace)
        return sorted(key_of(each).name for each in found if value_of(each) == value)

    async def config_status(self, name: str = "default") -> Resource:
        return (await self.client.get(RUNTIME_CONFIG, self.key(name))).get("status") or {}


@pytest.fixture
def stage(client: Client, namespace: str, installed: None) -> Stage:
    return Stage(client, namespace)


@pytest.fixture
async def core(kubeconfig: Path, installed: None) -> AsyncIterator[None]:
    async with running_core(kubeconfig):
        yield


def ready(deployment: Resource) -> tuple[str, str]:
    found = condition_of(deployment, "RuntimeConfigReady") or {}
    return found.get("status", ""), found.get("reason", "")


def message(deployment: Resource) -> str:
    return str((condition_of(deployment, "RuntimeConfigReady") or {}).get("message", ""))


FOUND, DEFAULTS, MISSING = ("True", "ConfigFound"), ("True", "UsingDefaults"), ("False", "ConfigNotFound")


async def _events(client: Client, key: ObjectKey, reason: str = "DefaultRuntimeConfigNotFound") -> list[Resource]:
    found = await client.list_all(EVENT, namespace=key.namespace)
    return [event for event in found if event.get("reason") == reason and dig(event, "regarding", "name") == key.name]


# ------------------------------------------------------------------------------------------------------------ look-up


@pytest.mark.parametrize("spec", [{}, {"runtimeConfigName": "default"}], ids=["C1", "C2"])
async def test_c1_c2_without_a_config_defaults_are_used_and_that_is_said_once(
    core: None, stage: Stage, audit_log: Path, spec: Resource
) -> None:
    audit = AuditReader(audit_log)
    key = await stage.deployment(**spec)
    found = await stage.until(key, DEFAULTS)
    assert "effectiveRuntimeConfig" not in found["status"]
    assert "parts" not in found["status"]
    await eventually(lambda: _events(stage.client, key))
    assert [event["type"] for event in await _events(stage.client, key)] == ["Normal"]
    # A second pass: no event, no write.
    label = {"metadata": {"annotations": {f"{names.GROUP}/look-again": "1"}}}
    await stage.client.merge_patch(MODEL_DEPLOYMENT, key, label)
    other = await stage.deployment("other")
    await stage.until(other, DEFAULTS)
    await eventually(lambda: _events(stage.client, other))
    assert len(await _events(stage.client, key)) == 1
    writes = [r for r in audit.read() if r.writes and r.agent == "core" and (r.namespace, r.name) == key]
    assert [r.resource for r in writes] == ["modeldeployments/status"]


async def test_c3_a_config_that_comes_later_is_taken_without_a_touch_of_the_deployment(
    core: None, stage: Stage
) -> None:
    key = await stage.deployment(runtimeConfigName="gold")
    found = await stage.until(key, MISSING)
    for text in ("RuntimeConfig 'gold'", "ClusterRuntimeConfig 'gold'", stage.namespace):
        assert text in message(found)
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Pending", "ConfigNotFound")
    assert (condition_of(found, "ConfigValid") or {})["reason"] == "ConfigNotFound"
    assert "effectiveRuntimeConfig" not in found["status"]
    config = await stage.config("gold", env=[{"name": "A", "value": "1"}])
    found = await stage.until(key, FOUND)
    effective = found["status"]["effectiveRuntimeConfig"]
    assert effective["namespaceRef"] == {"kind": "RuntimeConfig", "namespace": stage.namespace, "name": "gold"}
    assert "clusterRef" not in effective
    expected = resolve("gold", namespaced=config, cluster=None).config
    assert expected is not None
    assert (effective["scope"], effective["hash"]) == ("Namespace", expected.hash)
    assert found["metadata"]["generation"] == 1


async def test_c4_a_config_deleted_in_use_is_said_and_taken_again_when_restored(core: None, stage: Stage) -> None:
    await stage.config("gold", env=[{"name": "A", "value": "1"}])
    key = await stage.deployment(runtimeConfigName="gold")
    revision = revision_of(await stage.until(key, FOUND))
    await stage.serves(key)
    await stage.client.delete(RUNTIME_CONFIG, stage.key("gold"))
    found = await stage.until(key, MISSING)
    assert revision_of(found) == revision, "what it gave stays"
    await stage.config("gold", env=[{"name": "A", "value": "1"}])
    assert revision_of(await stage.until(key, FOUND)) == revision


async def test_c5_the_default_config_deleted_in_use_is_an_event(core: None, stage: Stage) -> None:
    await stage.config()
    key = await stage.deployment()
    await stage.until(key, FOUND)
    assert await _events(stage.client, key) == []
    await stage.client.delete(RUNTIME_CONFIG, stage.key("default"))
    found = await stage.until(key, DEFAULTS)
    assert "effectiveRuntimeConfig" not in found["status"]
    await eventually(lambda: _events(stage.client, key))
    assert await _events(stage.client, key, "RuntimeConfigChanged") == [], "the first that is followed is no change"
    await stage.cluster_config()
    await stage.until(key, FOUND)
    await eventually(lambda: _events(stage.client, key, "RuntimeConfigChanged"))
    (said,) = await _events(stage.client, key, "RuntimeConfigChanged")
    assert str(said["note"]).startswith("ClusterRuntimeConfig 'default' is used now: ")


async def test_c6_c7_c8_inherit_and_hashes_that_move_with_either_object(core: None, stage: Stage) -> None:
    await stage.cluster_config(routing={"gatewayRef": {"name": "shared", "namespace": "infra"}})
    alone = await stage.config(storage={"defaultStorageClassName": "fast"})
    key = await stage.deployment()
    effective = dig(await stage.until(key, FOUND), "status", "effectiveRuntimeConfig")
    expected = resolve("default", namespaced=alone, cluster=None).config
    assert expected is not None
    assert (effective["scope"], effective["hash"]) == ("Namespace", expected.hash), "C6: nothing shines through"
    await stage.config(storage={"defaultStorageClassName": "fast"}, inherit="Cluster")
    merged = dig(await until(stage.client, key, lambda d: scope(d) == "Merged"), "status", "effectiveRuntimeConfig")
    assert "namespaceRef" in merged
    assert "clusterRef" not in merged
    await stage.cluster_config(routing={"gatewayRef": {"name": "other", "namespace": "infra"}})
    await until(stage.client, key, lambda d: hash_of(d) not in ("", merged["hash"], effective["hash"]))  # C7
    await stage.client.delete(CLUSTER_RUNTIME_CONFIG, ObjectKey("", "default"))
    found = await until(stage.client, key, lambda d: scope(d) == "Namespace")  # C8
    assert ready(found) == FOUND
    await eventually(lambda: _events(stage.client, key, "RuntimeConfigChanged"))
    said = [str(event["note"]) for event in await _events(stage.client, key, "RuntimeConfigChanged")]
    assert all(note.endswith(": the deployment takes its pod settings") for note in said), said
    assert any(" changed: " in note for note in said), said
    assert any(" is used now: " in note for note in said), "another scope is another config"
    assert any(note.startswith("RuntimeConfig 'default' of namespace") for note in said), said


def value_of(deployment: Resource) -> str:
    """The value of the config's variable with which a deployment runs."""
    env = dig(deployment, "status", "revision", "settings", "env", default=[])
    return str(env[0]["value"]) if env else ""


def revision_of(deployment: Resource) -> str:
    return str(dig(deployment, "status", "revision", "hash", default=""))


def scope(deployment: Resource) -> str:
    return str(dig(deployment, "status", "effectiveRuntimeConfig", "scope", default=""))


def hash_of(deployment: Resource) -> str:
    return str(dig(deployment, "status", "effectiveRuntimeConfig", "hash", default=""))


async def test_c9_a_namespace_config_that_comes_later_flips_the_reference_in_one_write(
    core: None, stage: Stage
) -> None:
    await stage.cluster_config(env=[{"name": "A", "value": "1"}])
    key = await stage.deployment()
    before = await stage.until(key, FOUND)
    assert dig(before, "status", "effectiveRuntimeConfig", "clusterRef") == {
        "kind": "ClusterRuntimeConfig",
        "name": "default",
    }
    seen: list[set[str]] = []

    async def follow() -> None:
        version = before["metadata"]["resourceVersion"]
        async for event in stage.client.watch(MODEL_DEPLOYMENT, resource_version=version, namespace=stage.namespace):
            effective = dig(event.object, "status", "effectiveRuntimeConfig", default={})
            seen.append({ref for ref in ("namespaceRef", "clusterRef") if ref in effective})
            if seen[-1] == {"namespaceRef"}:
                return

    watching = asyncio.create_task(follow())
    await stage.config(env=[{"name": "A", "value": "2"}])
    await watching
    assert seen == [{"namespaceRef"}]


async def test_c10_the_same_in_other_words_is_the_same_hash_and_no_write(
    core: None, stage: Stage, audit_log: Path
) -> None:
    env = [{"name": "A", "value": "1"}]
    await stage.config(storage={"defaultStorageClassName": "fast", "pvcHeadroomPercent": 10}, env=env)
    key = await stage.deployment()
    before = await stage.until(key, FOUND)
    await stage.client.merge_patch(RUNTIME_CONFIG, stage.key("default"), {"metadata": {"labels": {"a": "b"}}})
    await stage.client.delete(RUNTIME_CONFIG, stage.key("default"))
    await stage.until(key, DEFAULTS)
    audit = AuditReader(audit_log)
    await stage.config(defaultStorageClassName="fast", env=env)
    after = await stage.until(key, FOUND)
    assert hash_of(after) == hash_of(before)
    await stage.client.merge_patch(RUNTIME_CONFIG, stage.key("default"), {"spec": {"rollout": "OnNextChange"}})
    other = await stage.deployment("other")
    await stage.until(other, FOUND)
    writes = [r for r in audit.read() if r.writes and r.agent == "core" and (r.namespace, r.name) == key]
    assert len(writes) == 1, "the one after the config was restored"


async def test_c16_a_config_that_changes_while_the_core_is_down(kubeconfig: Path, stage: Stage) -> None:
    async with running_core(kubeconfig):
        await stage.config(env=[{"name": "A", "value": "1"}])
        key = await stage.deployment()
        before = await stage.until(key, FOUND)
    config = await stage.config(env=[{"name": "A", "value": "2"}])
    expected = resolve("default", namespaced=config, cluster=None).config
    assert expected is not None
    assert hash_of(await stage.client.get(MODEL_DEPLOYMENT, key)) == hash_of(before)
    async with running_core(kubeconfig):
        await stage.until_hash(key, expected.hash)


async def test_an_invalid_spec_and_a_paused_deployment_say_which_config_they_follow(core: None, stage: Stage) -> None:
    await stage.config(env=[{"name": "A", "value": "1"}])
    paused = await stage.deployment("paused")
    await stage.until(paused, FOUND)
    await stage.client.merge_patch(MODEL_DEPLOYMENT, paused, {"metadata": {"annotations": {names.PAUSED: "true"}}})
    await until(stage.client, paused, lambda d: condition_of(d, "Paused") is not None)
    wrong = await stage.deployment("wrong", engine={"type": "llamacpp"}, image="", model={"id": "org/model"})
    before = hash_of(await stage.until(wrong, FOUND))
    assert hash_of(await stage.client.get(MODEL_DEPLOYMENT, paused)) == before
    await stage.config(env=[{"name": "A", "value": "2"}])
    for key in (paused, wrong):
        await until(stage.client, key, lambda d: hash_of(d) not in ("", before))


# ------------------------------------------------------------------------------------------------------- absent, faulty


async def test_c18_without_the_crds_the_core_works_and_takes_them_when_they_come(
    kubeconfig: Path, stage: Stage
) -> None:
    for definition in DEFINITIONS:
        await remove_definition(stage.client, definition)
    try:
        async with running_core(kubeconfig):
            key = await stage.deployment()
            await stage.until(key, DEFAULTS)
            await install_definitions(stage.client)
            await stage.config(env=[{"name": "A", "value": "1"}])
            await stage.until(key, FOUND)
    finally:
        await install_definitions(stage.client)


@pytest.mark.parametrize("status", [403, 500])
@pytest.mark.parametrize("kind", [RUNTIME_CONFIG, CLUSTER_RUNTIME_CONFIG], ids=lambda kind: kind.plural)
async def test_c19_at_the_start_a_core_that_cannot_read_configs_is_not_ready(
    kubeconfig: Path, stage: Stage, status: int, kind: Kind
) -> None:
    async with FaultProxy(kubeconfig) as proxy:
        proxy.inject(Fault("status", verb="list", resource=kind.plural, status=status, count=None))
        with pytest.raises(NotReadyError) as caught:
            async with asyncio.timeout(60), _starting(proxy.kubeconfig):
                pass
    assert f"cannot list {kind.plural}.{names.GROUP}" in str(caught.value)


class NotReadyError(Exception):
    """Why a core did not become ready."""


@asynccontextmanager
async def _starting(kubeconfig: Path) -> AsyncIterator[None]:
    """A core that does not become ready; raises NotReadyError with what it says."""
    from airunway.controller.application import CoreApplication
    from airunway.kube import load_config

    async with Client(load_config(kubeconfig=kubeconfig), user_agent="airunway-tests") as client:
        core = CoreApplication(client=client)

        async def lead(work: Callable[[], Any]) -> None:
            await work()

        running = asyncio.create_task(core.run(lead))
        try:
            problem = str(await eventually(lambda: (said := core.unready()) and "cannot list" in said and said))
            raise NotReadyError(problem)
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])


@pytest.mark.parametrize("status", [403, 500])
async def test_c19_later_what_was_read_counts(kubeconfig: Path, stage: Stage, status: int) -> None:
    await stage.config(env=[{"name": "A", "value": "1"}])
    async with FaultProxy(kubeconfig) as proxy, running_core(proxy.kubeconfig) as core:
        key = await stage.deployment()
        before = await stage.until(key, FOUND)
        for kind in (RUNTIME_CONFIG, CLUSTER_RUNTIME_CONFIG):
            for verb in ("list", "watch"):
                proxy.inject(Fault("status", verb=verb, resource=kind.plural, status=status, count=None))
        proxy.cut_all()
        other = await stage.deployment("other")
        found = await stage.until(other, FOUND)
        assert hash_of(found) == hash_of(before)
        assert core.unready() is None
        assert ready(await stage.client.get(MODEL_DEPLOYMENT, key)) == FOUND


# --------------------------------------------------------------------------------------------------- status of configs


async def test_c20_a_broken_pattern_and_template_are_named_in_the_config(core: None, stage: Stage) -> None:
    await stage.config(
        storage={"defaultStorageClassName": "fast"},
        labelPropagation={"enabled": True, "match": ["org.example/*", "[bad"]},
        routing={"pathTemplate": "/x/{.metadata[}"},
    )
    key = await stage.deployment()
    await stage.until(key, FOUND)

    async def said() -> Resource | None:
        config = await stage.client.get(RUNTIME_CONFIG, stage.key("default"))
        return config if condition_of(config, "ConfigValid") and dig(config, "status", "usedBy") == 1 else None

    config = await eventually(said)
    assert isinstance(config, dict)
    valid = condition_of(config, "ConfigValid") or {}
    assert (valid["status"], valid["reason"]) == ("False", "InvalidSpec")
    assert "spec.labelPropagation.match[1]" in valid["message"]
    assert "spec.routing.pathTemplate" in valid["message"]
    assert "match[0]" not in valid["message"]
    status = config["status"]
    assert (status["storageClassName"], status["observedGeneration"]) == ("fast", 1)
    assert condition_of(config, "RolloutStalled") is None


async def test_the_column_of_a_config_that_inherits_follows_the_cluster_s(core: None, stage: Stage) -> None:
    await stage.config(inherit="Cluster")
    await stage.cluster_config(storage={"defaultStorageClassName": "slow"})

    async def class_name() -> str:
        return str((await stage.config_status()).get("storageClassName", ""))

    async def is_slow() -> bool:
        return await class_name() == "slow"

    async def is_fast() -> bool:
        return await class_name() == "fast"

    await eventually(is_slow)
    await stage.cluster_config(storage={"defaultStorageClassName": "fast"})
    await eventually(is_fast)


async def test_c25_used_by_is_right_in_the_end_and_rarely_written(core: None, stage: Stage, audit_log: Path) -> None:
    await stage.config()
    await stage.cluster_config()

    async def count(expected: int) -> bool:
        return (await stage.config_status()).get("usedBy") == expected

    async def unused() -> bool:
        return await count(0)

    await eventually(unused)
    audit, clock = AuditReader(audit_log), asyncio.get_running_loop().time
    started, many = clock(), 40
    await asyncio.gather(*(stage.deployment(f"d-{number}") for number in range(many)))

    async def all_counted() -> bool:
        return await count(many)

    await eventually(all_counted)
    writes = [r for r in audit.read() if r.resource == "runtimeconfigs/status" and r.namespace == stage.namespace]
    assert len(writes) <= 2 + (clock() - started) / 5
    cluster = await stage.client.get(CLUSTER_RUNTIME_CONFIG, ObjectKey("", "default"))
    assert dig(cluster, "status", "usedBy") == 0, "each of them has its namespace's"


async def test_a_core_of_some_namespaces_does_not_count_the_users_of_a_cluster_config(
    kubeconfig: Path, stage: Stage
) -> None:
    """It does not see the others; what it can say of the config itself it says."""
    await stage.cluster_config(storage={"defaultStorageClassName": "fast"})
    async with running_core(kubeconfig, settings=CoreSettings(namespaces=(stage.namespace,))):
        key = await stage.deployment()
        assert scope(await stage.until(key, FOUND)) == "Cluster"

        async def said() -> Resource | None:
            config = await stage.client.get(CLUSTER_RUNTIME_CONFIG, ObjectKey("", "default"))
            return config if condition_of(config, "ConfigValid") else None

        config = await eventually(said)
        assert dig(config, "status", "storageClassName") == "fast"
        assert dig(config, "status", "usedBy") is None


async def test_what_a_part_writes_brings_no_pass_of_the_core(kubeconfig: Path, stage: Stage) -> None:
    async with running_core(kubeconfig) as core:
        key, other = await stage.deployment(), await stage.deployment("other")
        for each in (key, other):
            await stage.until(each, DEFAULTS)
        passes: list[ObjectKey] = []
        original = core._queue.add

        def counted(key: ObjectKey, priority: Priority = Priority.NORMAL) -> None:
            passes.append(key)
            original(key, priority)

        core._queue.add = counted  # type: ignore[method-assign] # to see what is enqueued
        for number in range(3):
            body = {
                "apiVersion": names.API_VERSION,
                "kind": MODEL_DEPLOYMENT.kind,
                "metadata": key._asdict(),
                "status": {"gateway": {"url": f"http://example.org/{number}"}},
            }
            await stage.client.apply(
                MODEL_DEPLOYMENT, body, manager=names.GATEWAY_MANAGER, force=True, subresource="status"
            )
        await stage.serves(other)
        await eventually(lambda: other in passes)
        assert key not in passes


async def test_c27_pod_settings_that_are_too_large_stop_only_what_has_not_served(core: None, stage: Stage) -> None:
    await stage.config()
    serving = await stage.deployment("serving")
    await stage.until(serving, FOUND)
    await stage.serves(serving)
    await stage.config(env=[{"name": f"A{number}", "value": MANY_BYTES} for number in range(10)])
    new = await stage.deployment("new")
    found = await stage.until(new, ("False", "InvalidSpec"))
    assert "RuntimeConfig 'default'" in message(found)
    assert found["status"]["phase"] == "Pending"
    kept = await until(stage.client, serving, lambda d: "Keeps the settings" in message(d))
    assert ready(kept) == FOUND

    async def said() -> bool:
        config = await stage.client.get(RUNTIME_CONFIG, stage.key("default"))
        return (condition_of(config, "ConfigValid") or {}).get("status") == "False"

    await eventually(said)


# ----------------------------------------------------------------------------------------------------- change and waves


async def test_c11_c24_two_edits_end_at_the_second_hash_with_two_writes_at_most(
    core: None, stage: Stage, audit_log: Path
) -> None:
    await stage.config(env=[{"name": "A", "value": "1"}])
    keys = [await stage.deployment(f"d-{number}") for number in range(20)]
    stranger = await stage.deployment("stranger", runtimeConfigName="other")
    for key in keys:
        await stage.until(key, FOUND)
    await stage.until(stranger, MISSING)
    audit = AuditReader(audit_log)
    await stage.config(env=[{"name": "A", "value": "2"}])
    config = await stage.config(env=[{"name": "A", "value": "3"}])
    expected = resolve("default", namespaced=config, cluster=None).config
    assert expected is not None
    for key in keys:
        found = await stage.until_hash(key, expected.hash)
        assert (value_of(found), dig(found, "status", "revision", "pending")) == ("3", None), "it has not served"
    writes = [r for r in audit.read() if r.resource == "modeldeployments/status" and r.agent == "core"]
    ours = [r.name for r in writes if r.namespace == stage.namespace]
    assert max(ours.count(key.name) for key in keys) <= 2
    assert stranger.name not in ours


async def test_an_edit_waits_under_a_deployment_that_serves_and_that_is_one_write(
    core: None, stage: Stage, audit_log: Path
) -> None:
    await stage.config(env=[{"name": "A", "value": "1"}])
    key = await stage.deployment()
    revision = revision_of(await stage.until(key, FOUND))
    await stage.serves(key)
    audit = AuditReader(audit_log)
    await stage.config(env=[{"name": "A", "value": "2"}])
    found = await until(stage.client, key, lambda d: dig(d, "status", "revision", "pending") is not None)
    pending = found["status"]["revision"]["pending"]
    assert (revision_of(found), value_of(found)) == (revision, "1")
    assert (pending["parts"], pending["changes"], pending["waitsFor"]) == (["settings"], ["env A"], "change")
    await stage.client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {names.ADOPT: "now"}}})
    found = await until(stage.client, key, lambda d: value_of(d) == "2")
    assert "pending" not in found["status"]["revision"]
    writes = [r for r in audit.read() if r.writes and r.agent == "core" and (r.namespace, r.name) == key]
    assert len(writes) == 2, "one for the edit, one for the adoption"


def _edits(stage: Stage) -> Callable[[str], Any]:
    async def edited(value: str) -> None:
        await stage.config(rollout="Immediately", env=[{"name": "A", "value": value}])

    return edited


async def _stalled_by(stage: Stage) -> str:
    condition = condition_of({"status": await stage.config_status()}, "RolloutStalled") or {}
    return f"{condition.get('reason', '')} {condition.get('message', '')}".strip()


async def _until_values(stage: Stage, value: str, wanted: list[str]) -> None:
    async def are() -> bool:
        return await stage.with_value(value) == wanted

    await eventually(are)


async def _serving(stage: Stage, *deployments: str, value: str = "1") -> list[ObjectKey]:
    keys = [await stage.deployment(name) for name in deployments]
    for key in keys:
        await until(stage.client, key, lambda found: value_of(found) == value)
        await stage.serves(key)
    return keys


async def test_c12_deployments_take_an_edit_one_after_the_other_also_after_a_restart(
    kubeconfig: Path, stage: Stage
) -> None:
    edited = _edits(stage)
    async with running_core(kubeconfig):
        await edited("1")
        keys = await _serving(stage, "a", "b", "c")
        await edited("2")
        await _until_values(stage, "2", ["a"])
        found = await until(stage.client, keys[2], lambda d: dig(d, "status", "revision", "pending") is not None)
        assert found["status"]["revision"]["pending"]["waitsFor"] == "rollout"
        await stage.serves(keys[0], phase="Deploying")
    async with running_core(kubeconfig):
        other = await stage.deployment("other")  # it has not served: it takes the settings without a wave
        await until(stage.client, other, lambda found: value_of(found) == "2")
        assert await stage.with_value("2") == ["a", "other"]
        await stage.serves(keys[0])
        await _until_values(stage, "2", ["a", "b", "other"])
        await stage.serves(keys[1], phase="Failed")
        assert f"{stage.namespace}/b" in str(await eventually(lambda: _stalled_by(stage)))
        assert await stage.with_value("2") == ["a", "b", "other"]
        await stage.serves(keys[1])
        await _until_values(stage, "2", ["a", "b", "c", "other"])

        async def mended() -> bool:
            return not await _stalled_by(stage)

        await eventually(mended)


async def test_c12_another_edit_during_a_rollout_disturbs_no_second_deployment(core: None, stage: Stage) -> None:
    edited = _edits(stage)
    await edited("1")
    a, b = await _serving(stage, "a", "b")
    await edited("2")
    await _until_values(stage, "2", ["a"])
    await stage.serves(a, phase="Deploying")
    await edited("3")
    await _until_values(stage, "3", ["a"])
    assert value_of(await stage.client.get(MODEL_DEPLOYMENT, b)) == "1"
    await stage.serves(a)
    await _until_values(stage, "3", ["a", "b"])


async def test_c12_one_that_was_done_and_breaks_later_takes_no_next_edit_before_its_turn(
    kubeconfig: Path, stage: Stage
) -> None:
    """Nor does its time for the first edit count for the second one."""
    shift = timedelta()

    def clock() -> datetime:
        return datetime.now(UTC) + shift

    edited = _edits(stage)
    async with running_core(kubeconfig, clock=clock) as core:
        await edited("1")
        keys = await _serving(stage, "a", "b")
        b = keys[1]
        await edited("2")
        for key in keys:
            await until(stage.client, key, lambda found: value_of(found) == "2")
            await stage.serves(key)
        await eventually(lambda: not any(map(core._rollouts.is_under_way, keys)))
        shift = timedelta(hours=2)
        await stage.serves(b, phase="Deploying")
        await edited("3")
        await _until_values(stage, "3", ["a"])
        assert await _stalled_by(stage) == ""


async def test_c12_one_that_takes_too_long_stops_the_rollout(kubeconfig: Path, stage: Stage) -> None:
    shift = timedelta()

    def clock() -> datetime:
        return datetime.now(UTC) + shift

    async def edited(value: str) -> None:
        await stage.config(
            rollout="Immediately", statusPolicy={"capacityBlockedAfter": "1h"}, env=[{"name": "A", "value": value}]
        )

    async with running_core(kubeconfig, clock=clock):
        await edited("1")
        _, b = await _serving(stage, "a", "b")
        await edited("2")
        await _until_values(stage, "2", ["a"])
        shift = timedelta(hours=2)
        await stage.serves(b, phase="Deploying")  # something happens, and the config is looked at
        assert str(await eventually(lambda: _stalled_by(stage))).startswith("DeploymentNotReady")
        assert await stage.with_value("2") == ["a"]


# --------------------------------------------------------------------------------------------------------- lost caches


@pytest.mark.parametrize("configured", [False, True], ids=["no config", "OnNextChange, one of two at a time fails"])
async def test_a15_a_new_copy_of_lost_weights_is_taken_in_waves_also_after_a_restart(
    kubeconfig: Path, stage: Stage, *, configured: bool
) -> None:
    limit = 2 if configured else 1
    names_ = ["a", "b", "c", "d"]

    async def until_taken(wanted: list[str]) -> None:
        async def are() -> bool:
            found = await stage.client.list_all(MODEL_DEPLOYMENT, namespace=stage.namespace)
            taken = [key_of(each).name for each in found if dig(each, "status", "revision", "cache", "claim") == "new"]
            return sorted(taken) == wanted

        await eventually(are)

    async with running_core(kubeconfig, settings=CoreSettings(parts=("model-cache",))):
        if configured:
            await stage.config(maxConcurrentRollouts=2)
        keys = [await stage.deployment(name, model=CACHED) for name in names_]
        for key in keys:
            found = await stage.until(key, FOUND if configured else DEFAULTS)
            assert dig(found, "status", "revision", "pending", "waitsFor") == "cache"
            await stage.fetched(key, "old")
            await until(stage.client, key, lambda found: bool(revision_of(found)))
            await stage.serves(key)
        for key in keys:
            await stage.fetched(key, "new")
        await until_taken(names_[:limit])
        await stage.serves(keys[0], phase="Deploying")
    async with running_core(kubeconfig, settings=CoreSettings(parts=("model-cache",))):
        other = await stage.deployment("other")
        await stage.until(other, FOUND if configured else DEFAULTS)
        await until_taken(names_[:limit])  # it is under way
        await stage.serves(keys[0])
        await until_taken(names_[: limit + 1])
        if configured:
            await stage.serves(keys[1], phase="Failed")

            async def stalled() -> bool:
                return f"{stage.namespace}/b" in await _stalled_by(stage)

            await eventually(stalled)
            await stage.serves(keys[2])
            await until_taken(["a", "b", "c"])  # one has failed
            await stage.serves(keys[1])
            await until_taken(names_)


# ---------------------------------------------------------------------------------------------------------------- parts


async def test_parts_are_named_only_where_they_are_asked_for(kubeconfig: Path, stage: Stage) -> None:
    async with running_core(kubeconfig, settings=CoreSettings(parts=("gateway",))):
        plain, asks = await stage.deployment("plain"), await stage.deployment("asks", gateway={"enabled": True})
        found = await stage.until(asks, DEFAULTS)
        assert found["status"]["parts"] == ["gateway"]
        assert "parts" not in (await stage.until(plain, DEFAULTS))["status"]
        await stage.config(routing={"enabled": True})
        found = await stage.until(plain, FOUND)
        assert found["status"]["parts"] == ["gateway"]
    async with running_core(kubeconfig):
        await until(stage.client, asks, lambda found: "parts" not in found["status"])


async def test_the_core_leaves_the_conditions_of_parts_alone(core: None, stage: Stage) -> None:
    """A fault of a part is no fault of the deployment's own configuration, and a pause takes nothing over."""
    key = await stage.deployment(gateway={"enabled": True})
    await stage.until(key, DEFAULTS)
    condition = {
        "type": "GatewayReady", "status": "False", "reason": "Forbidden", "message": "no",
        "lastTransitionTime": format_time(datetime.now(UTC)),
    }  # fmt: skip
    body = {
        "apiVersion": names.API_VERSION,
        "kind": MODEL_DEPLOYMENT.kind,
        "metadata": key._asdict(),
        "status": {"conditions": [condition]},
    }
    await stage.client.apply(MODEL_DEPLOYMENT, body, manager=names.GATEWAY_MANAGER, force=True, subresource="status")
    await stage.client.merge_patch(MODEL_DEPLOYMENT, key, {"metadata": {"annotations": {names.PAUSED: "true"}}})
    found = await until(stage.client, key, lambda d: condition_of(d, "Paused") is not None)
    assert (condition_of(found, "AuthValid") or {})["status"] == "True"
    entries = [e for e in found["metadata"]["managedFields"] if e["manager"] == names.CORE_MANAGER]
    assert all('k:{"type":"GatewayReady"}' not in str(entry) for entry in entries)


@pytest.mark.parametrize("name", ["Upper", "with blanks", "x" * 300])
async def test_c23_a_name_that_no_config_can_have_is_refused(stage: Stage, name: str) -> None:
    from airunway.kube import Invalid

    with pytest.raises(Invalid, match="runtimeConfigName"):
        await stage.deployment(runtimeConfigName=name)
    with pytest.raises(NotFound):
        await stage.client.get(MODEL_DEPLOYMENT, stage.key("llama"))
