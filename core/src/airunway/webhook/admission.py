"""Decides whether a user's creation or change of a ModelDeployment is admitted.

The rules of the object itself come first (an API server without CEL has not applied them), then the same rules for its
effective spec where it names a template. Then the cluster is checked: the named provider is registered, its upstream is
installed, it offers what is requested, the namespace's policy allows it, and the user could create the provider's own
kind. The messages are those that the status would have without a webhook.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from airunway.api.base import ParseError
from airunway.api.modeldeployment import KIND, PLURAL, defaulted_spec
from airunway.api.names import GROUP, PAUSED
from airunway.kube import KubeError
from airunway.resource import ObjectKey, Resource, annotations_of, canonical_json, dig, is_deleting, key_of
from airunway.selection import (
    ProviderFacts,
    Request,
    granted,
    not_installed,
    not_registered,
    provider_for,
    request_of,
    unsupported,
)
from airunway.templates import Expansion
from airunway.validation import Violation, bounded_violations, validate, warnings
from airunway.validation.policy import Grants, Policy, violations
from airunway.webhook.access import AccessReviewer, User

__all__ = ["Admission", "ClusterView", "Denial", "ReviewResult", "User", "at_once"]

log = logging.getLogger(__name__)

FORBIDDEN = "FieldValueForbidden"


class ClusterView(Protocol):
    """The facts about the cluster that admission needs; the core's caches."""

    @property
    def selector(self) -> bool:
        """Whether the built-in provider selection is on."""
        ...

    @property
    def policy(self) -> Policy: ...

    def watches(self, namespace: str) -> bool:
        """Whether the core watches deployments in that namespace."""
        ...

    def providers(self) -> Mapping[str, ProviderFacts]: ...

    def with_template(self, deployment: Resource) -> Expansion:
        """The deployment with what its template gives, as far as that is known."""
        ...

    async def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The namespace's labels. Raises KubeError."""
        ...


@dataclass(frozen=True, kw_only=True)
class Denial:
    """A refusal, as the fields of a ``metav1.Status``."""

    code: int
    reason: str
    message: str
    causes: tuple[Violation, ...] = ()

    def status(self, key: ObjectKey) -> Resource:
        """The status that the API server passes on to the user; its message names the object, as in Kubernetes."""
        causes = [{"reason": c.reason, "field": c.path, "message": c.message} for c in self.causes]
        details = {"group": GROUP, "kind": KIND, "name": key.name, "causes": causes}
        return {
            "status": "Failure",
            "code": self.code,
            "reason": self.reason,
            "message": self._naming(key.name),
            "details": details,
        }

    def _naming(self, name: str) -> str:
        if self.reason == "Invalid":
            return f'{KIND}.{GROUP} "{name}" is invalid: {self.message}'
        if self.reason == "Forbidden":
            return f'{PLURAL}.{GROUP} "{name}" is forbidden: {self.message}'
        return self.message


@dataclass(frozen=True, kw_only=True)
class ReviewResult:
    """The result of a review; the warnings are shown with and without a refusal."""

    refusal: Denial | None = None
    warnings: tuple[str, ...] = ()


Run = Callable[..., Awaitable[Any]]


async def at_once(function: Callable[..., Any], *args: Any) -> Any:
    """Run `function` in the event loop, which is fine for small objects."""
    return function(*args)


class Admission:
    """Reviews objects by the facts of `view`.

    `access` None: no check whether the user may create the provider's kind. `pods` None: no check whether the user may
    create pods.
    """

    def __init__(
        self,
        view: ClusterView,
        *,
        access: AccessReviewer | None,
        pods: AccessReviewer | None = None,
        clock: Callable[[], datetime],
    ) -> None:
        self._view = view
        self._access = access
        self._pods = pods
        self._clock = clock

    async def review(self, obj: Resource, *, old: Resource | None, user: User, run: Run = at_once) -> ReviewResult:
        """The result for `obj`, which is new (`old` None) or replaces `old`. Raises nothing but cancellation.

        `run` runs the functions whose time depends on the size of the objects.
        """
        namespace = key_of(obj).namespace
        if is_deleting(obj) or not self._view.watches(namespace):
            return ReviewResult()
        if old is not None and await run(_same_spec, obj, old):
            return ReviewResult()
        warned, found = await run(_alone, obj, old)
        if found:
            return ReviewResult(refusal=_invalid(found), warnings=warned)
        try:
            expansion = self._view.with_template(obj)
            known, origin = expansion.deployment, expansion.origin
            if expansion.problem:
                warned = (*warned, f"{expansion.problem}. The deployment is stored all the same")
            if known is not None and origin and (found := await run(validate, known)):
                return ReviewResult(refusal=_invalid(_with_origin(found, origin, obj)), warnings=warned)
            spec = obj["spec"] if known is None else known["spec"]
            # What is not known yet is judged once the template is there: by the core, as a condition.
            request = None if known is None else request_of(defaulted_spec(spec, engine=None))
            policy, labels = self._view.policy, await self._view.labels_of(namespace)
            grants = policy.grants(labels)
            pinned = dig(spec, "provider", "name") or None
            engine = dig(spec, "engine", "type") or None
            settled = pinned or dig(old or {}, "status", "provider", "name")
            facts = self._view.providers()
            found = [] if pinned is None else _against_pinned(pinned, facts, request, engine=engine)
            denied = violations(policy, spec, engine=engine, provider=settled, namespace_labels=labels)
            if found or denied:
                causes = _with_origin([*found, *denied], origin, obj)
                return ReviewResult(refusal=_invalid(causes, forbidden=not found), warnings=warned)
            if self._pods is not None:
                problem = await self._pods.pods_problem(user, namespace=namespace)
                if problem is not None:
                    return ReviewResult(refusal=_not_allowed("spec", problem), warnings=warned)
            if self._access is not None:
                if settled in facts:
                    candidates = [facts[settled]]
                else:
                    paused = annotations_of(obj).get(PAUSED) == "true"
                    candidates = self._candidates(spec, request, engine, grants, later=paused)
                refusal = await self._access_refusal(self._access, user, candidates, namespace)
                if refusal is not None:
                    return ReviewResult(refusal=refusal, warnings=warned)
        except (KubeError, ParseError) as error:
            log.warning("ModelDeployment %s could not be judged: %s", key_of(obj), error)
            text = f"admission cannot be decided just now, try again: {error}"
            return ReviewResult(refusal=Denial(code=500, reason="InternalError", message=text), warnings=warned)
        return ReviewResult(warnings=(*warned, *_about(settled, facts)))

    def _candidates(
        self, spec: Resource, request: Request | None, engine: str | None, grants: Grants, *, later: bool
    ) -> list[ProviderFacts]:
        """The providers that may get a deployment that names none.

        This is the one that would be selected now. If none would be (none is ready), if an external selector is used,
        or if the selection comes `later`, it is every provider that offers what is requested: the user must be allowed
        to use any of them. The same holds while it is not known what is requested (`request` None).
        """
        facts = list(self._view.providers().values())
        allowed = granted(facts, grants)
        if self._view.selector and not later and request is not None:
            name = provider_for(spec, allowed, now=self._clock())
            if name is not None:
                return [each for each in facts if each.name == name]
        return [
            each
            for each in allowed
            if not (each.explicit_only and self._view.selector)
            and (request is None or not unsupported(request, each, engine=engine))
        ]

    async def _access_refusal(
        self, access: AccessReviewer, user: User, candidates: Sequence[ProviderFacts], namespace: str
    ) -> Denial | None:
        for provider in candidates:
            if provider.upstream is None:
                continue  # it creates no kind of its own, so no right is needed
            problem = await access.problem(user, provider.upstream, namespace=namespace, provider=provider.name)
            if problem is not None:
                return _not_allowed("spec.provider.name", problem)
        return None


def _alone(obj: Resource, old: Resource | None) -> tuple[tuple[str, ...], list[Violation]]:
    """The results that need only the object: warnings and violations."""
    return tuple(warnings(obj)), validate(obj, old=old)


def _against_pinned(
    name: str, facts: Mapping[str, ProviderFacts], request: Request | None, *, engine: str | None
) -> list[Violation]:
    provider = facts.get(name)
    if provider is None:
        message = not_registered(name, facts.values())
        return [Violation(path="spec.provider.name", message=message, reason="FieldValueNotFound")]
    found = []
    if not provider.installed:
        message = not_installed(name)
        found.append(Violation(path="spec.provider.name", message=message, reason="FieldValueInvalid"))
    found += [
        Violation(path=misfit.path, message=misfit.message, reason="FieldValueInvalid")
        for misfit in (unsupported(request, provider, engine=engine) if request is not None else ())
    ]
    return found


def _with_origin(found: Sequence[Violation], origin: str, own: Resource) -> Sequence[Violation]:
    """The violations of an effective spec. Those of fields that the user has not written name the template."""
    if not origin:
        return found
    return [
        each
        if dig(own, *each.path.split("[", maxsplit=1)[0].split(".")) is not None
        else replace(each, message=f"{each.message} (with {origin})")
        for each in found
    ]


def _not_allowed(path: str, problem: str) -> Denial:
    cause = Violation(path=path, message=problem, reason=FORBIDDEN)
    return Denial(code=403, reason="Forbidden", message=str(cause), causes=(cause,))


def _invalid(found: Sequence[Violation], *, forbidden: bool = False) -> Denial:
    shown = bounded_violations(found)
    return Denial(
        code=403 if forbidden else 422,
        reason="Forbidden" if forbidden else "Invalid",
        message="; ".join(str(violation) for violation in shown),
        causes=tuple(shown),
    )


def _about(name: str | None, facts: Mapping[str, ProviderFacts]) -> list[str]:
    provider = facts.get(name or "")
    if provider is None or provider.ready:
        return []
    return [f"provider '{provider.name}' is registered but not ready: the deployment waits until it is"]


def _same_spec(obj: Resource, old: Resource) -> bool:
    """Whether the spec does not change; False for a spec that is nested too deeply to be compared."""
    try:
        return canonical_json(obj.get("spec")) == canonical_json(old.get("spec"))
    except TypeError:  # nested deeper than orjson can write (254 levels), or a number beyond 64 bits
        pass
    try:
        return bool(obj.get("spec") == old.get("spec"))
    except RecursionError:
        return False
