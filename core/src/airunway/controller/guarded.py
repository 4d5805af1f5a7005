"""Maintains the parameters of the providers' guards: where each provider has deployments (docs/admission.md,
"Providers").

A policy in the API server sees one request and no other objects. So the leader writes to each InferenceProviderConfig
the namespaces with deployments of that provider, each with the service accounts that the deployments name and with
what they use by leave of a policy (``tolerations=*``, `notes_of`); the provider's guards read them there. It does so
before the verdict on a deployment: providers wait for the verdict, so their first write is allowed. Entries that are no
longer needed are removed later, so that there is a write per change of the set and not per deployment.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic
from typing import TypeAlias

from airunway.api import names
from airunway.kinds import INFERENCE_PROVIDER_CONFIG
from airunway.kube import AnyReflector, Client, KubeError, NotFound, is_retryable
from airunway.kube.packing import unpacked as whole
from airunway.resource import ObjectKey, Resource, dig, finalizers_of, is_true, key_of
from airunway.validation.uses import notes_of

log = logging.getLogger(__name__)

REST = 30.0
"""Seconds between two searches for entries that are no longer needed."""

KEPT = 60.0
"""Seconds for which an entry stays after a pass has asked for it, because the caches lag."""

MAX_ACCOUNTS = 2048
"""Maximum characters of a namespace's entries: an object holds about a million, and one tenant must not use them all.
The guards refuse the pods of further accounts and uses, and the deployment reports it.
"""

_ACCOUNT = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?", re.ASCII)

Namespaces: TypeAlias = Mapping[str, frozenset[str]]
"""Service accounts and uses by namespace."""


def needed(deployments: Iterable[Resource], known: Mapping[str, Namespaces]) -> dict[str, dict[str, frozenset[str]]]:
    """The namespaces of each provider's deployments, with the service accounts that may run their pods, and what the
    pods may use.

    An entry is added once the core has accepted the deployment. It stays (if `known`) while a deployment needs it:
    running pods must not lose their account because the spec became invalid for another reason.
    """
    found: dict[str, dict[str, frozenset[str]]] = {}
    for deployment in deployments:
        namespace, asked = key_of(deployment).namespace, asked_by(deployment)
        valid = is_true(deployment, "Validated")
        for provider in providers_of(deployment):
            entries = found.setdefault(provider, {}).setdefault(namespace, frozenset())
            if asked:
                kept = asked if valid else asked & known.get(provider, {}).get(namespace, frozenset())
                found[provider][namespace] = entries | kept
    return found


def providers_of(deployment: Resource) -> set[str]:
    """The provider that a deployment is assigned to, and those whose finalizers it has."""
    holders = map(names.provider_of_finalizer, finalizers_of(deployment))
    return {provider for provider in (dig(deployment, "status", "provider", "name"), *holders) if provider}


def asked_by(deployment: Resource) -> frozenset[str]:
    """The service account that a deployment names, if it is a valid name, and its `notes_of`."""
    spec = whole(deployment).get("spec")
    found = notes_of(spec) if isinstance(spec, dict) else frozenset()
    account = dig(spec, "serviceAccountName")
    named = isinstance(account, str) and _ACCOUNT.fullmatch(account)
    return found | {str(account)} if named else found


def noted(config: Resource | None) -> dict[str, frozenset[str]]:
    """The namespaces and their entries on a provider's InferenceProviderConfig."""
    found = dig(config, "status", "namespaces", default={}) or {}
    return {namespace: frozenset(str(accounts).split()) for namespace, accounts in found.items()}


class GuardParameters:
    """Keeps ``status.namespaces`` of all `configs`.

    `home` is our own namespace. Several cores may watch different `namespaces`; each removes only its own entries.
    `deployments` returns all deployments.
    """

    def __init__(
        self,
        client: Client,
        *,
        home: str,
        configs: AnyReflector,
        deployments: Callable[[], Iterable[Resource]],
        namespaces: Collection[str] = (),
    ) -> None:
        self._client = client
        self._manager = names.guard_manager(home)
        self._configs = configs
        self._deployments = deployments
        self._namespaces = frozenset(namespaces)
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._written: dict[str, Namespaces] = {}
        self._asked: dict[tuple[str, str, str], float] = {}
        self._problem = ""
        configs.add_handler(self._on_change)

    def _on_change(self, key: ObjectKey, _old: Resource | None, new: Resource | None) -> None:
        if self._ours(noted(new)) != self._written.get(key.name):
            self._changed.set()

    def _ours(self, found: Namespaces) -> dict[str, frozenset[str]]:
        return {key: value for key, value in found.items() if not self._namespaces or key in self._namespaces}

    async def include(self, deployment: Resource, *, providers: Collection[str], valid: bool) -> None:
        """Add the namespace of a deployment to the entries of `providers`, and if it is `valid` what it asks for, too.

        Returns once they are written. A permanent error is logged. Raises KubeError for a transient one.
        """
        namespace, asked = key_of(deployment).namespace, asked_by(deployment) if valid else frozenset()
        now = monotonic()
        self._asked |= {(provider, namespace, each): now for provider in providers for each in (asked or {""})}
        missing = [each for each in providers if each in self._registered() and not self._has(each, namespace, asked)]
        if not missing:
            return
        async with self._lock:
            for provider in missing:
                if not self._has(provider, namespace, asked):  # otherwise another pass has written it
                    await self._write(provider, self._needed(), prune=False)

    def _registered(self) -> set[str]:
        return {key.name for key, _ in self._configs.items()}

    def _has(self, provider: str, namespace: str, asked: frozenset[str]) -> bool:
        known = self._written.get(provider, {}).get(namespace)
        return known is not None and all(each in known or not _fits(known, each) for each in asked)

    def begin(self) -> None:
        """To be called when a replica starts to lead, before its first pass: another replica may have led before."""
        self._written.clear()

    async def run(self) -> None:
        """The leader's part, until cancelled: restore lost entries and remove those that are no longer needed."""
        while True:
            self._changed.clear()
            async with self._lock:
                found = self._needed()
                for provider in sorted(self._registered()):
                    try:
                        await self._write(provider, found, prune=True)
                    except KubeError as error:
                        log.info("the guard parameters of provider %s are written later: %s", provider, error)
            try:
                await asyncio.wait_for(self._changed.wait(), REST)
            except TimeoutError:
                continue

    def _needed(self) -> dict[str, dict[str, frozenset[str]]]:
        return needed(self._deployments(), {provider: self._known(provider) for provider in self._registered()})

    def _known(self, provider: str) -> dict[str, frozenset[str]]:
        live = self._configs.get(ObjectKey("", provider))
        return _united(noted(live), self._written.get(provider, {}))  # the watch may lag behind our own writes

    async def _write(self, provider: str, found: Mapping[str, Namespaces], *, prune: bool) -> None:
        """Write the needed entries; with `prune`, remove all others of ours. Raises KubeError for a transient error."""
        live = noted(self._configs.get(ObjectKey("", provider)))
        known = self._ours(self._known(provider))
        namespaces = _united(found.get(provider, {}), self._lately(provider), {} if prune else known)
        data = {key: _text(namespaces[key], known.get(key, frozenset())) for key in sorted(namespaces)}
        after = {namespace: frozenset(text.split()) for namespace, text in data.items()}
        if self._ours(live) != after or self._written.get(provider, after) != after:
            body: Resource = {
                "apiVersion": INFERENCE_PROVIDER_CONFIG.api_version,
                "kind": INFERENCE_PROVIDER_CONFIG.kind,
                "metadata": {"name": provider},
            }
            if data:  # an apply that removes the last entry of a map leaves null, which the CRD refuses
                body["status"] = {"namespaces": data}
            try:
                await self._client.apply(
                    INFERENCE_PROVIDER_CONFIG, body, manager=self._manager, force=True, subresource="status"
                )
            except NotFound:
                return  # its next registration triggers a write
            except KubeError as error:
                if is_retryable(error):
                    raise
                self._report(provider, error)
        self._written[provider] = after

    def _lately(self, provider: str) -> dict[str, set[str]]:
        """The entries by namespace that passes asked for within the last `KEPT` seconds."""
        since = monotonic() - KEPT
        self._asked = {asked: moment for asked, moment in self._asked.items() if moment >= since}
        found: dict[str, set[str]] = {}
        for whose, namespace, account in self._asked:
            if whose == provider:
                found.setdefault(namespace, set()).update(filter(None, [account]))
        return found

    def _report(self, provider: str, error: KubeError) -> None:
        if str(error) != self._problem:  # logged once, not at every attempt
            log.error(
                "status.namespaces of InferenceProviderConfig %s cannot be written, so that the guards refuse what the "
                "provider writes (are the CRDs of this release installed?): %s",
                provider,
                error,
            )
        self._problem = str(error)


def _united(*parts: Mapping[str, Collection[str]]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for part in parts:
        for namespace, accounts in part.items():
            found[namespace] = found.get(namespace, frozenset()) | frozenset(accounts)
    return found


def _text(accounts: Collection[str], before: Collection[str]) -> str:
    """The accounts as one text, as many as fit; those already written come first."""
    taken: list[str] = []
    for account in sorted(accounts, key=lambda account: (account not in before, account)):
        if _fits(taken, account):
            taken.append(account)
    return " ".join(sorted(taken))


def _fits(taken: Collection[str], account: str) -> bool:
    return len(" ".join(taken)) + 1 + len(account) <= MAX_ACCOUNTS
