"""Ray's own builders, of the oldest, the default and the newest Ray, make what is meant of what the provider writes.

They run in environments of their own, ``.airunway/ray-<release>``, which ``make test-ray`` makes; where there is none
the tests skip. `builds` says how, without CUDA and without vLLM.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml

from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import ModelCache
from airunway.resource import Resource
from airunway.sdk import served_name_of
from airunway_kuberay.releases import RELEASES, release_of, vllm_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
RELEASED = {"2.44.1": "0.7.2", "2.49.2": "0.7.2", "2.56.0": "0.22.0", "2.60.0": "0.29.0"}
"""Oldest supported Ray, the last with autoscaling of its own, the default image's, the newest; and a vLLM for each."""

SPLIT: Resource = {
    "serving": {"mode": "disaggregated"},
    "resources": None,
    "scaling": {"prefill": {"replicas": 3, "gpu": {"count": 1}}, "decode": {"replicas": 2, "gpu": {"count": 2}}},
}
SHAPES: dict[str, Resource] = {
    "plain": {},
    "three": {"scaling": {"replicas": 3}},
    "four GPUs": {"resources": {"gpu": {"count": 4}}},
    "arguments": {"engine": {"contextLength": 8192, "args": {"dtype": "bfloat16", "enforce-eager": ""}}},
    "stages": {
        "resources": {"gpu": {"count": 8}},
        "engine": {"args": {"pipeline-parallel-size": "2", "tensor-parallel-size": "4"}},
    },
    "odd name": {"model": {"id": "o/m", "servedName": "team/Model-1.5.x"}},
    "autoscaled": {"provider": {"overrides": {"autoscaling": {"maxReplicas": 4, "targetOngoingRequests": 8}}}},
    "autoscaled without a target": {"provider": {"overrides": {"autoscaling": {"maxReplicas": 4}}}},
    "from zero": {"scaling": {"replicas": 0}, "provider": {"overrides": {"autoscaling": {"maxReplicas": 4}}}},
    "stopped": {"scaling": {"replicas": 0}},
    "apart": SPLIT,
    "apart, other counts": {
        **SPLIT,
        "scaling": {"prefill": {"replicas": 1, "gpu": {"count": 1}}, "decode": {"replicas": 5, "gpu": {"count": 2}}},
    },
}
SCALED_IN_PLACE = (("plain", "three", "autoscaled", "autoscaled without a target"), ("apart", "apart, other counts"))
"""Shapes between which no replica may be replaced."""


def samples() -> dict[str, Resource]:
    folder = resources.files("airunway_kuberay") / "samples"
    found = [yaml.safe_load(file.read_text()) for file in folder.iterdir() if file.name.startswith("ray-")]
    assert len(found) >= 2
    return {f"sample {each['metadata']['name']}": each["spec"] for each in found}


async def built(release: str, services: list[Resource]) -> list[Resource]:
    python = HERE.parents[3] / ".airunway" / f"ray-{release}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"needs Ray {release}: make test-ray")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(HERE / "stubs"),
        "VLLM_STUB_FIELDS": str(HERE / "vllm" / f"{RELEASED[release]}.json"),
        "RAY_ENABLE_AUTO_CONNECT": "0",
        "HF_HUB_OFFLINE": "1",
    }
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(HERE / "builds.py"),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate("".join(json.dumps(made["spec"]) + "\n" for made in services).encode())
    assert process.returncode == 0, err.decode()[-2000:]
    return [json.loads(line) for line in out.decode().splitlines() if line.startswith("{")]


@pytest.mark.parametrize("release", RELEASED)
async def test_a45_ray_reads_the_path_of_cached_weights(
    deployment: Any, context: Any, service: Any, release: str, tmp_path: Path
) -> None:
    """Each sample with a model cache: Ray's own class and builder take a folder, under the served name."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    cache = ModelCache(claim="weights", sub_path="model", mount_path=str(tmp_path))
    wanted = []
    for spec in ({**deployment().spec.to_essence()}, *samples().values()):
        given = {**spec, "image": f"r/ray-llm:{release}"}
        found = parse_deployment({"metadata": {"name": "sample", "namespace": "default"}, "spec": given})
        if found.spec.serving.mode != "disaggregated" or release >= "2.49":
            wanted.append(found)
    said = await built(release, [service(each, context(cache=cache)) for each in wanted])
    assert [each.get("error", "") for each in said] == [""] * len(wanted)
    for each, reads in zip(wanted, said, strict=True):
        loaded = {"model_id": served_name_of(each), "model_source": str(tmp_path)}
        assert reads["loading"] == [loaded] * len(reads["loading"])
        assert reads["loading"]


@pytest.mark.parametrize("release", RELEASED)
async def test_real_kuberay_9_rays_builders_make_what_is_meant(
    deployment: Any, context: Any, service: Any, release: str
) -> None:
    """Counts, targets, names, and that every part finds a place on the workers that are there for it."""
    shapes = {name: deployment(**fields, image=f"r/ray-llm:{release}") for name, fields in SHAPES.items()}
    for name, spec in samples().items():
        given = {**spec, "image": f"r/ray-llm:{release}"}
        shapes[name] = parse_deployment({"metadata": {"name": "sample", "namespace": "default"}, "spec": given})
    makes, meant = {}, {}
    for name, wanted in shapes.items():
        if wanted.spec.serving.mode == "disaggregated" and release < "2.49":
            continue
        meant[name] = service(wanted, context())
        makes[name] = json.loads(meant[name]["spec"]["serveConfigV2"])
    found = dict(zip(makes, await built(release, list(meant.values())), strict=True))
    assert {name: said.get("error", "") for name, said in found.items()} == dict.fromkeys(makes, "")
    for name, said in found.items():
        parts, asked = said["deployments"], makes[name]["applications"][0]["deployments"]
        for part in asked:
            counts = part.get("autoscaling_config") or {
                "min_replicas": part["num_replicas"],
                "max_replicas": part["num_replicas"],
            }
            seen = parts[part["name"]]
            assert (seen["least"], seen["most"]) == (counts["min_replicas"], counts["max_replicas"]), (name, part)
            if seen["least"] != seen["most"]:
                assert 1 <= seen["target"] <= 100_000, (name, part, "it would never scale")
        assert sorted(parts) == sorted(part["name"] for part in asked), "nothing is left to Ray's own numbers"
        workers = dict(said["nodes"])
        assert workers.pop("headgroup")["CPU"] == 0, "nothing is placed on the head"
        _fits(workers, parts, name)
    for shapes_alike in SCALED_IN_PLACE:
        assert len({found[name]["version"] for name in shapes_alike if name in found}) <= 1, "Ray would replace them"
    assert found["plain"]["version"] != found["arguments"]["version"]


def _fits(workers: Resource, parts: Resource, name: str) -> None:
    """Each replica of a model fits onto one worker, with two of what takes its requests."""
    for part in parts.values():
        bundles = part["bundles"] or [{"CPU": part["cpus"]}]
        gpus, cpus = (sum(bundle.get(kind, 0) for bundle in bundles) for kind in ("GPU", "CPU"))
        assert any(gpus <= has["GPU"] and cpus + 2 <= has["CPU"] for has in workers.values()), (name, part)


async def test_a_name_that_ray_does_not_know_is_refused_by_it(deployment: Any, context: Any, service: Any) -> None:
    """So that the tests above would see a wrong one."""
    made = service(deployment(), context())
    made["spec"]["serveConfigV2"] = made["spec"]["serveConfigV2"].replace("LLMServer:", "LLMDeployment:")
    (said,) = await built("2.56.0", [made])
    assert "does not exist" in said["error"]


@pytest.mark.parametrize("release", RELEASED)
def test_real_kuberay_14_everything_beside_ray_is_pinned(release: str) -> None:
    """With what was newest (protobuf 7, fastapi 0.165) Ray 2.56 could not deploy anything."""
    lines = (HERE / "environments" / f"{release}.txt").read_text(encoding="utf-8").split()
    pins = dict(line.split("==") for line in lines)
    assert pins["ray"] == release
    assert int(pins["protobuf"].partition(".")[0]) < 7
    assert {"fastapi", "starlette", "pydantic"} <= set(pins)


@pytest.mark.parametrize("release", RELEASED)
def test_which_vllm_an_image_has_is_what_rays_wheel_pins(release: str) -> None:
    found = sorted(
        (HERE.parents[3] / ".airunway" / f"ray-{release}").glob(f"lib/*/site-packages/ray-{release}.dist-info")
    )
    if not found:
        pytest.skip(f"needs Ray {release}: make test-ray")
    pins = re.findall(r"^Requires-Dist: vllm.*==([\d.]+)", (found[0] / "METADATA").read_text(), re.MULTILINE)
    known = vllm_of(release, f"rayproject/ray-llm:{release}")
    assert pins == ([".".join(map(str, known))] if known else [])


def test_every_release_of_the_table_has_the_last_one_before_it() -> None:
    assert release_of("2.43.0") is None
    assert release_of("") is None
    assert release_of("2.46.9") == RELEASES[2, 44, 0]
    assert release_of("3.0.0") == RELEASES[2, 55, 0]
