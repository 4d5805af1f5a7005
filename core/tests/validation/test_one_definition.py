"""One definition of what is valid: the CRD on a real API server and `validate` in process agree on every manifest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.api import names
from airunway.api.modelartifact import MODEL_ARTIFACT_RULES
from airunway.api.modelsource import MODEL_SOURCE_RULES
from airunway.api.modeltemplate import CLUSTER_MODEL_TEMPLATE_RULES, MODEL_TEMPLATE_RULES
from airunway.api.rules import MODEL_DEPLOYMENT_RULES
from airunway.api.runtimeconfig import CLUSTER_RUNTIME_CONFIG_RULES, RUNTIME_CONFIG_RULES
from airunway.cel import Evaluator
from airunway.kinds import (
    CLUSTER_MODEL_TEMPLATE,
    CLUSTER_RUNTIME_CONFIG,
    INFERENCE_PROVIDER_CONFIG,
    MODEL_ARTIFACT,
    MODEL_DEPLOYMENT,
    MODEL_SOURCE,
    MODEL_TEMPLATE,
    RUNTIME_CONFIG,
)
from airunway.kube import ApiError, BadRequest, Client, Invalid, Kind, load_config
from airunway.resource import ObjectKey, Resource, copy_of
from airunway.validation import validate
from airunway_testing.controlplane import Cluster
from airunway_testing.operator import install_definitions

CORPUS: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "manifests.yaml").read_text(encoding="utf-8"))
RULES = (
    *MODEL_DEPLOYMENT_RULES,
    *RUNTIME_CONFIG_RULES,
    *CLUSTER_RUNTIME_CONFIG_RULES,
    *MODEL_ARTIFACT_RULES,
    *MODEL_TEMPLATE_RULES,
    *CLUSTER_MODEL_TEMPLATE_RULES,
    *MODEL_SOURCE_RULES,
)
RULE_MESSAGES = {rule.message for rule in RULES}
KINDS = {
    kind.kind: kind
    for kind in (
        MODEL_DEPLOYMENT,
        INFERENCE_PROVIDER_CONFIG,
        RUNTIME_CONFIG,
        CLUSTER_RUNTIME_CONFIG,
        MODEL_ARTIFACT,
        MODEL_TEMPLATE,
        CLUSTER_MODEL_TEMPLATE,
        MODEL_SOURCE,
    )
}
PARTS = {
    "provider_configs": "InferenceProviderConfig",
    "runtime_configs": "RuntimeConfig",
    "cluster_runtime_configs": "ClusterRuntimeConfig",
    "model_artifacts": "ModelArtifact",
    "model_templates": "ModelTemplate",
    "cluster_model_templates": "ClusterModelTemplate",
    "model_sources": "ModelSource",
}
PARTS_OF_CHANGES = {
    "changes": "ModelDeployment",
    "artifact_changes": "ModelArtifact",
    "template_changes": "ModelTemplate",
    "cluster_template_changes": "ClusterModelTemplate",
}


@dataclass(frozen=True, kw_only=True)
class Case:
    title: str
    obj: Resource
    problems: list[str]
    old: Resource | None = None

    @property
    def kind(self) -> Kind:
        return KINDS[self.obj["kind"]]


def obj(spec: Any, *, name: str = "llama", kind: str = "ModelDeployment") -> Resource:
    made: Resource = {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}}
    return made if spec is None else {**made, "spec": spec}


CASES = [
    *(Case(title=title, obj=obj(spec), problems=[]) for title, spec in CORPUS["valid"].items()),
    *(
        Case(title=title, obj=obj(case["spec"], name=case.get("name", "llama")), problems=case["problems"])
        for title, case in CORPUS["invalid"].items()
    ),
    *(
        Case(
            title=f"{kind}: {title}",
            obj=obj(case["spec"], kind=kind, name=case.get("name", "llama")),
            problems=case["problems"],
        )
        for part, kind in PARTS.items()
        for title, case in CORPUS[part].items()
    ),
]
CHANGES = [
    Case(
        title=f"{kind}: {title}" if "emplate" in part else title,
        obj=obj(case["new"], kind=kind),
        old=obj(case["old"], kind=kind),
        problems=case["problems"],
    )
    for part, kind in PARTS_OF_CHANGES.items()
    for title, case in CORPUS[part].items()
]

each_case = pytest.mark.parametrize("case", [pytest.param(case, id=case.title) for case in CASES])
each_change = pytest.mark.parametrize("case", [pytest.param(case, id=case.title) for case in CHANGES])


@each_case
@pytest.mark.parametrize("evaluator", list(Evaluator))
def test_in_process(case: Case, evaluator: Evaluator) -> None:
    before = copy_of(case.obj)
    assert [str(found) for found in validate(case.obj, evaluator=evaluator)] == case.problems
    assert case.obj == before


@each_change
@pytest.mark.parametrize("evaluator", list(Evaluator))
def test_changes_in_process(case: Case, evaluator: Evaluator) -> None:
    assert validate(case.obj) == []
    assert [str(found) for found in validate(case.obj, old=case.old, evaluator=evaluator)] == case.problems


def test_every_rule_is_broken_by_some_manifest() -> None:
    broken = {(p.split(": ", 1)[1]) for case in [*CASES, *CHANGES] for p in case.problems}
    variable = {rule.message for rule in MODEL_DEPLOYMENT_RULES if rule.message_expression}
    assert RULE_MESSAGES - broken - variable == set()
    assert len(variable) == 1  # the flag that is set twice: its message names the flag


@pytest.fixture
async def server(control_plane: Cluster) -> AsyncIterator[Client]:
    config = load_config(kubeconfig=control_plane.kubeconfig)
    async with Client(config, user_agent="airunway-tests") as client:
        await install_definitions(client)
        yield client


@pytest.mark.apiserver
@each_case
async def test_on_the_api_server(case: Case, server: Client) -> None:
    made = {**case.obj, "metadata": {**case.obj["metadata"], "namespace": "default"}}
    if not case.kind.namespaced:
        made = case.obj
    refusal: ApiError | None = None
    try:
        await server.create(case.kind, made, dry_run=True, field_validation="Strict")
    except (Invalid, BadRequest) as error:
        refusal = error
    assert_same_verdict(case, refusal)


@pytest.mark.apiserver
@each_change
async def test_changes_on_the_api_server(case: Case, server: Client, namespace: str) -> None:
    assert case.old is not None
    place = namespace if case.kind.namespaced else ""
    old = {**case.old, "metadata": {**case.old["metadata"], **({"namespace": place} if place else {})}}
    live = await server.create(case.kind, old)
    refusal: ApiError | None = None
    try:
        await server.replace(case.kind, {**case.obj, "metadata": live["metadata"]})
    except Invalid as error:
        refusal = error
    finally:
        await server.delete(case.kind, ObjectKey(place, "llama"))
    assert_same_verdict(case, refusal)


def assert_same_verdict(case: Case, refusal: ApiError | None) -> None:
    """Accepted here and there, or refused here and there for the same fields; rules with the same words."""
    violations = validate(case.obj, old=case.old)
    assert (refusal is None) == (violations == []), str(refusal)
    if refusal is None:
        return
    if isinstance(refusal, BadRequest):  # an unknown field: strict decoding comes before validation
        assert [f'unknown field "{violation.path}"' for violation in violations if "unknown" in violation.message] != []
        for violation in violations:
            assert f'unknown field "{violation.path}"' in refusal.message
        return
    causes = [(cause.get("field", "").removeprefix("."), cause.get("message", "")) for cause in refusal.causes]
    for violation in violations:
        messages = [message for field, message in causes if field == violation.path]
        assert messages, f"the API server has nothing on {violation.path}: {causes}"
        if is_rule(violation.message):
            assert any(message.endswith(violation.message) for message in messages), messages
    ours = {violation.path for violation in violations}
    theirs = {field for field, message in causes if field not in ("", "<nil>") and "accessor error" not in message}
    assert theirs == ours


def is_rule(message: str) -> bool:
    return message in RULE_MESSAGES or "is set in engine.args and in engine.extraArgs" in message
