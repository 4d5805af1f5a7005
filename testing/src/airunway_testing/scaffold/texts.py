"""The parts of the skeleton's files that depend on the upstream's shape: Python, as `ruff format` has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from airunway.plugins.contract import EngineCapability, ProviderManifest, UpstreamKind
from airunway.sdk import workloads
from airunway.upgrades.definitions import DefinitionVersion
from airunway_testing.scaffold.shape import Path, Placeholder, Shape, Tree

_WIDTH = 120
_ONE_LINE = 90
"""Letters of a tuple that stands on one line."""

_PLACEHOLDER = "  # the CRD requires it: write what belongs here"

POD_LABEL = "app.kubernetes.io/instance"
"""By which pods are known where the provider cannot label them, until the author says what the operator does."""


def manifest_of(shape: Shape, *, name: str, group: str, kind: str, plural: str) -> ProviderManifest:
    """What the guard and the rights in the chart follow from, as the skeleton's own manifest says it."""
    primary = UpstreamKind(
        group=group,
        kind=kind,
        plural=plural,
        versions=("v1",),  # neither guard nor rights know of versions
        primary=True,
        deletion="Foreground",
        pods=_pods(shape),
        containers=("spec",) if shape.form == "fields" else (),
        unused=_unused(shape),
        labels=_labels(shape),
    )
    engines = (EngineCapability(name="vllm", gpu_support=True),)
    upstream = (primary, workloads.SERVICE) if shape.labelled else (primary,)
    return ProviderManifest(name=name, version="0.1.0", engines=engines, upstream=upstream)


def texts_of(shape: Shape, version: DefinitionVersion) -> dict[str, str]:
    """What is filled in, by name; lines of code end with a line break."""
    of_pods = shape.form != "fields"
    return {
        "re": "import re\n" if "image.tag" in shape.fields else "",
        "imports": _lines(sorted(_imports(shape), key=_as_ruff_sorts), 1),
        "overrides_import": f"from airunway.sdk.overrides import {'TEXT, ' if of_pods else ''}keys\n"
        if of_pods
        else "",
        "cache": ", model_cache=True" if of_pods else "",
        "zero": ", scale_to_zero=True" if shape.replicas else "",
        "pods": _of_the_kind(shape),
        "service": "        workloads.SERVICE,\n" if shape.labelled else "",
        "pod_labels": (
            ""
            if shape.labelled
            else f'    pod_labels=("{POD_LABEL}",),  # what the operator puts onto its pods, with the object\'s name\n'
        ),
        "overrides": _overrides(shape) if of_pods else "",
        "transformer": _transformer(version, hardened=of_pods),
        "warnings": _warnings(shape),
        "no_place": _no_place(shape),
        "mode": "" if shape.form == "fields" else _mode(),
        "blockers": _blockers(shape),
        "start": _start(shape),
        "spec": _spec(shape.tree(), 2),
        "made": "[server, workloads.service(deployment, port=PORT)]" if shape.labelled else "[server]",
        "reading": _reading(shape),
        "serving": (
            f'max(0, conditions.number(server, "status", "{shape.count}"))'
            if shape.count
            else "deployment.spec.scaling.replicas if ready else 0"
        ),
        **_of_the_simulator(shape),
        **_of_the_tests(shape),
    }


def _imports(shape: Shape) -> list[str]:
    always = "Compatibility Component Context Endpoint EngineCapability Finding Installation Launch ModelDeployment"
    always += " Observation Observed Provider ProviderManifest Replicas Resource SelectionRule Transformer UpstreamKind"
    names = [*always.split(), "blocker", "conditions", "launch", "setting"]
    if shape.form == "fields":
        used = str(shape.tree())
        names += [] if "resources" in shape.fields else ["DEFAULT_GPU_TYPE"]
        names += [name for name in ("container_resources", "environment", "sizing", "tag_of") if f"{name}(" in used]
    else:
        names += ["HARDENED", "model_pod", "pod_blockers", "pod_findings", *(["ignored"] if _unplaced(shape) else [])]
    return [f"{name}," for name in [*names, *(["workloads"] if shape.labelled else [])]]


def _as_ruff_sorts(name: str) -> tuple[bool, bool, str]:
    """Constants before classes before functions."""
    return not name[0].isupper(), not name.removesuffix(",").isupper(), name


def _pods(shape: Shape) -> tuple[str, ...]:
    places = [".".join(place) for place in (shape.place, *shape.alike)]
    return {"template": tuple(f"{place}.spec" for place in places), "spec": tuple(places), "fields": ()}[shape.form]


def _labels(shape: Shape) -> dict[str, str]:
    return {".".join(shape.place): ".".join(shape.labels)} if shape.form == "spec" else {}


def _unused(shape: Shape) -> tuple[str, ...]:
    return tuple(".".join(path) for path in shape.unused)


def _of_the_kind(shape: Shape) -> str:
    """Where the guard of the provider's account looks for pods, and what it refuses."""
    lines = [
        f"pods={_tuple(pods)},  # the guard of the provider's account looks there" for pods in [_pods(shape)] if pods
    ]
    for place, labels in _labels(shape).items():
        lines.append(f'labels={{"{place}": "{labels}"}},' + ("" if labels else "  # none: see pod_labels"))
    if shape.form == "fields":
        lines.append('containers=("spec",),  # the guard of the provider\'s account looks there')
    lines += [f"unused={_tuple(unused, 3)}," for unused in [_unused(shape)] if unused]
    return _lines(lines, 3)


def _unplaced(shape: Shape) -> list[str]:
    """What of a pod's metadata a bare pod spec has no place for."""
    places = (("labels", shape.labels), ("annotations", shape.annotations))
    return [part for part, path in places if shape.form == "spec" and not path]


def _warnings(shape: Shape) -> str:
    if shape.form == "fields":
        return "*started.warnings,"
    return "*started.warnings, *pod_findings(deployment)" + (", *_no_place(deployment)" if _unplaced(shape) else "")


def _no_place(shape: Shape) -> str:
    lines = []
    for part in _unplaced(shape):
        field = f"spec.podTemplate.metadata.{part}"
        lines += [
            f"if deployment.spec.pod_template.metadata.{part}:",
            f'    yield ignored("{field}", f"a {{KIND}} has no place for {part} of its pods")',
        ]
    head = "\n\ndef _no_place(deployment: ModelDeployment) -> Iterator[Finding]:\n"
    return head + _lines(lines, 1) if lines else ""


def _transformer(version: DefinitionVersion, *, hardened: bool) -> str:
    facts = [f'name="{version.name}"', f'api_version=f"{{GROUP}}/{version.name}"']
    facts.append(f'schema_hashes=("{version.schema_hash}",)')
    if hardened:  # pods for which the provider alone is responsible: model_pod goes by it
        facts.append("features=frozenset({HARDENED})")
    if version.immutable:
        facts.append(f"immutable={_tuple(version.immutable, 2)}")
    one = f"Transformer({', '.join(facts)}),"
    if "\n" not in one and len("TRANSFORMERS = ()") + len(one) <= _WIDTH:
        return one
    if "\n" not in one and len("    ") + len(one) <= _WIDTH:
        return f"\n    {one}\n"
    return "\n    Transformer(\n" + _lines((f"{fact}," for fact in facts), 2) + "    ),\n"


def _overrides(shape: Shape) -> str:
    text = "keys(schedulerName=TEXT)"
    for step in reversed((*shape.place, "spec") if shape.form == "template" else shape.place):
        text = f"keys({step}={text})"
    what = "    # What spec.provider.overrides may change in the object; any other key is named and left out.\n"
    return f"{what}    override_schema={text},\n"


def _mode() -> str:
    text = 'f"a {KIND} serves aggregated: leave spec.serving.mode out"'
    return _lines(['if spec.serving.mode != "aggregated":', f'    yield blocker("spec.serving.mode", {text})'], 1)


def _blockers(shape: Shape) -> str:
    lines = []
    if not shape.replicas:
        lines += [
            "if spec.scaling.replicas != 1:",
            '    yield blocker("spec.scaling.replicas", f"a {KIND} has one replica: leave spec.scaling.replicas out")',
        ]
    if shape.form != "fields":
        return _lines([*lines, "yield from pod_blockers(deployment, context)"], 1)
    nowhere = {
        "spec.serving.mode": 'spec.serving.mode != "aggregated"',
        "spec.model.storage.volumes": "spec.model.storage.volumes",
        "spec.model.cache.mode": 'spec.model.cache.mode != "None"',
        "spec.securityContext": "security.run_as_non_root "
        "or security.run_as_user or security.read_only_root_filesystem",
    }
    if "resources" not in shape.fields:
        nowhere["spec.resources.gpu.type"] = "spec.resources.gpu.type != DEFAULT_GPU_TYPE"
    if "image.tag" in shape.fields:  # a digest, and what is no image at all
        nowhere["spec.image"] = 're.search(r"[^\\w./:-]", _launch(deployment, context).image)'
    lines += [
        "security = spec.security_context",
        "nowhere = {",
        *(f'    "{field}": {given},' for field, given in nowhere.items()),
        "}",
        "for path in (path for path, given in nowhere.items() if given):",
        '    yield blocker(path, f"a {KIND} has no place for what {path} says: leave it out")',
    ]
    return _lines(lines, 1)


def _start(shape: Shape) -> str:
    if shape.form == "fields":
        return "    started = _launch(deployment, context)\n" if "started" in str(shape.tree()) else ""
    labels = ", labels=workloads.pod_selector(deployment)" if shape.labelled else ""
    return f"    pod = model_pod(deployment, context, _launch(deployment, context){labels})\n"


def _spec(tree: Tree, depth: int) -> str:
    """A dict of expressions over several lines, without the last line break."""
    if not tree:
        return "{}"
    lines = []
    for name, value in tree.items():
        text = _spec(value, depth + 1) if isinstance(value, dict) else value
        line = f"**{text}," if name == "**" else f'"{name}": {text},'
        if isinstance(value, Placeholder) and len(line) + len(_PLACEHOLDER) + 4 * (depth + 1) <= _WIDTH:
            line += _PLACEHOLDER
        lines.append(line)
    return "{\n" + _lines(lines, depth + 1) + "    " * depth + "}"


def _reading(shape: Shape) -> str:
    if shape.conditions or not (shape.state or shape.count):
        return _lines(
            [
                'condition = conditions.condition(server, "Ready")',
                'ready = conditions.truth(server, "Ready") is True',
                'reason = "Ready" if ready else conditions.text(condition, "reason") or "Starting"',
                'message = conditions.text(condition, "message")',
            ],
            1,
        )
    if shape.state:
        test = f'conditions.text(server, "status", "{shape.state}") == "Ready"'
    else:
        test = f'conditions.number(server, "status", "{shape.count}") > 0'
    return _lines([f"ready = {test}", 'reason, message = "Ready" if ready else "Starting", ""'], 1)


def _of_the_simulator(shape: Shape) -> dict[str, str]:
    replicas = f"dig(server, {_steps(shape.replicas[0])}, default=1)" if shape.replicas else "1"
    status = ['"observedGeneration": dig(server, "metadata", "generation"),'] if shape.generation else []
    status += [f'"{shape.count}": ready,'] if shape.count else []
    status += [f'"{shape.state}": "Ready" if reason == "Ready" else "NotReady",'] if shape.state else []
    status += ['"conditions": [condition],'] if shape.conditions else []
    return {
        "wanted": f"int({replicas})" if shape.replicas else replicas,
        "pod_of": _pod_of(shape),
        "selector_label": 'f"{SERVER.group}/server"' if shape.labelled else f'"{POD_LABEL}"',
        "status_fields": _lines(status, 2),
        "condition_import": "    condition_of,\n" if shape.conditions else "",
        "condition": _condition() if shape.conditions else "",
        "makes_service": ""
        if shape.labelled
        else "                await self._client.apply(SERVICE, _service(server), manager=MANAGER, force=True)\n",
        "scripted_service": "" if shape.labelled else ", (SERVICE, _service(server))",
        "service_of": "" if shape.labelled else _service_of(),
        "kube_names": "DEPLOYMENT, Client, Conflict, Forbidden, Kind, NotFound"
        if shape.labelled
        else "DEPLOYMENT, SERVICE, Client, Conflict, Forbidden, Kind, NotFound",
    }


def _condition() -> str:
    return _lines(
        [
            'truth = "True" if reason == "Ready" else "False"',
            'before = condition_of(server, "Ready") or {}',
            'since = before.get("lastTransitionTime", now) if before.get("status") == truth else now',
            'condition = {"type": "Ready", "status": truth, "reason": reason, "message": message}',
            'condition["lastTransitionTime"] = since',
        ],
        1,
    )


def _service_of() -> str:
    return """def _service(server: Resource) -> Resource:
    key = key_of(server)
    metadata = {"name": key.name, "namespace": key.namespace, "ownerReferences": [_owner(server)]}
    ports = [{"name": "http", "port": 8000}]
    spec = {"selector": {LABEL: key.name}, "ports": ports}
    return {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind, "metadata": metadata, "spec": spec}


"""


def _pod_of(shape: Shape) -> str:
    if shape.form == "template":
        return f"    return dict(dig(server, {_steps(shape.place)}, default={{}}))\n"
    if shape.form == "spec":
        labels = f"dict(dig(server, {_steps(shape.labels)}, default={{}}))" if shape.labels else "{}"
        beside = {path[-1] for path in (*shape.replicas, shape.labels, shape.annotations) if path[:-1] == shape.place}
        lines = [f"spec = dict(dig(server, {_steps(shape.place)}, default={{}}))"]
        if beside:
            lines += [f"for beside in {_tuple(sorted(beside))}:", "    spec.pop(beside, None)"]
        return _lines([*lines, f'return {{"metadata": {{"labels": {labels}}}, "spec": spec}}'], 1)
    return _lines(
        [
            'spec = server["spec"]',
            'image = spec.get("image", "none")',
            "if isinstance(image, dict):",
            "    image = f\"{image['repository']}:{image['tag']}\"",
            'names = ("command", "args", "env", "resources")',
            'container = {"name": "server", "image": image, **{name: spec[name] for name in names if name in spec}}',
            'placed = {name: spec[name] for name in ("nodeSelector", "tolerations") if name in spec}',
            'return {"metadata": {}, "spec": {"containers": [container], **placed}}',
        ],
        1,
    )


def _of_the_tests(shape: Shape) -> dict[str, str]:
    has = {"tolerations", "resources"} if shape.form != "fields" else set(shape.fields)
    rows = [
        ("spec.scaling.replicas", "HONOURED" if shape.replicas else "REFUSED"),
        ("spec.resources.gpu.count", "HONOURED"),
        *([("spec.tolerations", "HONOURED")] if "tolerations" in has else []),
        ("spec.serving.mode", "REFUSED"),
        ("spec.scaling.prefill.replicas", "WARNED"),
    ]
    scaled = [
        'await client.merge_patch(MODEL_DEPLOYMENT, key, {"spec": {"scaling": {"replicas": 2}}})',
        'await until(client, key, lambda found: dig(found, "status", "replicas", "ready") == 2, what="two replicas")',
    ]
    if shape.replicas:
        scaled.append(f"assert dig(await client.get(SERVER, key), {_steps(shape.replicas[0])}) == 2")
    return {
        "answers": _lines((f'("{field}", Answer.{answer}),' for field, answer in rows), 2),
        "scaled": _lines(scaled, 1) if shape.replicas else "",
    }


def _lines(lines: Iterable[str], depth: int) -> str:
    return "".join(f"{'    ' * depth}{line}\n" for line in lines)


def _steps(path: Path) -> str:
    return ", ".join(f'"{step}"' for step in path)


def _tuple(texts: Sequence[str], depth: int = -1) -> str:
    """On one line; with a `depth` on several where there is more than one."""
    words = [f'"{text}"' for text in texts]
    if depth < 0 or len(words) == 1:
        return f"({', '.join(words)},)" if len(words) == 1 else f"({', '.join(words)})"
    if (line := ", ".join(words)) and len(line) <= _ONE_LINE:
        return f"({line})"
    return "(\n" + _lines((f"{word}," for word in words), depth + 1) + "    " * depth + ")"
