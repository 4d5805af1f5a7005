"""Plans of an edit: what is a difference, and what is not."""

from __future__ import annotations

from airunway.view.plan import plan_step


def test_another_order_of_keys_is_no_difference() -> None:
    before = {"kind": "Deployment", "metadata": {"name": "a", "namespace": "ml", "labels": {"x": "1"}}}
    env = [{"value": "1", "name": "A"}, {"name": "B", "value": "2"}]
    before["spec"] = {"env": env, "replicas": 1}
    after = {"kind": "Deployment", "metadata": {"name": "a", "labels": {"x": "1"}, "namespace": "ml"}}
    after["spec"] = {"replicas": 2, "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}]}
    diff = plan_step("update", before, after).diff
    changed = [each for each in diff if each.startswith(("+", "-")) and not each.startswith(("+++", "---"))]
    assert changed == ["-  replicas: 1", "+  replicas: 2", "-    value: '2'", "+    value: '3'"]
