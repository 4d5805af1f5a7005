"""The plugin as the core sees it: entry point, hooks, manifest; overrides through the runtime's own check."""

from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import entry_points
from typing import Any

import pluggy
import pytest

from airunway.api.modeldeployment import defaulted_spec
from airunway.cel import compile_expression
from airunway.plugins import hookspecs
from airunway.plugins.contract import CONTRACT_VERSIONS
from airunway.plugins.host import assumed_context
from airunway.plugins.registry import host_of
from airunway.resource import dig
from airunway.runtime.translate import check_overrides, merged, parsed, translate
from airunway_kaito import provider
from airunway_kaito.manifest import INFERENCE_SET, MANIFEST, WORKSPACE
from airunway_kaito.objects import desired


def test_the_entry_point_names_the_plugin_object() -> None:
    (found,) = [e for e in entry_points(group=hookspecs.PROVIDERS) if e.name == "kaito"]
    assert found.load() is provider


def test_every_hook_is_implemented() -> None:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(provider, name="kaito")
    manager.check_pending()
    specified = {name for name in vars(hookspecs) if hasattr(getattr(hookspecs, name), "airunway_spec")}
    assert {caller.name for caller in manager.get_hookcallers(provider) or ()} == specified
    assert len(specified) == 5


def test_the_manifest_speaks_the_contract() -> None:
    assert set(MANIFEST.contract_versions) & set(CONTRACT_VERSIONS)
    assert [kind.kind for kind in MANIFEST.upstream if kind.primary] == ["Workspace"]


def test_nothing_is_asked_for_beyond_its_kinds() -> None:
    assert MANIFEST.rbac_rules == ()
    assert [kind.plural for kind in MANIFEST.upstream] == ["workspaces", "inferencesets", "configmaps", "services"]


@pytest.mark.parametrize(
    ("spec", "engine", "score"),
    [
        ({"model": {"id": "o/m"}}, "llamacpp", 100),
        ({"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1}}}, "vllm", 0),
        ({"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1}}}, "llamacpp", 100),
        ({"model": {"id": "o/m"}, "resources": {}}, "vllm", 100),
    ],
)
def test_selection_rules_hold_over_the_defaulted_spec(spec: dict[str, Any], engine: str, score: int) -> None:
    bindings = {"spec": defaulted_spec(spec, engine=engine)}
    scores = [
        rule.priority
        for rule in MANIFEST.selection_rules
        if compile_expression(rule.condition, variables=["spec"]).evaluate(bindings) is True
    ]
    assert max(scores, default=0) == score


def test_a_typing_error_gets_the_nearest_key() -> None:
    found = check_overrides({"resource": {"instanceTyp": "X"}}, MANIFEST.override_schema)
    assert found.errors == ()
    assert [finding.path for finding in found.unknown] == ["spec.provider.overrides.resource.instanceTyp"]
    assert "'instanceType'" in found.unknown[0].message


@pytest.mark.parametrize(
    "overrides",
    [
        {"resource": {"instanceType": 4}},
        {"resource": {"partition": {"mode": "half"}}},
        {"resource": {"partition": {"mode": "accelerator", "count": 65}}},
        {"inference": {"adapters": [{"source": {"name": "A_1", "image": "i"}}]}},
        {"inference": {"template": {"spec": {"hostNetwork": True}}}},
        {"inference": {"template": {"metadata": {"labels": {}}}}},
    ],
    ids=str,
)
def test_wrong_overrides_are_errors(overrides: dict[str, Any]) -> None:
    assert check_overrides(overrides, MANIFEST.override_schema).errors


def test_ruling_26_pods_of_a_template_say_whose_they_are() -> None:
    """The runtime labels every pod template; KAITO's stands at a place of its own."""
    deployment = {
        "apiVersion": "airunway.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "llama", "namespace": "ml", "uid": "1"},
        "spec": {"model": {"id": "o/m"}, "image": "i", "resources": {"gpu": {"count": 1}}},
        "status": {"engine": {"type": "vllm"}},
    }
    host = host_of("kaito", provider)
    context = assumed_context(host, engine="vllm", now=datetime(2026, 9, 1, tzinfo=UTC))
    for kind, place in ((WORKSPACE.key, ()), (INFERENCE_SET.key, ("spec", "template"))):
        made = translate(host, deployment, parsed(deployment), replace(context, live_kind=kind)).objects[0]
        assert dig(made, *place, "inference", "template", "metadata", "labels") == {
            "airunway.ai/managed-by": "airunway",
            "airunway.ai/model-deployment": "llama",
            "airunway.ai/provider": "kaito",
        }


def test_allowed_overrides_reach_the_workspace(vllm: Any, context: Any) -> None:
    overrides = {
        "resource": {"labelSelector": {"matchLabels": {"nvidia.com/gpu.present": None, "pool": "a"}}},
        "inference": {"preset": {"name": "llama-3.1-8b-instruct"}},
    }
    found = check_overrides(overrides, MANIFEST.override_schema)
    assert (found.errors, found.unknown) == ((), ())
    workspace = merged(desired(vllm(), context()).objects[0], found.merge)
    assert workspace["resource"]["labelSelector"] == {"matchLabels": {"pool": "a"}}
    assert workspace["inference"]["preset"] == {"name": "llama-3.1-8b-instruct"}
