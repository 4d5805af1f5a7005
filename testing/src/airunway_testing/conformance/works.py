"""Whether what a provider writes can work: by the rules of its CRD and of Kubernetes, and by what it promises."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from airunway.api import names
from airunway.cel import CelError, compile_expression
from airunway.json_path import values_at
from airunway.plugins.contract import EngineCapability
from airunway.quantity import parse_quantity
from airunway.rbac.pod_rules import places_of
from airunway.resource import Resource, dig
from airunway.schema import defaulted
from airunway.sdk.pods import pod_specs, pod_templates
from airunway.upgrades.definitions import definition_of
from airunway_testing.conformance import rules
from airunway_testing.conformance.cases import Base, first_refusal, judged, merged_spec
from airunway_testing.conformance.fields import Answer, plain
from airunway_testing.conformance.subject import Fault, Subject

_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL_MAPS = ("labels", "podLabels", "matchLabels", "nodeSelector")
_ANNOTATIONS = 256 * 1024

# ------------------------------------------------------------------------------------------------------- capabilities


def capabilities(subject: Subject) -> Iterator[Fault]:
    """What a capability promises runs."""
    host = subject.host
    for engine in host.manifest.engines:
        of = [base for base in subject.asked if base.engine == engine.name]
        if not of:
            yield Fault(
                rule=rules.CAPABILITIES,
                text=f"{engine.name}: even plain deployments are refused ({first_refusal(host, engine.name)}): take "
                "the "
                "engine out of the manifest, or let can_handle pass what its capabilities promise",
            )
            continue
        for promise, kept in _promises(subject, engine, of):
            if not kept:
                yield Fault(
                    rule=rules.CAPABILITIES,
                    text=f"{engine.name}: {promise} is promised, and every such deployment is refused: take it out of "
                    "the EngineCapability, or let can_handle pass it",
                )


def _promises(subject: Subject, engine: EngineCapability, of: Sequence[Base]) -> Iterator[tuple[str, bool]]:
    on_cpu = f"{engine.name} on CPU"
    if engine.cpu_support:
        yield "cpu_support", any(base.name == on_cpu for base in of)
    if engine.gpu_support:
        yield "gpu_support", any(base.name != on_cpu for base in of)
    for mode in engine.serving_modes:
        yield f"serving mode {mode}", any(dig(b.spec, "serving", "mode", default="aggregated") == mode for b in of)
    if engine.multi_node:
        spec = {"scaling": {"nodesPerReplica": 2}, "resources": {"gpu": {"count": 16}}}
        large = (merged_spec(base.spec, spec) for base in of)
        yield "multi_node", any(not judged(subject.host, of[0], each).blockers for each in large)


def scale_to_zero(subject: Subject) -> Iterator[Fault]:
    """Zero replicas are written as something else than one, where that is promised."""
    promised = {engine.name for engine in subject.host.manifest.engines if engine.scale_to_zero}
    for base in subject.asked:
        if base.engine not in promised or dig(base.spec, "serving", "mode") == "disaggregated":
            continue
        none, one = (
            judged(subject.host, base, merged_spec(base.spec, {"scaling": {"replicas": count}})) for count in (0, 1)
        )
        if not none.blockers and [plain(obj) for obj in none.objects] == [plain(obj) for obj in one.objects]:
            yield Fault(
                rule=rules.SCALE_TO_ZERO,
                text=f"{base.name}: spec.scaling.replicas 0 is written like 1, so that its GPUs stay on: write 0, or "
                "take scale_to_zero out of the EngineCapability",
            )


def model_cache(subject: Subject) -> Iterator[Fault]:
    """The claim reaches what is written, where that is promised."""
    from airunway_testing.conformance.cases import CACHE

    for engine in subject.host.manifest.engines:
        named = {base.name for base in subject.asked if base.engine == engine.name}
        found = [each for each in subject.setting_outcomes if each.field == CACHE and each.base in named]
        if not engine.model_cache or not found:
            continue
        dropped = [
            each.base
            for each in found
            if each.answer is Answer.IGNORED
            or any(word.reason == "FieldIgnored" and word.path == "spec.model.cache" for word in each.words)
        ]
        if dropped or not any(each.answer is Answer.HONOURED for each in found):
            where = "; ".join(dropped) or "every plain deployment"
            yield Fault(
                rule=rules.CACHE,
                text=f"{engine.name}: model_cache is promised, and the claim or the path of the weights is not in what "
                f"is written for {where}: mount context.cache and start the engine with its path, or take model_cache "
                "out of the EngineCapability",
            )


def gpus(subject: Subject) -> Iterator[Fault]:
    """The containers of a plain deployment ask together for the GPUs of its spec."""
    for base in subject.asked:
        if "resources" not in base.spec or dig(base.spec, "serving", "mode") == "disaggregated":
            continue
        if not dig(base.spec, "resources", "gpu", "count"):
            continue
        for count in (2, 4):
            found = judged(subject.host, base, merged_spec(base.spec, {"resources": {"gpu": {"count": count}}}))
            asked = [amount for obj in found.objects for pod in pod_specs(obj) for amount in _gpus_in(pod)]
            if found.blockers or not any(True for obj in found.objects for _ in pod_specs(obj)):
                continue
            if sum(asked) != count and not (not asked and _says(found.objects, count)):
                yield Fault(
                    rule=rules.GPUS,
                    text=f"{base.name}: spec.resources.gpu.count is {count}, and the containers ask together for "
                    f"{sum(asked)}: write it into the resources of the container that runs the engine",
                )
                break


def _gpus_in(pod: Resource) -> Iterator[int]:
    for container in pod.get("containers", []):
        wanted = {**(dig(container, "resources", "requests") or {}), **(dig(container, "resources", "limits") or {})}
        for key, amount in wanted.items():
            if key == names.DEFAULT_GPU_TYPE:
                yield int(parse_quantity(str(amount)))


def _says(node: object, number: int) -> bool:
    """Whether a number stands somewhere, where GPUs are a field of the upstream's own."""
    if isinstance(node, dict):
        return any(_says(value, number) for value in node.values())
    if isinstance(node, list | tuple):
        return any(_says(value, number) for value in node)
    return not isinstance(node, bool) and node in (number, str(number))


# --------------------------------------------------------------------------------------------------- what is accepted


def cel_rules(subject: Subject) -> Iterator[Fault]:
    """Objects against the CEL rules of their CRD, those that compare with an old object left out."""
    for base_name, obj in _objects(subject):
        schema = subject.schemas.get((str(obj["apiVersion"]), obj["kind"]))
        if schema is not None:
            for place, message in _broken_rules(defaulted(obj, schema), schema, ""):
                yield Fault(
                    rule=rules.CEL,
                    text=f"{base_name}: the CRD of {obj['kind']} does not take {place or 'the object'}: {message}",
                )


def unevaluated(subject: Subject) -> Iterator[str]:
    """CEL rules of the CRDs that the kit's evaluator cannot compile, or that have no value for what is written."""
    for _, obj in _objects(subject):
        schema = subject.schemas.get((str(obj["apiVersion"]), obj["kind"]))
        if schema is not None:
            unknown: dict[str, str] = {}
            list(_broken_rules(defaulted(obj, schema), schema, "", unknown))
            yield from (f"{obj['kind']}: {rule} cannot be evaluated here: {why}" for rule, why in unknown.items())


def _broken_rules(
    value: object, schema: Resource, path: str, unknown: dict[str, str] | None = None
) -> Iterator[tuple[str, str]]:
    """The place and message of each rule that is broken; those without a value are put into `unknown`."""
    for rule in schema.get("x-kubernetes-validations") or ():
        expression = str(rule.get("rule", ""))
        if "oldSelf" in expression:
            continue
        try:
            holds = compile_expression(expression, variables=("self",), trusted=True).evaluate({"self": value})
        except CelError as error:
            if unknown is not None:
                unknown[expression] = str(error)
            continue
        if holds is False:
            yield path, str(rule.get("message") or expression)
    if isinstance(value, dict):
        below, others = schema.get("properties") or {}, schema.get("additionalProperties")
        for name, each in value.items():
            found = below.get(name) or (others if isinstance(others, dict) else None)
            if found is not None:
                yield from _broken_rules(each, found, f"{path}.{name}".lstrip("."), unknown)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, each in enumerate(value):
            yield from _broken_rules(each, schema["items"], f"{path}[{index}]", unknown)


def immutable(subject: Subject) -> Iterator[Fault]:
    """Paths that a CEL rule of the CRD keeps from changing, that are written, and that the manifest does not name."""
    host = subject.host
    for kind in host.manifest.upstream:
        crd = subject.definitions.get((kind.group, kind.kind))
        if crd is None or not kind.write:
            continue
        for version in definition_of(crd).versions:
            for transformer in host.transformers_of(kind):
                if transformer.api_version != f"{kind.group}/{version.name}":
                    continue
                declared = transformer.immutable if kind.primary else (*transformer.immutable, *kind.immutable)
                for path in version.immutable:
                    if not _covers(declared, path) and _is_written(subject, kind.kind, path):
                        yield Fault(
                            rule=rules.IMMUTABLE,
                            text=f"{kind.key}: a CEL rule of {version.name} keeps {path} from changing, and the "
                            f"immutable paths of transformer {transformer.name!r} do not have it: add it",
                        )


def _covers(declared: Sequence[str], path: str) -> bool:
    below = path.removesuffix(".*")
    return any(below == each.removesuffix(".*") or below.startswith(f"{each.removesuffix('.*')}.") for each in declared)


def _is_written(subject: Subject, kind: str, path: str) -> bool:
    at = path.removesuffix(".*")
    return any(
        obj["kind"] == kind and next(iter(values_at(obj, at)), None) is not None
        for objects in subject.written.values()
        for obj in objects
    )


def metadata(subject: Subject) -> Iterator[Fault]:
    """Names, labels and annotations by the rules of Kubernetes, also where an operator copies them to pods."""
    for base_name, obj in _objects(subject):
        kind, name = obj["kind"], obj["metadata"]["name"]
        if kind == "Service" and not _DNS_LABEL.fullmatch(name):
            yield _of_metadata(
                f"{base_name}: a Service is called {name!r}: at most 63 small letters, digits and '-', beginning with "
                "a "
                "letter; airunway.sdk.derived_name shortens one"
            )
        for place, what, text in _wrong_metadata(obj, ""):
            yield _of_metadata(f"{base_name}: {kind}: {place}: {text[:80]!r} is no {what} that Kubernetes takes")
        size = sum(len(key) + len(str(value)) for key, value in (obj["metadata"].get("annotations") or {}).items())
        if size > _ANNOTATIONS:
            yield _of_metadata(
                f"{base_name}: {kind}: the annotations have {size} bytes; Kubernetes takes {_ANNOTATIONS}"
            )


def _of_metadata(text: str) -> Fault:
    return Fault(rule=rules.METADATA, text=text)


def _wrong_metadata(node: object, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(node, list):
        for value in node:
            yield from _wrong_metadata(value, f"{path}[*]")
    if not isinstance(node, dict):
        return
    for name, value in node.items():
        here = f"{path}.{name}".lstrip(".")
        if isinstance(value, dict) and name in _LABEL_MAPS and all(isinstance(each, str) for each in value.values()):
            for key, text in value.items():
                if not _LABEL_KEY.fullmatch(key):
                    yield here, "key of a label", key
                if not _LABEL_VALUE.fullmatch(text):
                    yield f"{here}[{key}]", "value of a label", text
        elif isinstance(value, dict) and path.endswith("metadata") and name == "annotations":
            for key in value:
                if not _LABEL_KEY.fullmatch(key):
                    yield here, "key of an annotation", key
        else:
            yield from _wrong_metadata(value, here)


def _objects(subject: Subject) -> Iterator[tuple[str, Resource]]:
    """Every object of plain deployments, and of those with the longest name."""
    for name, objects in subject.written.items():
        yield from ((name, obj) for obj in objects)
    for name, objects in subject.written_long.items():
        yield from ((f"{name}, a name of 52 letters", obj) for obj in objects)


# ------------------------------------------------------------------------------------------------------ pods, Services


def safe_pods(subject: Subject) -> Iterator[Fault]:
    """Pods of plain deployments ask for nothing of the host."""
    for base_name, objects in subject.written.items():
        for pod in (pod for obj in objects for pod in pod_specs(obj)):
            for word in _unsafe(pod):
                yield Fault(
                    rule=rules.SAFE_PODS,
                    text=f"{base_name}: a pod has {word}, which the guard of the provider's account refuses: leave it "
                    "out",
                )


def _unsafe(pod: Resource) -> Iterator[str]:
    yield from (word for word in ("hostNetwork", "hostPID", "hostIPC") if pod.get(word))
    yield from ("a hostPath volume" for volume in pod.get("volumes") or () if "hostPath" in volume)
    for container in (*pod.get("containers", ()), *(pod.get("initContainers") or ())):
        if dig(container, "securityContext", "privileged"):
            yield "a privileged container"
        if any(port.get("hostPort") for port in container.get("ports") or ()):
            yield "a hostPort"


def services(subject: Subject) -> Iterator[Fault]:
    """A Service selects pods that the plan makes, and leads to a port on which they listen."""
    for base_name, objects in subject.written.items():
        pods = list(_pods(subject, objects))
        for service in (obj for obj in objects if obj["kind"] == "Service"):
            selector = dig(service, "spec", "selector") or {}
            known = dict(_known_labels(subject, objects))
            known |= dict.fromkeys(key for key in selector if _is_of_the_upstream(subject, key))
            name = service["metadata"]["name"]
            selected = [pod for labels, pod, final in pods if _selects(selector, labels, {} if final else known)]
            if (pods and not selected) or (not pods and not _mentions(selector, objects, known)):
                yield Fault(
                    rule=rules.SERVICE,
                    text=f"{base_name}: the Service {name} selects {_labels(selector)}, which no pod of the plan has: "
                    "airunway.sdk.workloads.pod_selector gives labels that pods and Services share",
                )
                continue
            for port in dig(service, "spec", "ports", default=[]) if selector else []:
                target = port.get("targetPort", port.get("port"))
                listening = [each for pod in selected for each in _ports(pod)]
                if listening and target not in listening:
                    known_ports = ", ".join(map(str, dict.fromkeys(listening)))
                    yield Fault(
                        rule=rules.SERVICE,
                        text=f"{base_name}: the Service {name} leads to port {target} of its pods, which listen on "
                        f"{known_ports}: write a targetPort that they have",
                    )


def _pods(subject: Subject, objects: Sequence[Resource]) -> Iterator[tuple[Mapping[str, str], Resource, bool]]:
    """The pods of a plan with their labels; whether these are final, since no operator of the upstream's adds any."""
    for obj in objects:
        kind = subject.kind_of(obj)
        seen: list[Resource] = []
        for template in pod_templates(obj):
            seen.append(template["spec"])
            final = kind.builtin and kind.kind not in ("LeaderWorkerSet",)
            yield dig(template, "metadata", "labels") or {}, template["spec"], final
        for place in places_of(kind):
            for pod in values_at(obj, place):
                if isinstance(pod, dict) and not any(pod is each for each in seen):
                    at = kind.labels.get(place, "")
                    labels = next(iter(values_at(obj, at)), None) if at else None
                    yield labels if isinstance(labels, dict) else {}, pod, False


def _is_of_the_upstream(subject: Subject, key: str) -> bool:
    """Whether a label has a prefix of Kubernetes or of a group of the manifest: operators put such labels on pods."""
    prefix = key.partition("/")[0] if "/" in key else ""
    groups = [kind.group.split(".", 1)[-1] for kind in subject.host.manifest.upstream if not kind.builtin]
    known = ("kubernetes.io", "k8s.io", *(kind.group for kind in subject.host.manifest.upstream if kind.group), *groups)
    return any(prefix == each or prefix.endswith(f".{each}") for each in known if "." in each)


def _known_labels(subject: Subject, objects: Sequence[Resource]) -> Mapping[str, str | None]:
    """Labels that the upstream puts on pods, as far as the manifest says so; None: any value."""
    manifest = subject.host.manifest
    primary = objects[0]["metadata"]["name"] if objects else ""
    found: dict[str, str | None] = dict.fromkeys(manifest.pod_labels, primary)
    if manifest.role_label:
        found[manifest.role_label] = None
    return found


def _selects(selector: Mapping[str, str], labels: Mapping[str, str], known: Mapping[str, str | None]) -> bool:
    """`known` may have any value where it has None."""
    return all(labels.get(key) == value or known.get(key, "") in (None, value) for key, value in selector.items())


def _mentions(selector: Mapping[str, str], objects: Sequence[Resource], known: Mapping[str, str | None]) -> bool:
    """Whether each label of a selector stands in some object, or is one that the upstream puts on pods."""
    content = [{key: value for key, value in obj.items() if key != "metadata"} for obj in objects]
    others = [obj for obj in content if obj["kind"] != "Service"]
    return all(known.get(key, "") in (None, value) or _has(others, key, value) for key, value in selector.items())


def _has(node: object, key: str, value: str) -> bool:
    if isinstance(node, dict):
        return node.get(key) == value or any(_has(each, key, value) for each in node.values())
    return isinstance(node, list) and any(_has(each, key, value) for each in node)


def _ports(pod: Resource) -> Iterator[object]:
    for container in (*pod.get("containers", ()), *(pod.get("initContainers") or ())):
        for port in container.get("ports") or ():
            yield port.get("containerPort")
            if port.get("name"):
                yield port["name"]


def _labels(selector: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in selector.items())


def pod_labels(subject: Subject) -> Iterator[Fault]:
    """The labels by which the manifest knows pods are on those that are written, where no operator adds any."""
    manifest = subject.host.manifest
    for base_name, objects in subject.written.items():
        for labels, pod, final, beside in _with_those_beside(subject, objects):
            role = labels.get(manifest.role_label) if manifest.role_label else None
            if final and manifest.pod_labels and not any(key in labels for key in manifest.pod_labels):
                yield _of_pods(f"{base_name}: no pod has {' or '.join(manifest.pod_labels)}, the manifest's pod_labels")
            if final and manifest.role_label and role is None:
                yield _of_pods(f"{base_name}: no pod has {manifest.role_label}, the manifest's role_label")
            if role is not None and any(_gpus_in(pod)) and not beside & set(manifest.serving_roles):
                yield _of_pods(
                    f"{base_name}: pods with GPUs have the role {role!r}, which is none of the serving_roles "
                    f"({', '.join(manifest.serving_roles) or 'none'})"
                )


def _with_those_beside(
    subject: Subject, objects: Sequence[Resource]
) -> Iterator[tuple[Mapping[str, str], Resource, bool, set[str]]]:
    """The pods with the roles of all pods of the same object: workers of a group serve with their leader."""
    role_label = subject.host.manifest.role_label
    for obj in objects:
        pods = list(_pods(subject, [obj]))
        beside = {labels[role_label] for labels, _, _ in pods if role_label in labels}
        yield from ((labels, pod, final, beside) for labels, pod, final in pods)


def _of_pods(text: str) -> Fault:
    return Fault(rule=rules.POD_LABELS, text=f"{text}: pods that are not known count for nothing")
