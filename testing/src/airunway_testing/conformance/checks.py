"""What is wrong with an installed provider: each check names the rules that it looks at, and yields their faults."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airunway.plugins.contract import UpstreamKind
from airunway.plugins.errors import PluginError, PluginFault
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import discover, load
from airunway.plugins.rules import ENTRY_POINT, HOOKS, KIND
from airunway.resource import Resource
from airunway.runtime.crd_versions import crd_facts
from airunway_testing.conformance import purity, rules, statuses, works, written
from airunway_testing.conformance.cases import CACHE, NAME, SETTINGS, Base, judged
from airunway_testing.conformance.fields import Answer, replaced_labels
from airunway_testing.conformance.hostile import hostile_faults
from airunway_testing.conformance.paths import is_field
from airunway_testing.conformance.places import guarded_faults
from airunway_testing.conformance.report import Outcome, Report, Result, facts_of
from airunway_testing.conformance.rules import RULES, Checked
from airunway_testing.conformance.subject import Checker, Fault, Subject, sources_of
from airunway_testing.simulators import discover_simulators


@dataclass(frozen=True)
class Check:
    """A function and the ids of the rules that it looks at."""

    rules: tuple[str, ...]
    run: Checker


def examined(name: str, *, wanted: Collection[str] = (), skipped: Mapping[str, str] | None = None) -> Report:
    """The report on the installed provider of that name, for the rules of `wanted` (none: all of them).

    Rules in `skipped` are not looked at, and have the reason in the report. Whatever the provider does wrong when it is
    loaded or called is in the report.
    """
    try:
        host = load(name)
        (point,) = (each.entry_point for each in discover(on_request=True) if each.name == name)
        subject = Subject(host, sources=sources_of(point), elsewhere=f"load({name!r})")
    except PluginError as error:
        return unloadable(name, error, wanted=wanted, skipped=skipped or {})
    return examine(subject, wanted=wanted, skipped=skipped or {})


def unloadable(
    name: str, error: PluginError, *, wanted: Collection[str] = (), skipped: Mapping[str, str] | None = None
) -> Report:
    """The report on a provider that cannot be loaded: all that is known is why."""
    fault = Fault(rule=error.rule or ENTRY_POINT, text=str(error))
    return _of_one(Report(provider=name), fault, wanted=wanted, skipped=skipped or {})


def _of_one(report: Report, fault: Fault, *, wanted: Collection[str], skipped: Mapping[str, str]) -> Report:
    """A report on a provider of which only one fault is known, since nothing else can be looked at."""
    for each in RULES.values():
        result = Result(rule=each.id, outcome=Outcome.NOT_COMPARED, texts=(f"{fault.rule} is broken",))
        if each.id == fault.rule:
            result = Result(rule=each.id, outcome=Outcome.FAILED, texts=(fault.text,))
        elif (wanted and each.id not in wanted) or each.checked is Checked.CLUSTER:
            continue
        elif each.id in skipped:
            result = Result(rule=each.id, outcome=Outcome.SKIPPED, texts=(skipped[each.id],))
        report.results.append(result)
    return report


def _unaskable(subject: Subject) -> Fault | None:
    """Why nothing can be compared: it answers nothing, or twice otherwise."""
    try:
        _ = subject.written
        return next(purity.same_answer(subject), None)
    except PluginFault as fault:
        return Fault(rule=fault.rule or HOOKS, text=str(fault))


def examine(subject: Subject, *, wanted: Collection[str] = (), skipped: Mapping[str, str] | None = None) -> Report:
    """The report on a provider that is loaded: every pure rule, and what there was nothing to compare with."""
    host, skipped = subject.host, skipped or {}
    report = Report(provider=host.name, facts=facts_of(host, subject.definitions))

    def asked_for(rule: str) -> bool:
        return (not wanted or rule in wanted) and rule not in skipped

    faults: dict[str, dict[str, None]] = {}
    seconds: dict[str, float] = {}
    stopped = _unaskable(subject) if not skipped.get(rules.SAME_ANSWER) else None
    if stopped is not None:
        return _of_one(report, stopped, wanted=wanted, skipped=skipped)
    with purity.elsewhere(subject.elsewhere if asked_for(rules.SAME_ANSWER) else "") as processes:
        last = Check((rules.SAME_ANSWER,), lambda _: purity.differing(processes))
        for check in (*CHECKS, last):
            looked_at = [rule for rule in check.rules if asked_for(rule)]
            if not looked_at:
                continue
            begun = time.monotonic()
            for fault in _run(check, subject):
                faults.setdefault(fault.rule, {})[fault.text] = None
            for rule in looked_at:
                seconds[rule] = seconds.get(rule, 0.0) + (time.monotonic() - begun) / len(looked_at)
    gaps = dict(_gaps(subject))
    for each in RULES.values():
        texts = tuple(_of_all_bases(subject, faults.get(each.id, {})))
        broken = bool(texts) and each.id not in skipped
        if (wanted and each.id not in wanted and not broken) or (each.checked is Checked.CLUSTER):
            continue
        outcome = Outcome.FAILED if broken else Outcome.PASSED
        if each.id in skipped:
            outcome, texts = Outcome.SKIPPED, (skipped[each.id],)
        elif not broken and each.id in gaps:
            outcome, texts = Outcome.NOT_COMPARED, tuple(gaps[each.id])
        report.results.append(Result(rule=each.id, outcome=outcome, texts=texts, seconds=seconds.get(each.id, 0.0)))
    return report


def problems(name: str) -> Iterator[str]:
    """What is wrong with the installed provider of that name, as sentences; nothing if all is well."""
    for result in examined(name).results:
        if result.outcome is Outcome.FAILED:
            yield from result.texts


def _run(check: Check, subject: Subject) -> Iterator[Fault]:
    try:
        yield from check.run(subject)
    except PluginFault as fault:
        # A hook that fails for one deployment ends the check: its own rule is the broken one.
        yield Fault(rule=fault.rule or HOOKS, text=str(fault))


def _of_all_bases(subject: Subject, texts: Collection[str]) -> Iterator[str]:
    """One sentence for what is wrong with several deployments, with the names of the first."""
    names = sorted((base.name for base in _asked(subject)), key=len, reverse=True)
    found: dict[str, list[str]] = {}
    for text in texts:
        name = next((each for each in names if text.startswith((f"{each}: ", f"{each}, a name of 52 letters: "))), "")
        rest = text.removeprefix(name) if name else text
        found.setdefault(rest.removeprefix(": ") if name else rest, []).append(name)
    for rest, of in found.items():
        if of == [""]:
            yield rest
        else:
            more = f" and {len(of) - 2} more" if len(of) > 2 else ""
            between = "" if rest.startswith(", ") else ": "
            yield f"{'; '.join(of[:2])}{more}{between}{rest}"


def _asked(subject: Subject) -> Sequence[Base]:
    try:
        return subject.asked
    except PluginFault:
        return ()


# --------------------------------------------------------------------------------------- what there was to compare with


def uncompared(host: ProviderHost) -> Iterator[str]:
    """What nothing was found wrong with because there was nothing to compare it with: kinds without a CRD."""
    yield from _without_crd(Subject(host))


def _gaps(subject: Subject) -> Iterator[tuple[str, list[str]]]:
    without = list(_without_crd(subject))
    if without:
        yield rules.SCHEMA, without
    if unknown := list(dict.fromkeys(works.unevaluated(subject))):
        yield rules.CEL, unknown
    if not any(_endpoints(subject)):
        yield rules.ENDPOINT, ["no status that the kit could make up led to an endpoint: see AR-C-063, with a cluster"]


def _endpoints(subject: Subject) -> Iterator[object]:
    try:
        for base in subject.asked[:1]:
            yield from statuses.endpoints_of(subject, base)
    except PluginFault:
        return


def _without_crd(subject: Subject) -> Iterator[str]:
    host = subject.host
    played = {pair for simulator in discover_simulators().values() for pair in simulator.kinds}
    for kind in host.manifest.upstream:
        writing = {transformer.api_version for transformer in host.transformers_of(kind)}
        if kind.builtin or not kind.write or not writing:
            continue
        crd = subject.definitions.get((kind.group, kind.kind))
        if crd is None and (kind.group, kind.kind) not in played:
            yield (
                f"no installed simulator plays {kind.key}: its schema was compared with no CRD (name the kind in the "
                "kinds of a simulator that has its CRD)"
            )
        elif crd is None:
            yield f"the CRDs of the simulator that plays {kind.key} lack it: its schema was compared with none"
        else:
            served = {f"{kind.group}/{version}" for version, _ in crd_facts(crd).served}
            for version in sorted(writing - served):
                yield f"the CRD of {kind.key} does not serve {version}, which a transformer writes: it was not compared"


# ----------------------------------------------------------------------------------------------------------- the checks


def _loading(subject: Subject) -> Iterator[Fault]:
    """Everything that is enforced wherever a provider runs: asking it for plain deployments is enough."""
    for base in subject.asked:
        judged(subject.host, base, base.spec)
    return iter(())


def _definitions(subject: Subject) -> Iterator[Fault]:
    """The CRDs that come with the simulators of its kinds, next to the manifest and the registry."""
    for kind in subject.host.manifest.upstream:
        if (crd := subject.definitions.get((kind.group, kind.kind))) is not None:
            yield from _of_a_definition(subject.host, kind, crd)


def _of_a_definition(host: ProviderHost, kind: UpstreamKind, crd: Resource) -> Iterator[Fault]:
    facts = crd_facts(crd)
    if not facts.namespaced:
        yield Fault(
            rule=KIND,
            text=f"{kind.key} has no namespace (scope: Cluster in its CRD): everything of a deployment lives in the "
            "deployment's namespace",
        )
    for version, found in facts.served:
        writing = [t for t in host.transformers_of(kind) if t.api_version == f"{kind.group}/{version}"]
        if writing and not any(found.startswith(known) for t in writing for known in t.schema_hashes):
            yield Fault(
                rule=rules.SCHEMA_HASH,
                text=f"{kind.key}: the schema of {version} has the hash {found[:12]}, which no transformer names: add "
                "it "
                f"to the schema_hashes of {writing[-1].name!r} if that fits the schema",
            )


def _release(version: str) -> str:
    """The numbers of a version: builds write what follows them (a pre-release, a local part) in a form of their own."""
    return re.match(r"[0-9.]*", version)[0]  # type: ignore[index]  # it matches anything


def _version(subject: Subject) -> Iterator[Fault]:
    host = subject.host
    for found in discover(on_request=True):
        if found.name == host.name and _release(found.version) != _release(host.manifest.version):
            yield Fault(
                rule=rules.VERSION,
                text=f"manifest.version is {host.manifest.version!r}, and the distribution {found.distribution} has "
                "the "
                f"version {found.version}: users see the manifest's",
            )


def _fields(subject: Subject) -> Iterator[Fault]:
    outcomes = (*subject.outcomes, *subject.setting_outcomes)
    words = {word for found in outcomes for word in found.words}
    for path in sorted({word.path for word in words if not is_field(word.path)}):
        yield Fault(
            rule=rules.PATHS,
            text=f"a finding names the field {path}, which no ModelDeployment has: name the one that the user wrote",
        )
    for word in words:
        if not word.message.strip() or not word.reason.strip():
            text = f"the finding about {word.path or 'the deployment'} has no reason or no message: say what to do"
            yield Fault(rule=rules.PATHS, text=text)
    of_the_cache = {e.name for e in subject.host.manifest.engines if e.model_cache}
    engines = {base.name: base.engine for base in subject.asked}
    ignored = {(found.field, found.base) for found in outcomes if found.answer is Answer.IGNORED}
    for field, base_name in sorted(ignored):
        if field == CACHE and engines[base_name] in of_the_cache:
            continue  # a promise, which `works.model_cache` looks at
        yield Fault(
            rule=rules.SETTINGS if field in SETTINGS else rules.FIELDS,
            text=f"{base_name}: {field} has no effect, and nothing says so: honour it, or let can_handle refuse or "
            "name it",
        )


def _own_labels(subject: Subject) -> Iterator[Fault]:
    for base in subject.asked:
        for key in replaced_labels(subject.host, base):
            yield Fault(
                rule=rules.OWN_LABELS,
                text=f"{base.name}: a propagated label {key} replaces the one that pods have: merge the labels of "
                "context.runtime first and the provider's own last, or name the key in the manifest's reserved_labels",
            )


def _guard(subject: Subject) -> Iterator[Fault]:
    for base_name, objects in subject.written.items():
        for text in guarded_faults(subject.host.manifest, NAME, objects):
            yield Fault(rule=rules.GUARD, text=f"{base_name}: {text}")


def _texts(rule: str, run: Callable[[Subject], Iterator[str]]) -> Check:
    return Check((rule,), lambda subject: (Fault(rule=rule, text=text) for text in run(subject)))


CHECKS: tuple[Check, ...] = (
    Check(tuple(rule.id for rule in RULES.values() if rule.checked in (Checked.LOAD, Checked.CALL)), _loading),
    Check((KIND, rules.SCHEMA_HASH), _definitions),
    Check((rules.VERSION,), _version),
    _texts(rules.SELECTION, lambda s: written.wrong_rules(s.host)),
    Check((rules.CAPABILITIES,), works.capabilities),
    Check((rules.SCALE_TO_ZERO,), works.scale_to_zero),
    Check((rules.CACHE,), works.model_cache),
    Check((rules.GPUS,), works.gpus),
    Check((rules.NO_IO,), purity.no_io),
    _texts(rules.ARGUMENTS, lambda s: written.changed_arguments(s.host, s.asked)),
    Check((rules.FIELDS, rules.SETTINGS, rules.PATHS), _fields),
    Check((rules.OWN_LABELS,), _own_labels),
    Check((rules.GUARD,), _guard),
    Check((rules.SAFE_PODS,), works.safe_pods),
    _texts(rules.SCHEMA, lambda s: written.refused_objects(s.host, s.asked, s.schemas)),
    Check((rules.CEL,), works.cel_rules),
    Check((rules.METADATA,), works.metadata),
    _texts(rules.OVERRIDES, lambda s: written.refused_overrides(s.host, s.asked, s.schemas)),
    _texts(rules.NAMES_DIFFER, lambda s: written.fixed_names(s.host, s.asked)),
    _texts(rules.HOSTILE, lambda s: hostile_faults(s.host, s.asked)),
    Check((rules.SERVICE,), works.services),
    Check((rules.ENDPOINT,), statuses.endpoints),
    Check((rules.IMMUTABLE,), works.immutable),
    Check((rules.POD_LABELS,), works.pod_labels),
    Check(
        (rules.STATUS_READY, rules.STATUS_CURRENT, rules.STATUS_STARTING, rules.STATUS_TOTAL), statuses.without_a_status
    ),
    Check((rules.STATUS_TOTAL,), statuses.total),
    Check((rules.STATUS_CURRENT,), statuses.current),
    Check((rules.PUBLIC_NAMES,), purity.public_names),
)
