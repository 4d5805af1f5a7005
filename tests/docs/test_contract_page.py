"""docs/providers/contract.md against the contract: every field and rule is on the page, and its examples work."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tools.rules_section import PAGE, page

from airunway.plugins import contract, hookspecs, rules
from airunway.plugins.host import ProviderHost, assumed_context
from airunway.plugins.registry import host_of
from airunway.sdk import parse_deployment, pod_specs
from airunway_kaito import provider
from airunway_testing.conformance.cases import NOW, bases
from airunway_testing.conformance.fields import Answer, outcomes
from airunway_testing.conformance.rules import RULES as KIT
from airunway_testing.conformance.rules import Checked

TEXT = (Path(__file__).resolve().parents[2] / "docs/providers/contract.md").read_text(encoding="utf-8")
IN_CODE = {word for span in re.findall(r"`([^`\n]+)`", TEXT) for word in re.findall(r"[A-Za-z_]+", span)}
PYTHON = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)

DATACLASSES = [
    found
    for found in (getattr(contract, name) for name in contract.__all__)
    if isinstance(found, type) and dataclasses.is_dataclass(found)
]


@pytest.mark.parametrize(
    ("class_", "field"),
    [(class_.__name__, field.name) for class_ in DATACLASSES for field in dataclasses.fields(class_)],
)
def test_every_field_of_the_contract_is_named(class_: str, field: str) -> None:
    assert class_ in IN_CODE
    assert field in IN_CODE, f"{class_}.{field} is not on the page"


def test_every_hook_is_named_with_its_arguments() -> None:
    for name, hook in inspect.getmembers(hookspecs, inspect.isfunction):
        if hasattr(hook, "airunway_spec"):
            assert f"`{name}({', '.join(inspect.signature(hook).parameters)})`" in TEXT


RULES = {
    "a name is at most 40": "at most 40 small letters, digits and `-`",
    "settings are a frozen dataclass": "a frozen dataclass with a default for every field",
    "serving_roles are given without a role_label": "only with a `role_label`",
    "override_schema is no JSON schema": "a JSON schema",
    "is no SelectionRule with": "`SelectionRule`s, the condition a text, the priority a whole number",
    "no transformer writes a": "the first is of a kind that a transformer writes",
    "manifest.reserved_labels is a tuple": "a tuple of prefixes, none of them empty",
    "manifest.engines is empty": "at least one `EngineCapability`",
    "not an EngineCapability": "at least one `EngineCapability`",
    "small letters, digits, '-', '.' and '_' only": "small letters, digits, `-`, `.` and `_` only",
    "tasks is empty": "`tasks` are not empty",
    "known are aggregated and disaggregated": "`serving_modes` are known ones",
    "neither gpu_support nor cpu_support": "`gpu_support` or `cpu_support`",
    "one entry an engine": "each engine once",
    "names no UpstreamKind": "at least one `UpstreamKind`",
    "exactly one kind as primary": "exactly one is primary",
    "one entry a kind": "each kind once",
    "at least one version are needed": "with kind, plural and at least one version",
    "has no namespace: everything": "has a namespace",
    "is only read (write=False)": "one that is only read (`write=False`) has `select`",
    "it must be written and required": "is written and required",
    "stand in its transformers": "its `immutable` paths stand in its transformers",
    "which is no place of its pods": "`labels` names places of its `pods`",
    "is read as": "`readings` are known ones",
    "is no name that follows from": "`namesakes` are kinds, or names that follow from `{name}`",
    "is of a kind that the manifest does not name": "`namesakes` are kinds, or names that follow from `{name}`",
    "something that is no Transformer": "a list of `Transformer`s",
    "which the manifest does not name": "of a kind and version that the manifest names",
    "the manifest names ": "for a kind and a version that the manifest names",
    "each has a name of its own": "each with a name of its own",
    "which is no setting": "`defaults` name settings",
    "no transformer writes the primary kind": "at least one writes the primary kind",
    "must be a tuple of Finding": "tuples of `Finding`, all texts",
    "it has no object": "at least one, at most 64",
    "can be kept for one deployment": "at least one, at most 64",
    "metadata.name that Kubernetes takes": "`metadata.name` that Kubernetes takes",
    "sets its namespace or owner": "without namespace or owner",
    "is not JSON": "as JSON",
    "bytes; at most": "at most 512 KiB",
    "is wanted ": "no object twice",
    "replace_on must be a mapping": "a mapping from names to what JSON can say",
    "overrides_at must be a mapping": "a mapping from paths to paths",
    "it has no component": "at least one `Component`",
    "not a Component": "at least one `Component`",
    "makes no name of a condition": "one CamelCase word",
    "is a condition with another writer": "not `Pods` or a name whose condition the core writes",
    "it is True, False or None": "`ready` is True, False or None",
    "reason and message are texts": "`reason` and `message` are texts, the reason one CamelCase word",
    "is not one CamelCase word": "the reason one CamelCase word",
    "is reported ": "each name once",
    ", not a ": "of their types or None",
    "replicas are whole numbers": "replicas are whole numbers, not below zero",
    "endpoint has a Service's name": "an endpoint has a Service's name and a port number, or an http(s) `url`",
    "an http or https address": "an endpoint has a Service's name and a port number, or an http(s) `url`",
    "endpoint.target_port is the port": "its `target_port` is a port or 0",
    "refused is a Finding": "`refused` is a `Finding` or None",
}
"""What a rule says when it is broken (plugins/rules.py), and what the page says of it."""


def said_by_the_rules() -> list[str]:
    """The constant text of every sentence that a check yields."""
    found = []
    for node in ast.walk(ast.parse(inspect.getsource(rules))):
        if isinstance(node, ast.Yield) and node.value is not None:
            parts = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            found.append(" ".join(part for part in parts if isinstance(part, str)))
    return found


def test_every_rule_is_on_the_page() -> None:
    sentences = said_by_the_rules()
    assert len(sentences) > 35
    for sentence in sentences:
        matching = [words for words in RULES if words in sentence]
        assert matching, f"a rule that the page does not know: {sentence}"
        assert all(RULES[words] in TEXT for words in matching), f"the page lacks the rule: {sentence}"
    for words in RULES:
        assert any(words in sentence for sentence in sentences), f"no rule says {words!r} any more"
    assert rules.MAX_OBJECTS == 64
    assert rules.MAX_OBJECT_BYTES == 512 * 1024


def test_the_table_of_rules_is_that_of_the_kit() -> None:
    """Ids, sentences and reasons; what the core enforces is in the two tables that say so, and nothing else is."""
    assert page() == PAGE.read_text(encoding="utf-8"), "python -m tools.rules_section"
    enforced = {value for value in vars(rules).values() if isinstance(value, str) and value.startswith("AR-C-")}
    assert enforced == {rule.id for rule in KIT.values() if rule.checked in (Checked.LOAD, Checked.CALL)}
    assert all(rule.sentence and rule.reason for rule in KIT.values())
    assert sorted(re.findall(r"^\| (AR-C-\d{3}) ", TEXT, re.MULTILINE)) == sorted(KIT)


def example(name: str) -> Any:
    """What the example on the page defines under that name."""
    (source,) = (source for source in PYTHON if re.search(rf"^{name} = ", source, re.MULTILINE))
    known: dict[str, Any] = {"__name__": "example"}
    exec(source, known)
    return known[name]


def test_the_example_is_a_provider() -> None:
    host = host_of("acme", example("provider"))
    assert [base.name for base in bases(host)] == ["vllm", "vllm, own image", "vllm, 16 GPUs"]
    answers = {found.field: found.answer for found in outcomes(host)}
    assert answers["spec.model.id"] is Answer.HONOURED
    assert answers["spec.serving.mode"] is Answer.REFUSED
    assert answers["spec.tolerations"] is Answer.WARNED, "what it never looks at is reported by the runtime"
    assert Answer.IGNORED not in answers.values()


def templates(host: ProviderHost) -> list[list[dict[str, str]]]:
    """The tolerations of every pod that KAITO's provider writes for a model in an image."""
    spec = {"model": {"source": "custom"}, "image": "i", "resources": {"gpu": {"count": 1}}}
    deployment = parse_deployment({"metadata": {"name": "m", "namespace": "n"}, "spec": spec})
    context = assumed_context(host, engine="vllm", now=NOW)
    return [
        pod.get("tolerations", []) for obj in host.translate_spec(deployment, context).objects for pod in pod_specs(obj)
    ]


def test_the_wrapper_puts_its_toleration_into_every_pod() -> None:
    wrapper = example("wrapper")
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert templates(host_of("kaito", provider)) == [[]]
    assert templates(host_of("kaito", provider, wrappers=(wrapper,))) == [[toleration]]
