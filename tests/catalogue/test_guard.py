"""What a thief of the catalogue's token tries, under its rights and its guard: honest Jobs pass, others do not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from tests.catalogue.conftest import Ground
from tests.install.thief.attempt import (
    ANNOTATIONS,
    EVERYBODY,
    FIELDS_OF_PODS,
    LOADERS,
    ORDERS,
    OTHERS,
    PROFILES,
    REQUIRED,
    TAINTS,
)
from tests.support.rights import applied, granted

from airunway.api import names
from airunway.artifacts.jobs import CA_PATH, CA_VOLUME
from airunway.configs.resolution import EffectiveConfig, resolve
from airunway.kinds import CLUSTER_MODEL_TEMPLATE
from airunway.kube import JOB, ApiError, Client, Kind, load_config
from airunway.resource import ObjectKey, Resource, copy_of, key_of
from airunway_catalogue.discovery import Entrypoint, Request, job_of
from airunway_catalogue.labels import ImageLabels, Recommendation
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_catalogue.rights import catalogue_guard, catalogue_rules
from airunway_catalogue.scan import MODEL_SOURCE_LABEL, Image, templates_of
from airunway_testing.controlplane import Cluster

pytestmark = pytest.mark.apiserver

OF_SECRET = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "webhook", "key": "tls.key"}}}


@dataclass(frozen=True, kw_only=True)
class Thief:
    """A client with the catalogue's token."""

    client: Client
    ground: Ground

    def job(
        self,
        *,
        home: bool = False,
        owner: str = "ModelTemplate",
        known: bool = True,
        config: EffectiveConfig | None = None,
    ) -> Resource:
        """A Job as the catalogue makes it, for a template that the thief claims; its entrypoint may be `known`."""
        name, namespace = "discover-tiny-0a1b2c3d", self.ground.home if home else self.ground.namespace
        template = {"metadata": {"name": "tiny", "namespace": namespace}}
        request = Request(image="registry.example/model:1")
        entrypoint = Entrypoint(words=("serve",)) if known else Entrypoint(why="Timeout")
        made = job_of(template, request, name=name, config=config, entrypoint=entrypoint)
        reference = {"apiVersion": names.API_VERSION, "kind": owner, "name": "tiny", "uid": "0", "controller": True}
        made["metadata"] |= {"namespace": namespace, "ownerReferences": [reference]}
        return made

    async def refusal(self, obj: Resource, kind: Kind = JOB) -> str:
        """What the API server says to the object; empty if it takes it."""
        try:
            await self.client.apply(kind, obj, manager=CATALOGUE_MANAGER, dry_run=True)
        except ApiError as error:
            return error.message
        return ""

    async def refusal_of_patch(self, key: ObjectKey, patch: Resource) -> str:
        """What the API server says to the change of a ClusterModelTemplate; empty if it takes it."""
        try:
            await self.client.merge_patch(CLUSTER_MODEL_TEMPLATE, key, patch, manager=CATALOGUE_MANAGER, dry_run=True)
        except ApiError as error:
            return error.message
        return ""


@pytest.fixture
async def thief(ground: Ground, control_plane: Cluster, client: Client) -> AsyncIterator[Thief]:
    user = f"system:serviceaccount:{ground.home}:{CATALOGUE_MANAGER}"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(granted(client, catalogue_rules(), user=user, namespace=ground.home))
        policies = catalogue_guard(user, own=ground.home, variables=["ACME_*"], name=f"guard-{ground.home}")
        await stack.enter_async_context(applied(client, policies))
        own = await stack.enter_async_context(Client(load_config(kubeconfig=control_plane.kubeconfig_for(user))))
        found = Thief(client=own, ground=ground)
        open_job = found.job(owner="ConfigMap")

        async def guarded() -> bool:
            """The API server learns of policies by watches."""
            return "belongs to a template" in await found.refusal(open_job)

        await ground.eventually(guarded)
        yield found


def pod(job: Resource) -> Resource:
    found: Resource = job["spec"]["template"]["spec"]
    return found


def container(job: Resource, position: int = 0) -> Resource:
    """One of the containers, in the order in which they run."""
    found: Resource = [*pod(job).get("initContainers", []), *pod(job)["containers"]][position]
    return found


Change = Callable[[Resource], Any]


async def test_honest_jobs_pass(thief: Thief) -> None:
    assert await thief.refusal(thief.job()) == ""
    assert await thief.refusal(thief.job(known=False)) == ""
    assert await thief.refusal(thief.job(home=True, owner="ClusterModelTemplate")) == ""
    with_secret = thief.job()
    container(with_secret)["env"].append(OF_SECRET)
    pod(with_secret)["serviceAccountName"] = "models"
    assert await thief.refusal(with_secret) == "", "a ModelTemplate may name Secrets and an account of its namespace"


async def test_a_variable_that_the_chart_allows_passes(thief: Thief) -> None:
    job = thief.job()
    container(job)["env"] += [{"name": name, "value": "1"} for name in ("VLLM_A", "HF_TOKEN", "ACME_PROFILE", "ACME_X")]
    assert await thief.refusal(job) == ""
    container(job)["env"].append({"name": "ACME", "value": "1"})
    assert "the value discovery.variables of the chart" in await thief.refusal(job)


@pytest.mark.parametrize("owner", ["ModelTemplate", "ClusterModelTemplate"])
async def test_no_owner_that_is_claimed_opens_the_secrets_of_the_operator(thief: Thief, owner: str) -> None:
    job = thief.job(home=True, owner=owner)
    container(job)["env"].append(OF_SECRET)
    assert "takes no values out of other objects" in await thief.refusal(job)
    account = thief.job(home=True, owner=owner)
    pod(account)["serviceAccountName"] = "airunway-controller"
    assert "runs as the default account" in await thief.refusal(account)


async def test_a_job_of_a_cluster_template_is_in_the_operator_s_namespace_only(thief: Thief) -> None:
    assert "belongs to a template" in await thief.refusal(thief.job(owner="ClusterModelTemplate"))


OTHER_FORMS: tuple[tuple[Change, str], ...] = (
    (lambda job: pod(job).update(automountServiceAccountToken=True), "hold no token of the API"),
    (lambda job: pod(job).update(hostAliases=[{"ip": "1.2.3.4", "hostnames": ["a"]}]), "resolve names"),
    (lambda job: pod(job).update(hostNetwork=True), "network"),
    (lambda job: pod(job)["securityContext"].update(runAsUser=0, runAsNonRoot=False), "do not run as root"),
    (lambda job: container(job).update(command=["sh", "-c", "id"]), "runs the program of its image"),
    (lambda job: container(job).update(args=["serve"]), "runs the program of its image"),
    (lambda job: container(job, 1).update(args=["id"]), "runs the program of its image"),
    (lambda job: container(job, 2).update(command=["id"]), "runs the program of its image"),
    (lambda job: container(job, 2)["command"].__setitem__(3, "discovery"), "runs the program of its image"),
    (lambda job: container(job)["command"].__setitem__(2, "id"), "runs the program of its image"),
    (lambda job: container(job).update(restartPolicy="Always"), "runs the program of its image"),
    (lambda job: container(job, 2).update(image="registry.example/miner:1"), "of one image"),
    (lambda job: container(job, 1).update(name="part-9"), "has one container"),
    (lambda job: pod(job)["initContainers"].pop(), "has one container"),
    (lambda job: pod(job)["initContainers"].append({"name": "more", "image": "a"}), "has one container"),
    (lambda job: container(job)["securityContext"].update(readOnlyRootFilesystem=False), "no capabilities"),
    (lambda job: pod(job)["volumes"].append({"name": "s", "secret": {"secretName": "s"}}), "empty folders"),
    (lambda job: pod(job)["volumes"].append({"name": "s", "configMap": {"name": "s"}}), "empty folders"),
    (lambda job: pod(job)["volumes"].append({"name": CA_VOLUME, "configMap": {"name": "s"}}), "empty folders"),
    (lambda job: container(job)["volumeMounts"].append({"name": "scratch", "mountPath": CA_PATH}), "empty folders"),
    (lambda job: pod(job)["containers"].append({"name": "more", "image": "a"}), "has one container"),
    (lambda job: job["spec"].update(parallelism=50), "runs one pod once"),
    (lambda job: job["metadata"].update(name="innocent"), "is called discover-"),
    (lambda job: job["spec"]["template"]["metadata"]["labels"].update({names.MODEL_DEPLOYMENT: "x"}), "labels"),
)


def with_variable(name: str) -> Change:
    return lambda job: container(job)["env"].append({"name": name, "value": "/x"})


def with_annotation(key: str) -> Change:
    return lambda job: job["spec"]["template"]["metadata"].update(annotations={key: "x"})


OTHER_FORMS += tuple((with_variable(name), "discovery gets only the variables") for name in LOADERS)
OTHER_FORMS += tuple((with_annotation(key), ANNOTATIONS) for key in ORDERS)
OTHER_FORMS += (
    (lambda job: container(job).update(envFrom=[{"secretRef": {"name": "s"}}]), "runs the program of its image"),
    (lambda job: job["metadata"].update(annotations={"kaito.sh/enablelb": "True"}), ANNOTATIONS),
    (lambda job: pod(job).update(tolerations=[{"operator": "Exists"}]), TAINTS),
    (
        lambda job: pod(job).update(nodeSelector={"node-role.kubernetes.io/control-plane": ""}),
        "nodes of the control plane",
    ),
    (lambda job: pod(job).update(affinity={"podAntiAffinity": {REQUIRED: [EVERYBODY]}}), OTHERS),
    (lambda job: pod(job).update(schedulerName="evil"), "must not choose another scheduler"),
    (lambda job: pod(job).update(shareProcessNamespace=True), FIELDS_OF_PODS),
    (lambda job: pod(job)["securityContext"].update(seLinuxOptions={"type": "spc_t"}), PROFILES),
    (lambda job: container(job)["securityContext"].update(appArmorProfile={"type": "Unconfined"}), PROFILES),
)
OTHER_FORMS_WITHOUT_THE_SCRIPT: tuple[tuple[Change, str], ...] = (
    (lambda job: container(job).update(args=["--format=json", "serve"]), "runs the program of its image"),
    (lambda job: container(job).update(command=["sh", "-c", "id"]), "has one container"),
    (lambda job: pod(job).update(initContainers=[{**container(job), "name": "more"}]), "has one container"),
)


async def test_a_job_of_another_form_is_refused(thief: Thief) -> None:
    wrong = {}
    for known, forms in ((True, OTHER_FORMS), (False, OTHER_FORMS_WITHOUT_THE_SCRIPT)):
        for number, (change, says) in enumerate(forms):
            job = copy_of(thief.job(known=known))
            change(job)
            if says not in (said := await thief.refusal(job)):
                wrong[known, number, says] = said
    assert wrong == {}


async def test_a_job_with_the_authorities_of_its_config_passes(thief: Thief) -> None:
    config = {"metadata": {"name": "default"}, "spec": {"caBundle": {"configMap": "corporate-ca"}}}
    for owner in ("ModelTemplate", "ClusterModelTemplate"):
        home = owner == "ClusterModelTemplate"
        effective = resolve("default", namespaced=None, cluster=config).config
        assert await thief.refusal(thief.job(home=home, owner=owner, config=effective)) == ""


WAYS = (
    Recommendation(),
    Recommendation(
        gpu_model="MI300X", gpu_count=8, gpu_type="amd.com/gpu", precision="fp8", metric="latency", optimized=True
    ),
)


def made_templates(way: Recommendation, source: Resource | None = None) -> list[Resource]:
    """ClusterModelTemplates as a scan makes them."""
    image = Image(name="team/m", repository="team/m", tag="1.0", reference="registry.example/team/m:1.0")
    source = source or {"metadata": {"name": "team"}, "spec": {"runtimeConfigName": "gold"}}
    return templates_of(image, ImageLabels(model="org/m", recommended=(way,)), source=source, config=None)


async def test_templates_of_a_scan_pass(thief: Thief) -> None:
    for template in (each for way in WAYS for each in made_templates(way)):
        assert await thief.refusal(template, CLUSTER_MODEL_TEMPLATE) == ""


MORE: tuple[Resource, ...] = (
    {"serviceAccountName": "admin"},
    {"modelSources": [{"uri": "hf://thief/m"}]},
    {"caching": {"enabled": False}},
    {"hardware": {"cpu": "1"}},
    {"hardware": {"gpu": {"count": 1, "minVram": "1Gi"}}},
    {"discovery": {"image": "a", "args": ["x"]}},
    {"discovery": {"image": "a", "command": ["id"]}},
    {"defaults": {"provider": {"overrides": {"spec": {"hostNetwork": True}}}}},
    {"defaults": {"env": [{"name": "HF_ENDPOINT", "value": "https://thief.example"}]}},
    {"defaults": {"securityContext": {"runAsUser": 1}}},
    {"defaults": {"engine": {"args": {"trust-remote-code": "true"}}}},
    {"defaults": {"image": "a", "nodeSelector": {"control-plane": "true"}}},
    {"defaults": {"affinity": {"nodeAffinity": {}}}},
    {"defaults": {"tolerations": [{"operator": "Exists"}]}},
    {"defaults": {"priorityClassName": "system-node-critical"}},
)


async def test_a_template_with_more_than_a_scan_writes_is_refused(thief: Thief) -> None:
    for more in MORE:
        (template,) = made_templates(Recommendation())
        template["spec"] |= more
        refusal = await thief.refusal(template, CLUSTER_MODEL_TEMPLATE)
        assert "writes of a template only spec.modelName, spec.metric" in refusal, more


async def test_a_template_without_a_source_is_refused(thief: Thief) -> None:
    (template,) = made_templates(Recommendation())
    del template["metadata"]["labels"]
    assert "makes ClusterModelTemplates with the label" in await thief.refusal(template, CLUSTER_MODEL_TEMPLATE)


CHANGES: tuple[tuple[Resource, bool], ...] = (
    ({"metadata": {"labels": {"acme.example/team": "search"}}}, True),
    ({"metadata": {"labels": {MODEL_SOURCE_LABEL: "other"}}}, False),
    ({"metadata": {"labels": {MODEL_SOURCE_LABEL: None}}}, False),
    ({"metadata": {"annotations": {"acme.example/note": "x"}}}, False),
    ({"metadata": {"finalizers": ["acme.example/hold"]}}, False),
    ({"spec": {"defaults": {"image": "registry.example/evil:1"}}}, False),
)


async def test_of_a_template_that_it_made_it_changes_labels_alone(thief: Thief, client: Client) -> None:
    (made,) = made_templates(Recommendation())
    (foreign,) = made_templates(Recommendation())
    foreign["metadata"] |= {"name": f"foreign-{thief.ground.home}", "labels": {}}
    made["metadata"]["name"] = f"made-{thief.ground.home}"
    for template in (made, foreign):
        await client.create(CLUSTER_MODEL_TEMPLATE, template)
    try:
        for patch, allowed in CHANGES:
            for template, of_source in ((made, True), (foreign, False)):
                refusal = await thief.refusal_of_patch(key_of(template), patch)
                assert (refusal == "") is (allowed and of_source), (patch, refusal)
                assert refusal == "" or "changes nothing of a template but its status and the labels" in refusal
    finally:
        for template in (made, foreign):
            await client.delete(CLUSTER_MODEL_TEMPLATE, key_of(template))
