"""M4: what a plan shows of the objects that it describes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from airunway.runtime.preview import PLAN_LIMIT, plan_data, shown

CANARY = "canary-7b1f4e"


@pytest.mark.parametrize(
    "node",
    [
        {"env": [{"name": "TOKEN", "value": CANARY}]},
        {"template": {"spec": {"containers": [{"env": [{"name": "A", "value": CANARY}]}]}}},
        {"runtime_env": {"env_vars": {"A": CANARY}}},
        {"args": [f"--api-key={CANARY}"]},
        {"args": ["--api-key", CANARY, "--port", "80"]},
        {"command": ["serve", "--hf-token", CANARY]},
        {"data": {"config": f"api_key: {CANARY}"}},
        {"url": f"https://user:{CANARY}@example.com/x"},
    ],
)
def test_m4_values_of_variables_and_secrets_do_not_stand_in_a_plan(node: Any) -> None:
    assert CANARY not in str(shown(node))


def test_m4_what_is_no_secret_is_shown_as_it_is() -> None:
    node = {
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "args": ["--port=80", "--model", "m"],
        "replicas": 2,
    }
    assert shown(node) == node


def test_m4_a_plan_is_cut_to_what_a_config_map_takes_and_says_so() -> None:
    objects = [{"kind": "Thing", "metadata": {"name": str(n)}, "spec": {"text": "é" * 5000}} for n in range(200)]
    data = plan_data(objects, actions=["create"] * 100_000, refusals=["no " * 100_000])
    assert sum(len(text.encode()) for text in data.values()) <= PLAN_LIMIT
    assert all("# cut: " in text for text in data.values())
    assert next(iter(yaml.safe_load_all(data["objects.yaml"])))["metadata"]["name"] == "0"
