"""The rules of the contract by id: what each asks for, and why. The table in docs/providers/contract.md is made of it.

An id stays with its rule; one that is gone is never given again. The first two groups are enforced wherever a provider
runs (`airunway.plugins.rules`); the others are what `airunway provider check` looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from airunway.plugins import rules as core


class Checked(StrEnum):
    """When a rule is checked."""

    LOAD = "when the provider is loaded"
    CALL = "at each call"
    PURE = "by the kit"
    CLUSTER = "by the kit, with a cluster"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`of` is what the rule is about, `sentence` what it asks for, and `reason` why."""

    id: str
    checked: Checked
    of: str
    sentence: str
    reason: str


VERSION = "AR-C-023"
SELECTION = "AR-C-024"
CAPABILITIES = "AR-C-025"
SCALE_TO_ZERO = "AR-C-026"
CACHE = "AR-C-027"
GPUS = "AR-C-028"
SAME_ANSWER = "AR-C-029"
NO_IO = "AR-C-030"
ARGUMENTS = "AR-C-031"
FIELDS = "AR-C-032"
SETTINGS = "AR-C-033"
PATHS = "AR-C-034"
OWN_LABELS = "AR-C-035"
GUARD = "AR-C-036"
SAFE_PODS = "AR-C-037"
SCHEMA = "AR-C-038"
CEL = "AR-C-039"
METADATA = "AR-C-040"
OVERRIDES = "AR-C-041"
NAMES_DIFFER = "AR-C-042"
HOSTILE = "AR-C-043"
SERVICE = "AR-C-044"
ENDPOINT = "AR-C-045"
IMMUTABLE = "AR-C-046"
POD_LABELS = "AR-C-047"
STATUS_TOTAL = "AR-C-048"
STATUS_READY = "AR-C-049"
STATUS_CURRENT = "AR-C-050"
STATUS_STARTING = "AR-C-051"
PUBLIC_NAMES = "AR-C-052"
SCHEMA_HASH = "AR-C-053"
ACCEPTED = "AR-C-060"
ACCOUNT = "AR-C-061"
LIFE = "AR-C-062"
REACHED = "AR-C-063"

_LOAD = (
    (
        core.ENTRY_POINT,
        "entry point",
        "one installed distribution has it, it can be imported, and the manifest has its name; all five hooks are "
        "there, "
        "spelt as above",
        "a provider that is half there would leave deployments unattended",
    ),
    (core.NAME, "`name`", "at most 40 small letters, digits and `-`", "names of objects and finalizers contain it"),
    (core.CONTRACT, "`contract_versions`", "one of them is the core's", "the two sides would read different fields"),
    (
        core.ENGINES,
        "`engines`",
        "at least one `EngineCapability`, each engine once; its name has small letters, digits, `-`, `.` and `_` only; "
        "`serving_modes` are known ones; `tasks` are not empty; `gpu_support` or `cpu_support`",
        "the core chooses a provider by them alone",
    ),
    (
        core.SELECTION_RULES,
        "`selection_rules`",
        "`SelectionRule`s, the condition a text, the priority a whole number",
        "a priority that is a text would count as 0",
    ),
    (
        core.UPSTREAM,
        "`upstream`",
        "at least one `UpstreamKind`, each kind once, with kind, plural and at least one version; exactly one is "
        "primary",
        "watches and rights follow from it",
    ),
    (
        core.KIND,
        "a kind",
        "has a namespace (no ClusterRole, no PersistentVolume; a CRD's `scope` is Namespaced); one that is only read "
        "(`write=False`) has `select`",
        "what a tenant asks for stays in the tenant's namespace, and goes with the deployment",
    ),
    (
        core.PLACES,
        "a kind's places",
        "`labels` names places of its `pods`; `readings` are known ones; `namesakes` are kinds, or names that follow "
        "from "
        "`{name}` of a kind of the manifest",
        "the guard, our labels and the kit look there",
    ),
    (
        core.PRIMARY,
        "the primary kind",
        "is written and required; its `immutable` paths stand in its transformers",
        "without it there is nothing to run, and the paths differ by version",
    ),
    (
        core.TRANSFORMERS,
        "`transformers()`",
        "a list of `Transformer`s, each with a name of its own, for a kind and a version that the manifest names; at "
        "least one writes the primary kind; `defaults` name settings",
        "a deployment keeps the transformer that wrote it, by name",
    ),
    (
        core.SETTINGS,
        "`settings`",
        "a frozen dataclass with a default for every field, of types that JSON can say; each default is of its "
        "field's type",
        "charts give them as JSON, and all deployments share one instance",
    ),
    (
        core.SERVING_ROLES,
        "`serving_roles`",
        "only with a `role_label`",
        "nothing else says which role a pod has",
    ),
    (core.OVERRIDE_SCHEMA, "`override_schema`", "a JSON schema", "users' overrides are checked against it"),
    (
        core.RESERVED_LABELS,
        "`reserved_labels`",
        "a tuple of prefixes, none of them empty",
        "an empty one would reserve every label",
    ),
)

_CALL = (
    (core.HOOKS, "every hook", "raises nothing and returns its type", "an exception costs the deployment its pass"),
    (core.TIME, "every hook", "takes at most 1 s", "nothing else runs in the process meanwhile"),
    (
        core.FINDINGS,
        "`Compatibility`, `Observation.warnings`",
        "tuples of `Finding`, all texts",
        "users read them in the status",
    ),
    (
        core.OBJECTS,
        "`Translation.objects`",
        "at least one, at most 64; each with a `metadata.name` that Kubernetes takes, of a kind and version that the "
        "manifest names as written, without namespace or owner, as JSON, of at most 512 KiB; no object twice",
        "the runtime compares and owns each of them in every pass",
    ),
    (
        core.REPLACE_ON,
        "`Translation.replace_on`, `overrides_at`",
        "a mapping from names to what JSON can say; a mapping from paths to paths",
        "they are recorded on the primary object",
    ),
    (
        core.COMPONENTS,
        "`Observation.components`",
        "at least one `Component`, each name once: one CamelCase word, and not `Pods` or a name whose condition the "
        "core "
        "writes; `ready` is True, False or None; `reason` and `message` are texts, the reason one CamelCase word",
        "each becomes a condition, and the phase follows from its reason",
    ),
    (
        core.STATUS_VALUES,
        "`replicas`, `endpoint`, `pool`",
        "of their types or None; replicas are whole numbers, not below zero; an endpoint has a Service's name and a "
        "port "
        "number, or an http(s) `url`; its `target_port` is a port or 0; `refused` is a `Finding` or None",
        "clients and autoscalers read them",
    ),
    (
        core.PRIMARY_FIRST,
        "`Translation.objects`",
        "the first is of a kind that a transformer writes",
        "the first object is the one whose status counts; a Service in its place is never ready",
    ),
)

_PURE = (
    (
        SCHEMA_HASH,
        "a transformer",
        "names the schema hash of each CRD that the simulator has in its version",
        "an unknown schema means a dry run before every write",
    ),
    (VERSION, "`version`", "is that of the distribution", "users see the manifest's, and report it"),
    (SELECTION, "`selection_rules`", "can be evaluated for a plain deployment", "a broken rule earns nothing"),
    (
        CAPABILITIES,
        "`engines`",
        "what a capability promises runs: a plain deployment, one on CPU, one for each serving mode, one with "
        "several nodes",
        "the core chooses a provider for what it promises, and the deployment would be refused",
    ),
    (
        SCALE_TO_ZERO,
        "`scale_to_zero`",
        "zero replicas are written as something else than one",
        "GPUs would stay on",
    ),
    (
        CACHE,
        "`model_cache`",
        "the claim and the path of the weights reach what is written",
        "the hub is switched off: an engine without the path does not start",
    ),
    (
        GPUS,
        "GPUs",
        "the containers of a plain deployment ask together for as many as `spec.resources.gpu.count`",
        "the engine's flags follow the same number, and would find fewer",
    ),
    (
        SAME_ANSWER,
        "every hook",
        "the same answer for the same arguments, in every process, environment, time zone and folder",
        "another answer after a restart would restart models",
    ),
    (
        NO_IO,
        "every hook",
        "opens no file or socket, starts no process, reads no environment and prints nothing",
        "the process has one event loop, and its pod has neither rights nor files for it",
    ),
    (ARGUMENTS, "every hook", "changes nothing of its arguments", "all deployments share them"),
    (
        FIELDS,
        "every field",
        "a change of it changes what is written, or is refused, or is named in a warning",
        "a wish would be dropped without a word",
    ),
    (
        SETTINGS,
        "every setting of a runtime config",
        "reaches what is written, or is named in a warning",
        "an administrator's wish would be dropped without a word",
    ),
    (
        PATHS,
        "a `Finding`",
        "names a field that a ModelDeployment has, a reason and a message",
        "users look for the field in their manifest",
    ),
    (
        OWN_LABELS,
        "labels of pods",
        "the translation's own win over propagated ones",
        "Services, pools and upstreams select pods by them",
    ),
    (
        GUARD,
        "places of pods, names of accounts",
        "every pod and container is at a place that the manifest names; nothing is written to `unused` ones",
        "the guard of the provider's account looks only there",
    ),
    (
        SAFE_PODS,
        "pods",
        "share no namespace of the host, mount no folder of it, and have no privileged container",
        "the guard refuses them, and no tenant may have them",
    ),
    (
        SCHEMA,
        "objects",
        "fit the schema of their CRD, and have no status",
        "the API server refuses them, or drops what it does not know",
    ),
    (CEL, "objects", "fit the CEL rules of their CRD", "the API server refuses them"),
    (
        METADATA,
        "names, labels, annotations",
        "are what Kubernetes takes, also below the spec and for the longest name of a deployment",
        "the operator could make no pods of them, and says nothing",
    ),
    (
        OVERRIDES,
        "`override_schema`",
        "a key leads to a field that the CRD has, or the translation reads it",
        "the API server would drop it",
    ),
    (
        NAMES_DIFFER,
        "names of objects",
        "differ from one deployment to the next",
        "only the first deployment of a namespace would get them",
    ),
    (
        HOSTILE,
        "texts of users",
        "arrive as they are, or are refused",
        "a word that becomes two, or a command, is a way in",
    ),
    (
        SERVICE,
        "a Service",
        "selects pods that the plan makes, and leads to a port on which they listen",
        "a model would be Running and unreachable",
    ),
    (
        ENDPOINT,
        "`Observation.endpoint`",
        "names a Service that the plan writes, with one of its ports, or one that the upstream makes: of a name that "
        "`namesakes` has, or, where the plan writes none, of a name with the primary object's in it",
        "a model would be Running and unreachable",
    ),
    (
        IMMUTABLE,
        "`immutable`",
        "has every path that is written and that a CEL rule of the CRD keeps from changing",
        "a change would be refused for ever, where a new object was needed",
    ),
    (
        POD_LABELS,
        "`pod_labels`, `role_label`, `serving_roles`",
        "are keys and values of the labels of the pods that are written",
        "the pods would not be found: no reason, no replicas, no autoscaling",
    ),
    (
        STATUS_TOTAL,
        "`translate_status`",
        "answers for any JSON",
        "upstreams write other shapes than their schema says, and the deployment would lose its status",
    ),
    (
        STATUS_READY,
        "`translate_status`",
        "says that all is ready only where the upstream does",
        "requests would be sent to nothing",
    ),
    (
        STATUS_CURRENT,
        "`Observation.up_to_date`",
        "is False while the upstream has observed an older generation",
        "an edit would count as done before the upstream has seen it",
    ),
    (
        STATUS_STARTING,
        "`translate_status`",
        "gives objects that were just made a reason that is no fault",
        "each deployment would be Failed for a moment, and page people",
    ),
    (
        PUBLIC_NAMES,
        "imports",
        "are of `airunway.sdk` alone",
        "everything else of ours changes without notice",
    ),
)

_CLUSTER = (
    (
        ACCEPTED,
        "objects",
        "a real API server takes them under strict validation",
        "schemas and CEL rules are the API server's to judge",
    ),
    (
        ACCOUNT,
        "rights",
        "the rights that follow from the manifest suffice, behind the guard of the provider's account",
        "the chart gives a provider no others",
    ),
    (
        LIFE,
        "the life of a deployment",
        "it runs, is edited, scaled, broken, healed, suspended and deleted, and leaves nothing behind",
        "that is what users do with it",
    ),
    (
        REACHED,
        "`status.endpoint`",
        "the Service has a ready address once the deployment is Running",
        "a model would be Running and unreachable",
    ),
)

RULES: Mapping[str, Rule] = {
    id_: Rule(id=id_, checked=checked, of=of, sentence=sentence, reason=reason)
    for checked, rows in (
        (Checked.LOAD, _LOAD),
        (Checked.CALL, _CALL),
        (Checked.PURE, _PURE),
        (Checked.CLUSTER, _CLUSTER),
    )
    for id_, of, sentence, reason in rows
}

_HEADS = {
    Checked.LOAD: "Checked when the provider is loaded; a broken one ends the process and names the rule "
    "(`PluginBroken`, "
    "`ContractMismatch`):",
    Checked.CALL: "Checked at each call; a broken one costs that deployment's pass and is reported in its status "
    "(`ProviderError`):",
    Checked.PURE: "Checked by `airunway provider check`, without a cluster:",
    Checked.CLUSTER: "Checked by `airunway provider check --cluster`:",
}


def section() -> str:
    """The section "Rules" of docs/providers/contract.md."""
    lines = [
        "## Rules",
        "",
        "<!-- Generated: python -m tools.rules_section -->",
        "",
        "Each rule has an id, which messages and reports name. `airunway provider check NAME --rule AR-C-014` asks "
        "for one "
        "alone, `--skip AR-C-014=REASON` passes over one and says so in the report.",
    ]
    for checked, head in _HEADS.items():
        lines += ["", head, "", "| id | of | rule | because |", "|---|---|---|---|"]
        lines += [
            f"| {rule.id} | {rule.of} | {rule.sentence} | {rule.reason} |"
            for rule in _ordered(RULES.values())
            if rule.checked is checked
        ]
    return "\n".join(lines) + "\n\n"


def _ordered(rules: Iterable[Rule]) -> list[Rule]:
    return sorted(rules, key=lambda rule: rule.id)
