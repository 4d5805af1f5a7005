"""What is judged again: what a template gives, whenever it changes; and what is not: another replica count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from core.tests.controller.test_reconciler import KEY, NOW, Server, deployment, provider
from core.tests.controller.test_template_part import source

from airunway.api import names
from airunway.api.bounds import EXCESS
from airunway.configs.resolution import Resolution, config_name, resolve
from airunway.controller.policies import Policies
from airunway.controller.reconciler import CoreReconciler
from airunway.kube import Client, EventRecorder, MutationCache
from airunway.kube.packing import unpacked
from airunway.process.deployment_cache import DeploymentProjection
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.resource import Resource, condition_of, copy_of, dig
from airunway.templates.part import TemplateSource
from airunway.validation.policy import parse_policy

POLICY = parse_policy("rules: [{images: ['good.example/*'], serviceAccounts: [models]}]")
GOOD: Resource = {"image": "good.example/llama:1", "engine": {"type": "llamacpp"}}
EVIL: Resource = {
    "image": "evil.example/miner:1",
    "engine": {"type": "llamacpp"},
    "env": [{"name": "A", "value": "b"}],
}


def template(**defaults: Any) -> Resource:
    return {
        "kind": "ModelTemplate",
        "metadata": {"name": "fast", "namespace": KEY.namespace},
        "spec": {"modelName": "org/m", "defaults": defaults},
    }


class Team:
    """A deployment of a tenant with a template, between passes of the core."""

    def __init__(self, **spec: Any) -> None:
        self.server = Server({**deployment(), "spec": {"templateRef": {"name": "fast"}, **spec}})
        self.templates: list[Resource] = []
        self.policy = POLICY
        self.config: Resource | None = None
        self.cluster_config: Resource | None = None
        self._core: CoreReconciler | None = None

    async def passes(self, *, at_most: int = 3) -> int:
        """Let the core work until it writes no other status than the one that is there; returns the passes."""
        for number in range(at_most):
            before = copy_of(self.obj.get("status") or {})
            self._core = self._core or self._reconciler()
            await self._core.reconcile(KEY)
            status = self.server.applied[-1][0]["status"]
            theirs = {key: each for key, each in before.items() if key in ("observedGeneration",)}
            mine = {each["type"] for each in status["conditions"]}
            kept = [each for each in before.get("conditions", ()) if each["type"] not in mine]
            self.obj["status"] = {**theirs, **status, "conditions": [*status["conditions"], *kept]}
            if self.obj["status"] == before:
                return number
        return at_most

    def _reconciler(self) -> CoreReconciler:
        project = DeploymentProjection([names.CORE_MANAGER])
        cache: Any = SimpleNamespace(get=lambda _: unpacked(project(copy_of(self.obj))), add_handler=lambda _: None)
        facts = {"a": provider("a")}

        class Sources:
            """The policy and the templates as they are when they are asked for."""

            policy = property(lambda _: self.policy)
            choose = property(lambda _: source(*self.templates).choose)
            find = property(lambda _: source(*self.templates).find)
            contribution = property(lambda _: source(*self.templates).contribution)

            def known_labels(self, namespace: str) -> dict[str, str]:
                return {"team": namespace}

        sources = Sources()
        return CoreReconciler(
            client=cast("Client", self.server),
            deployments=MutationCache(cache),
            providers=facts,
            events=cast("EventRecorder", self.server),
            selector=True,
            clock=lambda: NOW,
            configs=cast("RuntimeConfigs", self),
            policies=cast("Policies", sources),
            templates=cast("TemplateSource", sources),
        )

    def resolve(self, user: Resource) -> Resolution:
        return resolve(config_name(user), namespaced=self.config, cluster=self.cluster_config)

    @property
    def obj(self) -> Resource:
        assert self.server.obj is not None
        return self.server.obj

    def serves(self) -> None:
        self.obj["status"]["conditions"].append({"type": "Served", "status": "True"})
        self.obj["metadata"]["finalizers"] = [names.provider_finalizer("a")]

    def verdict(self) -> tuple[str, str]:
        found = condition_of(self.obj, "Validated") or {}
        return found["status"], found["message"]

    def image(self) -> object:
        return dig(self.obj, "status", "revision", "template", "spec", "image")


async def test_a_template_that_is_made_after_the_deployment_is_judged() -> None:
    team = Team()
    await team.passes()
    assert team.verdict()[0] == "True"
    team.templates = [template(**EVIL)]
    assert await team.passes() == 1
    status, message = team.verdict()
    assert status == "False"
    assert "evil.example/miner:1" in message


async def test_a_template_that_is_edited_before_the_model_serves_is_judged() -> None:
    team = Team()
    team.templates = [template(**GOOD)]
    await team.passes()
    assert team.verdict()[0] == "True"
    team.templates = [template(**EVIL)]
    await team.passes()
    assert team.verdict()[0] == "False"
    team.templates = [template(**GOOD)]
    await team.passes()
    assert (team.verdict()[0], team.image()) == ("True", "good.example/llama:1")


async def test_what_serves_goes_on_with_its_values_where_the_new_ones_are_refused() -> None:
    team = Team()
    team.templates = [template(**GOOD)]
    await team.passes()
    team.serves()
    team.templates = [template(**EVIL)]
    team.obj["metadata"]["annotations"] = {names.ADOPT: "now"}
    assert await team.passes() == 1
    assert (team.verdict()[0], team.image()) == ("True", "good.example/llama:1")
    message = (condition_of(team.obj, "TemplateReady") or {})["message"]
    assert "the new values (env, image) are refused (" in message
    assert "evil.example/miner:1" in message
    team.templates = [template(**{**GOOD, "image": "good.example/llama:2"})]
    await team.passes()
    assert (team.image(), dig(team.obj, "status", "revision", "pending", "changes")) == (
        "good.example/llama:1", ["template image"],
    ), "what was adopted is over"  # fmt: skip
    team.obj["metadata"]["annotations"] = {names.ADOPT: "again"}
    await team.passes()
    assert team.image() == "good.example/llama:2"


async def test_own_spec_and_template_that_are_too_large_together_end_in_one_verdict() -> None:
    team = Team()
    team.templates = [template(**GOOD, env=[{"name": f"B{number}", "value": "y" * 1000} for number in range(15)])]
    await team.passes()
    team.obj["spec"]["env"] = [{"name": f"A{number}", "value": "x" * 1000} for number in range(20)]
    team.obj["metadata"]["generation"] = 2
    assert await team.passes(at_most=6) <= 2
    assert team.verdict()[0] == "False"
    assert EXCESS in DeploymentProjection([names.CORE_MANAGER])(copy_of(team.obj))
    team.templates = [template(**GOOD)]
    assert await team.passes(at_most=6) <= 3
    assert team.verdict()[0] == "True"


async def test_labels_that_are_too_large_take_no_record_from_what_serves() -> None:
    team = Team()
    team.templates = [template(**GOOD)]
    await team.passes()
    team.serves()
    record = copy_of(team.obj["status"]["revision"])
    team.templates = [template(**{**GOOD, "image": "good.example/llama:2"})]
    team.obj["metadata"]["labels"] = {f"label-{number}": "x" * 60 for number in range(100)}
    await team.passes()
    assert team.verdict()[0] == "False"
    assert team.obj["status"]["revision"] == record
    del team.obj["metadata"]["labels"]
    await team.passes()
    assert (team.verdict()[0], team.image()) == ("True", "good.example/llama:1")


async def test_scaling_does_not_bring_a_stricter_policy_over_what_was_accepted() -> None:
    team = Team()
    team.obj["spec"] = {
        "model": {"id": "org/m"},
        "engine": {"type": "llamacpp"},
        "image": "good.example/llama:1",
        "scaling": {"replicas": 1},
    }
    await team.passes()
    assert team.verdict()[0] == "True"
    team.policy = parse_policy("rules: [{images: ['other.example/*']}]")
    team.obj["spec"]["scaling"] = {"replicas": 3}
    team.obj["metadata"]["generation"] = 2
    await team.passes()
    validated = condition_of(team.obj, "Validated") or {}
    assert (validated["status"], validated["observedGeneration"]) == ("True", 2)
    team.obj["spec"]["image"] = "evil.example/miner:1"
    team.obj["metadata"]["generation"] = 3
    await team.passes()
    assert team.verdict()[0] == "False"


async def test_what_was_accepted_with_values_of_before_is_judged_again_with_them() -> None:
    team = Team()
    team.templates = [template(**GOOD)]
    await team.passes()
    team.templates = [template(**{**GOOD, "image": "good.example/llama:2"})]
    await team.passes()
    team.policy = parse_policy("rules: [{images: ['good.example/llama:2']}]")
    team.obj["spec"]["scaling"] = {"replicas": 2}
    team.obj["metadata"]["generation"] = 2
    await team.passes()
    assert team.verdict()[0] == "True", "scaled with what is accepted now"
    team.templates = [template(**GOOD)]
    await team.passes()
    assert team.verdict()[0] == "False"


async def test_another_template_ends_being_too_large() -> None:
    team = Team(env=[{"name": f"A{number}", "value": "x" * 1000} for number in range(20)])
    large = template(**GOOD, env=[{"name": f"B{number}", "value": "y" * 1000} for number in range(15)])
    small = {**template(**GOOD), "metadata": {"name": "small", "namespace": KEY.namespace}}
    team.templates = [large, small]
    await team.passes(at_most=6)
    assert team.verdict()[0] == "False"
    team.obj["spec"]["templateRef"] = {"name": "small"}
    team.obj["metadata"]["generation"] = 2
    assert await team.passes(at_most=6) <= 3
    assert team.verdict()[0] == "True"


async def test_values_that_were_refused_make_way_for_the_next_ones() -> None:
    team = Team()
    team.templates = [template(**GOOD)]
    await team.passes()
    team.serves()
    other = {"name": "other", "namespace": KEY.namespace}
    team.templates = [{**template(**EVIL), "metadata": other}]
    team.obj["spec"]["templateRef"] = {"name": "other"}
    team.obj["metadata"]["generation"] = 2
    await team.passes()
    assert team.verdict()[0] == "False"
    team.templates = [{**template(**GOOD), "metadata": other}]
    await team.passes()
    assert (team.verdict()[0], team.image()) == ("True", "good.example/llama:1")


async def test_another_object_of_the_name_was_not_accepted() -> None:
    team = Team()
    team.obj["spec"] = {"model": {"id": "org/m"}, "engine": {"type": "llamacpp"}, "image": "good.example/llama:1"}
    await team.passes()
    team.policy = parse_policy("rules: [{images: ['other.example/*']}]")
    team.obj["metadata"] |= {"uid": "another", "generation": 1}
    del team.obj["status"]
    await team.passes()
    assert team.verdict()[0] == "False"
