"""The same deployment gives the same bytes: again, in another order of keys, and in another process."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from tests.support.determinism import outputs_of_processes, reordered

from airunway.api.modeldeployment import parse_deployment
from airunway.resource import canonical_json
from airunway_kaito.compatibility import compatibility as can_handle
from airunway_kaito.objects import desired

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
MAPS = st.dictionaries(NAMES, st.text(max_size=8), max_size=5)
SPEC = st.fixed_dictionaries(
    {"model": st.fixed_dictionaries({"id": st.just("o/m")}, optional={"servedName": st.text(max_size=8)})},
    optional={
        "image": st.sampled_from(["", "registry.example/i:1"]),
        "engine": st.fixed_dictionaries(
            {},
            optional={
                "contextLength": st.integers(1, 10**6),
                "args": MAPS,
                "extraArgs": st.lists(st.text(max_size=8), max_size=3),
            },
        ),
        "resources": st.just({"gpu": {"count": 2}, "memory": "1Gi"}),
        "env": st.lists(st.fixed_dictionaries({"name": NAMES, "value": st.text(max_size=8)}), max_size=3),
        "nodeSelector": MAPS,
        "podTemplate": st.fixed_dictionaries(
            {"metadata": st.fixed_dictionaries({"labels": MAPS, "annotations": MAPS})}
        ),
    },
)


@given(spec=SPEC, engine=st.sampled_from(["vllm", "llamacpp"]))
def test_the_order_of_keys_does_not_matter(context: Any, spec: dict[str, Any], engine: str) -> None:
    first, second = (
        parse_deployment({"metadata": {"name": "m", "namespace": "n"}, "spec": form})
        for form in (spec, reordered(spec))
    )
    ctx = context(engine)
    assert canonical_json(desired(first, ctx).objects) == canonical_json(desired(second, ctx).objects)
    assert orjson.dumps(desired(first, ctx).objects) == orjson.dumps(desired(first, ctx).objects)
    paths = [sorted(f.path for f in can_handle(form, ctx).warnings) for form in (first, second)]
    assert paths[0] == paths[1]


PROGRAM = """
import sys, orjson
from datetime import datetime, timezone
from airunway.api.modeldeployment import parse_deployment
from airunway.plugins.contract import Context, Upstream
from airunway_kaito.compatibility import compatibility as can_handle
from airunway_kaito.objects import desired
from airunway_kaito.manifest import TRANSFORMERS
from airunway_kaito.settings import Settings

NOW = datetime(2026, 9, 1, tzinfo=timezone.utc)
UPSTREAM = Upstream(api_version=TRANSFORMERS[-1].api_version, transformer=TRANSFORMERS[-1])
for spec in orjson.loads(sys.stdin.buffer.read()):
    deployment = parse_deployment({"metadata": {"name": "m", "namespace": "n"}, "spec": spec})
    context = Context(engine=spec["engine"]["type"], upstream=UPSTREAM, settings=Settings(), now=NOW)
    sys.stdout.buffer.write(orjson.dumps(desired(deployment, context).objects))
    sys.stdout.buffer.write(repr(can_handle(deployment, context)).encode())
"""


def test_another_process_writes_the_same_bytes() -> None:
    gpu = {"gpu": {"count": 2}, "memory": "8Gi"}
    specs = [
        {"model": {"id": "o/m"}, "engine": {"type": "vllm", "contextLength": 8192}, "resources": gpu},
        {
            "model": {"id": "o/m"},
            "engine": {"type": "vllm", "args": {"seed": "1", "b": "", "a": "2"}},
            "resources": gpu,
        },
        {
            "model": {"id": "o/m/f.gguf"},
            "engine": {"type": "llamacpp", "image": "i"},
            "nodeSelector": {"b": "1", "a": "2"},
        },
    ]
    outputs = outputs_of_processes(PROGRAM, specs)
    assert len(outputs) == 1
    assert len(outputs.pop()) > 1000
