"""Checks 02: the processes of AI Runway, their rollouts and their leaders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import product

from airunway import __version__
from airunway.api import names
from airunway.doctor.findings import Found, error, warning
from airunway.doctor.snapshot import OURS, ProcessDeployment, Snapshot, named
from airunway.first_seen import SKEW, human_duration
from airunway.kube import DEPLOYMENT, REPLICA_SET
from airunway.resource import (
    ObjectKey,
    Resource,
    annotations_of,
    condition_of,
    controller_owner,
    dig,
    key_of,
    labels_of,
    parse_time,
)

_PATIENCE = timedelta(minutes=2)
"""How long a pod may be unready before that is reported: its startup probe gives it one minute."""

_REVISION = "deployment.kubernetes.io/revision"

_LEASE_SECONDS = 15
"""Duration of a Lease that does not state one."""

_LAST_WORDS = 300
"""Maximum characters from the end of a container's termination message."""


@error(
    "ARW0212",
    "A new version does not get ready",
    why="The pods of the version before still do the work, so nothing is lost yet; the upgrade does not go on, and "
    "these pods are not replaced when their node is drained.",
    do="Repair what the pod's words name, or go back: helm rollback, or kubectl rollout undo deployment/NAME.",
    needs=("components", "replica_sets", "pods"),
)
def _stuck_rollouts(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        if what := _stuck(seen, component):
            back = f"kubectl rollout undo deployment/{component.key.name} --namespace {component.key.namespace}"
            if component.release:
                back = f"helm rollback {component.release} --namespace {component.key.namespace}"
            do = f"Repair what is said there, or go back to what works: {back}"
            yield Found(component.name, what, do=do)


def _stuck(seen: Snapshot, component: ProcessDeployment) -> str:
    """Why the newest version of a process does not replace the previous one; empty if it does, or still may."""
    if component.available == 0:
        return ""  # ARW0202 reports that no pod is available
    mine = [each for each in seen.replica_sets or () if _is_of(each, DEPLOYMENT.kind, component.key)]
    owned = sorted(mine, key=lambda each: _number(annotations_of(each).get(_REVISION, "")))
    older = [each for each in owned[:-1] if dig(each, "status", "replicas", default=0)]
    if not older:
        return ""
    newest = owned[-1]
    ready = dig(newest, "status", "availableReplicas", default=0)
    cause = _cause(seen, component, newest)
    if ready >= component.wanted or not cause:
        return ""
    names = ", ".join(key_of(each).name for each in older)
    return (
        f"{ready} of {component.wanted} pods of its new ReplicaSet {key_of(newest).name} are available; those of "
        f"{names} still work. {cause}"
    )


def _is_of(obj: Resource, kind: str, owner: ObjectKey) -> bool:
    """Whether that object controls this one."""
    controller = controller_owner(obj) or {}
    return (controller.get("kind"), key_of(obj).namespace, controller.get("name")) == (kind, *owner)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _cause(seen: Snapshot, component: ProcessDeployment, newest: Resource) -> str:
    """Why the pods of the newest ReplicaSet are not ready: a pod's own message, the message of a ReplicaSet that cannot
    create pods, or how long a pod has been unready.
    """
    pods = [pod for pod in seen.pods or () if _is_of(pod, REPLICA_SET.kind, key_of(newest))]
    if cause := next(filter(None, map(pod_trouble, pods)), ""):
        return cause
    failure = condition_of(newest, "ReplicaFailure") or {}
    if failure.get("status") == "True":
        return f"Its pods cannot be made: {failure.get('message')}"
    for pod in pods:
        ready = condition_of(pod, "Ready") or {}
        since = parse_time(ready.get("lastTransitionTime")) or parse_time(dig(pod, "metadata", "creationTimestamp"))
        if ready.get("status") != "True" and since is not None and seen.now - since > _PATIENCE:
            return f"Pod {key_of(pod).name} is not ready for {human_duration(seen.now - since)}: its log says why."
    return component.trouble if component.overdue else ""


def pod_trouble(pod: Resource) -> str:
    """Why a pod is not ready, in the cluster's own words; empty if unknown."""
    for part in ("initContainerStatuses", "containerStatuses"):
        for container in dig(pod, "status", part, default=[]):
            if trouble := _container_trouble(container):
                return f"Pod {key_of(pod).name}: {trouble}."
    scheduled = condition_of(pod, "PodScheduled") or {}
    if scheduled.get("status") == "False" and scheduled.get("message"):
        return f"Pod {key_of(pod).name}: {scheduled['message']}"
    return ""


def _container_trouble(container: Resource) -> str:
    """Why a container does not run, or has not become ready since its last restart."""
    waiting = dig(container, "state", "waiting", default={})
    ended = dig(container, "state", "terminated") or dig(container, "lastState", "terminated")
    end = ""
    if ended is not None:
        words = " ".join(str(ended.get("message") or "").split())
        words = words if len(words) <= _LAST_WORDS else f"…{words[-_LAST_WORDS:]}"
        last = f"{ended.get('reason', '')} {words}".strip()
        end = f"its last run ended with exit code {ended.get('exitCode')}{f' ({last})' if last else ''}"
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        return ": ".join(str(text) for text in (waiting["reason"], waiting.get("message"), end) if text)
    if ended is None or container.get("ready") is True or ended.get("exitCode") == 0:
        return ""
    return f"{end}; it was started again {container.get('restartCount', 0)} times"


@error(
    "ARW0201",
    "The core does not run",
    why="Without the core nothing is validated and no provider is selected: deployments stay Pending.",
    do="Install the chart airunway; if it runs in another namespace, name that with --namespace.",
    needs=("components",),
)
def _no_core(seen: Snapshot) -> Iterator[Found]:
    if seen.cores or seen.runs_outside:
        return
    what = "No Deployment in it runs the core."
    if seen.namespaces is not None and not seen.namespaces.get(seen.namespace, True):
        what = "There is no such namespace."
    if others := [component for component in seen.elsewhere or () if component.core]:
        homes = sorted({component.key.namespace for component in others})
        what += f" {others[0].name} runs it: --namespace {' or '.join(homes)}."
    yield Found(f"Namespace/{seen.namespace}", what)


@error(
    "ARW0202",
    "A process has no available pod",
    why="Whatever it is there for does not happen.",
    do="Look at its pods: kubectl describe deployment NAME --namespace NAMESPACE, kubectl logs deployment/NAME "
    "--namespace NAMESPACE.",
    needs=("components",),
)
def _down(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        if component.available == 0:
            wanted = component.wanted
            what = "It is scaled to zero." if wanted == 0 else f"0 of {wanted} pods are available."
            yield Found(component.name, f"{what} {_trouble(seen, component)}".rstrip())


@warning(
    "ARW0203",
    "A process has fewer pods than it should",
    why="It works, without the replica that would take over.",
    do="Look at the pod that is missing: kubectl describe deployment NAME --namespace NAMESPACE, kubectl get pods "
    "--namespace NAMESPACE.",
    needs=("components",),
)
def _thin(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        if 0 < component.available < component.wanted and not _stuck(seen, component):
            what = f"{component.available} of {component.wanted} pods are available. {_trouble(seen, component)}"
            yield Found(component.name, what.rstrip())


def _trouble(seen: Snapshot, component: ProcessDeployment) -> str:
    """Why pods are missing: a pod's own message, otherwise the Deployment's."""
    return next(filter(None, (pod_trouble(pod) for pod in seen.pods or () if component.has(pod))), component.trouble)


@error(
    "ARW0204",
    "Several replicas work at the same time",
    why="Without leader election every replica writes: they fight, and events and upstream calls double.",
    do="Start it with --leader-elect, or with one replica. If it has --leader-elect, its log says why it cannot write "
    "its Lease.",
    needs=("components", "leases"),
)
def _without_election(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        elected = component.known or any(name in (seen.leases or {}) for name in component.leases)
        if component.available > 1 and not elected:
            yield Found(component.name, f"{component.available} pods are available and no Lease says which one works.")


@error(
    "ARW0205",
    "No process holds the Lease",
    why="Only the holder of the Lease works; its pods wait for it.",
    do="Look at the log of its pods: they say why they cannot take or renew the Lease (token, rights, API server, "
    "clock). A pod whose token is refused (401) gets a new one by a restart: kubectl rollout restart deployment/NAME "
    "--namespace NAMESPACE.",
    needs=("components", "leases"),
)
def _leaderless(seen: Snapshot) -> Iterator[Found]:
    """One finding for all processes: what stops several has one cause."""
    lapsed = [(component, problems) for component in seen.components or () if (problems := lapses(seen, component))]
    if not lapsed:
        return
    texts = [f"{component.key.name}: {text}" for component, problems in lapsed for text in problems]
    (first, problems), *others = lapsed
    what = " ".join(texts) if others else " ".join(problems)
    renewed = [component for component, _ in lapsed if _newer_account(seen, component)]
    if renewed:
        names_of = ", ".join(component.account for component in renewed)
        what += f" Account {names_of} was made anew after the pods: the API server refuses their tokens (401)."
    restart = " ".join(f"deployment/{component.key.name}" for component in renewed)
    yield Found(
        first.name if not others else f"Namespace/{seen.namespace}",
        what if not others else f"{len(lapsed)} processes do not renew their Leases. {what}",
        do=f"kubectl rollout restart {restart} --namespace {seen.namespace}"
        if renewed
        else ""
        if not others
        else "Look at the log of one of them: it says what all of them meet with (token, rights, API server, clock). "
        f"Tokens that are refused (401) are replaced by a restart: kubectl rollout restart deployment --namespace "
        f"{seen.namespace} --selector {OURS}.",
    )


def lapses(seen: Snapshot, component: ProcessDeployment) -> list[str]:
    """Which Leases of a process that should work nobody renews, as sentences."""
    if not component.known or not component.available:
        return []  # ARW0202 reports that no pod is available
    found = ((name, _lapsed(seen, name)) for name in component.leases)
    return [f"Lease {name}: {problem}" for name, problem in found if problem]


def _newer_account(seen: Snapshot, component: ProcessDeployment) -> bool:
    """Whether a process's account was made after all of its pods: their tokens are of an earlier one."""
    live = (seen.accounts or {}).get(ObjectKey(component.key.namespace, component.account))
    made = parse_time(dig(live or {}, "metadata", "creationTimestamp"))
    pods = [parse_time(dig(pod, "metadata", "creationTimestamp")) for pod in seen.pods or () if component.has(pod)]
    return made is not None and bool(pods) and all(pod is not None and pod < made for pod in pods)


def _lapsed(seen: Snapshot, name: str) -> str:
    lease = (seen.leases or {}).get(name)
    if lease is None:
        return "There is no such Lease."
    holder = dig(lease, "spec", "holderIdentity", default="")
    if not holder:
        return "No process holds it."
    renewed = parse_time(dig(lease, "spec", "renewTime"))
    seconds = dig(lease, "spec", "leaseDurationSeconds", default=_LEASE_SECONDS)
    if renewed is None:
        return f"{holder} holds it and has never renewed it."
    # A holder's clock may be behind the API server's by up to the duration of a Lease.
    age = seen.now - renewed
    return f"{holder} renewed it {human_duration(age)} ago." if age > timedelta(seconds=2 * seconds) else ""


@error(
    "ARW0213",
    "A Lease keeps its pods waiting",
    why="Another process holds it, or it was renewed in the future. Its pods wait until the holder releases the Lease, "
    "or until it ends. Until then their work is not done, or another installation does it.",
    do="If the holder is a process that still runs somewhere, stop it. Else: kubectl delete lease NAME --namespace "
    "NAMESPACE; a pod takes it within seconds.",
    needs=("components", "leases", "pods"),
)
def _held_by_a_stranger(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        pods = [key_of(pod).name for pod in seen.pods or () if component.has(pod)]
        for name in component.leases:
            if problem := _foreign(seen, name, pods):
                namespace = component.key.namespace
                yield Found(f"Lease/{namespace}/{name}", f"{problem} {component.name} waits for it.")


def _foreign(seen: Snapshot, name: str, pods: list[str]) -> str:
    """What is wrong with the holder of a Lease in force; empty if nothing is."""
    lease = (seen.leases or {}).get(name)
    holder = dig(lease, "spec", "holderIdentity", default="")
    if not holder or _lapsed(seen, name):
        return ""  # ARW0205
    renewed = parse_time(dig(lease, "spec", "renewTime"))
    ahead = renewed - seen.now if renewed is not None else timedelta()
    # Outside of our charts a process does not know its pod's name; it uses the host's name and its process id.
    known = any(holder == pod or holder.startswith(f"{pod}-") for pod in pods)
    if known and ahead <= SKEW:
        return ""
    text = f"{holder} holds it" if known else f"{holder} holds it, which is none of its pods"
    if ahead > SKEW:
        text += f", and has renewed it {human_duration(ahead)} in the future"
    seconds = dig(lease, "spec", "leaseDurationSeconds", default=_LEASE_SECONDS)
    return f"{text}; each renewal holds for {seconds} s."


@warning(
    "ARW0206",
    "Releases differ",
    why="Core, providers and this command are released and tested together; a mixture is for the time of an upgrade.",
    do="Upgrade what is behind: first the CRDs, then the core, then the providers, and this command.",
    needs=("components",),
)
def _skewed(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        if component.version and _minor(component.version) != _minor(__version__):
            yield Found(component.name, f"It runs {component.version}; this command is {__version__}.")


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


@error(
    "ARW0207",
    "A provider watches other namespaces than the core",
    why="A deployment outside of the core's namespaces is never validated; one outside of the provider's is never run.",
    do="Give core and providers the same --watch-namespaces (in charts: watchNamespaces).",
    needs=("components",),
)
def _elsewhere(seen: Snapshot) -> Iterator[Found]:
    for core in seen.cores:
        for component in seen.components or ():
            comparable = core.known and component.known and component.providers and not component.core
            if comparable and set(component.watched) != set(core.watched):
                yield Found(component.name, f"It watches {component.scope}, the core watches {core.scope}.")


@error(
    "ARW0208",
    "A watched namespace does not exist",
    why="Nothing there can be served, and the rights that should be granted there cannot be.",
    do="Create the namespace and its Role, or take it out of --watch-namespaces.",
    needs=("components", "namespaces"),
)
def _nowhere(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        for name in component.watched:
            if not (seen.namespaces or {}).get(name, True):
                yield Found(component.name, f"It watches namespace {name}, which does not exist.")


@error(
    "ARW0209",
    "A service account does not exist",
    why="No pod can be made for an account that is not there.",
    do="Create it (the charts do), or correct serviceAccountName.",
    needs=("components", "accounts"),
)
def _no_account(seen: Snapshot) -> Iterator[Found]:
    for component in seen.components or ():
        key = ObjectKey(component.key.namespace, component.account)
        if key in (seen.accounts or {}) and not (seen.accounts or {})[key]:
            yield Found(component.name, f"Its account {component.account} does not exist.")


@warning(
    "ARW0210",
    "A Lease is left over",
    why="A process that is not a Deployment here holds, or held, the Lease: two installations may be at work.",
    do="If nothing is meant to run elsewhere, find who holds it (spec.holderIdentity) and stop it.",
    needs=("components", "leases", "providers"),
)
def _stranger(seen: Snapshot) -> Iterator[Found]:
    ours = {name for component in seen.components or () for name in component.leases}
    known = {names.CORE_MANAGER, *(names.provider_manager(provider) for provider in seen.registered)}
    for name in sorted((known - ours) & set(seen.leases or {})):
        if not _lapsed(seen, name):
            holder = dig((seen.leases or {})[name], "spec", "holderIdentity")
            yield Found(f"Lease/{seen.namespace}/{name}", f"{holder} renews it, and no Deployment here runs it.")


@error(
    "ARW0211",
    "Another installation works on the same deployments",
    why="Leases are of one namespace: two cores, or two of one provider, fight over every deployment that both watch.",
    do="Take one of the two away (helm uninstall), or give each namespaces of its own (in charts: watchNamespaces).",
    needs=("components", "elsewhere"),
)
def _rivals(seen: Snapshot) -> Iterator[Found]:
    for one, other in rivals(seen.components or (), seen.elsewhere or ()):
        yield Found(other.name, f"It works on {other.scope}, {one.key.name} on {one.scope}.")


def rivals(
    mine: Iterable[ProcessDeployment], others: Iterable[ProcessDeployment]
) -> Iterator[tuple[ProcessDeployment, ProcessDeployment]]:
    """Pairs of `mine` and `others`, in different namespaces, that do the same work on the same deployments.

    A Lease is in one namespace, so it does not prevent the two from working at the same time.
    """
    for one, other in product(mine, others):
        meet = not one.watched or not other.watched or set(one.watched) & set(other.watched)
        alike = set(one.leases) & set(other.leases)
        if one.known and other.known and one.key.namespace != other.key.namespace and meet and alike:
            yield one, other


_UNFINISHED = {
    "pending-install": "helm uninstall {name} --namespace {namespace}, then install it again",
    "pending-upgrade": "helm rollback {name} --namespace {namespace}, then upgrade it again",
    "pending-rollback": "helm rollback {name} --namespace {namespace}",
    "uninstalling": "helm uninstall {name} --namespace {namespace}",
    "failed": "helm history {name} --namespace {namespace} says why; then upgrade it again, or helm rollback {name}",
}
"""Statuses of a Helm release that only another command ends, with that command."""


@error(
    "ARW0214",
    "A release of Helm was left halfway",
    why="Part of what the chart has may be there and part not, and helm refuses the next upgrade of a release that is "
    "pending.",
    do="If no helm works on it at this moment: helm rollback RELEASE, and upgrade again; one that is pending-install "
    "is uninstalled first.",
    needs=("components", "releases"),
)
def _halfway(seen: Snapshot) -> Iterator[Found]:
    ours = {component.release for component in seen.components or ()}
    newest: dict[str, tuple[int, Resource]] = {}
    for release in seen.releases or ():
        name, revision = labels_of(release).get("name", ""), _number(labels_of(release).get("version", ""))
        if name and (name in ours or name.startswith("airunway")) and revision >= newest.get(name, (0, {}))[0]:
            newest[name] = revision, release
    for name, (revision, release) in sorted(newest.items()):
        status, modified = labels_of(release).get("status", ""), labels_of(release).get("modifiedAt", "")
        if status not in _UNFINISHED:
            continue
        since = parse_time(dig(release, "metadata", "creationTimestamp"))
        if modified.isdecimal() and len(modified) < 12:  # seconds since 1970
            since = datetime.fromtimestamp(int(modified), UTC)
        age = f" since {human_duration(seen.now - since)}" if since is not None else ""
        command = _UNFINISHED[status].format(name=name, namespace=key_of(release).namespace)
        yield Found(
            named("Secret", release),
            f"Revision {revision} of release {name} is {status}{age}.",
            do=f"If no helm works on it at this moment: {command}",
        )
