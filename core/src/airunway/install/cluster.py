"""Installing into a cluster: looking before the first write, applying, waiting, and taking away again."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import NamedTuple, TypeAlias

from airunway.doctor.cluster import OLDEST
from airunway.doctor.components import OURS, Component, components_in, rivals
from airunway.doctor.providers import required_kinds
from airunway.install.parts import (
    INVENTORY,
    Part,
    Reference,
    foreign_owner,
    inventory_of,
    is_definition,
    is_of_release,
    namespaces_in,
    provider_of,
    read_inventory,
    reference_of,
)
from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_DEPLOYMENT
from airunway.kube import (
    CONFIG_MAP,
    CUSTOM_RESOURCE_DEFINITION,
    DEPLOYMENT,
    NAMESPACE,
    ApiError,
    Client,
    Forbidden,
    Kind,
    KubeError,
    NotFound,
)
from airunway.resource import ObjectKey, Resource, condition_of, dig, is_true, key_of
from airunway.upgrades.ours import harms_in

__all__ = ["MANAGER", "Installer", "Inventory", "Progress"]

MANAGER = "airunway-install"
"""The field manager of everything that the command applies."""

_LOOK_AGAIN = 0.5
_SHOWN = 3
_AT_ONCE = 16
"""Requests that are on their way at the same time."""

Inventory: TypeAlias = Mapping[str, Sequence[Reference]]
"""What was applied, by part."""

_REVIEW = Kind("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", namespaced=False)


class _Refusal(NamedTuple):
    """Why one object cannot be applied; alike for many."""

    of: Reference
    problem: str
    do: str


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a part is: `done` once nothing more is waited for; `text` says what there is."""

    part: str
    text: str
    done: bool


class Installer:
    """What is done to one cluster, in one namespace. Every method raises KubeError."""

    def __init__(self, client: Client, *, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._kinds: dict[tuple[str, str], Kind | None] = {}

    async def inventory(self) -> Inventory:
        """What is installed in the namespace by this command, by part."""
        return read_inventory(await self._get(CONFIG_MAP, ObjectKey(self._namespace, INVENTORY)))

    # ------------------------------------------------------------------------------------------ before the first write

    async def obstacles(self, parts: Sequence[Part], *, releases: bool = False) -> list[str]:
        """Everything that speaks against applying these parts, as sentences. Nothing is written.

        `releases`: each part is to be a release of Helm, whose objects are then nobody else's.
        """
        version = await self._client.version()
        if version < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            return [f"the cluster runs Kubernetes {version[0]}.{version[1]}; AI Runway needs {oldest} or newer"]
        if others := namespaces_in(parts) - {self._namespace}:
            written = ", ".join(sorted(others))
            return [f"the manifests are for the namespace {written}: name that, or render them for {self._namespace}"]
        if missing := "; ".join(await self._forbidden(parts, releases=releases)):
            return [f"you may not {missing}: an administrator has to do it, or to grant it"]
        if harms := [str(harm) for harm in await harms_in(self._client, _definitions(parts))]:
            return harms
        return [*await self._rivals(parts), *await self._refused(parts, releases=releases)]

    async def _forbidden(self, parts: Sequence[Part], *, releases: bool) -> list[str]:
        wanted = {
            (group, plural, key_of(obj).namespace)
            for part in parts
            for obj in part.objects
            for group, plural in [await self._resource_of(obj)]
        }
        wanted |= {("", "secrets" if releases else "configmaps", self._namespace)}  # where it is noted
        namespaces = ("", "namespaces", "")
        with suppress(Forbidden):  # that is told as well
            if await self._get(NAMESPACE, ObjectKey("", self._namespace)) is None:
                wanted |= {namespaces}
        asked = sorted(
            {(*each, verb) for each in wanted for verb in ("get", "create", "patch")} | {(*namespaces, "get")}
        )
        answers = await asyncio.gather(*(self._may(*each) for each in asked))
        missing: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
        for (group, plural, namespace, verb), allowed in zip(asked, answers, strict=True):
            if not allowed:
                missing[group, plural, namespace].append(verb)
        return [_right(verbs, *what) for what, verbs in missing.items()]

    async def _may(self, group: str, plural: str, namespace: str, verb: str) -> bool:
        attributes = {"verb": verb, "group": group, "resource": plural, "namespace": namespace}
        review = {"apiVersion": _REVIEW.api_version, "kind": _REVIEW.kind, "spec": {"resourceAttributes": attributes}}
        return bool(dig(await self._client.create(_REVIEW, review), "status", "allowed"))

    async def _refused(self, parts: Sequence[Part], *, releases: bool) -> list[str]:
        """What the API server says to a rehearsal of everything, and what belongs to other tools."""
        there = await self._get(NAMESPACE, ObjectKey("", self._namespace)) is not None
        slots = asyncio.Semaphore(_AT_ONCE)

        async def said(part: str, obj: Resource) -> _Refusal | None:
            async with slots:
                kind = await self._kind(obj)
                if kind is None or (kind.namespaced and not there):
                    return None  # what it needs is made first
                return await self._rehearsed(kind, obj, release=part if releases else "")

        found = await asyncio.gather(*(said(part.name, obj) for part in parts for obj in part.objects))
        alike: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for refusal in filter(None, found):
            alike[refusal.problem, refusal.do].append(str(refusal.of))
        return [_told(*problem, references) for problem, references in alike.items()]

    async def _rehearsed(self, kind: Kind, obj: Resource, *, release: str) -> _Refusal | None:
        live, reference = await self._get(kind, key_of(obj)), reference_of(obj)
        ours = release and live is not None and is_of_release(live, release, namespace=self._namespace)
        if live is not None and (owner := foreign_owner(live)) and not (ours and owner.is_helm):
            return _Refusal(reference, f"these belong to {owner.who}", owner.do)
        if live is not None and release and not ours:
            given = f"{release} CHART --namespace {self._namespace} --take-ownership"
            return _Refusal(
                reference,
                "these are there and belong to no release of Helm",
                f"apply with --no-helm, or hand them over (helm upgrade --install {given})",
            )
        try:
            # What helm is about to change is helm's.
            await self._client.apply(kind, obj, manager=MANAGER, force=bool(release), dry_run=True)
        except ApiError as error:
            return _Refusal(reference, f"the API server says {error}", "correct what it names, then ask again")
        return None

    async def _rivals(self, parts: Sequence[Part]) -> list[str]:
        """Installations elsewhere that do what a part that is not there yet is to do, as far as one may look."""
        found = components_in([obj for part in parts for obj in part.objects if obj.get("kind") == DEPLOYMENT.kind])
        new = [component for component in found if await self._get(DEPLOYMENT, component.key) is None]
        others: list[Component] = []
        with suppress(Forbidden):
            others = components_in(await self._client.list_all(DEPLOYMENT, label_selector=OURS)) if new else []
        there = {other.key: other for _, other in rivals(new, others)}
        return [
            f"{other.name} works on {other.scope} already, and two must not work on the same deployments: upgrade that "
            f"one (--namespace {other.key.namespace}), or take it away, or give each watchNamespaces of its own"
            for other in there.values()
        ]

    async def strangers(self) -> list[str]:
        """Core and providers in the namespace that belong to other tools, as sentences."""
        return [
            f"{component.name} belongs to {owner.who}: {owner.do}"
            for live in await self._client.list_all(DEPLOYMENT, namespace=self._namespace)
            for component in components_in([live])
            if (owner := foreign_owner(live))
        ]

    # ----------------------------------------------------------------------------------------------------- the writes

    async def apply(
        self, parts: Sequence[Part], before: Inventory, *, on_part: Callable[[str], None] = lambda _: None
    ) -> None:
        """Apply the parts, note what there is then, and take away what was installed `before` and these have not."""
        if await self._get(NAMESPACE, ObjectKey("", self._namespace)) is None:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self._namespace}}
            await self._client.apply(NAMESPACE, body, manager=MANAGER)
        wanted = {**before, **{part.name: [reference_of(obj) for obj in part.objects] for part in parts}}
        # Noted first, so that what is interrupted can be gone on with, or be taken away.
        await self._note({name: dict.fromkeys([*found, *before.get(name, ())]) for name, found in wanted.items()})
        for part in parts:
            on_part(part.name)
            for obj in part.objects:
                kind = await self._kind(obj, needed=True)
                assert kind is not None, "a kind that is needed is there or raises"
                await self._client.apply(kind, obj, manager=MANAGER)
            await self.served(part)
            await self._delete(found for found in before.get(part.name, ()) if found not in wanted[part.name])
        await self._note(wanted)

    async def _note(self, listed: Mapping[str, Iterable[Reference]]) -> None:
        await self._client.apply(
            CONFIG_MAP, inventory_of(listed, namespace=self._namespace), manager=MANAGER, force=True
        )

    async def served(self, part: Part) -> None:
        """Wait until the kinds that a part brings can be used."""
        for crd in _definitions([part]):
            while not is_true(await self._client.get(CUSTOM_RESOURCE_DEFINITION, key_of(crd)), "Established"):
                await asyncio.sleep(_LOOK_AGAIN)

    async def remove(self, names: Sequence[str], before: Inventory) -> AsyncIterator[tuple[str, list[Reference]]]:
        """Take parts of what was installed `before` away, but CRDs; each with what was deleted of it."""
        left = dict(before)
        for name in names:
            gone = await self._delete(reversed(left.pop(name)))
            if left:
                await self._note(left)
            else:
                await self._delete([Reference("", CONFIG_MAP.kind, self._namespace, INVENTORY)])
            yield name, gone

    async def remains(self, names: Sequence[str]) -> list[str]:
        """What stays when these parts are gone, as sentences."""
        kinds = (MODEL_DEPLOYMENT, INFERENCE_PROVIDER_CONFIG)
        definitions = [ObjectKey("", f"{kind.plural}.{kind.group}") for kind in kinds]
        found = [
            f"{CUSTOM_RESOURCE_DEFINITION.kind}/{key.name}"
            for key in definitions
            if await self._get(CUSTOM_RESOURCE_DEFINITION, key) is not None
        ]
        try:
            deployments = await self._client.list_all(MODEL_DEPLOYMENT)
        except NotFound:
            deployments = []
        left = Counter(str(dig(each, "status", "provider", "name", default="")) for each in deployments)
        for name in names:
            provider = provider_of(name)
            if provider and left[provider]:
                found.append(
                    f"{left[provider]} ModelDeployments of {provider}, and what serves them; nobody looks after them "
                    "then, and their deletion waits for the provider to come back"
                )
            if provider and await self._get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", provider)) is not None:
                found.append(f"InferenceProviderConfig/{provider}")
        return [*found, f"Namespace/{self._namespace}, with the Leases and the webhook's Secret in it"]

    async def _delete(self, references: Iterable[Reference]) -> list[Reference]:
        gone = []
        for reference in references:
            if reference.kind in ("CustomResourceDefinition", "Namespace"):
                continue
            kind = await self._served_kind(reference.group, reference.kind)
            try:
                if kind is not None:
                    await self._client.delete(kind, ObjectKey(reference.namespace, reference.name))
                    gone.append(reference)
            except NotFound:
                continue
        return gone

    # -------------------------------------------------------------------------------------------------------- waiting

    async def progress(self, parts: Sequence[Part], *, timeout: float) -> AsyncIterator[Progress]:
        """Each part's state whenever it changes, until all are done. Raises TimeoutError after `timeout` seconds."""
        waiting, told = {part.name: part for part in parts}, dict[str, str]()
        until = monotonic() + timeout
        while waiting:
            for part in list(waiting.values()):
                state = await self._state(part)
                if told.get(part.name) != state.text:
                    told[part.name] = state.text
                    yield state
                if state.done:
                    del waiting[part.name]
            if waiting and monotonic() > until:
                raise TimeoutError(", ".join(waiting))
            if waiting:
                await asyncio.sleep(_LOOK_AGAIN)

    async def _state(self, part: Part) -> Progress:
        for obj in part.objects:
            if (obj.get("apiVersion"), obj.get("kind")) != (DEPLOYMENT.api_version, DEPLOYMENT.kind):
                continue
            live = await self._client.get(DEPLOYMENT, key_of(obj))
            wanted = dig(live, "spec", "replicas", default=1)
            current = dig(live, "status", "observedGeneration", default=0) >= live["metadata"]["generation"]
            new = dig(live, "status", "updatedReplicas", default=0) if current else 0
            ready = min(new, dig(live, "status", "availableReplicas", default=0))
            if ready < wanted or dig(live, "status", "replicas", default=0) > wanted:
                return Progress(part=part.name, text=f"{ready} of {wanted} new pods are available", done=False)
        return await self._registration(part) if part.provider else Progress(part=part.name, text="Ready", done=True)

    async def _registration(self, part: Part) -> Progress:
        config = await self._get(INFERENCE_PROVIDER_CONFIG, ObjectKey("", part.provider))
        if config is None:
            return Progress(part=part.name, text="it has not registered yet", done=False)
        if dig(config, "status", "ready") is True:
            return Progress(part=part.name, text="Ready", done=True)
        condition = condition_of(config, "Ready") or {}
        # An upstream that is not there is nothing to wait for: the provider notices when it comes.
        missing = condition.get("reason") in ("UpstreamNotInstalled", "UnsupportedSchema")
        said = str(condition.get("message") or "it is not ready yet")
        return Progress(part=part.name, text=f"{said}.{_steps(config)}" if missing else said, done=missing)

    # ---------------------------------------------------------------------------------------------------------- kinds

    async def _kind(self, obj: Resource, *, needed: bool = False) -> Kind | None:
        """How the object is addressed; None for a kind that is not served. Raises NotFound for one that is `needed`."""
        group, _, version = str(obj.get("apiVersion")).rpartition("/")
        return await self._discovered(group, version, str(obj.get("kind")), needed=needed)

    async def _served_kind(self, group: str, kind: str) -> Kind | None:
        """A kind in the version that the API server prefers."""
        if not group:
            return await self._discovered("", "v1", kind)
        try:
            found = await self._client.get_path(f"/apis/{group}")
        except NotFound:
            return None
        return await self._discovered(group, str(dig(found, "preferredVersion", "version")), kind)

    async def _discovered(self, group: str, version: str, kind: str, *, needed: bool = False) -> Kind | None:
        base = f"/apis/{group}/{version}" if group else f"/api/{version}"
        if self._kinds.get((base, kind)) is None:
            try:
                listing = await self._client.get_path(base)
            except NotFound:
                if needed:
                    raise
                return None
            for entry in listing.get("resources") or ():
                if "/" not in str(entry.get("name")):
                    found = Kind(
                        group, version, str(entry["kind"]), str(entry["name"]), entry.get("namespaced") is True
                    )
                    self._kinds[base, found.kind] = found
        found_kind = self._kinds.get((base, kind))
        if found_kind is None and needed:
            raise KubeError(f"the API server does not serve {kind} in {base}")
        return found_kind

    async def _resource_of(self, obj: Resource) -> tuple[str, str]:
        kind = await self._kind(obj)
        group = str(obj.get("apiVersion")).rpartition("/")[0]
        return (group, kind.plural if kind is not None else f"{str(obj.get('kind')).lower()}s")

    async def _get(self, kind: Kind, key: ObjectKey) -> Resource | None:
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return None


def _definitions(parts: Sequence[Part]) -> list[Resource]:
    return [obj for part in parts for obj in part.objects if is_definition(obj)]


def _right(verbs: Sequence[str], group: str, plural: str, namespace: str) -> str:
    what = f"{', '.join(verbs)} {plural}.{group}" if group else f"{', '.join(verbs)} {plural}"
    return f"{what} in {namespace}" if namespace else what


def _told(problem: str, do: str, references: Sequence[str]) -> str:
    """One problem of many objects."""
    more = f" and {len(references) - _SHOWN} more" if len(references) > _SHOWN else ""
    return f"{problem}: {', '.join(references[:_SHOWN])}{more}. What to do: {do}"


def _steps(config: Resource) -> str:
    """How the provider has its upstream installed."""
    needed = ", ".join(f"{kind}.{group}" for group, kind, _ in required_kinds(config))
    steps = [
        str(step["command"]) for step in dig(config, "spec", "installation", "steps", default=[]) if step.get("command")
    ]
    return f" It needs {needed}: {' && '.join(steps)}" if steps else f" It needs {needed}."
