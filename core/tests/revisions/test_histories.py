"""Whatever happens around deployments, in any order: equal spec and equal revision give the same objects, and what has
served is changed by its user, a wave, or the loss of its weights, and by nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any

import pytest
from core.tests.runtime.views import state, there

from airunway.api import names
from airunway.configs.resolution import Resolution, config_name, resolve
from airunway.controller.decision import decide as decide_core
from airunway.controller.decision import rolled_out_by
from airunway.controller.waves import Rollouts
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import host_of, load
from airunway.plugins.settings import kept_settings, read_settings
from airunway.resource import Resource, annotations_of, canonical_json, copy_of, dig, format_time, key_of
from airunway.revisions.revision import hash_of, revision_in
from airunway.runtime.crd_versions import translation_status
from airunway.runtime.plan import Do
from airunway.runtime.plan import decide as decide_provider
from airunway.sdk import Provider
from airunway.selection.facts import provider_facts
from airunway.templates.expansion import OWN_SPEC, effective
from airunway.templates.part import source_among, template_part

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PROVIDERS = ("vllm", "kaito")
PARTS = (names.MODEL_CACHE_PART,)
CONFIGS, TEMPLATES = ("default", "gold"), ("fast", "small")
OF_OTHERS = ("modelCache", "replicas", "observedGeneration")

RENDERED: dict[bytes, bytes] = {}
"""The objects of each spec and revision, of all histories of this process."""


@cache
def releases(name: str) -> tuple[ProviderHost, ProviderHost]:
    """Two releases of a provider: the older one lacks the newest transformer of each kind."""
    newest = load(name)
    plugin: Any = newest._hook
    known: dict[tuple[str, str], int] = {}
    older = list(newest.transformers)
    for each in reversed(newest.transformers):
        if known.setdefault((each.kind or "", each.api_version), 0) == 0:
            older.remove(each)
        known[each.kind or "", each.api_version] += 1
    hooks = {hook: getattr(plugin, hook) for hook in ("can_handle", "translate_spec", "translate_status")}
    before = Provider(newest.manifest, tuple(older), **{key: _called(hook) for key, hook in hooks.items()})
    return host_of(name, before, origin="older"), newest


def _called(hook: Any) -> Callable[..., Any]:
    names_ = tuple(hook.spec.argnames)
    return lambda *args: hook(**dict(zip(names_, args, strict=True)))


@dataclass
class Team:
    """Deployments of one provider, with what stands around them."""

    random: Random
    provider: str
    now: datetime = START
    release: int = 0
    image: int = 0
    configs: dict[str, Resource] = field(default_factory=dict)
    templates: dict[str, Resource] = field(default_factory=dict)
    claim: int = 1
    fetched: bool = True
    rollouts: Rollouts = field(default_factory=Rollouts)
    deployments: dict[str, Resource] = field(default_factory=dict)
    live: dict[str, list[Resource]] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    """The revision of the objects of each deployment."""
    reasons: dict[str, set[str]] = field(default_factory=dict)
    """Why the core has taken another one for it since then."""
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in CONFIGS:
            self.configs[name] = self._config()
        for name in TEMPLATES:
            self.templates[name] = self._template()
        model: Resource = {"id": "org/m", "cache": {"mode": "Shared"}}
        specs: dict[str, Resource] = {
            "cached": {"model": model},
            "templated": {"templateRef": {"name": "fast"}},
            "both": {"templateRef": {"name": "small"}, "model": {"cache": {"mode": "Shared"}}},
        }
        name = self.random.choice(sorted(specs))
        for number, spec in enumerate((specs[name], {"model": {"id": "org/m"}})):
            self._create(f"d{number}", spec)

    def _create(self, name: str, spec: Resource) -> None:
        gpu: Resource = {"resources": {"gpu": {"count": 1}}, "engine": {"type": "vllm"}}
        self.deployments[name] = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": name, "namespace": "team", "uid": name, "generation": 1, "labels": {"team": "a"},
                         "creationTimestamp": format_time(START), "annotations": {}},
            "spec": {**gpu, "scaling": {"replicas": 1}, **spec},
            "status": {},
        }  # fmt: skip
        self.live[name], self.reasons[name] = [], set()

    def _number(self) -> str:
        return str(self.random.randrange(3))

    def _config(self) -> Resource:
        return {
            "env": [{"name": f"A{self._number()}", "value": self._number()}],
            "rollout": self.random.choice(["Immediately", "OnNextChange"]),
            "rolloutProviders": self.random.choice(["Immediately", "OnNextChange"]),
            "labelPropagation": {"match": ["team"]},
        }

    def _template(self) -> Resource:
        return {"modelName": "org/t", "defaults": {"engine": {"args": {"seed": self._number()}}}}

    # ------------------------------------------------------------------------------------------------ what happens

    def happens(self) -> None:
        """One event of somebody, anywhere."""
        event = self.random.choice(
            [self._edit_config, self._delete_config, self._swap_configs, self._edit_template, self._delete_template,
             self._lose, self._fetch, self._scale, self._edit, self._adopt, self._disown, self._rename, self._restart,
             self._upgrade, self._suspend, self._wipe]
        )  # fmt: skip
        self.said.append(event.__name__)
        event()

    def _edit_config(self) -> None:
        self.configs[self.random.choice(CONFIGS)] = self._config()

    def _delete_config(self) -> None:
        self.configs.pop(self.random.choice(CONFIGS), None)

    def _swap_configs(self) -> None:
        first, second = (self.configs.pop(name, None) for name in CONFIGS)
        found = {CONFIGS[0]: second, CONFIGS[1]: first}
        self.configs = {name: spec for name, spec in found.items() if spec is not None}

    def _edit_template(self) -> None:
        self.templates[self.random.choice(TEMPLATES)] = self._template()

    def _delete_template(self) -> None:
        self.templates.pop(self.random.choice(TEMPLATES), None)

    def _lose(self) -> None:
        self.fetched = False

    def _fetch(self) -> None:
        self.claim, self.fetched = self.claim + (not self.fetched), True

    def _user(self) -> Resource:
        return self.deployments[self.random.choice(sorted(self.deployments))]

    def _changed(self, user: Resource, **spec: Any) -> None:
        before = copy_of(user["spec"])
        user["spec"] |= spec
        user["metadata"]["generation"] += user["spec"] != before

    def _scale(self) -> None:
        self._changed(self._user(), scaling={"replicas": self.random.randrange(1, 3)})

    def _edit(self) -> None:
        self._changed(self._user(), env=[{"name": "OWN", "value": self._number()}])

    def _suspend(self) -> None:
        user = self._user()
        self._changed(user, suspend=not user["spec"].get("suspend", False))

    def _rename(self) -> None:
        self._changed(self._user(), runtimeConfigName=self.random.choice(CONFIGS))

    def _adopt(self) -> None:
        self._user()["metadata"]["annotations"] = {names.ADOPT: self._number()}

    def _disown(self) -> None:
        self._user()["metadata"]["annotations"] = {}

    def _restart(self) -> None:
        self.rollouts = Rollouts()
        self.rollouts.begin(map(self._cached, self.deployments.values()), now=self.now)

    def _upgrade(self) -> None:
        self.release, self.image = self.random.randrange(2), self.random.randrange(2)

    def _wipe(self) -> None:
        """A backup is restored, which has no status: the newest counts."""
        if self.random.random() < 0.2:
            self._user()["status"].pop("revision", None)

    # ------------------------------------------------------------------------------------------------ who works on it

    def work(self) -> None:
        """Some of the controllers run, in any order."""
        self.now += timedelta(seconds=self.random.randrange(1, 400))
        works = [self._core, self._provides, self._caches] * 2 + [self._waves]
        for each in self.random.sample(works, self.random.randrange(1, len(works))):
            for name in self.deployments if each is not self._waves else ("",):
                each(name)

    def settle(self) -> None:
        """Nothing happens any more, and everything is done."""
        for _ in range(6):
            for each in (self._core, self._caches, self._core, self._provides):
                for name in self.deployments:
                    each(name)
            self._waves("")

    def _cached(self, deployment: Resource) -> Resource:
        """The deployment as caches have it."""
        found = copy_of(deployment)
        if "templateRef" not in found["spec"]:
            return found
        return {**found, "spec": effective(found)["spec"], OWN_SPEC: found["spec"]}

    def _resolve(self, deployment: Resource) -> Resolution:
        name = config_name(deployment)
        spec = self.configs.get(name)
        config = {"kind": "RuntimeConfig", "metadata": {"name": name, "namespace": "team"}, "spec": spec}
        return resolve(name, namespaced=config if spec is not None else None, cluster=None)

    @property
    def _host(self) -> ProviderHost:
        return releases(self.provider)[self.release]

    @property
    def _settings(self) -> Any:
        return read_settings(self._host.manifest.settings, {"vllmImage": f"vllm:{self.image}"}, provider=self.provider)

    def decided(self, name: str) -> Resource:
        """What the core wants its part of the status to be."""
        cached = self._cached(self.deployments[name])
        source = source_among(
            [
                {"kind": "ModelTemplate", "metadata": {"name": name, "namespace": "team"}, "spec": spec}
                for name, spec in self.templates.items()
            ]
        )
        resolution = self._resolve(cached)
        granted = self.rollouts.granted(cached, rolled_out_by(resolution.config))
        template = template_part(cached, source, granted=granted)
        provider = provider_facts(registered(self.provider, self.release, self.image))
        return decide_core(
            template.deployment, violations=[], providers=[provider], selector=True, now=self.now,
            resolution=resolution, granted=granted, parts=PARTS, template=template,
        ).status  # fmt: skip

    def _core(self, name: str) -> None:
        before, live = revision_in(self.deployments[name]), self.deployments[name]["status"]
        status = self.decided(name)
        after = status.get("revision", {})
        if made_of(after) != made_of(before):
            why = {
                "made anew": not before,
                "the user": after.get("takenFor") != before.get("takenFor"),
                "another config": dig(after, "settings", "config") != dig(before, "settings", "config"),
                "a wave": key_of(self.deployments[name]) in self.rollouts._granted,
                "stranded": after.get("cache") != before.get("cache") and not dig(live, "replicas", "ready"),
                "never served": not is_served(self.deployments[name]),
            }
            self.reasons[name] |= {reason for reason, holds in why.items() if holds}
        self._merge(name, status, keep=OF_OTHERS)

    def _merge(self, name: str, status: Resource, *, keep: tuple[str, ...]) -> None:
        live = self.deployments[name]["status"]
        theirs = {key: value for key, value in live.items() if key in keep}
        mine = {each["type"] for each in status.get("conditions", ())}
        kept = [each for each in live.get("conditions", ()) if each["type"] not in mine]
        provider = {**live.get("provider", {}), **status.get("provider", {})}
        self.deployments[name]["status"] = {
            **theirs, **status, "provider": provider, "conditions": [*kept, *status.get("conditions", ())],
        }  # fmt: skip

    def _caches(self, name: str) -> None:
        """What the model cache part says for this spec."""
        deployment = self._cached(self.deployments[name])
        if dig(deployment, "spec", "model", "cache") is None:
            return
        found = {"artifactName": "w", "claimName": f"w-{self.claim}", "mountPath": "/model", "path": "/model",
                 "accessMode": "ReadWriteMany", "ready": self.fetched}  # fmt: skip
        given = dig(deployment, "status", "effectiveTemplate", "hash")
        self.deployments[name]["status"]["modelCache"] = {**found, **({"templateHash": given} if given else {})}
        self._say(name, "ModelCacheReady", self.fetched, "Ready" if self.fetched else "CacheLost")

    def _say(self, name: str, type_: str, status: bool, reason: str = "Said") -> None:
        deployment = self.deployments[name]
        others = [each for each in deployment["status"].get("conditions", ()) if each["type"] != type_]
        condition = {"type": type_, "status": str(status), "reason": reason, "message": "",
                     "observedGeneration": deployment["metadata"]["generation"],
                     "lastTransitionTime": format_time(self.now)}  # fmt: skip
        deployment["status"]["conditions"] = [*others, condition]

    def _waves(self, _: str) -> None:
        users = {key_of(each): self._cached(each) for each in self.deployments.values()}
        for name in (*CONFIGS, None):
            resolved = {key: self._resolve(user).config for key, user in users.items()}
            follow = [key for key, found in resolved.items() if (found.name if found is not None else None) == name]
            if not follow:
                continue
            effective = resolved[follow[0]]
            self.rollouts.next(
                {key: users[key] for key in follow}, parts=rolled_out_by(effective), limit=1,
                patience=timedelta(minutes=15), now=self.now,
            )  # fmt: skip

    def _provides(self, name: str) -> None:
        """A pass of the provider, whose pods may be ready at once, later, or break."""
        deployment, host = self._cached(self.deployments[name]), self._host
        deployment["status"].setdefault("revision", {})  # the core has not passed since it was lost
        view = state(
            host, deployment, *map(copy_of, self.live[name]), installed=served_by(self.provider, self.release),
            now=self.now,
        )  # fmt: skip
        decision = decide_provider(view, host, settings=self._settings)
        status = self.deployments[name]["status"]
        if decision.do is Do.SUSPEND:
            self.live[name] = []
            status["replicas"] = {"desired": 0, "ready": 0}
            self._say(name, "Ready", False)
        if decision.do is not Do.APPLY or not decision.objects:
            return
        self._look(name, deployment, decision.objects)
        self.live[name] = [copy_of(obj) for obj in decision.objects]
        for obj in self.live[name]:
            obj["metadata"] |= {"uid": f"{name}-{obj['kind']}", "creationTimestamp": format_time(START)}
        ready = self.random.random() < 0.8
        status["provider"] |= {"resourceName": name, "revision": status["revision"]["hash"]}
        status["replicas"] = {"desired": 1, "ready": int(ready)}
        if newer := decision.newer:
            status["provider"]["newer"] = newer
        else:
            status["provider"].pop("newer", None)
        self._say(name, "Ready", ready)
        if ready:
            self._say(name, "Served", True)

    # ----------------------------------------------------------------------------------------------------- the laws

    def _look(self, name: str, deployment: Resource, objects: tuple[Resource, ...]) -> None:
        revision = deployment["status"]["revision"]
        assert revision["hash"] == hash_of(revision)
        known = {each.name for each in self._host.transformers}
        adopted = [each for each in revision["provider"]["transformers"].values() if each not in known]
        made_from = {key: value for key, value in revision.items() if key != "pending"}
        release = self.release if adopted else None
        key = canonical_json([deployment["metadata"]["name"], deployment["spec"], made_from, self.provider, release])
        text = canonical_json(list(objects))
        assert RENDERED.setdefault(key, text) == text, f"equal spec and revision make other objects: {self.said}"
        before = self.written.get(name)
        if before is not None and before != revision["hash"]:
            assert self.reasons[name], f"{name} takes another revision unasked: {self.said}"
        self.reasons[name].clear()
        self.written[name] = revision["hash"]


def made_of(revision: Resource) -> Resource:
    """What objects are made of, also while a part is not decided: a lost revision may wait for its claim."""
    return {part: value for part, value in revision.items() if part not in ("hash", "pending")}


def is_served(deployment: Resource) -> bool:
    return any(each["type"] == "Served" for each in deployment["status"].get("conditions", ()))


@cache
def served_by(provider: str, release: int) -> Any:
    return there(releases(provider)[release])


@cache
def _translation(provider: str, release: int, image: int) -> Resource:
    host = releases(provider)[release]
    settings = read_settings(host.manifest.settings, {"vllmImage": f"vllm:{image}"}, provider=provider)
    installed = {kind.key: served_by(provider, release)[kind.group, kind.kind] for kind in host.manifest.upstream}
    return translation_status(installed, settings=kept_settings(settings))


def registered(provider: str, release: int, image: int) -> Resource:
    """The InferenceProviderConfig of a release."""
    engine = {"name": "vllm", "servingModes": ["aggregated"], "gpuSupport": True, "modelCache": True}
    return {
        "metadata": {"name": provider},
        "spec": {
            "capabilities": {"engines": [engine]},
            "selectionRules": [{"condition": "true", "priority": 1}],
        },
        "status": {
            "ready": True,
            "conditions": [{"type": "UpstreamInstalled", "status": "True"}],
            "translation": copy_of(_translation(provider, release, image)),
        },
    }


def history(seed: int, *, events: int = 10) -> Team:
    random = Random(seed)
    team = Team(random, provider=PROVIDERS[seed % len(PROVIDERS)])
    team.settle()
    for _ in range(events):
        team.happens()
        team.work()
    team.settle()
    return team


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 500))])
def test_whatever_happens_nothing_that_serves_changes_unasked(seed: int) -> None:
    team = history(seed)
    for name, deployment in team.deployments.items():
        before = copy_of(deployment["status"])
        team._core(name)
        assert team.deployments[name]["status"].get("revision") == before.get("revision"), "at rest nothing is written"
        for obj in team.live[name][:1]:
            assert annotations_of(obj)[names.REVISION] == dig(before, "provider", "revision")
