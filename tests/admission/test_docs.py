"""docs/admission.md cannot lie: its roles are the ones that are tested, its policy is read, its options exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import yaml

from airunway.api import names
from airunway.cli.main import app
from airunway.rbac.rights import core_rights, leader_election_rights, roles, webhook_rights
from airunway.validation.policy import NAMESPACE_NAME, parse_policy, violations
from airunway.validation.uses import DIMENSIONS
from airunway.webhook import webhook_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/admission.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
ROLES = next(block for block in BLOCKS if block.startswith("apiVersion: rbac"))
POLICY = next(block for block in BLOCKS if block.startswith("default: "))


def test_the_roles_are_those_that_are_listed() -> None:
    webhook = webhook_settings(bind_address=":9443", service="airunway-webhook", manage_configuration=True)
    assert webhook is not None
    rights = core_rights(policy=True) + webhook_rights(webhook) + leader_election_rights(names.CORE_MANAGER)
    account = {"kind": "ServiceAccount", "name": "airunway-controller", "namespace": webhook.namespace}
    wanted = roles(rights, name="airunway-controller", namespace=webhook.namespace, subject=account)
    assert list(yaml.safe_load_all(ROLES)) == wanted


def test_with_watched_namespaces_the_last_six_rules_move() -> None:
    """As the page says it."""
    account = {"kind": "ServiceAccount", "name": "core", "namespace": "system"}
    rights = core_rights(policy=True, namespaces=["a", "b"])
    made = {
        (obj["kind"], obj["metadata"].get("namespace", "")): obj
        for obj in roles(rights, name="core", namespace="system", subject=account, watched=["a", "b"])
        if "rules" in obj
    }
    assert made.keys() == {("ClusterRole", ""), ("Role", "a"), ("Role", "b")}
    everything = [rule for obj in yaml.safe_load_all(ROLES) if obj["kind"] == "ClusterRole" for rule in obj["rules"]]
    assert made["Role", "a"]["rules"] == made["Role", "b"]["rules"] == everything[-6:]
    [namespaces] = [rule for rule in made["ClusterRole", ""]["rules"] if rule["resources"] == ["namespaces"]]
    assert namespaces["resourceNames"] == ["a", "b"]


def test_roles_and_policies_are_those_that_are_tested() -> None:
    command = [sys.executable, "-m", "tools.rights", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_has_a_row_for_each_policy() -> None:
    written = yaml.safe_load_all((ROOT / "docs/reference/guard.yaml").read_text(encoding="utf-8"))
    policies = {
        obj["metadata"]["name"].replace("-kaito-", "-NAME-")
        for obj in written
        if obj["kind"] == "ValidatingAdmissionPolicy"
    }
    assert set(re.findall(r"^\| `(airunway-guard-[A-Za-z-]+)`", PAGE, re.MULTILINE)) == policies


def judged(image: str, **labels: str) -> int:
    spec: dict[str, Any] = {"model": {"id": "a"}, "engine": {"image": image}}
    labels = {NAMESPACE_NAME: "x", **labels}
    return len(violations(parse_policy(POLICY), spec, engine=None, provider=None, namespace_labels=labels))


def test_the_policy_means_what_the_page_says() -> None:
    assert judged("ghcr.io/acme/x:1") == 0
    assert judged("vllm/vllm-openai:v1") == 1
    for image in ("ghcr.io/acme/x:1", "vllm/vllm-openai:v1"):
        assert judged(image, team="search") == 0


def test_h6_the_page_says_what_is_refused_everywhere() -> None:
    found = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \| ([^|]*)\|$", PAGE, re.MULTILINE)
    rows = {key: (refused, free) for key, refused, free in found}
    told = {key: tuple(tuple(re.findall("`([^`]+)`", cell)) for cell in rows[key]) for key in DIMENSIONS}
    assert told == {
        key: (tuple(pattern.replace("[*]", "*") for pattern in dimension.refused), dimension.free)
        for key, dimension in DIMENSIONS.items()
    }
    assert set(yaml.safe_load(POLICY)["rules"][1]) >= set(DIMENSIONS)


def test_h6_the_page_says_in_one_sentence_what_the_right_to_create_means() -> None:
    (bold,) = re.findall(r"\*\*(Every user who may create ModelDeployments[^.]*\.)\*\*", PAGE)
    assert "may run pods there as any of its service accounts" in " ".join(bold.split())


def test_every_option_on_the_page_exists() -> None:
    controller = app.get_command(click.Context(app), "controller")
    assert controller is not None
    known = {option for parameter in controller.params for option in (*parameter.opts, *parameter.secondary_opts)}
    of_others = {"--admission-control-config-file"}  # the API server's
    ours = re.sub(r"^spec\.engine\..*$", "", PAGE, flags=re.MULTILINE)  # warnings about options of engines
    assert set(re.findall(r"--[a-z][a-z-]+", ours)) - known == of_others
