"""Wrong copies of a right provider: each has one defect that authors make, and breaks one rule of the contract.

A defect is a patch of the source of the toy, or of `right`, which writes pods.
"""

from __future__ import annotations

from dataclasses import dataclass

from airunway.plugins import rules as core
from airunway_testing.conformance import rules


@dataclass(frozen=True)
class Mutant:
    """`old` stands once in the source `of`; `new` stands there instead."""

    rule: str
    defect: str
    old: str
    new: str
    of: str = "toy"


NAME, VERSION, PRIMARY = 'name="toy",', 'version="0.1.0",', "primary=True),"
LABELS = "pod_labels=(TOY_LABEL,),"
WRITES = "    objects = [\n"
MADE = "sdk.Translation(objects=tuple(objects))"
SPEC, POD, ENTRY = '"model": spec.model.id,', "    server = workloads", "    objects: tuple"
REASON = 'reason = conditions.text(found, "reason") or "Starting"'

MUTANTS: tuple[Mutant, ...] = (
    # --------------------------------------------------------------------------------------------------------- at load
    Mutant(core.ENTRY_POINT, "the entry point has another name", NAME, 'name="toys",'),
    Mutant(core.NAME, "a name with capitals and '_'", NAME, 'name="Toy_1",'),
    Mutant(core.CONTRACT, "a contract of the future", VERSION, f'{VERSION} contract_versions=("v9",),'),
    Mutant(core.ENGINES, "an engine twice", 'name="llamacpp"', 'name="vllm"'),
    Mutant(core.ENGINES, "an engine on nothing", '"llamacpp", cpu_support=True', '"llamacpp", cpu_support=False'),
    Mutant(
        core.SELECTION_RULES,
        "a priority that is a text",
        LABELS,
        f'{LABELS} selection_rules=(sdk.SelectionRule(condition="true", priority="40"),),',
    ),
    Mutant(core.UPSTREAM, "no kind is primary", PRIMARY, "),"),
    Mutant(
        core.KIND,
        "a ClusterRole for each deployment",
        "        SERVICE,\n",
        '        SERVICE, sdk.UpstreamKind(group="rbac.authorization.k8s.io", kind="ClusterRole", '
        'plural="clusterroles", versions=("v1",), builtin=True),\n',
    ),
    Mutant(core.KIND, "a kind is read without a label", "write=False, select=TOY_LABEL", "write=False"),
    Mutant(
        core.PLACES, "labels for no place of pods", PRIMARY, 'primary=True, labels={"spec.pod": "spec.podLabels"}),'
    ),
    Mutant(core.PRIMARY, "immutable paths at the primary kind", PRIMARY, 'primary=True, immutable=("spec.size",)),'),
    Mutant(core.TRANSFORMERS, "two transformers of one name", "name=version,", 'name="toy",'),
    Mutant(core.TRANSFORMERS, "a version that the manifest lacks", '"v1beta1", "v1alpha1")', '"v1beta1",)'),
    Mutant(
        core.SETTINGS,
        "a default of another type",
        'greeting: str = sdk.setting("hello"',
        "greeting: int = sdk.setting(''",
    ),
    Mutant(
        core.SETTINGS,
        "settings that can be changed",
        "@dataclass(frozen=True, kw_only=True)",
        "@dataclass(kw_only=True)",
    ),
    Mutant(
        core.SETTINGS,
        "a type that JSON cannot say",
        'greeting: str = sdk.setting("hello"',
        "greeting: complex = sdk.setting(1j",
    ),
    Mutant(core.SERVING_ROLES, "roles without a label", LABELS, f'{LABELS} serving_roles=("server",),'),
    Mutant(core.OVERRIDE_SCHEMA, "a type that no schema has", "keys(spec=keys(note=TEXT))", '{"type": "objekt"}'),
    Mutant(core.RESERVED_LABELS, "an empty prefix", LABELS, f'{LABELS} reserved_labels=("",),'),
    # --------------------------------------------------------------------------------------------------------- at call
    Mutant(core.HOOKS, "a field that a deployment lacks", WRITES, f"    _ = spec.gpus\n{WRITES}"),
    Mutant(core.HOOKS, "the deployment is changed", WRITES, f"    deployment.spec.scaling.replicas = 1\n{WRITES}"),
    Mutant(core.HOOKS, "a map instead of a Translation", f"return {MADE}", "return {0: objects}"),
    Mutant(
        core.TIME,
        "a long calculation",
        WRITES,
        "    import time\n    end = time.thread_time() + 1.1\n"
        f"    while time.thread_time() < end:\n        pass\n{WRITES}",
    ),
    Mutant(
        core.FINDINGS,
        "a warning that is a text",
        "sdk.Compatibility(blockers=tuple(blockers()))",
        'sdk.Compatibility(blockers=tuple(blockers()), warnings=("a toy is no server",))',
    ),
    Mutant(
        core.OBJECTS, "a namespace", '"metadata": {"name": name}', '"metadata": {"name": name, "namespace": "toys"}'
    ),
    Mutant(core.OBJECTS, "a kind that the manifest lacks", '_object("v1", "ConfigMap"', '_object("v1", "Secret"'),
    Mutant(core.OBJECTS, "the same object twice", MADE, "sdk.Translation(objects=(*objects, objects[1]))"),
    Mutant(core.REPLACE_ON, "a set, which JSON cannot say", MADE, f'{MADE[:-1]}, replace_on={{"parts": {{1, 2}}}})'),
    Mutant(core.COMPONENTS, "a component of two words", 'name="Parts"', 'name="the parts"'),
    Mutant(core.COMPONENTS, "a reason that is a sentence", '"Progressing", only', '"it is being built", only'),
    Mutant(core.STATUS_VALUES, "replicas below zero", "ready=count, available", "ready=count - 1, available"),
    Mutant(core.PRIMARY_FIRST, "the Service first", MADE, "sdk.Translation(objects=tuple(reversed(objects[:2])))"),
    # ------------------------------------------------------------------------------------------------- what is promised
    Mutant(rules.SCHEMA_HASH, "the CRD was changed", '"6eaefffca1aa"', '"000000000000"'),
    Mutant(rules.VERSION, "a version that was forgotten", VERSION, 'version="0.9.0",'),
    Mutant(
        rules.SELECTION,
        "a rule with a slip of the pen",
        LABELS,
        f"{LABELS} selection_rules=(sdk.SelectionRule(condition=\"spec.engin.type == 'vllm'\"),),",
    ),
    Mutant(
        rules.CAPABILITIES,
        "a mode is promised and refused",
        'name="vllm", gpu_support=True',
        'name="vllm", serving_modes=("aggregated", "disaggregated"), gpu_support=True',
    ),
    Mutant(
        rules.CAPABILITIES,
        "CPU is promised and refused",
        "gpu_support=True, ",
        "gpu_support=True, cpu_support=True, ",
        "right",
    ),
    Mutant(
        rules.SCALE_TO_ZERO,
        "zero replicas are written as one",
        "replicas=deployment.spec.scaling.replicas,",
        "replicas=deployment.spec.scaling.replicas or 1,",
        "right",
    ),
    Mutant(rules.CACHE, "the path of the weights is dropped", ", cache=context.cache", "", "right"),
    Mutant(
        rules.GPUS,
        "one GPU, whatever is asked for",
        POD,
        '    limits = pod["spec"]["containers"][0]["resources"].get("limits", {})\n'
        f'    limits.update({{key: "1" for key in limits if key == "nvidia.com/gpu"}})\n{POD}',
        "right",
    ),
    # ------------------------------------------------------------------------------------------------------ is it pure?
    Mutant(rules.SAME_ANSWER, "the time", WRITES, f'    import time\n    toy["note"] = str(time.time_ns())\n{WRITES}'),
    Mutant(rules.SAME_ANSWER, "chance", WRITES, f'    import uuid\n    toy["note"] = str(uuid.uuid4())\n{WRITES}'),
    Mutant(
        rules.SAME_ANSWER,
        "the order of a set",
        WRITES,
        f'    toy["note"] = " ".join({{"a", "b", "c", "d", "e"}})\n{WRITES}',
    ),
    Mutant(rules.NO_IO, "a file", WRITES, f'    with open("/dev/null") as file:\n        file.read()\n{WRITES}'),
    Mutant(rules.NO_IO, "a socket", WRITES, f"    import socket\n    socket.socket().close()\n{WRITES}"),
    Mutant(rules.NO_IO, "the environment", WRITES, f'    import os\n    os.environ.get("TOYS")\n{WRITES}'),
    Mutant(rules.NO_IO, "a line on the output", WRITES, f"    print(name)\n{WRITES}"),
    Mutant(
        rules.ARGUMENTS,
        "what all deployments share is changed",
        WRITES,
        f'    context.runtime.labels.update(toy="1")\n{WRITES}',
    ),
    # ------------------------------------------------------------------------------------------- what a user asked for
    Mutant(rules.FIELDS, "a field is read and dropped", WRITES, f"    _ = spec.priority_class_name\n{WRITES}"),
    Mutant(
        rules.SETTINGS,
        "a pool is promised and not made",
        'name="llamacpp", ',
        'name="llamacpp", gateway={"managesInferencePool": True}, ',
    ),
    Mutant(rules.PATHS, "a field that no deployment has", 'path="spec.serving.mode"', 'path="spec.mode"'),
    Mutant(
        rules.OWN_LABELS,
        "propagated labels win",
        "**pod_selector(deployment)}",
        '**pod_selector(deployment), "app": name, **context.runtime.labels}',
    ),
    Mutant(rules.NAMES_DIFFER, "one name for all", 'sdk.derived_name(name, suffix="toy")', '"toy"'),
    Mutant(rules.HOSTILE, "JSON by hand", WRITES, f'    toy["note"] = \'{{"of": "%s"}}\' % spec.model.id\n{WRITES}'),
    # ------------------------------------------------------------------------------------ can what is written work?
    Mutant(
        rules.GUARD,
        "what is said to be unused is written",
        PRIMARY,
        'primary=True, unused=("spec.podLabels",)),',
    ),
    Mutant(rules.SAFE_PODS, "the host's network", POD, f'    pod["spec"]["hostNetwork"] = True\n{POD}', "right"),
    Mutant(
        rules.SAFE_PODS,
        "a privileged container",
        POD,
        f'    pod["spec"]["containers"][0].setdefault("securityContext", {{}})["privileged"] = True\n{POD}',
        "right",
    ),
    Mutant(
        rules.SCHEMA,
        "a number as a text",
        '"replicas": spec.scaling.replicas',
        '"replicas": str(spec.scaling.replicas)',
    ),
    Mutant(rules.SCHEMA, "a field that the CRD lacks", '"size": spec.res', '"gpus": spec.res'),
    Mutant(rules.CEL, "what a CEL rule refuses", SPEC, '"model": f"hf://{spec.model.id}",'),
    Mutant(
        rules.METADATA,
        "a label with '/'",
        "**pod_selector(deployment)}",
        '**pod_selector(deployment), "model": spec.model.id}',
    ),
    Mutant(
        rules.METADATA,
        "a name that is too long for a Service",
        "port=PORT)\n    obj",
        'port=PORT, name=f"{deployment.metadata.name}-serving-http")\n    obj',
        "right",
    ),
    Mutant(
        rules.METADATA,
        "the key of an annotation",
        POD,
        f'    pod["metadata"].setdefault("annotations", {{}})["not a key!"] = ""\n{POD}',
        "right",
    ),
    Mutant(rules.OVERRIDES, "a key that leads nowhere", "note=TEXT", "notes=TEXT"),
    Mutant(
        rules.SERVICE,
        "a selector that no pod has",
        ENTRY,
        f'    entry["spec"]["selector"] = {{"app": "m"}}\n{ENTRY}',
        "right",
    ),
    Mutant(
        rules.SERVICE,
        "a port on which nothing listens",
        "deployment, port=PORT)\n    o",
        "deployment, port=PORT, target=9000)\n    o",
        "right",
    ),
    Mutant(
        rules.ENDPOINT,
        "a Service that is not made",
        "Endpoint(service=deployment.metadata.name",
        'Endpoint(service="toys"',
    ),
    Mutant(rules.ENDPOINT, "the port of the pods", "metadata.name, port=80)", "metadata.name, port=PORT)"),
    Mutant(rules.IMMUTABLE, "what the CRD keeps from changing", 'immutable=("spec.size",),', ""),
    Mutant(
        rules.POD_LABELS,
        "another key for the role",
        'ROLE = "airunway.ai/component"',
        'ROLE = "right.example/role"',
        "right",
    ),
    Mutant(
        rules.POD_LABELS, "a role that no pod has", 'serving_roles=("server",)', 'serving_roles=("servers",)', "right"
    ),
    # ------------------------------------------------------------------------------------------------------ the status
    Mutant(rules.STATUS_TOTAL, "a status is taken for granted", REASON, 'reason = str(toy["status"]["reason"])'),
    Mutant(
        rules.STATUS_TOTAL,
        "conditions are taken for a list of maps",
        REASON,
        REASON + '\n    _ = [each["reason"] for each in dig(toy, "status", "conditions", default=[])]',
    ),
    Mutant(rules.STATUS_READY, "ready once it is there", "ready=found.ready", "ready=found.exists", "right"),
    Mutant(rules.STATUS_CURRENT, "always up to date", "up_to_date=conditions.is_observed(toy)", "up_to_date=True"),
    Mutant(rules.STATUS_STARTING, "a word of its own while it starts", 'or "Starting"', 'or "NotThereYet"'),
    Mutant(
        rules.PUBLIC_NAMES,
        "a name that is not public",
        "from airunway import sdk\n",
        "from airunway import sdk\nfrom airunway.resource import key_of\n",
    ),
)
