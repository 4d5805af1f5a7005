"""The plugin as the core sees it: contract, honest capabilities, selection, settings, determinism."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.determinism import outputs_of_processes, reordered

from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import SelectionMode
from airunway.plugins.errors import SettingsError
from airunway.plugins.host import ProviderHost
from airunway.plugins.provider_config import config_object
from airunway.plugins.registry import load
from airunway.resource import Resource, canonical_json
from airunway.selection.facts import provider_facts, request_of
from airunway.selection.provider import choose_provider
from airunway_kuberay.manifest import MANIFEST

NOW = datetime(2026, 9, 1, tzinfo=UTC)
META = {"name": "m", "namespace": "n"}


def test_it_holds_the_contract_and_asks_for_nothing_beyond_its_kinds(host: ProviderHost) -> None:
    host.check()
    assert host.primary_kind.kind == "RayService"
    assert {kind.kind: (kind.write, kind.required) for kind in host.manifest.upstream} == {
        "RayService": (True, True),
        "RayCluster": (False, False),
        "NetworkPolicy": (True, True),
        "ResourceClaimTemplate": (True, False),
    }
    assert host.primary_kind.deletion == "Foreground", "up to KubeRay 1.6.1 its pods are gone with it then"
    assert host.manifest.rbac_rules == ()


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "llamacpp"])
def test_capabilities_are_what_it_can_handle(
    host: ProviderHost, deployment: Any, split: Any, context: Any, engine: str
) -> None:
    said = {entry.name: entry for entry in host.manifest.engines}.get(engine)
    ctx = context(engine)
    assert host.can_handle(deployment(), ctx).ok is bool(said and said.gpu_support)
    assert host.can_handle(deployment(resources={}), ctx).ok is bool(said and said.cpu_support)
    assert host.can_handle(deployment(scaling={"replicas": 0}), ctx).ok is bool(said and said.scale_to_zero)
    assert host.can_handle(split(), ctx).ok is bool(said and "disaggregated" in said.serving_modes)


@pytest.mark.parametrize("mode", ["aggregated", "disaggregated"])
def test_it_is_never_chosen_only_named(mode: str) -> None:
    """Also where no other provider could do it: somebody has to ask for a Ray cluster."""
    configs = []
    for plugin in (load("kuberay"), load("kaito")):
        config = config_object(plugin.manifest)
        config["status"] = {"ready": True, "lastHeartbeat": NOW.isoformat()}
        configs.append(config)
    assert configs[0]["spec"]["selection"] == SelectionMode.EXPLICIT
    spec = {"model": {"id": "o/m"}, "resources": {"gpu": {"count": 1}}, "serving": {"mode": mode}}
    facts = [provider_facts(config) for config in configs]
    found = choose_provider(request_of(spec), facts, engine="vllm", now=NOW + timedelta(seconds=1))
    assert found.provider == ("kaito" if mode == "aggregated" else None)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"upgrade": "InPlace"}, "NewCluster or Recreate"),
        ({"initializingTimeout": "soon"}, "a duration such as 2h"),
        ({"headCPU": "4"}, "headCPU"),
    ],
    ids=str,
)
def test_a_setting_that_makes_no_sense_is_refused_at_the_start(host: ProviderHost, values: Resource, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        host.settings(values)


# -------------------------------------------------------------------------------------------------------- determinism

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
MAPS = st.dictionaries(NAMES, st.text(max_size=8), max_size=5)
ROLE = st.fixed_dictionaries({"replicas": st.integers(1, 4), "gpu": st.just({"count": 2})})
SPEC = st.fixed_dictionaries(
    {"model": st.just({"id": "o/m"}), "resources": st.just({"gpu": {"count": 2}, "memory": "1Gi"})},
    optional={
        "serving": st.sampled_from([{"mode": "aggregated"}, {"mode": "disaggregated"}]),
        "scaling": st.fixed_dictionaries({"replicas": st.integers(0, 3), "prefill": ROLE, "decode": ROLE}),
        "engine": st.fixed_dictionaries(
            {}, optional={"args": MAPS, "extraArgs": st.lists(st.text(max_size=8), max_size=3)}
        ),
        "env": st.lists(st.fixed_dictionaries({"name": NAMES, "value": st.text(max_size=8)}), max_size=3),
        "nodeSelector": MAPS,
        "podTemplate": st.fixed_dictionaries(
            {"metadata": st.fixed_dictionaries({"labels": MAPS, "annotations": MAPS})}
        ),
    },
)


@given(spec=SPEC)
def test_the_order_of_keys_does_not_matter(host: ProviderHost, context: Any, spec: dict[str, Any]) -> None:
    written = [
        canonical_json(list(host.translate_spec(parse_deployment({"metadata": META, "spec": form}), context()).objects))
        for form in (spec, reordered(spec), spec)
    ]
    assert written[0] == written[1] == written[2]


PROGRAM = """
import sys
from datetime import datetime, timezone
import orjson
from airunway.sdk import Context, Upstream, parse_deployment
from airunway_kuberay import provider
from airunway_kuberay.manifest import TRANSFORMERS
from airunway_kuberay.settings import Settings

upstream = Upstream(api_version="ray.io/v1", transformer=TRANSFORMERS[-1])
for spec in orjson.loads(sys.stdin.buffer.read()):
    deployment = parse_deployment({"metadata": {"name": "m", "namespace": "n"}, "spec": spec})
    now = datetime(2026, 9, 1, tzinfo=timezone.utc)
    context = Context(engine="vllm", upstream=upstream, settings=Settings(), now=now)
    sys.stdout.buffer.write(orjson.dumps(provider.translate_spec(deployment, context)))
    sys.stdout.buffer.write(repr(provider.can_handle(deployment, context)).encode())
"""


def test_another_process_writes_the_same_bytes() -> None:
    specs = [
        {
            "model": {"id": "o/m"},
            "engine": {"args": {"seed": "1", "b": "", "a": "2"}},
            "resources": {"gpu": {"count": 2}},
            "serving": {"mode": mode},
        }
        for mode in ("aggregated", "disaggregated")
    ]
    outputs = outputs_of_processes(PROGRAM, specs)
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1000


# ------------------------------------------------------------------------------------------------------------ strings


@given(word=st.text(max_size=20))
def test_a_user_s_words_cannot_become_anything_else(
    host: ProviderHost, deployment: Any, context: Any, word: str
) -> None:
    """No shell reads them, no label of KubeRay's is set by them, and the configuration stays one application."""
    wanted = deployment(
        model={"id": f"o/{word}", "servedName": word},
        engine={"args": {"chat-template": word}},
        env=[{"name": "WORD", "value": word}],
        podTemplate={"metadata": {"labels": {f"ray.io/{word}": word}, "annotations": {"a": word}}},
    )
    if host.can_handle(wanted, context()).blockers:
        return
    made, *_ = host.translate_spec(wanted, context()).objects
    (application,) = orjson.loads(made["spec"]["serveConfigV2"])["applications"]
    assert set(application) == {"name", "route_prefix", "import_path", "args", "deployments"}
    cluster = made["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        template = group["template"]
        assert set(group["rayStartParams"]) <= {"dashboard-host", "num-cpus", "num-gpus"}
        assert not [key for key in template["metadata"].get("labels", {}) if key.startswith(MANIFEST.reserved_labels)]
        (container,) = template["spec"]["containers"]
        assert "command" not in container
        assert "args" not in container
