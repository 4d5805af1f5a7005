"""What a thief of the catalogue's token tries, under its rights and its guard: honest Jobs pass, others do not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from tests.catalogue.conftest import Ground

from airunway.api import names
from airunway.kube import JOB, ApiError, Client, load_config
from airunway.resource import Resource, copy_of, key_of
from airunway_catalogue.discovery import Entrypoint, Request, job_of
from airunway_catalogue.guard import catalogue_guard
from airunway_catalogue.names import CATALOGUE_MANAGER
from airunway_catalogue.rights import catalogue_rules
from airunway_testing.controlplane import Cluster
from airunway_testing.rights import applied, granted

pytestmark = pytest.mark.apiserver

OF_SECRET = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "webhook", "key": "tls.key"}}}


@dataclass(frozen=True, kw_only=True)
class Thief:
    """A client with the catalogue's token."""

    client: Client
    ground: Ground

    def job(self, *, home: bool = False, owner: str = "ModelTemplate", known: bool = True) -> Resource:
        """A Job as the catalogue makes it, for a template that the thief claims; its entrypoint may be `known`."""
        name, namespace = "discover-tiny-0a1b2c3d", self.ground.home if home else self.ground.namespace
        template = {"metadata": {"name": "tiny", "namespace": namespace}}
        request = Request(image="registry.example/model:1")
        entrypoint = Entrypoint(words=("serve",)) if known else Entrypoint(why="Timeout")
        made = job_of(template, request, name=name, config=None, entrypoint=entrypoint)
        reference = {"apiVersion": names.API_VERSION, "kind": owner, "name": "tiny", "uid": "0", "controller": True}
        made["metadata"] |= {"namespace": namespace, "ownerReferences": [reference]}
        return made

    async def refusal(self, job: Resource) -> str:
        """What the API server says to the Job; empty if it takes it."""
        try:
            await self.client.apply(JOB, job, manager=CATALOGUE_MANAGER, dry_run=True)
        except ApiError as error:
            return error.message
        return ""


@pytest.fixture
async def thief(ground: Ground, control_plane: Cluster, client: Client) -> AsyncIterator[Thief]:
    user = f"system:serviceaccount:{ground.home}:{CATALOGUE_MANAGER}"
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(granted(client, catalogue_rules(), user=user, namespace=ground.home))
        policies = catalogue_guard(user, own=ground.home, name=f"guard-{ground.home}")
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


@pytest.mark.parametrize(
    ("change", "says"),
    [
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
        (lambda job: pod(job)["containers"].append({"name": "more", "image": "a"}), "has one container"),
        (lambda job: job["spec"].update(parallelism=50), "runs one pod once"),
        (lambda job: job["metadata"].update(name="innocent"), "is called discover-"),
        (lambda job: job["spec"]["template"]["metadata"]["labels"].update({names.MODEL_DEPLOYMENT: "x"}), "labels"),
    ],
)
async def test_a_job_of_another_form_is_refused(thief: Thief, change: Change, says: str) -> None:
    job = copy_of(thief.job())
    change(job)
    assert says in await thief.refusal(job), key_of(job)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda job: container(job).update(args=["--format=json", "serve"]), "runs the program of its image"),
        (lambda job: container(job).update(command=["sh", "-c", "id"]), "has one container"),
        (lambda job: pod(job).update(initContainers=[{**container(job), "name": "more"}]), "has one container"),
    ],
)
async def test_a_job_without_the_script_runs_the_image_s_own_program(thief: Thief, change: Change, says: str) -> None:
    job = copy_of(thief.job(known=False))
    change(job)
    assert says in await thief.refusal(job), key_of(job)
