"""Keeps the weights of templates warm: makes their artifacts, and knows which template uses which artifact.

Example: the ModelTemplate ``fast`` of ``org/m`` has ``caching.enabled``. Its artifact is made before any deployment
asks for it, has the label ``airunway.ai/template: fast``, and names ``ModelTemplate/fast`` among its users.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from airunway.api import names
from airunway.artifacts.claims import is_content_of
from airunway.artifacts.status import is_made
from airunway.configs.resolution import NOT_ALLOWED, propagated
from airunway.kinds import MODEL_TEMPLATE
from airunway.kube import EventRecorder
from airunway.modelcache.artifacts import ArtifactMaker
from airunway.modelcache.caches import ArtifactCaches
from airunway.owned.writer import REFUSED_RETRY
from airunway.process.caches import Caches, Sources
from airunway.process.config_policy import NamespaceGrants, not_allowed
from airunway.process.runtime_configs import RuntimeConfigs
from airunway.process.templates import TemplateProjection
from airunway.resource import ObjectKey, Resource, key_of, label_value, labels_of
from airunway.templates.contribution import contribution_of, keeps_warm, warm_requests

log = logging.getLogger(__name__)


def user_name(template: ObjectKey) -> str:
    """How the status of an artifact names a template that uses it."""
    return f"{MODEL_TEMPLATE.kind}/{template.name}"


_REPEATED = 1800.0
"""Seconds after which it is repeated that the config is refused: no condition says it, and an event expires."""


class WarmTemplates(Sources):
    """Templates that keep artifacts.

    `wake(template)` enqueues a template; `on_users(artifact)` is called for an artifact with other users than before.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        artifacts: ArtifactCaches,
        maker: ArtifactMaker,
        events: EventRecorder,
        wake: Callable[[ObjectKey], None],
        on_users: Callable[[ObjectKey], None],
    ) -> None:
        super().__init__(caches)
        self._artifacts, self._maker, self._events = artifacts, maker, events
        self._grants = caches.one(NamespaceGrants)
        self._wake, self._on_users = wake, on_users
        project = caches.one(TemplateProjection)
        self._templates = self.watches(MODEL_TEMPLATE, project=project, wakes=self._on_template, optional=True)
        self._configs = RuntimeConfigs(caches, deployments=self._templates, on_change=self._on_config)
        self.add(self._configs)
        self._kept: dict[ObjectKey, frozenset[ObjectKey]] = {}
        """The artifacts that each template uses."""
        self._users: dict[ObjectKey, set[ObjectKey]] = {}
        """The templates that use each artifact."""
        self._refused: dict[ObjectKey, str] = {}
        """What hindered the last pass of a template."""

    # ------------------------------------------------------------------------------------------------------- who uses

    def users_of(self, artifact: ObjectKey) -> list[ObjectKey]:
        """The templates that use an artifact, sorted."""
        return sorted(self._users.get(artifact, ()))

    def labels_of_users(self, artifact: ObjectKey) -> Iterator[dict[str, str]]:
        """The labels of each template that uses an artifact."""
        for template in self.users_of(artifact):
            found = self._templates.get(template)
            if found is not None:
                yield labels_of(found)

    def label_of(self, artifact: ObjectKey) -> dict[str, str]:
        """The label that names the template for which an artifact is kept, of several the first."""
        users = self.users_of(artifact)
        return _label(users[0]) if users else {}

    # ------------------------------------------------------------------------------------------------------ following

    async def read(self) -> None:
        """Wait until it is known which artifacts templates use. The artifacts themselves are read before."""
        await super().read()
        for key in list(self._templates.keys()):
            self._look(key)

    def wake_all(self, namespace: str = "") -> None:
        """Enqueue every template that keeps artifacts (of a namespace, unless empty)."""
        for key in list(self._kept):
            if namespace in ("", key.namespace):
                self._wake(key)

    def on_artifact(self, artifact: ObjectKey) -> None:
        """An artifact has come or gone."""
        for template in self.users_of(artifact):
            self._wake(template)

    def _on_template(self, key: ObjectKey, old: Resource | None, new: Resource | None) -> None:
        self._look(key)
        if old is not None and new is not None and labels_of(old) != labels_of(new):
            for artifact in self._kept.get(key, ()):
                self._on_users(artifact)

    def _on_config(self, _cause: object, users: Callable[[], list[Resource]]) -> None:
        for template in users():
            self._look(key_of(template))

    def _look(self, key: ObjectKey) -> None:
        """Note which artifacts a template uses now."""
        before, template = self._kept.get(key, frozenset()), self._templates.get(key)
        now = frozenset(self._used(template)) if template is not None else frozenset()
        if now:
            self._kept[key] = now
        else:
            self._kept.pop(key, None)
            self._refused.pop(key, None)
        for artifact in before - now:
            self._users[artifact].discard(key)
            if not self._users[artifact]:
                del self._users[artifact]
        for artifact in now - before:
            self._users.setdefault(artifact, set()).add(key)
        for artifact in before ^ now:
            self._on_users(artifact)
        if now:
            self._wake(key)

    def _used(self, template: Resource) -> Iterator[ObjectKey]:
        if not keeps_warm(template):  # asked first: what a template gives costs more, and each event comes here
            return
        namespace = key_of(template).namespace
        resolution = self._configs.resolve(template)
        if not resolution.missing:
            for request in warm_requests(template, contribution_of(template), resolution.config):
                yield ObjectKey(namespace, request.name)
        else:
            # Their names depend on the config: without it, what was made for the template stays in use.
            label = _label(key_of(template))
            for artifact in self._artifacts.artifacts.reflector.values():
                if label and key_of(artifact).namespace == namespace and label.items() <= labels_of(artifact).items():
                    yield key_of(artifact)

    # -------------------------------------------------------------------------------------------------------- writing

    async def reconcile(self, key: ObjectKey) -> float | None:
        """Make the artifacts of one template; returns the seconds until the next try, or None. Raises KubeError for a
        transient failure: the queue retries.
        """
        template = self._templates.get(key)
        if template is None:
            return None
        resolution = self._configs.resolve(template)
        grants = self._grants.of(key.namespace)
        if resolution.missing or grants is None:
            return None  # its artifacts say so, and the catalogue on the template; a watch wakes it
        labels = propagated(labels_of(template), resolution.config) | _label(key)
        problems = []
        requests = warm_requests(template, contribution_of(template), resolution.config)
        wanted = [request for request in requests if request.artifact is not None]
        missing = [each for each in wanted if self._artifacts.artifact(ObjectKey(key.namespace, each.name)) is None]
        if missing and (refusal := not_allowed({}, resolution.config, grants)):
            self._refused.pop(key, None)
            self._announce(template, f"{NOT_ALLOWED}: {refusal}")
            return _REPEATED
        for request in wanted:
            assert request.artifact is not None
            live = self._artifacts.artifact(ObjectKey(key.namespace, request.name))
            if live is not None and not (is_made(live) and is_content_of(live, request.artifact)):
                problems.append(
                    f"ResourceConflict: ModelArtifact {request.name} has the name of the one that is kept for "
                    f"{request.uri}, and is not what the model cache makes: delete it"
                )
                continue
            refused = await self._maker.make(request.artifact, labels=labels)
            if refused is not None:
                problems.append(f"{refused.policy.reason}: {refused}")
        self._announce(template, "; ".join(problems))
        return REFUSED_RETRY if problems else None

    def _announce(self, template: Resource, problem: str) -> None:
        """Emit an event where an artifact cannot be made, once for each cause."""
        key = key_of(template)
        if problem and self._refused.get(key) != problem:
            self._events.emit(template, reason="DownloadFailed", note=problem, warning=True, action="Download")
        self._refused[key] = problem


def _label(template: ObjectKey) -> dict[str, str]:
    """The label of what is kept for a template."""
    return {names.TEMPLATE: label_value(template.name)}
