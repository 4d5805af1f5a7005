"""Ray Serve as it is played, against what the real one did (``ray-2.56/serve-rr2.log``), and who fails against it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.recorded import recorded_by
from tests.support.translations import deployments_like

from airunway.api.modeldeployment import ModelDeployment, parse_deployment
from airunway.plugins.contract import Context, Upstream
from airunway.plugins.registry import load
from airunway_kuberay_simulator import serve

FIRST = ("v1-1.1", "v1-1.7")
"""The first generation of transformers."""


def config(replicas: int, *, apart: bool) -> str:
    args = {"llm_configs": [{"model_loading_config": {"model_id": "m"}, "deployment_config": {"num_replicas": 1}}]}
    if apart:
        parts = [{"name": "LLMServer:m", "num_replicas": replicas}]
    else:
        args["llm_configs"][0]["deployment_config"] = {"num_replicas": replicas}
        parts = []
    return json.dumps({"applications": [{"name": "llm", "args": args, "deployments": parts}]})


def processes(log: Path, section: str) -> list[set[int]]:
    """The processes of the model that ran when the application was RUNNING: before that section, and at its end."""
    runs: list[tuple[str, set[int]]] = []
    now = ""
    for line in log.read_text().splitlines():
        if line.startswith("## "):
            now = line.removeprefix("## ")
        elif '"RUNNING", ""' in line:
            found = re.search(r'"LLMServer": \["HEALTHY", \d+, (\[\[.*?\]\])', line)
            if found:
                runs.append((now, {pid for _, pid in json.loads(found[1])}))
    at = max(i for i, (name, _) in enumerate(runs) if name == section)
    before = max(i for i in range(at) if runs[i][0] != section)
    return [runs[before][1], runs[at][1]]


@pytest.mark.parametrize("section", ["1->2 through args", "2->1 through args"])
def test_counts_in_the_arguments_replace_every_replica_as_recorded(section: str) -> None:
    before, after = processes(recorded_by("ray-2.56") / "serve-rr2.log", section)
    assert not before & after, "recorded: none of them went on"
    first, last = (int(word) for word in section.split(maxsplit=1)[0].split("->"))
    old = serve.deployed(config(first, apart=False), {})
    new = serve.deployed(config(last, apart=False), old)
    assert not set(old["LLMServer:m"].replicas) & set(new["LLMServer:m"].replicas)
    assert not set(old[serve.INGRESS].replicas) & set(new[serve.INGRESS].replicas), "nor did the ingress"


def test_counts_beside_the_arguments_leave_what_runs() -> None:
    one = serve.deployed(config(1, apart=True), {})
    three = serve.deployed(config(3, apart=True), one)
    again = serve.deployed(config(1, apart=True), three)
    assert three["LLMServer:m"].replicas[:1] == one["LLMServer:m"].replicas == again["LLMServer:m"].replicas
    assert one[serve.INGRESS] == three[serve.INGRESS] == again[serve.INGRESS]


def test_without_a_target_autoscaling_never_scales() -> None:
    """As recorded (serve-rr4.log): 16 clients, and one replica for all of the time."""
    part = serve.Part(version="", replicas=(1,), least=1, most=4)
    assert serve.wanted(part, 16) == 1
    assert serve.wanted(serve.Part(version="", replicas=(1,), least=1, most=4, target=2), 16) == 4


def written(transformer: Any, **fields: Any) -> str:
    return translated(transformer, deployments_like()(**fields))


def translated(transformer: Any, deployment: ModelDeployment) -> str:
    host = load("kuberay")
    upstream = Upstream(api_version=transformer.api_version, transformer=transformer)
    now = datetime(2026, 9, 1, tzinfo=UTC)
    context = Context(engine="vllm", upstream=upstream, settings=host.settings({}), now=now)
    made, *_ = host.translate_spec(deployment, context).objects
    return str(made["spec"]["serveConfigV2"])


@pytest.mark.parametrize("fields", [{"scaling": {"replicas": n}} for n in (2, 5)])
def test_real_kuberay_1_the_first_transformer_loses_every_replica_and_the_second_none(fields: Any) -> None:
    kept = {}
    for transformer in load("kuberay").transformers:
        old = serve.deployed(written(transformer), {})
        new = serve.deployed(written(transformer, **fields), old)
        kept[transformer.name] = all(set(old[name].replicas) <= set(new[name].replicas) for name in old)
        again = serve.deployed(written(transformer), new)
        kept[transformer.name] &= all(set(again[name].replicas) <= set(new[name].replicas) for name in old)
    assert kept == {name: name not in FIRST for name in kept}
    assert len(kept) > len(FIRST)


def test_real_kuberay_1_turning_autoscaling_on_and_off_keeps_every_replica() -> None:
    """Run on real Ray 2.56: what stood as a number before lost its replicas, for want of a policy in a hash."""
    wish = {"provider": {"overrides": {"autoscaling": {"maxReplicas": 4}}}}
    for transformer in load("kuberay").transformers[len(FIRST) :]:
        old = serve.deployed(written(transformer), {})
        new = serve.deployed(written(transformer, **wish), old)
        again = serve.deployed(written(transformer), new)
        assert {name: part.replicas for name, part in old.items()} == {n: part.replicas for n, part in new.items()}
        assert {name: part.replicas for name, part in old.items()} == {n: part.replicas for n, part in again.items()}


def test_one_that_says_nothing_of_autoscaling_before_is_replaced() -> None:
    """As real Ray 2.56 did: pid 7005 went on from 1 to 4 and back, and autoscaling replaced it by 8026."""
    numbered = json.loads(config(1, apart=True))
    bounded = json.loads(config(1, apart=True))
    bounded["applications"][0]["deployments"] = [{"name": "LLMServer:m", "autoscaling_config": {"max_replicas": 3}}]
    old = serve.deployed(json.dumps(numbered), {})
    new = serve.deployed(json.dumps(bounded), old)
    assert not set(old["LLMServer:m"].replicas) & set(new["LLMServer:m"].replicas)


def test_real_kuberay_2_the_first_transformer_never_scales_and_the_second_does() -> None:
    wish = {"provider": {"overrides": {"autoscaling": {"maxReplicas": 4}}}}
    scales = {}
    for transformer in load("kuberay").transformers:
        part = next(iter(serve.deployed(written(transformer, **wish), {}).values()))
        scales[transformer.name] = serve.wanted(part, 16)
    assert scales == {name: 1 if name in FIRST else 4 for name in scales}
    assert len(scales) > len(FIRST)


def test_real_kuberay_2_the_sample_scales_as_far_as_it_says() -> None:
    """16 clients at once, as were tried: it stayed at one replica, where "up to four" was promised."""
    text = (resources.files("airunway_kuberay") / "samples" / "ray-8b.yaml").read_text(encoding="utf-8")
    sample = yaml.safe_load(text)
    assert "up to four replicas, one for every four requests" in text
    sample["metadata"]["namespace"] = "default"
    parsed = parse_deployment(sample)
    part = next(iter(serve.deployed(translated(load("kuberay").transformers[-1], parsed), {}).values()))
    assert [serve.wanted(part, clients) for clients in (0, 1, 4, 5, 16, 100)] == [1, 1, 1, 2, 4, 4]
