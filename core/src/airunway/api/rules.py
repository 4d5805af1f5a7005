"""The validation rules between fields: they are written into the CRDs, and `airunway.validation` evaluates them.

Each rule is CEL, attached to a node of the schema (`path`; ``[*]`` means every item of a list); `self` is the node, and
the rule holds if its expression is true. Rules use only what every evaluator has (`has`, macros, `quantity`) and no
optional syntax. Rules with quantities also exist as a Python function, which is used in process. Some messages are
those of the Go project, word for word, because scripts read them; the others say what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from airunway.api.names import DEFAULT_GPU_TYPE, MAX_NAME_LENGTH
from airunway.api.paths import ALLOWED, reserved_pattern
from airunway.quantity import MAX_EXPONENT, parse_quantity, same_quantity
from airunway.references import DIGEST_PATTERN, IMAGE_PATTERN, MODEL_PATTERN, NO_MODEL, OCI_PATTERN
from airunway.resource import Resource

MAX_GPUS = 64
"""Most GPUs of one replica or worker."""
MAX_REPLICAS = 32
"""Most replicas of a deployment or of one role."""
MAX_NODES = 32
"""Most nodes of one replica."""
MAX_CPU = "512"
"""Most CPU of one replica or worker, in cores."""
MAX_MEMORY = "4Ti"
"""Most memory of one replica or worker, in bytes."""

FORBIDDEN_OVERRIDES = frozenset(
    {
        "apiVersion",
        "automountServiceAccountToken",
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostPath",
        "kind",
        "metadata",
        "nodeName",
        "runtimeClassName",
        "securityContext",
        "serviceAccount",
        "serviceAccountName",
        "shareProcessNamespace",
        "status",
    }
)
"""Keys that ``spec.provider.overrides`` must not have, at any depth (docs/providers/contract.md).

CEL cannot walk data without a schema, so this rule is not in the CRD: the webhook, the reconciler and
``airunway validate`` apply it.
"""

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
FORBIDDEN = "FieldValueForbidden"
# Not FieldValueDuplicate: with it the API server would omit the message.

Check = Callable[[Resource, Resource | None], bool]
"""``check(node, old)``: whether the rule holds for a node; `old` is the node that it replaces, None if it is new.

The nodes fit the schema.
"""


@dataclass(frozen=True, kw_only=True)
class ValidationRule:
    """One CEL rule of the CRD.

    The API server skips a rule if an update does not change its node, so that an object that is older than the rule can
    still be updated. The whole object changes with every update (its finalizers belong to it), so rules on it have
    `unless_unchanged`.
    """

    path: str
    """Path of the schema node that the rule is attached to; empty: the whole object."""
    expression: str
    """The rule in CEL. A rule with `oldSelf` is about changes, and is evaluated on updates only."""
    message: str
    message_expression: str = ""
    """CEL expression for the message; `message` is used if it cannot be evaluated. Empty: always `message`."""
    field: str = ""
    """Path below the node that an error names."""
    reason: str = INVALID
    unless_unchanged: str = ""
    """For rules on the whole object: the field that the rule is about; an update that keeps it skips the rule."""
    check: Check | None = None
    """The same rule in Python, run in process instead of the CEL: it takes no evaluator's memory for each new size."""

    @property
    def is_transition(self) -> bool:
        return "oldSelf" in self.expression


def quantity_rules(path: str, field: str, *, maximum: str = "", example: str) -> Iterator[ValidationRule]:
    text = f"string(self.{field})"
    absent = f"!has(self.{field}) || {text} == ''"
    yield ValidationRule(
        path=path,
        expression=f"{absent} || (isQuantity({text}) && !quantity({text}).isLessThan(quantity('0')))",
        message=f"invalid resource quantity (write it like {example})",
        field=f".{field}",
        check=lambda node, _: (
            _is_absent(node, field) or ((amount := amount_of(node[field])) is not None and amount >= 0)
        ),
    )
    if maximum:
        yield ValidationRule(
            path=path,
            expression=f"{absent} || !isQuantity({text}) || quantity({text}).compareTo(quantity('{maximum}')) <= 0",
            message=f"exceeds maximum allowed ({maximum})",
            field=f".{field}",
            check=lambda node, _: _is_absent(node, field) or _is_within(node[field], parse_quantity(maximum)),
        )


def credential_rules(kind: str, *, namespaced: str, below: str = "") -> Iterator[ValidationRule]:
    """The rules that the cluster-scoped `kind` names no Secrets; they belong in the `namespaced` kind.

    `below` is the field of the spec that has ``secrets`` and ``env``; empty: the spec itself.
    """
    path, prefix = (f"spec.{below}", f"{below}.") if below else ("spec", "")
    for at, expression, where, field in (
        (
            path,
            "!has(self.secrets) || !has(self.secrets.huggingFaceToken) || self.secrets.huggingFaceToken == ''",
            f"{prefix}secrets.huggingFaceToken",
            ".secrets",
        ),
        (
            "spec",
            "!has(self.imagePullSecrets) || self.imagePullSecrets.size() == 0",
            "imagePullSecrets",
            ".imagePullSecrets",
        ),
        (
            path,
            "!has(self.env) || self.env.all(e, !has(e.valueFrom) || !has(e.valueFrom.secretKeyRef))",
            f"{prefix}env[].valueFrom.secretKeyRef",
            ".env",
        ),
    ):
        message = f"a {kind} holds no credentials: put {where} into a {namespaced}"
        yield ValidationRule(path=at, expression=expression, message=message, field=field, reason=FORBIDDEN)


def immutable_rule(path: str, field: str, message: str) -> ValidationRule:
    """The rule that an optional field is neither changed nor added nor removed; `path` is the node that has it."""
    return ValidationRule(
        path=path,
        expression=f"has(self.{field}) == has(oldSelf.{field}) && "
        f"(!has(self.{field}) || self.{field} == oldSelf.{field})",
        message=message,
        field=f".{field}",
    )


def duration_rule(path: str, field: str, message: str) -> ValidationRule:
    """The rule that an optional field is a duration, empty or absent."""
    return ValidationRule(
        path=path,
        expression=f"!has(self.{field}) || self.{field} == '' || "
        f"self.{field}.matches('^([0-9]{{1,5}}(h|m|s|ms)){{1,4}}$')",
        message=message,
        field=f".{field}",
    )


def path_template_rules(path: str) -> Iterator[ValidationRule]:
    """The rule about templates of URL paths that can be refused without the deployment's own fields; what others give
    is refused by the gateway part (PathNotAllowed).
    """
    yield ValidationRule(
        path=path,
        expression=f"!has(self.pathTemplate) || self.pathTemplate == '' || "
        f"!self.pathTemplate.matches('{reserved_pattern()}')",
        message="pathTemplate must not be / nor begin with a segment that model servers or gateways answer themselves, "
        f"such as /v1 or /health: {ALLOWED}",
        field=".pathTemplate",
    )


def uri_form_rule(path: str) -> ValidationRule:
    """The rule for the ``uri`` of weights."""
    return ValidationRule(
        path=path,
        expression="self.uri.matches('^hf://[^/]+/[^/]+(/[^/]+)*$') || self.uri.matches('^s3://[^/]+(/[^/]+)*/?$')",
        message="uri must be hf://owner/name, hf://owner/name/path or s3://bucket/prefix",
        field=".uri",
    )


def is_path_rule(text: str) -> str:
    """CEL: whether the id of a model is a path (`airunway.references.is_path`)."""
    return f"{text}.matches('^([.]{{0,2}}/|[.]{{1,2}}$)')"


def number_rule(path: str, field: str, maximum: int) -> ValidationRule:
    """The rule that an optional number is at most `maximum`."""
    return ValidationRule(
        path=path,
        expression=f"!has(self.{field}) || self.{field} <= {maximum}",
        message=f"exceeds maximum allowed ({maximum})",
        field=f".{field}",
    )


def _is_absent(node: Resource, field: str) -> bool:
    return bool(node.get(field, "") == "")


def amount_of(value: object) -> Decimal | None:
    """Returns the amount; None if it is not a quantity, or is out of range."""
    try:
        amount = parse_quantity(value)
    except ValueError:
        return None
    return amount if abs(amount.adjusted()) <= MAX_EXPONENT or not amount else None


def _is_within(value: object, maximum: Decimal) -> bool:
    """Whether an amount is in range and within `maximum`; true for a non-quantity, which another rule reports."""
    amount = amount_of(value)
    return amount <= maximum if amount is not None else not is_quantity(value)


def is_quantity(value: object) -> bool:
    return same_quantity(value, value)


MODEL_CACHE_PATH = "/model-cache"
"""Where the model cache, and a volume for it, are mounted by default."""
COMPILATION_CACHE_PATH = "/compilation-cache"
"""Where a volume for compiled kernels is mounted by default."""

_SYSTEM_PATHS = ("/dev", "/proc", "/sys", "/etc", "/var/run", "/run")

_FILES = "(has(self.configMap) || has(self.secret))"
"""Whether a volume has files of a ConfigMap or Secret."""

_SIZED_VOLUME_DEFAULTS = {
    "mountPath": f"({{0}}.purpose == 'modelCache' ? '{MODEL_CACHE_PATH}' : '{COMPILATION_CACHE_PATH}')",
    "purpose": "'custom'",
    "accessMode": "'ReadWriteMany'",
}
"""The defaults of a volume with size: writing one of them into the spec later is no change."""


def _effective(owner: str, field: str, default: str) -> str:
    return f"(has({owner}.{field}) && {owner}.{field} != '' ? {owner}.{field} : {default.format(owner)})"


def _sized(owner: str) -> str:
    """Whether a volume has a size; an empty one is none, as for the types."""
    return f"(has({owner}.size) && string({owner}.size) != '')"


def _mounted_at(owner: str, path: str) -> str:
    """Whether a volume's mountPath is `path`, an expression; a slash at the end makes no other directory."""
    at = f"{owner}.mountPath"
    return f"(has({at}) && ({at} == {path} || {at} + '/' == {path} || {at} == {path} + '/'))"


def storage_rules() -> Iterator[ValidationRule]:
    item = "spec.model.storage.volumes[*]"
    yield ValidationRule(
        path=item,
        expression=f"{_sized('self')} || (has(self.claimName) && self.claimName != '') || {_FILES}",
        message="claimName is required when size is not set (name an existing PersistentVolumeClaim)",
        field=".claimName",
        reason=REQUIRED,
    )
    claim = f"({_sized('self')} || (has(self.claimName) && self.claimName != ''))"
    yield ValidationRule(
        path=item,
        expression=f"!{_FILES} || (!{claim} && !(has(self.configMap) && has(self.secret)))",
        message="a volume has one source: keep one of claimName (or size), configMap and secret",
        reason=FORBIDDEN,
    )
    yield ValidationRule(
        path=item,
        expression=f"!{_FILES} || self.purpose == 'custom'",
        message="files of a configMap or secret are read-only: purpose is custom, or left out",
        field=".purpose",
    )
    yield from quantity_rules(item, "size", example="100Gi")
    yield ValidationRule(
        path=item,
        expression=f"!{_sized('self')} || !has(self.readOnly) || !self.readOnly",
        message="readOnly must not be true when size is set (a new claim has to be written first)",
        field=".readOnly",
    )
    for field in ("accessMode", "storageClassName"):
        yield ValidationRule(
            path=item,
            expression=f"!has(self.{field}) || {_sized('self')}",
            message=f"{field} is only applicable when size is set (an existing claim has its own)",
            field=f".{field}",
            reason=FORBIDDEN,
        )
    mount = "!has(self.mountPath) || self.mountPath == ''"
    yield ValidationRule(
        path=item,
        expression=f"{mount} || self.mountPath.startsWith('/')",
        message="mountPath must be an absolute path (start with /)",
        field=".mountPath",
    )
    yield ValidationRule(
        path=item,
        expression="self.purpose != 'custom' || (has(self.mountPath) && self.mountPath != '')",
        message="mountPath is required when purpose is custom",
        field=".mountPath",
        reason=REQUIRED,
    )
    yield ValidationRule(
        path=item,
        expression=f"{mount} || !(self.mountPath == '/' || self.mountPath.contains('//')"
        " || (self.mountPath + '/').contains('/./') || (self.mountPath + '/').contains('/../'))",
        message="mountPath must name a directory below / plainly (without //, . and ..)",
        field=".mountPath",
    )
    for system in _SYSTEM_PATHS:
        # Programs look for certificates and configuration below /etc; these files are read-only.
        files = f"{_FILES} && self.mountPath.matches('^/etc/[^/]') || " if system == "/etc" else ""
        below = f"!(self.mountPath == '{system}' || self.mountPath.startsWith('{system}/'))"
        yield ValidationRule(
            path=item,
            expression=f"{mount} || {files}{below}",
            message=f"mountPath must not overlap with system path {system}",
            field=".mountPath",
        )
    yield from _list_rules()
    yield from _uri_rules()
    yield from _cache_rules()


_OCI = "has(self.source) && self.source == 'oci'"


def _uri_rules() -> Iterator[ValidationRule]:
    uri = "(has(self.uri) && self.uri != '')"
    yield ValidationRule(
        path="spec.model",
        expression=f"!({_OCI}) || {uri}",
        message="model.uri is required when source is oci: oci://REGISTRY/REPOSITORY, with :TAG or @DIGEST",
        field=".uri",
        reason=REQUIRED,
    )
    yield ValidationRule(
        path="spec.model",
        expression=f"!{uri} || ({_OCI})",
        message="model.uri needs source oci",
        field=".uri",
        reason=FORBIDDEN,
    )
    yield ValidationRule(
        path="spec.model",
        expression=f"!{uri} || !self.uri.contains('@') || self.uri.matches({_quoted(DIGEST_PATTERN)})",
        message="what follows @ in model.uri is no digest: write sha256: and 64 digits from 0 to f",
        field=".uri",
    )
    yield ValidationRule(
        path="spec.model",
        expression=f"!{uri} || self.uri.matches({_quoted(OCI_PATTERN)})",
        message="model.uri must be oci://REGISTRY/REPOSITORY, with :TAG or @DIGEST: a registry with its domain or "
        "port, and a repository in lower case",
        field=".uri",
    )


def _cache_rules() -> Iterator[ValidationRule]:
    cached = "has(self.cache) && has(self.cache.mode) && self.cache.mode != 'None'"
    named = "has(self.cache.artifactName) && self.cache.artifactName != ''"
    yield ValidationRule(
        path="spec.model",
        expression=f"!({cached}) || !has(self.source) || self.source != 'custom' || ({named})",
        message="cache.mode needs source huggingface, or cache.artifactName: the ModelArtifact that has the weights",
        field=".cache.mode",
    )
    yield ValidationRule(
        path="spec.model",
        expression=f"!({cached}) || !({_OCI})",
        message="each node keeps the image of source oci itself: set cache.mode None",
        field=".cache.mode",
        reason=FORBIDDEN,
    )
    yield ValidationRule(
        path="spec.model",
        expression=f"!({cached}) || !has(self.id) || !({is_path_rule('self.id')})",
        message="a path has no repository, so there is nothing to fetch: set cache.mode None, and mount the weights "
        "with storage.volumes",
        field=".cache.mode",
    )
    mounted = _mounted_at("v", f"'{MODEL_CACHE_PATH}'")
    at_cache = f"(has(v.mountPath) && v.mountPath != '' ? {mounted} : v.purpose == 'modelCache')"
    yield ValidationRule(
        path="spec.model",
        expression=f"!({cached}) || !has(self.storage) || !has(self.storage.volumes)"
        f" || !self.storage.volumes.exists(v, {at_cache})",
        message=f"the model cache is mounted at {MODEL_CACHE_PATH}: "
        "give the volume another mountPath, or set cache.mode None",
        field=".storage.volumes",
    )
    yield ValidationRule(
        path="spec.model",
        expression=f"!({_OCI}) || !has(self.storage) || !has(self.storage.volumes)"
        f" || !self.storage.volumes.exists(v, {at_cache})",
        message=f"the weights of source oci are mounted at {MODEL_CACHE_PATH}: give the volume another mountPath",
        field=".storage.volumes",
    )
    yield from quantity_rules("spec.model.cache", "size", example="100Gi")


def _list_rules() -> Iterator[ValidationRule]:
    storage = "spec.model.storage"
    for purpose in ("modelCache", "compilationCache"):
        yield ValidationRule(
            path=storage,
            expression=f"!has(self.volumes) || self.volumes.filter(v, v.purpose == '{purpose}').size() <= 1",
            message=f"at most one volume with purpose={purpose} is allowed",
            field=".volumes",
        )
    yield ValidationRule(
        path=storage,
        expression="!has(self.volumes) || self.volumes.all(v, !has(v.mountPath) || v.mountPath == ''"
        f" || self.volumes.exists_one(w, {_mounted_at('w', 'v.mountPath')}))",
        message="duplicate mount path: every volume needs a mountPath of its own",
        field=".volumes",
    )
    for purpose, path in (("modelCache", MODEL_CACHE_PATH), ("compilationCache", COMPILATION_CACHE_PATH)):
        mounted = _mounted_at("v", f"'{path}'")
        yield ValidationRule(
            path=storage,
            expression=f"!has(self.volumes) || !self.volumes.exists(v, v.purpose == '{purpose}'"
            " && (!has(v.mountPath) || v.mountPath == ''))"
            f" || !self.volumes.exists(v, {mounted})",
            message=f"duplicate mount path: {path} is where the {purpose} volume is mounted by default",
            field=".volumes",
        )
    yield ValidationRule(
        path=storage,
        expression="!has(self.volumes) || self.volumes.all(v, !has(v.claimName) || v.claimName == ''"
        " || self.volumes.exists_one(w, has(w.claimName) && w.claimName == v.claimName))",
        message="duplicate claim name: every volume needs a claim of its own",
        field=".volumes",
    )
    yield ValidationRule(
        path="",
        expression="!has(self.spec.model) || !has(self.spec.model.storage) || !has(self.spec.model.storage.volumes)"
        f" || self.spec.model.storage.volumes.all(v, !{_sized('v')} || !has(v.claimName) || v.claimName == ''"
        " || v.claimName == self.metadata.name + '-' + v.name)",
        message="claimName must not be set when size is set (the claim is created as <deployment>-<volume>)",
        field=".spec.model.storage.volumes",
        reason=FORBIDDEN,
        unless_unchanged="spec.model",
    )
    old = "!has(oldSelf.model) || !has(oldSelf.model.storage) || !has(oldSelf.model.storage.volumes)"
    yield ValidationRule(
        path="spec",  # a rule about changes of the model does not run when the model is removed, or added again
        expression=f"{old} || oldSelf.model.storage.volumes.all(o, !{_sized('o')} || (has(self.model)"
        " && has(self.model.storage) && has(self.model.storage.volumes)"
        " && self.model.storage.volumes.exists(v, v.name == o.name)))",
        message="a volume with size cannot be removed: delete the ModelDeployment to give up its claim",
        field=".model.storage.volumes",
        reason=FORBIDDEN,
    )
    same = " && ".join(
        f"{_effective('self', field, default)} == {_effective('oldSelf', field, default)}"
        for field, default in _SIZED_VOLUME_DEFAULTS.items()
    )
    yield ValidationRule(
        path=f"{storage}.volumes[*]",
        expression=f"!{_sized('oldSelf')} || !isQuantity(string(oldSelf.size)) || ({_sized('self')} && {same}"
        " && quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0"
        " && has(self.storageClassName) == has(oldSelf.storageClassName)"
        " && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName))",
        message="a volume with size can only grow once its claim exists: delete the ModelDeployment to change the rest",
        reason=FORBIDDEN,
        check=_keeps_claim,
    )


def _keeps_claim(new: Resource, old: Resource | None) -> bool:
    """Whether a volume requests the same claim as before, or a larger one; true if the old volume had no size."""
    if old is None or not is_quantity(old.get("size")):
        return True
    before, after = amount_of(old["size"]), amount_of(new.get("size"))
    fields = (*_SIZED_VOLUME_DEFAULTS, "storageClassName")
    return (
        before is not None
        and after is not None
        and after >= before
        and all(_meant(new, f) == _meant(old, f) for f in fields)
    )


def _meant(volume: Resource, field: str) -> object:
    if field == "storageClassName":
        return volume.get(field)
    if value := volume.get(field):
        return value
    if field == "mountPath":
        return MODEL_CACHE_PATH if volume.get("purpose") == "modelCache" else COMPILATION_CACHE_PATH
    return {"purpose": "custom", "accessMode": "ReadWriteMany"}[field]


_GPU_ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
_DISAGGREGATED = "(has(self.serving) && self.serving.mode == 'disaggregated')"
_HAS_GPUS = (
    "(has(self.resources) && has(self.resources.gpu) && has(self.resources.gpu.count) && self.resources.gpu.count > 0)"
)


def _name_rules() -> Iterator[ValidationRule]:
    yield ValidationRule(
        path="",
        expression=f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
        message=f"the name is too long: choose one of at most {MAX_NAME_LENGTH} characters, because pods, services and "
        "routes get names derived from it",
        field=".metadata.name",
        unless_unchanged="metadata.name",
    )
    yield ValidationRule(
        path="",
        expression="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message="the name must start with a lower-case letter and have only lower-case letters, digits and '-' after "
        "it (a DNS label, because a Service gets a name derived from it)",
        field=".metadata.name",
        unless_unchanged="metadata.name",
    )


def _gpu_rules() -> Iterator[ValidationRule]:
    for engine, title in _GPU_ENGINES.items():
        yield ValidationRule(
            path="spec",
            expression=f"has(self.templateRef) || !(has(self.engine) && has(self.engine.type)"
            f" && self.engine.type == '{engine}') || {_DISAGGREGATED} || {_HAS_GPUS}",
            message=f"{title} engine requires GPU (set resources.gpu.count > 0)",
            field=".resources.gpu.count",
        )


def _mode_rules() -> Iterator[ValidationRule]:
    yield ValidationRule(
        path="spec",
        expression=f"!{_DISAGGREGATED} || !{_HAS_GPUS}",
        message="Cannot specify both resources.gpu and scaling.prefill/decode",
        field=".resources.gpu",
        reason=FORBIDDEN,
    )
    yield ValidationRule(
        path="spec",
        expression=f"has(self.templateRef) || !{_DISAGGREGATED}"
        " || (has(self.scaling) && has(self.scaling.prefill) && has(self.scaling.decode))",
        message="Disaggregated mode requires scaling.prefill and scaling.decode",
        field=".scaling",
        reason=REQUIRED,
    )
    for role in ("prefill", "decode"):
        absent = f"has(self.templateRef) || !{_DISAGGREGATED} || !has(self.scaling) || !has(self.scaling.{role})"
        node = f"self.scaling.{role}"
        yield ValidationRule(
            path="spec",
            expression=f"{absent} || (has({node}.gpu) && has({node}.gpu.count) && {node}.gpu.count > 0)",
            message=f"Disaggregated mode requires scaling.{role}.gpu.count",
            field=f".scaling.{role}.gpu.count",
            reason=REQUIRED,
        )
        yield ValidationRule(
            path="spec",
            expression=f"{absent} || (has({node}.memory) && string({node}.memory) != '')",
            message=f"Disaggregated mode requires scaling.{role}.memory",
            field=f".scaling.{role}.memory",
            reason=REQUIRED,
        )


def _model_rules() -> Iterator[ValidationRule]:
    template = "has(self.templateRef)"
    has_id = "(has(self.model.id) && self.model.id != '')"
    yield ValidationRule(
        path="spec",
        expression=f"{template} || has(self.model)",
        message="name a model in model.id, or a template in templateRef",
        field=".model",
        reason=REQUIRED,
    )
    yield ValidationRule(
        path="spec",
        expression=f"{template} || !has(self.model) || self.model.source == 'custom' || {has_id}",
        message="model.id is required when source is huggingface or oci",
        field=".model.id",
        reason=REQUIRED,
    )
    yield ValidationRule(
        path="spec",
        expression=f"!{template} || !has(self.model) || (!{has_id} && self.model.source == 'huggingface')",
        message="templateRef and model.id exclude each other (and source custom is a model too): keep one of the two",
        field=".templateRef",
        reason=FORBIDDEN,
    )
    yield ValidationRule(
        path="spec.model",
        expression="!has(self.id) || self.id == '' || self.source == 'custom' || "
        f"self.id.matches({_quoted(MODEL_PATTERN)})",
        message=NO_MODEL,
        field=".id",
    )
    named, by_model = (f"(has(self.{field}) && self.{field} != '')" for field in ("name", "modelName"))
    yield ValidationRule(
        path="spec.templateRef",
        expression=f"{named} != {by_model}",
        message="templateRef has either name or modelName",
    )
    yield ValidationRule(
        path="spec.templateRef",
        expression=f"{by_model} || (!has(self.metric) && (!has(self.precision) || self.precision == ''))",
        message="metric and precision choose among the templates of a modelName: leave them out with name",
        field=".metric",
    )


def image_rule(path: str, field: str) -> ValidationRule:
    """The rule that an image, where one is named, is a reference that a container runtime can read."""
    return ValidationRule(
        path=path,
        expression=f"!has(self.{field}) || self.{field} == '' || self.{field}.matches({_quoted(IMAGE_PATTERN)})",
        message="is no reference to an image: write it like registry.example/team/vllm:1.2, in lower case, without "
        "blanks and without ..",
        field=f".{field}",
    )


def _quoted(pattern: str) -> str:
    """A pattern as a CEL string."""
    return "'" + pattern.replace("\\", "\\\\") + "'"


def _field_rules() -> Iterator[ValidationRule]:
    yield from _model_rules()
    yield image_rule("spec", "image")
    yield image_rule("spec.engine", "image")
    yield ValidationRule(
        path="spec",
        expression="!has(self.image) || self.image == '' || !has(self.engine) || !has(self.engine.image)"
        " || self.engine.image == '' || self.image == self.engine.image",
        message="image and engine.image name different images: keep only engine.image",
        field=".image",
    )
    yield ValidationRule(
        path="spec.engine",
        expression="!has(self.type) || self.type.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        message="engine.type is lower-case letters, digits and '-', such as vllm; leave it out to have one selected",
        field=".type",
    )
    yield ValidationRule(
        path="spec",
        expression="!has(self.runtimeConfigName) || self.runtimeConfigName == ''"
        " || self.runtimeConfigName.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$')",
        message="no RuntimeConfig can have this name: write lower-case letters, digits, '-' and '.'",
        field=".runtimeConfigName",
    )
    in_both = "t.startsWith('--') && t.substring(2).split('=')[0] in self.args"
    yield ValidationRule(
        path="spec.engine",
        expression=f"!has(self.args) || !has(self.extraArgs) || !self.extraArgs.exists(t, {in_both})",
        message="the same flag is set in engine.args and engine.extraArgs: keep one of the two",
        message_expression=f"self.extraArgs.filter(t, {in_both})[0].split('=')[0]"
        " + ' is set in engine.args and in engine.extraArgs: keep one of the two'",
        field=".extraArgs",
    )


def limit_rules(path: str) -> Iterator[ValidationRule]:
    """The rules for the limits of the resources at `path`."""
    yield from quantity_rules(f"{path}.limits", "cpu", maximum=MAX_CPU, example="8 or 500m")
    request, limit = "string(self.cpu)", "string(self.limits.cpu)"
    yield ValidationRule(
        path=path,
        expression=f"!has(self.cpu) || {request} == '' || !has(self.limits) || !has(self.limits.cpu) || {limit} == ''"
        f" || !isQuantity({request}) || !isQuantity({limit})"
        f" || quantity({request}).compareTo(quantity({limit})) <= 0",
        message="limits.cpu must be at least cpu: a pod cannot request more than its limit",
        field=".limits.cpu",
        check=_is_below_limit,
    )


def _is_below_limit(node: Resource, _old: Resource | None) -> bool:
    limits = node.get("limits")
    if _is_absent(node, "cpu") or not isinstance(limits, dict) or _is_absent(limits, "cpu"):
        return True
    limit = amount_of(limits["cpu"])
    return _is_within(node["cpu"], limit) if limit is not None else True


_SUBDOMAIN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_EXTENDED_NAME = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"


def extended_rules(path: str) -> Iterator[ValidationRule]:
    """The rules for the extended resources at `path`."""
    yield ValidationRule(
        path=path,
        expression=f"!has(self.extended) || self.extended.all(k, k.matches('{_EXTENDED_NAME}')"
        " && !k.contains('kubernetes.io/') && !k.startsWith('requests.'))",
        message="extended resources have names with a domain, such as rdma/ib or vpc.amazonaws.com/efa; CPU, memory "
        "and GPUs have fields of their own",
        field=".extended",
    )
    yield ValidationRule(
        path=path,
        expression="!has(self.extended) || self.extended.all(k, string(self.extended[k]).matches('^[1-9][0-9]{0,9}$'))",
        message="extended resources are whole numbers of at least 1, such as rdma/ib: 1",
        field=".extended",
    )
    yield ValidationRule(
        path=path,
        expression="!has(self.extended) || !has(self.gpu) || !(self.gpu.type in self.extended)",
        message="GPUs are counted in gpu.count: take their resource name out of extended",
        field=".extended",
        reason=FORBIDDEN,
    )


def _class_rules(path: str) -> Iterator[ValidationRule]:
    absent = "!has(self.deviceClass) || self.deviceClass == ''"
    yield ValidationRule(
        path=path,
        expression=f"{absent} || self.deviceClass.matches('{_SUBDOMAIN}')",
        message="deviceClass is the name of a DeviceClass, such as gpu.nvidia.com: small letters, digits, '-' and '.'",
        field=".deviceClass",
    )
    yield ValidationRule(
        path=path,
        expression=f"{absent} || !has(self.type) || self.type in ['', '{DEFAULT_GPU_TYPE}']",
        message="deviceClass asks for GPUs by Dynamic Resource Allocation and type by their resource name: set one of "
        "them",
        field=".type",
        reason=FORBIDDEN,
    )


def _ceiling_rules() -> Iterator[ValidationRule]:
    for path in ("spec.resources", "spec.scaling.prefill", "spec.scaling.decode"):
        yield number_rule(f"{path}.gpu", "count", MAX_GPUS)
        yield from _class_rules(f"{path}.gpu")
        yield from quantity_rules(path, "memory", maximum=MAX_MEMORY, example="32Gi")
        yield from quantity_rules(path, "cpu", maximum=MAX_CPU, example="8 or 500m")
        yield from limit_rules(path)
    yield from extended_rules("spec.resources")
    for path in ("spec.scaling", "spec.scaling.prefill", "spec.scaling.decode"):
        yield number_rule(path, "replicas", MAX_REPLICAS)
    yield number_rule("spec.scaling", "nodesPerReplica", MAX_NODES)


def _group_rules() -> Iterator[ValidationRule]:
    """The rules about ``spec.gateway.group`` and ``weight`` (docs/side-by-side.md)."""
    path, has_group = "spec.gateway", "has(self.group) && self.group != ''"
    yield ValidationRule(
        path=path,
        expression=f"!({has_group}) || self.group.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        message="gateway.group is a DNS label: lower-case letters, digits and '-', such as chat",
        field=".group",
    )
    yield ValidationRule(
        path=path,
        expression=f"!has(self.weight) || ({has_group})",
        message="weight has an effect with group only",
        field=".weight",
    )
    yield ValidationRule(
        path=path,
        expression=f"!({has_group}) || !has(self.httpRouteRef) || self.httpRouteRef == ''",
        message="a route of your own has its own weights: remove group or httpRouteRef",
        field=".group",
    )


_AUTOSCALING = "spec.scaling.autoscaling"
_FLOOR = "(has(self.minReplicas) ? self.minReplicas : 1)"

# One unit, so that the pattern can tell the range.
_UP_TO_AN_HOUR = "([0-9]{1,3}|[12][0-9]{3}|3[0-5][0-9]{2}|3600)s|([0-5]?[0-9]|60)m|[01]h"
_FIVE_MINUTES_TO_A_DAY = (
    "([3-9][0-9]{2}|[1-9][0-9]{3}|[1-7][0-9]{4}|8[0-5][0-9]{3}|86[0-3][0-9]{2}|86400)s"
    "|([5-9]|[1-9][0-9]{1,2}|1[0-3][0-9]{2}|14[0-3][0-9]|1440)m|([1-9]|1[0-9]|2[0-4])h"
)


def _autoscaling_rules() -> Iterator[ValidationRule]:
    """The rules of a ModelDeployment about its autoscaling."""
    yield ValidationRule(
        path="spec",
        expression="!has(self.scaling) || !has(self.scaling.autoscaling) || !has(self.serving)"
        " || self.serving.mode != 'disaggregated'",
        message="autoscaling needs serving.mode aggregated: prefill and decode workers are not scaled",
        field=".scaling.autoscaling",
        reason=FORBIDDEN,
    )
    for field in ("minReplicas", "maxReplicas"):
        yield number_rule(_AUTOSCALING, field, MAX_REPLICAS)
    for field in ("maxReplicas", "target"):
        yield ValidationRule(
            path=_AUTOSCALING, expression=f"self.{field} >= 1", message=f"{field} must be at least 1", field=f".{field}"
        )
    yield ValidationRule(
        path=_AUTOSCALING,
        expression=f"self.maxReplicas < 1 || {_FLOOR} <= self.maxReplicas",
        message="minReplicas must not exceed maxReplicas",
        field=".minReplicas",
    )
    yield ValidationRule(
        path=_AUTOSCALING,
        expression="!has(self.metric) || self.metric != 'KVCache' || self.target <= 100",
        message="target of KVCache is a percentage: 1 to 100",
        field=".target",
    )
    yield ValidationRule(
        path=_AUTOSCALING,
        expression=f"!has(self.idleAfter) || self.idleAfter == '' || {_FLOOR} == 0",
        message="idleAfter has an effect with minReplicas 0 only",
        field=".idleAfter",
    )
    for field, pattern, span in (
        ("scaleDownStabilization", _UP_TO_AN_HOUR, "0s to 1h"),
        ("idleAfter", _FIVE_MINUTES_TO_A_DAY, "5m to 24h"),
    ):
        yield ValidationRule(
            path=_AUTOSCALING,
            expression=f"!has(self.{field}) || self.{field} == '' || self.{field}.matches('^({pattern})$')",
            message=f"{field} must be a duration such as 300s, 10m or 1h, from {span}",
            field=f".{field}",
        )


MODEL_DEPLOYMENT_RULES: tuple[ValidationRule, ...] = (
    *_name_rules(),
    *_gpu_rules(),
    *_mode_rules(),
    *_field_rules(),
    *path_template_rules("spec.gateway"),
    *_group_rules(),
    *_ceiling_rules(),
    *_autoscaling_rules(),
    *storage_rules(),
)
"""All rules of the ModelDeployment that CEL in the CRD can express."""
