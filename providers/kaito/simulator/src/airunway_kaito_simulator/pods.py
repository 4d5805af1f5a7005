"""Reads from pods why a workload is not ready: the reasons that KAITO 0.12 writes into ``InferenceReady``.

It uses only the pods' present state; changes of pods start no pass (fact 5 of the recordings).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airunway.resource import Resource, dig

MESSAGE_LIMIT = 256
"""Maximum length of a message in characters; a longer one is cut and ends with ``...``."""

_IMAGE_REASONS = frozenset({"ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull"})
_START_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


@dataclass(frozen=True, kw_only=True)
class Failure:
    """Reason and message of ``InferenceReady=False``."""

    reason: str
    message: str


def failure_of(pods: Iterable[Resource]) -> Failure | None:
    """The first failure among `pods`, in order of their names; None if there is none.

    Recorded from the real controller: image pull, crash loop, out of memory, unschedulable. For a container that cannot
    start and for an evicted pod only the reason is known (reference/upstream.md §1.4); these messages are invented.
    """
    for pod in sorted(pods, key=lambda p: str(dig(p, "metadata", "name", default=""))):
        failure = next(_failures(pod), None)
        if failure is not None:
            return Failure(reason=failure.reason, message=_cut(failure.message))
    return None


def _failures(pod: Resource) -> Iterator[Failure]:
    name = dig(pod, "metadata", "name", default="")
    if dig(pod, "status", "reason") == "Evicted":
        yield Failure(
            reason="PodEvicted", message=f'pod "{name}" was evicted: {dig(pod, "status", "message", default="")}'
        )
    for condition in dig(pod, "status", "conditions", default=[]):
        if (condition.get("type"), condition.get("status")) == ("PodScheduled", "False") and (
            condition.get("reason") == "Unschedulable"
        ):
            yield Failure(
                reason="Unschedulable", message=f'pod "{name}" is unschedulable: {condition.get("message") or ""}'
            )
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in dig(pod, "status", field, default=[]):
            yield from _container_failures(container)


def _container_failures(container: Resource) -> Iterator[Failure]:
    if container.get("ready"):
        return
    name = container.get("name")
    waiting = dig(container, "state", "waiting", default={})
    reason = waiting.get("reason")
    if reason in _IMAGE_REASONS:
        yield Failure(
            reason="ImagePullError",
            message=f'container "{name}" image pull failed ({reason}): {waiting.get("message") or ""}',
        )
    for moment in ("state", "lastState"):
        ended = dig(container, moment, "terminated", default={})
        if ended.get("reason") == "OOMKilled":
            yield Failure(
                reason="ContainerOOMKilled",
                message=f'container "{name}" was OOMKilled (exit code {ended.get("exitCode")}); '
                "reduce memory usage or use a larger instance type",
            )
    if reason == "CrashLoopBackOff":
        last = dig(container, "lastState", "terminated", "exitCode")
        ending = "" if last is None else f"; last termination: exit code {last}"
        yield Failure(reason="ContainerCrashLoopBackOff", message=f'container "{name}" is in CrashLoopBackOff{ending}')
    if reason in _START_REASONS:
        yield Failure(
            reason="ContainerStartError",
            message=f'container "{name}" cannot start ({reason}): {waiting.get("message") or ""}',
        )


def _cut(message: str) -> str:
    return message if len(message) <= MESSAGE_LIMIT else message[:MESSAGE_LIMIT] + "..."
