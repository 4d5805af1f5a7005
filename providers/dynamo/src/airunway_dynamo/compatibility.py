"""Checks which fields of a deployment Dynamo cannot honour, and names each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from airunway.sdk import (
    DEFAULT_GPU_TYPE,
    HARDENED,
    RESERVED,
    Compatibility,
    Context,
    Finding,
    ModelDeployment,
    bad_override,
    blocker,
    doubtful_split,
    given_flags,
    ignored,
    is_disaggregated,
    is_nvidia,
    kind_key,
    like_a_flag,
    overridden,
    pod_blockers,
    pod_findings,
    role_fields,
    server_findings,
    too_long,
    uneven,
    unsupported_engine,
    weights_of,
    without_device_classes,
    without_gpus,
)
from airunway_dynamo.graph import Part, image_of, parts_of, routed_by_pool, runtime_version
from airunway_dynamo.manifest import MANIFEST, RESERVED_LABELS, Feature, reserved_labels
from airunway_dynamo.parsers import parser_findings
from airunway_dynamo.runtimes import NEWEST, OWN_FLAGS
from airunway_dynamo.settings import Settings

_ON_GROVE, _OF_A_LABEL, _OF_A_GROUP = 45, 63, 49
"""Maximum lengths: of graph and component name together on Grove, of a label value, of a LeaderWorkerSet's name."""
_WORKER_HASH = len("-12345678")
"""Length of the digest that the operator appends to a worker's name."""
_SHELL_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]*", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def compatibility(deployment: ModelDeployment, context: Context[Settings]) -> Compatibility:
    """Whether Dynamo can honour the deployment: blockers would change what runs, warnings would not."""
    if fundamental := tuple(_fundamental(deployment, context)):
        return Compatibility(blockers=fundamental)
    parts = parts_of(deployment, context)
    # An upgrade must not stop what runs, so an existing graph of an earlier generation only gets a warning.
    refuses = context.has(HARDENED) or not context.live_kind
    names = [*_name_findings(deployment, context, parts)]
    server = [*server_findings(deployment, context, who="Dynamo", server="its Frontend")]
    blockers = [
        *(finding for refused, finding in server if refused and refuses),
        *(finding for part in parts for finding in part.launch.blockers),
        *_runtime(deployment, context, parts),
        *(finding for refused, finding in names if refused),
        *_override_blockers(deployment, context),
        *pod_blockers(deployment, context, mounts=sum(part.pods for part in parts)),
        *_cache_blockers(deployment, context),
        *_node_blockers(deployment, context, parts),
    ]
    warnings = [
        *(finding for refused, finding in server if not (refused and refuses)),
        *(finding for refused, finding in names if not refused),
        *(finding for part in parts for finding in part.launch.warnings),
        *pod_findings(deployment, reserved=reserved_labels(context)),
        *_warnings(deployment, context),
    ]
    # The roles report the same findings about shared fields.
    return Compatibility(blockers=tuple(dict.fromkeys(blockers)), warnings=tuple(dict.fromkeys(warnings)))


def _fundamental(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """Blockers with the exact messages of the seeds; if there is one, no others are reported."""
    yield from unsupported_engine(deployment, context, MANIFEST.engines, who="Dynamo")
    if deployment.spec.model.source == "custom":
        text = "Dynamo starts the engine with model.id: for an image with a model of its own use another provider"
        yield blocker("spec.model.source", text)
    yield from without_gpus(deployment, who="Dynamo")
    why = "its operator writes the GPUs of a component into the pods by resource name"
    yield from without_device_classes(deployment, who="Dynamo", why=why)


def _runtime(deployment: ModelDeployment, context: Context[Settings], parts: Sequence[Part]) -> Iterator[Finding]:
    spec, image = deployment.spec, image_of(deployment, context)
    kv = overridden(deployment, "routerMode") == "kv"
    asks = is_disaggregated(deployment) or kv or context.has(Feature.RUNTIME_VERSION)
    if asks and runtime_version(deployment, context) is None:
        text = (
            f"the tag of {image} names no release, and the flags of Dynamo's workers depend on it: use a tag like "
            "1.3.1, or say which release it has in spec.provider.overrides.runtimeVersion"
        )
        yield blocker("spec.engine.image" if spec.engine.image else "spec.image", text)
    kinds = {f"{part.path}.type": part.size.gpu_type for part in parts if part.serves}
    for path, kind in kinds.items():
        if kind != DEFAULT_GPU_TYPE and not context.has(Feature.GPU_TYPES):
            yield blocker(path, f"this release of Dynamo knows {DEFAULT_GPU_TYPE} only; {kind} needs Dynamo 0.8")
        elif not is_nvidia(kind) and not (spec.image or spec.engine.image):
            yield blocker(path, f"the default image {image} needs {DEFAULT_GPU_TYPE}; set spec.image for {kind}")
    yield from like_a_flag(spec.model.id or "")
    for flag, path in given_flags(deployment).items():
        if flag in OWN_FLAGS:
            text = f"engine arg {flag!r} says what a worker does, which spec.serving.mode says: remove it"
            yield blocker(path, text, "BadArguments")


def _cache_blockers(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """The blocker for a cache in a graph whose frontends cannot mount it: v1alpha1 gives a sidecar no volumes."""
    if context.cache is None or not routed_by_pool(context) or context.upstream.api_version.endswith("/v1beta1"):
        return
    text = (
        "behind a gateway's pool, Dynamo runs a Frontend beside each worker, which reads the tokenizer from the "
        "mounted weights and can mount them since release 1.2 (v1beta1): upgrade Dynamo, or set spec.gateway.enabled "
        "to false"
    )
    yield blocker(context.cache.asked_by, text)


def _name_findings(
    deployment: ModelDeployment, context: Context[Settings], parts: Sequence[Part]
) -> Iterator[tuple[bool, Finding]]:
    """The finding for a name that exceeds a limit of the operator or of Kubernetes, and whether it is a blocker; it
    reports the narrowest limit.

    Grove may have come after a graph was made: what runs is not refused for Grove's limit until its spec
    changes, as the change may make the graph again.
    """
    namespace = deployment.metadata.namespace
    grove = context.settings.grove and kind_key("grove.io", "PodClique") in context.served
    # The operator's label contains both namespace and name.
    limits = [(_OF_A_LABEL - 1 - len(namespace), f"Dynamo's label of a graph in namespace {namespace}")]
    for part in parts:
        own, hashed = len(part.name), part.serves and not context.has(Feature.DYNAMO_NAMESPACE)  # since 1.0
        made = 1 + own + (_WORKER_HASH if hashed else 0)
        if grove:
            # Over several nodes the names of the group and of its leader also count.
            taken = own + (own + len("-ldr") if part.nodes > 1 else 0)
            limits.append((_ON_GROVE - taken, f"Dynamo's component {part.name} on Grove ({_ON_GROVE} together)"))
        elif part.nodes > 1:
            limits.append((_OF_A_GROUP - made - len("-0"), f"the LeaderWorkerSet of Dynamo's component {part.name}"))
        else:
            limits.append((_OF_A_LABEL - made, f"Dynamo's component {part.name}"))
    limit, what = min(limits)
    if found := too_long(deployment.metadata.name, limit=limit, what=what):
        stays = grove and context.live is not None and not context.spec_changed
        yield not stays or len(deployment.metadata.name) > limits[0][0], found


def _override_blockers(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    if overridden(deployment, "scalingAdapter") and not context.has(Feature.SCALING_ADAPTERS):
        yield bad_override("scalingAdapter", "Dynamo has scaling adapters since release 0.8")
    if overridden(deployment, "spec") and not context.has(Feature.GRAPH_METADATA):
        text = "Dynamo takes labels, annotations and a topology of a whole graph since release 1.1"
        yield bad_override("spec", text)
    for field in ("labels", "annotations"):
        given = overridden(deployment, "spec", field)
        for key in given if isinstance(given, dict) else ():
            if key.startswith((*RESERVED, *RESERVED_LABELS)):
                text = (
                    f"{field} of a graph are put on its pods, and {key:.100} is reserved for the operators: remove it"
                )
                yield bad_override(f"spec.{field}[{key}]", text)
    yield from _topology_blockers(deployment, context)


def _topology_blockers(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    """The blocker for a topology under the newer API version's name, under both, or without one: each CRD requires its
    own. The name of v1alpha1 alone is written under that of v1beta1 (`graph.TOPOLOGY_AT`): a graph that serves must not
    be refused when v1alpha1 is not served any more.
    """
    topology = overridden(deployment, "spec", "topologyConstraint")
    if not isinstance(topology, dict) or not context.has(Feature.GRAPH_METADATA):
        return
    version, path = context.upstream.api_version, "spec.topologyConstraint"
    names = ("clusterTopologyName", "topologyProfile")
    name, other = names if version.endswith("/v1beta1") else reversed(names)
    has_name, has_other = (topology.get(each) is not None for each in (name, other))
    if has_other and (has_name or name == "topologyProfile"):
        text = f"v1alpha1 calls it topologyProfile, v1beta1 clusterTopologyName; this graph is written in {version}"
        yield bad_override(f"{path}.{other}", text)
    elif not has_name and not has_other:
        text = f"{version} requires the name of the topology in which packDomain is looked up: set {name}"
        yield bad_override(f"{path}.{name}", text)


def _node_blockers(deployment: ModelDeployment, context: Context[Settings], parts: Sequence[Part]) -> Iterator[Finding]:
    """Blockers for workers over several nodes: an uneven number of GPUs, and arguments with special shell characters.

    The operator joins a worker's arguments into one shell line and hardly quotes them.
    """
    spec, limit = deployment.spec, context.settings.gpus_per_node
    if all(part.nodes == 1 for part in parts):
        return
    for part in parts:
        if part.serves:
            asked = spec.scaling.nodes_per_replica
            yield from uneven(f"{part.path}.count", gpus=part.gpus, limit=limit, what="worker", asked=asked)
    words = {
        "spec.model.id": spec.model.id or "",
        "spec.model.servedName": spec.model.served_name or "",
        "spec.model.cache": weights_of(deployment, context.cache) if context.cache is not None else "",
        **{f"spec.engine.args[{key}]": f"{key}={value}" for key, value in sorted(spec.engine.args.items())},
        **{f"spec.engine.extraArgs[{i}]": word for i, word in enumerate(spec.engine.extra_args)},
    }
    for path, word in words.items():
        if not _SHELL_SAFE.fullmatch(word):
            text = (
                "over several nodes Dynamo starts workers through a shell, which leaves only letters, digits and "
                f"_@%+=:,./- as they are: {path} has others; {_shell_remedy(context.engine, path, word)}, or ask for "
                "the GPUs of one node"
            )
            yield blocker(path, text, "BadArguments")
    names = {f"spec.env[{i}].name": entry.name for i, entry in enumerate(spec.env)}
    given = [*names.items(), *(("spec.runtimeConfigName", str(each.get("name"))) for each in context.runtime.env)]
    for path, name in given:
        if not _VARIABLE.fullmatch(name):
            text = f"over several nodes Dynamo names variables to a shell: {name[:64]!r} is no name for one"
            yield blocker(path, f"{text} (env of the runtime config)" if path not in names else text, "BadArguments")


def _shell_remedy(engine: str, path: str, word: str) -> str:
    """What to write for an argument that a shell would change: vLLM takes the keys of a JSON object one by one."""
    name, _, value = word.partition("=")
    if engine == "vllm" and path.startswith("spec.engine.") and value.startswith("{"):
        with suppress(ValueError):
            keys = [f"{name.lstrip('-')}.{key}" for key in json.loads(value)]
            if keys:
                return f"write each key of the JSON object as an argument of its own ({', '.join(keys)[:300]})"
    return "take them out"


def _warnings(deployment: ModelDeployment, context: Context[Settings]) -> Iterator[Finding]:
    yield from role_fields(deployment)
    if account := deployment.spec.service_account_name:
        text = f"give {account} the rights of {deployment.metadata.name}-k8s-service-discovery, or no worker is found"
        yield Finding(path="spec.serviceAccountName", reason="MayNotStart", message=text)
    if context.engine == "vllm":
        yield from doubtful_split(deployment)
    version = runtime_version(deployment, context) or NEWEST
    yield from parser_findings(deployment, context.engine, version)
    if overridden(deployment, "scalingAdapter") is True:
        text = "replicas are left to Dynamo's scaling adapters (overrides.scalingAdapter)"
        yield ignored("spec.scaling.replicas", text)
    if routed_by_pool(context):
        for key in ("routerMode", "frontend"):
            if overridden(deployment, key) is not None:
                text = f"overrides.{key} has no effect behind a gateway's pool: its picker chooses the worker"
                yield ignored(f"spec.provider.overrides.{key}", text)
        if context.gateway is None or not context.gateway.uses_pool:
            text = (
                "the graph was made for a gateway's pool, which is not asked for any more; the pool's Service keeps "
                "serving, and the next change of the spec makes a new graph with a Frontend"
            )
            yield Finding(path="spec.gateway", reason="GraphKeepsPool", message=text)
    elif context.gateway is not None and context.gateway.uses_pool and not context.has(Feature.GRAPH_METADATA):
        text = "this release of Dynamo cannot serve behind a gateway's pool (needs 1.1): it gets a Frontend of its own"
        yield ignored("spec.gateway", text)
