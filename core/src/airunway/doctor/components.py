"""Finds the processes of AI Runway in a cluster, from its Deployments and the settings published on Leases. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from airunway.api import names
from airunway.process.effective_settings import PART_OF, EffectiveSettings
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, dig, key_of, labels_of

__all__ = ["GUARDED", "OURS", "ProcessDeployment", "components_in", "pod_trouble", "rivals"]

OURS = "=".join(PART_OF)
"""The label selector of our charts' Deployments and our processes' Leases, in all namespaces."""

GUARDED = f"{names.GROUP}/guarded"
"""Annotation of a Deployment whose chart also installs guards for its account (`rbac.admission_policies`). Its value is
the namespace of the core that the guards name.
"""

_NAME_LABEL = "app.kubernetes.io/name"
"""Label of our charts' Deployments: the field manager of the part that it runs."""
_VERSION_LABEL = "app.kubernetes.io/version"
_RELEASE = "meta.helm.sh/release-name"
_LAST_WORDS = 300
"""Maximum characters from the end of a container's termination message."""


@dataclass(frozen=True, kw_only=True)
class ProcessDeployment:
    """A Deployment that runs the core, providers, or both."""

    key: ObjectKey
    core: bool
    providers: tuple[str, ...] = ()
    """The providers that it runs."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Its effective options; empty if it has published none."""
    account: str = "default"
    wanted: int = 1
    available: int = 0
    version: str = ""
    """The release that runs; if it has published none, the release of its chart. May be empty."""
    trouble: str = ""
    """The error in the Deployment's own conditions."""
    overdue: bool = False
    """Whether its pods did not become ready within the Deployment's ``progressDeadlineSeconds``."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """The labels of its pods."""
    release: str = ""
    """Its Helm release."""
    guarded: str = ""
    """The namespace of the core if its chart has installed ValidatingAdmissionPolicies for its account (see `GUARDED`);
    otherwise empty.
    """

    @property
    def user(self) -> str:
        """The name of its account for the API server."""
        return f"system:serviceaccount:{self.key.namespace}:{self.account}"

    @property
    def name(self) -> str:
        """Its name in a finding."""
        return f"Deployment/{self.key.namespace}/{self.key.name}"

    def runs(self, provider: str) -> bool:
        return provider in self.providers

    @property
    def known(self) -> bool:
        """Whether it has published its settings."""
        return bool(self.options)

    @property
    def leases(self) -> list[str]:
        """The names of the Leases of its parts."""
        on = {names.GATEWAY_MANAGER: ("gateway", "auto"), names.MODEL_CACHE_MANAGER: ("model-cache", "on")}
        parts = [manager for manager, (option, value) in on.items() if self.option(option) == value]
        core = [names.CORE_MANAGER, *parts] if self.core else []
        return core + [names.provider_manager(provider) for provider in self.providers]

    def has(self, pod: Resource) -> bool:
        """Whether a pod of its namespace belongs to it."""
        return bool(self.selector) and self.selector.items() <= labels_of(pod).items()

    def on(self, switch: str) -> bool:
        return self.option(switch) == "true"

    def option(self, name: str) -> str:
        """The value of an option; empty if it is not set, or not published."""
        return self.options.get(name, "")

    @property
    def watched(self) -> tuple[str, ...]:
        """The namespaces that it watches; empty: all."""
        return tuple(name for part in self.options.get("watch-namespaces", "").split(",") if (name := part.strip()))

    @property
    def scope(self) -> str:
        """The watched namespaces as text."""
        return ", ".join(self.watched) or "all namespaces"


def rivals(
    mine: Iterable[ProcessDeployment], others: Iterable[ProcessDeployment]
) -> Iterator[tuple[ProcessDeployment, ProcessDeployment]]:
    """Pairs of `mine` and `others`, in different namespaces, that do the same work on the same deployments.

    A Lease is in one namespace, so it does not prevent the two from working at the same time.
    """
    for one, other in product(mine, others):
        meet = not one.watched or not other.watched or set(one.watched) & set(other.watched)
        if one.known and other.known and one.key.namespace != other.key.namespace and meet and _alike(one, other):
            yield one, other


def _alike(one: ProcessDeployment, other: ProcessDeployment) -> bool:
    if one.core and other.core:
        return True
    return bool(set(one.providers) & set(other.providers))


def components_in(deployments: Sequence[Resource], published: Sequence[EffectiveSettings]) -> list[ProcessDeployment]:
    """The Deployments that run a part of AI Runway, found by their chart's label or by what their pods publish."""
    by_key = {key_of(deployment): deployment for deployment in deployments}
    running: dict[ObjectKey, list[EffectiveSettings]] = {}
    for each in published:
        homes = [key for key in by_key if key.namespace == each.namespace and each.pod.startswith(f"{key.name}-")]
        if homes:
            running.setdefault(max(homes, key=lambda key: len(key.name)), []).append(each)
    found = (_component(deployment, running.get(key, [])) for key, deployment in by_key.items())
    return [component for component in found if component is not None]


def _component(deployment: Resource, published: Sequence[EffectiveSettings]) -> ProcessDeployment | None:
    labels = labels_of(deployment)
    # Released Leases are ignored if any is held: their parts have ended. If none is held, the whole process has ended.
    published = [each for each in published if each.held] or published
    managers = {each.manager for each in published}
    if PART_OF in labels.items():
        managers.add(labels.get(_NAME_LABEL, ""))
    core = names.CORE_MANAGER in managers
    providers = tuple(sorted(filter(None, map(names.provider_of_manager, managers))))
    if not core and not providers:
        return None
    pod = dig(deployment, "spec", "template", "spec", default={})
    said = next((each for each in published if each.manager == names.CORE_MANAGER), None)
    # A part publishes only its own options, which are no answer for the whole process.
    parts = (names.GATEWAY_MANAGER, names.MODEL_CACHE_MANAGER)
    said = said or next((each for each in published if each.manager not in parts), None)
    return ProcessDeployment(
        key=key_of(deployment),
        core=core,
        providers=providers,
        options=said.options if said is not None else {},
        account=str(dig(pod, "serviceAccountName", default="default")),
        wanted=int(dig(deployment, "spec", "replicas", default=1)),
        available=int(dig(deployment, "status", "availableReplicas", default=0)),
        version=said.version if said is not None else str(labels.get(_VERSION_LABEL, "")),
        trouble=_trouble(deployment),
        overdue=(condition_of(deployment, "Progressing") or {}).get("status") == "False",
        selector=dig(deployment, "spec", "selector", "matchLabels", default={}),
        release=annotations_of(deployment).get(_RELEASE, ""),
        guarded=annotations_of(deployment).get(GUARDED, ""),
    )


def _trouble(deployment: Resource) -> str:
    """The error in its conditions: the pods cannot be created, or do not become ready."""
    bad = {"Available": "False", "Progressing": "False", "ReplicaFailure": "True"}
    said = [
        str(condition.get("message"))
        for condition in dig(deployment, "status", "conditions", default=[])
        if bad.get(str(condition.get("type"))) == condition.get("status") and condition.get("message")
    ]
    return said[-1] if said else ""


def pod_trouble(pod: Resource) -> str:
    """Why a pod is not ready, in the cluster's own words; empty if unknown."""
    said = next(filter(None, map(_container_trouble, _containers(pod))), "")
    if said:
        return f"Pod {key_of(pod).name}: {said}."
    for condition in dig(pod, "status", "conditions", default=[]):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False" and condition.get("message"):
            return f"Pod {key_of(pod).name}: {condition['message']}"
    return ""


def _containers(pod: Resource) -> list[Resource]:
    parts = ("initContainerStatuses", "containerStatuses")
    return [each for part in parts for each in dig(pod, "status", part, default=[])]


def _container_trouble(container: Resource) -> str:
    """Why a container does not run, or has not become ready since its last restart."""
    waiting = dig(container, "state", "waiting", default={})
    ended = dig(container, "state", "terminated") or dig(container, "lastState", "terminated")
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        said = [str(text) for text in (waiting["reason"], waiting.get("message")) if text]
        if ended is not None:
            said.append(f"its last run ended with {_end_of(ended)}")
        return ": ".join(said)
    if ended is None or container.get("ready") is True or ended.get("exitCode") == 0:
        return ""
    return f"its last run ended with {_end_of(ended)}; it was started again {container.get('restartCount', 0)} times"


def _end_of(ended: Resource) -> str:
    words = " ".join(str(ended.get("message") or "").split())
    if len(words) > _LAST_WORDS:
        words = f"…{words[-_LAST_WORDS:]}"
    last = f"{ended.get('reason', '')} {words}".strip()
    return f"exit code {ended.get('exitCode')}{f' ({last})' if last else ''}"
