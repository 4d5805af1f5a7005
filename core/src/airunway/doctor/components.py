"""The processes of AI Runway that a cluster runs, read out of its Deployments. Pure.

A chart may call them anything: what a process is says its command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from airunway.api import names
from airunway.resource import ObjectKey, Resource, annotations_of, condition_of, dig, key_of, labels_of

__all__ = ["GUARDED", "OURS", "Component", "components_in", "pod_trouble", "rivals"]

OURS = "app.kubernetes.io/part-of=airunway"
"""The label by which Deployments of our charts are found in all namespaces."""

GUARDED = f"{names.GROUP}/guarded"
"""Annotation of Deployments whose chart brought guards for their account (`airunway.rbac.admission_policies`).
The value is the namespace of the core that these name."""

_SWITCHES = frozenset(
    {
        "all",
        "enable-provider-selector",
        "guard-parameters",
        "leader-elect",
        "webhook-access-review",
        "webhook-access-review-pods",
        "webhook-manage-configuration",
    }
)
"""Options that take no value, unless by ``=``."""

_VERSION_LABEL = "app.kubernetes.io/version"
_RELEASE = "meta.helm.sh/release-name"
_LAST_WORDS = 300
"""Characters of the end of what a container has said before it ended."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """A Deployment that runs the core, providers, or both.

    `every` says that it runs whatever providers are installed in its image, `providers` those that it names. `options`
    are those of its command line, without their dashes; of a switch ``true`` or ``false``. `settings` are the texts of
    all its ``--set``. `version` may be empty.
    """

    key: ObjectKey
    core: bool
    every: bool = False
    providers: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()
    account: str = "default"
    wanted: int = 1
    available: int = 0
    version: str = ""
    trouble: str = ""
    """What the Deployment itself says is wrong with it."""
    overdue: bool = False
    """Whether its pods did not get ready in the time that the Deployment gives them (``progressDeadlineSeconds``)."""
    selector: Mapping[str, str] = field(default_factory=dict)
    """The labels of its pods."""
    release: str = ""
    """The release of Helm that it belongs to."""
    guarded: str = ""
    """Not empty where it was installed with ValidatingAdmissionPolicies for its account, as charts say by an
    annotation: the namespace of the core."""

    @property
    def user(self) -> str:
        """How the API server knows its account."""
        return f"system:serviceaccount:{self.key.namespace}:{self.account}"

    @property
    def name(self) -> str:
        """As an object of a finding."""
        return f"Deployment/{self.key.namespace}/{self.key.name}"

    def runs(self, provider: str) -> bool:
        return self.every or provider in self.providers

    def leases(self, registered: Sequence[str]) -> list[str]:
        """The names of the Leases of its parts; `registered` are the providers that are there to be run."""
        providers = registered if self.every else self.providers
        return [names.CORE_MANAGER] * self.core + [names.provider_manager(provider) for provider in providers]

    def has(self, pod: Resource) -> bool:
        """Whether a pod of its namespace is its own."""
        return bool(self.selector) and self.selector.items() <= labels_of(pod).items()

    def on(self, switch: str) -> bool:
        return self.options.get(switch) == "true"

    @property
    def watched(self) -> tuple[str, ...]:
        """The namespaces that it watches; none: all."""
        return tuple(name for part in self.options.get("watch-namespaces", "").split(",") if (name := part.strip()))

    @property
    def scope(self) -> str:
        """The same in words."""
        return ", ".join(self.watched) or "all namespaces"


def rivals(mine: Iterable[Component], others: Iterable[Component]) -> Iterator[tuple[Component, Component]]:
    """Pairs of `mine` and `others` that do the same work on the same deployments, out of two namespaces.

    Leases are of a namespace each: nothing keeps the two from working at the same time.
    """
    for one, other in product(mine, others):
        meet = not one.watched or not other.watched or set(one.watched) & set(other.watched)
        if one.key.namespace != other.key.namespace and meet and _alike(one, other):
            yield one, other


def _alike(one: Component, other: Component) -> bool:
    if one.core and other.core:
        return True
    if one.every or other.every:
        return all(each.every or each.providers for each in (one, other))
    return bool(set(one.providers) & set(other.providers))


def components_in(deployments: Sequence[Resource]) -> list[Component]:
    """Those of the Deployments that run a part of AI Runway."""
    return [found for deployment in deployments if (found := _component(deployment)) is not None]


def _component(deployment: Resource) -> Component | None:
    pod = dig(deployment, "spec", "template", "spec", default={})
    for container in dig(pod, "containers", default=[]):
        words = _words(container, namespace=key_of(deployment).namespace)
        if (command := _command(words, container)) is None:
            continue
        positional, options, settings = _parsed(command[1])
        return Component(
            key=key_of(deployment),
            core=command[0] in ("controller", "run"),
            every=command[0] == "run" or options.get("all") == "true",
            providers=tuple(positional) if command[0] == "provider run" else (),
            options=options,
            settings=tuple(settings),
            account=str(dig(pod, "serviceAccountName", default="default")),
            wanted=int(dig(deployment, "spec", "replicas", default=1)),
            available=int(dig(deployment, "status", "availableReplicas", default=0)),
            version=_version(deployment, container),
            trouble=_trouble(deployment),
            overdue=(condition_of(deployment, "Progressing") or {}).get("status") == "False",
            selector=dig(deployment, "spec", "selector", "matchLabels", default={}),
            release=annotations_of(deployment).get(_RELEASE, ""),
            guarded=annotations_of(deployment).get(GUARDED, ""),
        )
    return None


def _words(container: Resource, *, namespace: str) -> list[str]:
    """Command and arguments, with ``$(NAME)`` as the kubelet fills it in, as far as it can be known here."""
    values = {"POD_NAMESPACE": namespace}
    for entry in dig(container, "env", default=[]):
        if isinstance(entry.get("value"), str):
            values[str(entry.get("name"))] = entry["value"]
    words = [str(word) for part in ("command", "args") for word in dig(container, part, default=[])]
    for name, value in values.items():
        words = [word.replace(f"$({name})", value) for word in words]
    return words


def _command(words: Sequence[str], container: Resource) -> tuple[str, Sequence[str]] | None:
    """Which of our commands it is, and the words after it."""
    ours = "airunway" in str(container.get("image")) or any("airunway" in word for word in words)
    for position, word in enumerate(words if ours else ()):
        if word in ("controller", "run"):
            return word, words[position + 1 :]
        if word == "provider" and list(words[position + 1 : position + 2]) == ["run"]:
            return "provider run", words[position + 2 :]
    return None


def _parsed(words: Sequence[str]) -> tuple[list[str], dict[str, str], list[str]]:
    """Positional words, options by name, and the one that may be repeated."""
    positional: list[str] = []
    options: dict[str, str] = {}
    settings: list[str] = []
    rest: Iterator[str] = iter(words)
    for word in rest:
        if not word.startswith("--"):
            positional.append(word)
            continue
        name, separator, value = word[2:].partition("=")
        if name == "set":
            settings.append(value if separator else next(rest, ""))
        elif separator:
            options[name] = value.lower() if name in _SWITCHES else value
        elif name in _SWITCHES:
            options[name] = "true"
        elif name.startswith("no-") and name[3:] in _SWITCHES:
            options[name[3:]] = "false"
        else:
            options[name] = next(rest, "")
    return positional, options, settings


def _version(deployment: Resource, container: Resource) -> str:
    """The release that runs: the tag of the image, or what a label says where the image is given by digest."""
    image = str(container.get("image")).partition("@")[0]
    name, _, tag = image.rpartition(":")
    if name and "/" not in tag:
        return tag.removeprefix("v")
    labels = {**labels_of(deployment), **(dig(deployment, "spec", "template", "metadata", "labels") or {})}
    return str(labels.get(_VERSION_LABEL, ""))


def _trouble(deployment: Resource) -> str:
    """What its conditions say is wrong: the pods cannot be made, or do not come up."""
    bad = {"Available": "False", "Progressing": "False", "ReplicaFailure": "True"}
    said = [
        str(condition.get("message"))
        for condition in dig(deployment, "status", "conditions", default=[])
        if bad.get(str(condition.get("type"))) == condition.get("status") and condition.get("message")
    ]
    return said[-1] if said else ""


def pod_trouble(pod: Resource) -> str:
    """What keeps a pod from being ready, in the cluster's words; empty where it says nothing."""
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
    """Why a container does not run, or has not got ready since it was started again."""
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
