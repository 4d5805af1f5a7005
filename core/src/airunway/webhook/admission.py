"""Decides whether a user's creation or change of a ModelDeployment is admitted.

The rules of the object itself come first (an API server without CEL has not applied them), then the same rules for its
effective spec where it names a template. Then the cluster is checked: the named provider is registered, its upstream is
installed, it offers what is requested, the namespace's policy allows it, and the user could create the provider's own
kind, and the route that is asked for. The messages are those that the status would have without a webhook.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from time import monotonic
from typing import Any, Protocol

from airunway.api.base import ParseError
from airunway.api.modeldeployment import KIND, PLURAL, defaulted_spec
from airunway.api.names import GATEWAY_GROUP, GROUP, provider_finalizer, provider_of_finalizer
from airunway.api.rules import FORBIDDEN
from airunway.configs.resolution import EffectiveConfig
from airunway.kube import POD, Client, Kind, KubeError, served_resources
from airunway.resource import ObjectKey, Resource, canonical_json, dig, finalizers_of, is_deleting, key_of, text_at
from airunway.selection.choice import granted
from airunway.selection.facts import ProviderFacts, Request, UpstreamFacts, holder_of, request_of
from airunway.selection.provider import not_installed, not_registered, unsupported
from airunway.templates.expansion import Expansion
from airunway.validation import Violation, bounded_violations, validate, warnings
from airunway.validation.policy import Grants, Policy, violations

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class User:
    """The user who sent the reviewed request."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]]


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

    @property
    def makes_routes(self) -> bool:
        """Whether the gateway part is on."""
        ...

    def config_of(self, deployment: Resource) -> EffectiveConfig | None:
        """The runtime config that the deployment follows."""
        ...

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
        message = self.message
        if self.reason == "Invalid":
            message = f'{KIND}.{GROUP} "{key.name}" is invalid: {message}'
        if self.reason == "Forbidden":
            message = f'{PLURAL}.{GROUP} "{key.name}" is forbidden: {message}'
        return {
            "status": "Failure",
            "code": self.code,
            "reason": self.reason,
            "message": message,
            "details": details,
        }


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
    create pods. `routes` None: no check whether a user who asks for a route may create one.
    """

    def __init__(
        self,
        view: ClusterView,
        *,
        access: AccessReviewer | None,
        pods: AccessReviewer | None = None,
        routes: AccessReviewer | None = None,
    ) -> None:
        self._view = view
        self._access = access
        self._pods = pods
        self._routes = routes

    async def review(self, obj: Resource, *, old: Resource | None, user: User, run: Run = at_once) -> ReviewResult:
        """The result for `obj`, which is new (`old` None) or replaces `old`. Raises nothing but cancellation.

        `run` runs the functions whose time depends on the size of the objects.
        """
        if is_deleting(obj) or not self._view.watches(key_of(obj).namespace):
            return ReviewResult()
        warned: list[str] = []
        same, holders = old is not None and await run(_same_spec, obj, old), await run(_new_holders, obj, old)
        if not same:
            warned, found = await run(_alone, obj, old)
            if found:
                return ReviewResult(refusal=_invalid(found), warnings=tuple(warned))
        try:
            refusal = None if same else await self._refusal(obj, old=old, user=user, run=run, warned=warned)
            if refusal is None:
                refusal = await self._not_assignable(holders, obj, user=user, path="metadata.finalizers")
        except (KubeError, ParseError) as error:
            log.warning("ModelDeployment %s could not be judged: %s", key_of(obj), error)
            text = f"ModelDeployment {key_of(obj)} cannot be checked now: {error}; try again"
            refusal = Denial(code=500, reason="InternalError", message=text)
        return ReviewResult(refusal=refusal, warnings=tuple(warned))

    async def _refusal(
        self, obj: Resource, *, old: Resource | None, user: User, run: Run, warned: list[str]
    ) -> Denial | None:
        """What the template and the cluster say against a valid object; adds to the warnings. Raises KubeError."""
        namespace = key_of(obj).namespace
        expansion = self._view.with_template(obj)
        known, origin = expansion.deployment, expansion.origin
        if expansion.problem:
            warned.append(f"{expansion.problem}. The deployment is stored all the same")
        if known is not None and origin and (found := await run(validate, known)):
            return _invalid(_with_origin(found, origin, obj))
        spec = obj["spec"] if known is None else known["spec"]
        # What is not known yet is judged once the template is there: by the core, as a condition.
        request = None if known is None else request_of(defaulted_spec(spec, engine=None))
        policy, labels = self._view.policy, await self._view.labels_of(namespace)
        pinned = dig(spec, "provider", "name") or None
        engine = dig(spec, "engine", "type") or None
        settled: str = pinned or dig(old or {}, "status", "provider", "name") or holder_of(obj) or ""
        facts = self._view.providers()
        found = [] if pinned is None else _against_pinned(pinned, facts, request, engine=engine)
        denied = violations(policy, spec, engine=engine, provider=settled or None, namespace_labels=labels)
        if found or denied:
            return _invalid(_with_origin([*found, *denied], origin, obj), forbidden=not found)
        if self._pods is not None:
            problem = await self._pods.pods_problem(user, namespace=namespace)
            if problem is not None:
                return _not_allowed("spec", problem)
        if self._routes is not None and self._view.makes_routes and self._asks_anew(known or obj, old):
            problem = await self._routes.routes_problem(user, namespace=namespace)
            if problem is not None:
                return _not_allowed("spec.gateway", problem)
        # What may still be chosen is not decided by finalizers, as in the core: a user may set those.
        undecided = old is None or not dig(old, "status", "provider", "resourceName")
        chosen = [settled] if settled in facts else []
        if pinned is None and (undecided or not chosen):
            chosen += [each for each in self._candidates(request, engine, policy.grants(labels)) if each != settled]
        if (refusal := await self._not_assignable(chosen, obj, user=user, path="spec.provider.name")) is not None:
            return refusal
        if settled in facts and not facts[settled].ready:
            warned.append(f"provider '{settled}' is registered but not ready: the deployment waits until it is")
        return None

    async def _not_assignable(self, providers: Sequence[str], obj: Resource, *, user: User, path: str) -> Denial | None:
        """The refusal for a user who may not create what one of the `providers` creates, which the field at `path`
        assigns. Raises KubeError.
        """
        if self._access is None:
            return None
        facts = self._view.providers()
        for name in providers:
            if name not in facts:
                return _not_allowed(path, f"{not_registered(name, facts.values())}; the rights on it cannot be checked")
            upstream = facts[name].upstream
            if upstream is None:
                continue  # it creates no kind of its own, so no right is needed
            problem = await self._access.problem(user, upstream, namespace=key_of(obj).namespace, provider=name)
            if problem is not None:
                return _not_allowed(path, problem)
        return None

    def _asks_anew(self, obj: Resource, old: Resource | None) -> bool:
        """Whether the user asks for a route that was not asked for in this way before. What a ClusterRuntimeConfig asks
        for, the administrator asks for.
        """
        same = old is not None and all(
            dig(obj, "spec", field) == dig(old, "spec", field) for field in ("gateway", "runtimeConfigName")
        )
        gateway = dig(obj, "spec", "gateway", default={})
        if same or dig(gateway, "enabled") is False or dig(gateway, "httpRouteRef"):
            return False
        if dig(gateway, "enabled") is True or dig(gateway, "pathTemplate") or dig(gateway, "modelName"):
            return True
        config = self._view.config_of(obj)
        return config is not None and dig(config.own, "routing", "enabled") is True

    def _candidates(self, request: Request | None, engine: str | None, grants: Grants) -> dict[str, ProviderFacts]:
        """The providers that may get a deployment that names none: all that offer what is requested.

        The user must be allowed to use each of them, not only the one that would be selected now. That one may refuse
        the deployment, and the core, which does not know the user, chooses the next. While it is not known
        what is requested (`request` None), all providers count. One whose upstream is not installed counts only if no
        other does.
        """
        found = {
            each.name: each
            for each in granted(self._view.providers().values(), grants)
            if not (each.explicit_only and self._view.selector)
            and (request is None or not unsupported(request, each, engine=engine))
        }
        return {name: each for name, each in found.items() if each.installed} or found


def _new_holders(obj: Resource, old: Resource | None) -> list[str]:
    """The providers whose finalizers are added although they are not chosen: while there is no status, the core keeps
    the provider that has one. A provider adds its own only once it is chosen.
    """
    before = {*finalizers_of(old or {}), provider_finalizer(text_at(old, "status", "provider", "name"))}
    return sorted({name for each in finalizers_of(obj) if each not in before and (name := provider_of_finalizer(each))})


def _alone(obj: Resource, old: Resource | None) -> tuple[list[str], list[Violation]]:
    """The results that need only the object: warnings and violations."""
    return list(warnings(obj)), validate(obj, old=old)


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


# ---------------------------------------------------------------------------------- the rights of the user who writes


_HTTP_ROUTE = Kind(GATEWAY_GROUP, "v1", "HTTPRoute", "httproutes")

REMEMBERED = 10.0
"""Seconds for which an allowed answer is cached: long enough for an `apply` of many manifests."""

REFUSED = 2.0
"""Seconds for which a denied answer is cached: short, because a user who was just given a role tries again soon."""

CAPACITY = 4096
"""Maximum cached answers, separately for allowed and denied ones."""

QUESTIONS = 16
"""Maximum concurrent SubjectAccessReviews; others wait."""


class AccessReviewer:
    """SubjectAccessReviews: could the user create the provider's resources directly? (004, 13.2)

    The answers are cached for a short time.
    """

    def __init__(self, client: Client, *, clock: Callable[[], float] = monotonic) -> None:
        self._client = client
        self._clock = clock
        self._answered_at: dict[bool, OrderedDict[bytes, float]] = {True: OrderedDict(), False: OrderedDict()}
        self._questions = asyncio.Semaphore(QUESTIONS)
        self._plurals: dict[tuple[str, str, str], tuple[float, str]] = {}

    async def problem(self, user: User, upstream: UpstreamFacts, *, namespace: str, provider: str) -> str | None:
        """The refusal for a user who may not create the provider's kind in the namespace; None for one who may.

        Raises KubeError if the API server does not answer.
        """
        plural = await self._plural(upstream)
        if await self._allowed(user, Kind(upstream.group, upstream.version, upstream.kind, plural), namespace):
            return None
        resource = f"{plural}.{upstream.group}" if upstream.group else plural
        return (
            f"user '{user.name}' cannot create {resource} in namespace '{namespace}', which provider '{provider}' "
            f"does for a ModelDeployment: get a role that allows it, or name another provider"
        )

    async def pods_problem(self, user: User, *, namespace: str) -> str | None:
        """The refusal for a user who may not create pods in the namespace; None for one who may. Raises KubeError.

        In Kubernetes a user who may create pods may use every service account, Secret and claim of the namespace. So
        the ones that a deployment names need no check of their own.
        """
        if await self._allowed(user, POD, namespace):
            return None
        return (
            f"user '{user.name}' cannot create pods in namespace '{namespace}', which a ModelDeployment does: "
            "get a role that allows it"
        )

    async def routes_problem(self, user: User, *, namespace: str) -> str | None:
        """The refusal for a user who asks for a route and may not create HTTPRoutes in the namespace; None for one who
        may. Raises KubeError.
        """
        if await self._allowed(user, _HTTP_ROUTE, namespace):
            return None
        return (
            f"user '{user.name}' cannot create {_HTTP_ROUTE.plural}.{_HTTP_ROUTE.group} in namespace '{namespace}', "
            "which a ModelDeployment does that asks for a route: get a role that allows it, or leave out "
            "spec.gateway.enabled, pathTemplate and modelName"
        )

    async def _allowed(self, user: User, kind: Kind, namespace: str) -> bool:
        extra = {name: list(values) for name, values in user.extra.items()}
        about = [user.name, user.uid, sorted(user.groups), extra, kind.group, kind.version, kind.plural, namespace]
        key = sha256(canonical_json(about)).digest()  # a fixed size: the user chooses the length of the names
        if (known := self._known(key)) is not None:
            return known
        async with self._questions:
            if (known := self._known(key)) is not None:  # another review has had the same question answered
                return known
            allowed = await self._client.subject_access_review(
                user=user.name,
                uid=user.uid,
                groups=user.groups,
                extra=extra,
                verb="create",
                kind=kind,
                namespace=namespace,
            )
        self._answered_at[not allowed].pop(key, None)
        kept = self._answered_at[allowed]
        kept.pop(key, None)
        kept[key] = self._clock()
        while len(kept) > CAPACITY:
            kept.popitem(last=False)
        return allowed

    def _known(self, key: bytes) -> bool | None:
        """The cached answer, if it is still valid."""
        now = self._clock()
        for allowed, lifetime in ((True, REMEMBERED), (False, REFUSED)):
            answered = self._answered_at[allowed].get(key)
            if answered is not None and now - answered < lifetime:
                return allowed
        return None

    async def _plural(self, upstream: UpstreamFacts) -> str:
        """The resource name of the kind from discovery; an InferenceProviderConfig does not have it.

        If the kind is not served, it is guessed from the kind, which is right for nearly every CRD: a role can allow it
        already.
        """
        key = (upstream.group, upstream.version, upstream.kind)
        now = self._clock()
        known = self._plurals.get(key)
        if known is not None and now - known[0] < 6 * REMEMBERED:
            return known[1]
        plural = f"{upstream.kind.lower()}s"
        if upstream.version:
            served = await served_resources(self._client, upstream.group, upstream.version)
            if upstream.kind in served:
                plural = served[upstream.kind].plural
        self._plurals[key] = (now, plural)
        return plural
