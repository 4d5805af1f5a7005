"""What a deployment wants from routing, from the facts of one pass: Gateway, path, model name and the claims on them.

Example: ``spec.gateway.pathTemplate: /ml/chat`` with one Gateway is the path ``/ml/chat`` and the model's own
name on that Gateway, and a claim on each. What other deployments hold does not matter here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property

from airunway.api import names
from airunway.configs.path_template import PathNotAllowed, PathTemplateError
from airunway.configs.resolution import (
    BUILT_IN,
    EffectiveConfig,
    RoutingRequest,
    path_of,
    path_template_of,
    routing_request,
)
from airunway.owned.objects import Mark, is_ours
from airunway.resource import (
    ObjectKey,
    Resource,
    condition_of,
    dig,
    is_deleting,
    mapping_at,
    number_at,
    text_at,
    uid_of,
)
from airunway.routing.claims import Claim, Claimant, ClaimConflict, ClaimKind, claimant_of
from airunway.routing.gateways import (
    ChosenGateway,
    Detection,
    Target,
    choose,
    gateway_key,
    is_shut_out,
    parent_of,
    sections_of,
    usable,
)
from airunway.routing.groups import Group, SharedRule, recorded_group
from airunway.routing.rights import UNRESTRICTED, RouteRights
from airunway.routing.routes import claims_in, header_problem
from airunway.status.conditions import is_dry_run, is_paused

CONDITION = "GatewayReady"

MARK = Mark(names.PART, names.GATEWAY_PART)
"""The label on all objects of the gateway part."""


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The gateway part's own settings."""

    gateway_name: str = ""
    """``--gateway-name``: NAMESPACE/NAME."""
    epp_image: str = ""
    """``--epp-image``."""
    epp_version: str = ""
    """``--epp-version``."""
    role_command: str = (
        f"helm upgrade --install airunway $CHARTS/airunway --namespace {names.DEFAULT_NAMESPACE} "
        "($CHARTS is the location of your release's charts)"
    )
    """The command that installs the ClusterRole of pickers, for a message."""


_NO_TIME = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The outcome of asking a model server for its model name (``/v1/models``)."""

    generation: int
    """Generation of the deployment that it is about."""
    name: str = ""
    """Empty: it failed."""
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that a decision depends on."""

    deployment: Resource
    config: EffectiveConfig | None = None
    config_unusable: bool = False
    """The deployment's config does not exist, or is not allowed."""
    engine: Resource | None = None
    """Entry of ``capabilities.engines`` of the selected provider for the engine in use; None if not known."""
    gateways: Sequence[Resource] = ()
    gateway_namespaces: Collection[str] = ()
    """The namespaces whose Gateways may be chosen without being named."""
    rights: RouteRights | None = UNRESTRICTED
    """What the namespace may have at a Gateway; None: not known yet."""
    unserved: Mapping[ObjectKey, datetime] = field(default_factory=dict)
    """Since when a Gateway has been seen without an address or not programmed."""
    now: datetime = _NO_TIME
    routes_served: bool = True
    """The API server serves HTTPRoute v1."""
    pools_served: bool = True
    """The API server serves InferencePool v1."""
    destination_rule: str = ""
    """API version of Istio's DestinationRule; empty where it is not served."""
    route: Resource | None = None
    """The live HTTPRoute with the deployment's name, whatever its owner is."""
    holder_route: Resource | None = None
    """The live HTTPRoute of the part for the deployment that ``status.gateway.group`` names as holder."""
    user_route: Resource | None = None
    """The live HTTPRoute that ``spec.gateway.httpRouteRef`` names."""
    pool: Resource | None = None
    """The live InferencePool with the deployment's name, whatever its owner is."""
    provider_pool: Resource | None = None
    """The live InferencePool that ``status.endpoint.pool`` names; None if it is not read."""
    picker: Resource | None = None
    """The live Deployment of our own picker."""
    picker_role: bool | None = None
    """Whether the ClusterRole of pickers exists; None: not known."""
    pool_refused: bool = False
    """The API server refused the pool, or an object of the picker before it, when it was last written."""
    refused: Collection[Target] = ()
    """Where a Gateway has last refused a route of the namespace (`is_shut_out`)."""
    conflicts: Sequence[ClaimConflict] = ()
    """The claims of the deployment that others hold (`Claims.conflicts`)."""
    group: Group | None = None
    """What it shares with others of its group; None: nothing."""
    probe: Probe | None = None
    """The newest probe; None: not done."""
    flags: Flags = field(default_factory=Flags)

    @cached_property
    def key(self) -> ObjectKey:
        """Namespace and name of the deployment."""
        return ObjectKey(
            text_at(self.deployment, "metadata", "namespace"), text_at(self.deployment, "metadata", "name")
        )

    @cached_property
    def own_route(self) -> Resource | None:
        """The live HTTPRoute if it is ours."""
        return self.own(self.route)

    @cached_property
    def own_pool(self) -> Resource | None:
        """The live InferencePool with the deployment's name if it is ours."""
        return self.own(self.pool)

    @property
    def held_rules(self) -> Mapping[ClaimKind, SharedRule]:
        """What the deployment's own route serves for its group."""
        return self.group.held if self.group is not None else {}

    @property
    def lent_rules(self) -> Mapping[ClaimKind, SharedRule]:
        """What another deployment's route serves for its group."""
        return self.group.lent if self.group is not None else {}

    @property
    def pool_behind(self) -> Resource | None:
        """The live InferencePool to which a route leads."""
        return self.own_pool or self.provider_pool

    def own(self, obj: Resource | None) -> Resource | None:
        """The object if the gateway part has made it for the deployment."""
        if obj is None or not uid_of(self.deployment):
            return None
        return obj if is_ours(obj, self.deployment, MARK) else None


# ------------------------------------------------------------------------------------------------------------ intent


@dataclass(frozen=True, kw_only=True)
class Intent:
    """What a deployment wants from routing, without regard to what others hold."""

    request: RoutingRequest
    choice: ChosenGateway = field(default_factory=ChosenGateway)
    user_route: str = ""
    """``spec.gateway.httpRouteRef``."""
    path: str = ""
    """Path of the path rule; empty: no path rule."""
    path_problem: str = ""
    """Why there is no path although one was asked for."""
    path_reason: str = ""
    """``PathTemplateInvalid`` or ``PathNotAllowed``, with a problem."""
    path_unsupported: bool = False
    """A path was asked for and the engine has no ``pathRouting``."""
    model_name: str = ""
    name_problem: str = ""
    """Why there is no model name."""
    name_denied: str = ""
    """Why the namespace may not have the model name; then there is no rule for it."""
    probe: bool = False
    """The model name must be asked from the model server."""


def intent_of(facts: Facts) -> Intent:
    """What the deployment wants: request, Gateway, path and model name. Of the live route only its Gateway counts."""
    deployment, config = facts.deployment, facts.config
    request = routing_request(deployment, config)
    if request is RoutingRequest.OFF:
        return Intent(request=request)
    name, problem, probe = _model_name(facts)
    user_route = text_at(deployment, "spec", "gateway", "httpRouteRef")
    choice, denied, rights = ChosenGateway(), "", facts.rights or UNRESTRICTED
    if not user_route:
        detection = Detection(flag=facts.flags.gateway_name, namespaces=facts.gateway_namespaces)
        choice = choose(facts.gateways, deployment=deployment, config=config, detection=detection, live=facts.own_route)
        denied = rights.name_problem(name, namespace=facts.key.namespace) if name else ""
    intent = Intent(
        request=request,
        choice=choice,
        user_route=user_route,
        model_name=name,
        name_problem=problem,
        name_denied=denied,
        probe=probe,
    )
    if user_route:
        return intent
    if request is not RoutingRequest.REQUIRED:
        return intent
    if facts.engine is not None and facts.engine.get("pathRouting") is not True:
        named = text_at(deployment, "spec", "gateway", "pathTemplate") or (config or BUILT_IN).routing.path_template
        return replace(intent, path_unsupported=bool(named))
    template = path_template_of(deployment, config)
    origin = "spec.gateway.pathTemplate"
    if template.of_config and config is not None:
        origin = f"spec.routing.pathTemplate of {config.origin_of('routing', 'pathTemplate')}"
    try:
        path = path_of(deployment, config)
    except PathNotAllowed as error:
        return replace(intent, path_problem=f"{origin}: {error.reason}", path_reason="PathNotAllowed")
    except PathTemplateError as error:
        return replace(intent, path_problem=f"{origin}: {error}", path_reason="PathTemplateInvalid")
    if template.is_default:
        path, origin = rights.default_path(path, namespace=facts.key.namespace), "the default path"
    if problem := rights.path_problem(path, namespace=facts.key.namespace):
        return replace(intent, path_problem=f"{origin}: {problem}", path_reason="PathNotAllowed")
    return replace(intent, path=path)


def _model_name(facts: Facts) -> tuple[str, str, bool]:
    """Model name, why there is none, and whether a probe is needed (docs/routing.md)."""
    deployment = facts.deployment
    model = mapping_at(deployment, "spec", "model")
    asked = text_at(deployment, "spec", "gateway", "modelName")
    if asked:
        return _header(asked, "spec.gateway.modelName")
    custom = text_at(model, "source") == "custom"
    if not custom and mapping_at(facts.engine, "gateway").get("ignoresServedName") is not True:
        if served := text_at(model, "servedName"):
            return _header(served, "spec.model.servedName")
        if last := text_at(model, "id").rstrip("/").rpartition("/")[2]:
            return _header(last, "spec.model.id")
        return "", "spec.model has neither servedName nor id: set spec.gateway.modelName", False
    generation = number_at(deployment, "metadata", "generation")
    probe = facts.probe
    if probe is not None and probe.generation == generation:
        if probe.name:
            return _header(probe.name, "the model name of /v1/models")
        if recorded := text_at(deployment, "status", "gateway", "modelName"):
            return _header(recorded, "status.gateway.modelName")
        if known := text_at(model, "id"):
            return _header(known, "spec.model.id")
        return (
            "",
            f"the model server did not report its model name ({probe.failure or 'no answer'}): set "
            "spec.gateway.modelName",
            False,
        )
    # The condition keeps its generation until the server has been asked for a newer one (`decide`).
    condition = condition_of(deployment, CONDITION) or {}
    recorded = text_at(deployment, "status", "gateway", "modelName")
    if recorded:  # the name of an earlier generation serves until the server has answered
        name, problem, _ = _header(recorded, "status.gateway.modelName")
        return name, problem, number_at(condition, "observedGeneration") != generation
    return "", "the model server has not been asked for its model name yet", True


def _header(value: str, field: str) -> tuple[str, str, bool]:
    problem = header_problem(value)
    return ("", f"{field} {problem}: set spec.gateway.modelName", False) if problem else (value, "", False)


# ------------------------------------------------------------------------------------------------------------ claims


def claims_of(facts: Facts, intent: Intent | None = None) -> tuple[Claim, ...]:
    """What the deployment claims; nothing while it is off, suspended or in deletion.

    An older deployment holds a claim while it does not run yet, while its path template cannot be rendered (the model
    name), while paused and in a dry run. A route that is left as it is keeps its claims in addition, so that no other
    deployment gets a route with its path: one path and one model name, as we write them. Listeners that do not admit
    the namespace are not claimed, nor is a Gateway that has said so: a tenant would take paths of others away.
    """
    if is_deleting(facts.deployment):
        return ()
    intent = intent or intent_of(facts)
    claims = _wanted(facts, intent)
    live = facts.own_route
    if live is not None and leaves_route(facts, intent):
        kept = {claim.kind: claim for claim in reversed(claims_in(live))}
        claims = (*claims, *(kept[kind] for kind in ClaimKind if kind in kept))
    return _placed(facts, claims)


def claimant_in(facts: Facts, intent: Intent | None = None) -> Claimant:
    """The deployment as a claimant; with the group that its route was made for, while that is left as it is."""
    found, recorded = claimant_of(facts.deployment), recorded_group(facts.deployment)
    if not recorded or recorded == found.group or facts.own_route is None or is_deleting(facts.deployment):
        return found
    return found._replace(group=recorded) if leaves_route(facts, intent or intent_of(facts)) else found


def served_of(facts: Facts, claims: Collection[Claim], claimant: Claimant) -> frozenset[Claim]:
    """Those of the deployment's claims that its route serves already: it loses none of them to an edit of another
    deployment, however old that one is.

    Of a group, the route of the holder serves for all that have a share. So when the holder leaves the group, the group
    keeps what it has served, and the holder does not take it along.
    """
    recorded = recorded_group(facts.deployment)
    live = facts.own_route
    if recorded:
        mapping = mapping_at(facts.deployment, "status", "gateway", "group")
        if recorded != claimant.group:
            return frozenset()
        if text_at(mapping, "holder") != facts.key.name:
            live = facts.holder_route if number_at(mapping, "share") > 0 else None
    if live is None or not claims:
        return frozenset()
    return frozenset(_placed(facts, claims_in(live)[:_MOST_SERVED])).intersection(claims)


_MOST_SERVED = 64
"""Paths and model names of a live route that are looked at; one of ours has two."""


def _placed(facts: Facts, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """The claims on the listeners that admit the namespace."""
    sections = {target: _open_sections(facts, target) for target in {_target(claim) for claim in claims}}
    placed = (claim._replace(section=section) for claim in claims for section in sections[_target(claim)])
    return tuple(dict.fromkeys(placed))


def _target(claim: Claim) -> Target:
    return Target(gateway=claim.gateway, section=claim.section)


def _wanted(facts: Facts, intent: Intent) -> tuple[Claim, ...]:
    """The claims of the spec and the config, whatever route exists, on the listeners that they name."""
    target = intent.choice.target
    if target is None or intent.user_route or is_suspended(facts.deployment):
        return ()
    if intent.request is not RoutingRequest.REQUIRED and not has_place(facts, intent):
        return ()
    claims = []
    if intent.path:
        claims.append(Claim(target.gateway, target.section, ClaimKind.PATH, intent.path))
    if intent.model_name and not intent.name_denied:
        claims.append(Claim(target.gateway, target.section, ClaimKind.MODEL_NAME, intent.model_name))
    return tuple(claims)


def _open_sections(facts: Facts, target: Target) -> tuple[str, ...]:
    """The listeners that admit the namespace; of a Gateway that does not exist yet what was asked for."""
    gateway = next((each for each in facts.gateways if gateway_key(each) == target.gateway), None)
    if gateway is None:
        return (target.section,)
    if _is_shut_out(facts, target):
        return ()
    return sections_of(gateway, section=target.section, namespace=facts.key.namespace)


def _is_shut_out(facts: Facts, target: Target) -> bool:
    """Whether the Gateway has refused the namespace: by its answer about the route, else by what it last answered about
    any route of the namespace, else by the condition. A tenant can delete her route, and make her deployment lose the
    condition.
    """
    answer = is_shut_out(facts.own_route, target) if facts.own_route is not None else None
    if answer is not None:
        return answer
    if target in facts.refused:
        return True
    published = mapping_at(facts.deployment, "status", "gateway")
    same = (published.get("gatewayNamespace"), published.get("gatewayName")) == tuple(target.gateway)
    return same and (condition_of(facts.deployment, CONDITION) or {}).get("reason") == "RouteNotAccepted"


def leaves_route(facts: Facts, intent: Intent) -> bool:
    """Whether a route of ours is left as it is: `decide` gives no objects."""
    deployment = facts.deployment
    if is_paused(deployment) or is_dry_run(deployment):
        return True
    if intent.request is RoutingRequest.OFF:
        return False
    if not is_settled(facts):
        return True
    if is_suspended(deployment) or intent.user_route:
        return False
    if intent.request is not RoutingRequest.REQUIRED and not has_place(facts, intent):
        return keeps_unasked(facts, intent)
    return intent.choice.gateway is None and not is_moved(facts, intent)


# ------------------------------------------------------------------------------------------------------------- state


def is_suspended(deployment: Resource) -> bool:
    """Whether the deployment has ``spec.suspend``."""
    return dig(deployment, "spec", "suspend") is True


def is_settled(facts: Facts) -> bool:
    """Whether anything may be changed: the core has validated this generation, the config can be used, and it is known
    what the namespace may have.
    """
    condition = condition_of(facts.deployment, "Validated") or {}
    current = number_at(condition, "observedGeneration") >= number_at(facts.deployment, "metadata", "generation")
    known = not facts.config_unusable and facts.rights is not None
    return condition.get("status") == "True" and current and known


def has_place(facts: Facts, intent: Intent) -> bool:
    """Whether a route that was not asked for is made: a Gateway can be used, and pools are served."""
    # A route that exists does not go with the Inference Extension: only its backend changes.
    return usable(intent.choice, namespace=facts.key.namespace) and (facts.pools_served or facts.own_route is not None)


def keeps_unasked(facts: Facts, intent: Intent) -> bool:
    """Whether a route that was not asked for, and for which there is no place, stays as it is.

    It stays as long as its Gateway exists: a second Gateway takes no route away. The routes of a named Gateway wait for
    it while it is away.
    """
    live, chosen = facts.own_route, intent.choice
    target = parent_of(live) if live is not None else None
    if target is None:
        return False
    if chosen.gateway is None and chosen.named_by:
        return chosen.target in (None, target)
    if chosen.gateway is not None and (
        chosen.named_by or chosen.target is None or chosen.target.gateway == target.gateway
    ):
        return False
    return any(gateway_key(gateway) == target.gateway for gateway in facts.gateways)


def is_moved(facts: Facts, intent: Intent) -> bool:
    """Whether the live route is attached to another Gateway or listener than is asked for now."""
    live, target = facts.own_route, intent.choice.target
    return live is not None and target is not None and parent_of(live) != target
