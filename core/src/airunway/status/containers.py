"""Finds what is wrong with one container, from its status and the events that explain it. Pure and total."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airunway.status.engine_texts import ENGINE, MORE_MEMORY, last_error
from airunway.status.evidence import ContainerFacts, Ending, EventFacts, PodFacts
from airunway.status.reasons import CODES
from airunway.status.texts import IMAGE_PULL, PREPARATION, MessagePattern, first_meaning, line_of, without_names

NOT_PULLED = "cannot be pulled"
"""In the text of every fault of an image."""

_IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "ErrImageNeverPull",
        "InvalidImageName",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
_START_REASONS = frozenset(
    {"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "PreStartHookError", "StartError"}
)

_SETTLING = timedelta(seconds=10)
"""How long after a container's end its pod may become unready because of it."""

_PROBE_WINDOW = timedelta(minutes=1)
"""How long before a pod becomes unready its failed probes begin."""

_CRASHES = 2
"""Number of restarts from which a container that runs again, and is not ready, still counts as crashing."""

_PULL_PREFIX = re.compile(
    r'^(?:(?:ErrImagePull|ImagePullBackOff): |Back-off pulling image "[^"]*": |(?:rpc error: code = \w+ desc = )'
    r'|failed to (?:pull image|pull and unpack image|resolve reference) "[^"]*": )+',
    re.IGNORECASE,
)
"""The nested prefixes of kubelet and container runtimes, which repeat the image's name and what our message says."""

_KILLED = (137, 143)
_PANICS = ("panic:", "goroutine ", "fatal error:", "Traceback")


@dataclass(frozen=True, kw_only=True)
class ContainerFault:
    """What is wrong with one container, or with the pod that it belongs to."""

    reason: str
    code: str
    """A root-cause code; empty if there is none."""
    text: str
    """A sentence without the object's name."""
    since: datetime | None = None
    field: str = ""
    """JSON path in the deployment; overrides the code's own field."""
    remedy: str = ""
    """What to do; overrides what the code says."""


def fault_by(meaning: MessagePattern, text: str, *, since: datetime | None = None) -> ContainerFault:
    """The fault that a row of a table means."""
    return ContainerFault(
        reason=meaning.reason, code=meaning.code, text=text, since=since, field=meaning.field, remedy=meaning.remedy
    )


def container_finding(
    pod: PodFacts, container: ContainerFacts, events: Sequence[EventFacts], *, known: str = "", served: bool = False
) -> ContainerFault | None:
    """Returns what keeps the container from being ready; None if nothing is wrong (it may still be starting).

    `events` are those about the pod, newest first. `known` is the code that an earlier pass found for the pod: kubelets
    up to Kubernetes 1.29 drop the cause from ``ImagePullBackOff``. `served` is whether the deployment has served
    before.
    """
    if container.ready:
        return None
    if container.waiting in _IMAGE_REASONS:
        return _image(pod, container, events, known=known)
    if container.waiting in _START_REASONS:
        text = f"{container.waiting}: {line_of(container.message)}."
        return _prepared(container.message, text) or ContainerFault(reason="PodFailed", code="", text=text)
    ending, sure = _ending(pod, container, served=served)
    return None if ending is None else _ended(container, ending, events, sure=sure)


def probe_finding(pod: PodFacts, events: Sequence[EventFacts]) -> ContainerFault | None:
    """Returns the fault of a pod that runs but became unready because a probe fails; None if there is none.

    Only events from about that time count. Probes of an engine fail while it loads: a pod that has not been ready since
    it started has no fault yet.
    """
    running = [container for container in pod.containers if container.running and not container.init]
    if not running or pod.ready_since is None:
        return None
    if all(container.started is not None for container in running) and not pod.unready_again:
        return None
    for event in events:
        if event.reason == "Unhealthy" and event.last is not None and event.last >= pod.ready_since - _PROBE_WINDOW:
            text = f"runs and is not ready: {line_of(event.note)}."
            return ContainerFault(reason="ProbeTimeout", code="Probe.Timeout", text=text, since=pod.ready_since)
    return None


def _image(pod: PodFacts, container: ContainerFacts, events: Sequence[EventFacts], *, known: str) -> ContainerFault:
    """The fault of a container's image, or of an image that it mounts: kubelets give both the same reason."""
    reported = f"{container.waiting}: {container.message}"
    notes = [
        event.note for event in events if event.reason in ("Failed", "InspectFailed") and "pull image" in event.note
    ]
    named = (image for text in (reported, *notes) for image in (container.image, *pod.image_volumes) if image in text)
    image = next(named, container.image) if pod.image_volumes else container.image
    notes = [note for note in notes if image in note]
    if image != container.image:
        return replace(_not_pulled(image, reported, notes, events, known=known), field="spec.model.uri")
    return _not_pulled(image, reported, notes, events, known=known)


def _not_pulled(
    image: str, reported: str, notes: Sequence[str], events: Sequence[EventFacts], *, known: str
) -> ContainerFault:
    # The waiting reason alternates between two prefixes for one cause: only the cause goes into the message.
    texts = [_PULL_PREFIX.sub("", text) for text in (reported, *notes)]
    matches = (first_meaning(without_names(text), IMAGE_PULL) for text in texts)
    match, text = next(((m[0], text) for m, text in zip(matches, texts, strict=True) if m), (None, texts[0]))
    failure = f'image "{image}" {NOT_PULLED}: {line_of(text)}.'
    since = min((event.first for event in events if event.first and "pull image" in event.note), default=None)
    if match is None:
        reason, code = (CODES[known].reasons[0], known) if known.startswith("ImagePull.") else ("ImagePullBackOff", "")
        return ContainerFault(reason=reason, code=code, text=failure, since=since)
    if match.reason == "ImagePullAuthFailure" and (missing := _missing_pull_secret(events)):
        text = f"{missing}; {failure}"
        field = "spec.imagePullSecrets"
        return ContainerFault(reason="SecretNotFound", code="Secret.NotFound", text=text, since=since, field=field)
    return fault_by(match, failure, since=since)


def _missing_pull_secret(events: Sequence[EventFacts]) -> str:
    for event in events:
        if event.reason == "FailedToRetrieveImagePullSecret":
            names = event.note.partition("(")[2].partition(")")[0]
            listed = ", ".join(f'"{name.strip()}"' for name in names.split(",") if name.strip())
            return f"the image pull secret {listed or 'of the pod'} does not exist"
    return ""


def _prepared(message: str, text: str) -> ContainerFault | None:
    match = first_meaning(message, PREPARATION)
    return fault_by(match[0], text) if match is not None else None


def _ending(pod: PodFacts, container: ContainerFacts, *, served: bool) -> tuple[Ending | None, bool]:
    """Returns the end that keeps the container from being ready, and whether the end alone is a fault.

    The kubelet restarts a container at once after its first end. Until the deployment has served, the first end alone
    is no fault: otherwise a deployment would fail and recover within a second of its first start. A container that runs
    again still counts as crashing until it is ready, if it has ended twice; after one end only a known cause counts. An
    end from before the pod was last ready is over.
    """
    if container.waiting == "CrashLoopBackOff":
        return container.last or container.ended or Ending(code=0), True
    if container.ended is not None:
        again = container.restarts < 1 and pod.phase != "Failed" and not served
        return (container.ended, not again) if container.ended.code != 0 else (None, False)
    last = container.last
    if last is None or last.code == 0 or container.restarts < 1:
        return None, False
    if pod.ready_since is not None and last.finished is not None and pod.ready_since > last.finished + _SETTLING:
        return None, False
    return last, container.restarts >= _CRASHES


def _ended(
    container: ContainerFacts, ending: Ending, events: Sequence[EventFacts], *, sure: bool
) -> ContainerFault | None:
    code = f"exit code {ending.code}"
    since = ending.finished
    if ending.reason == "OOMKilled":
        text = f"was killed because it used more memory than its limit (OOMKilled, {code})."
        return ContainerFault(
            reason="PodOOMKilled", code="Engine.OutOfMemory", text=text, since=since, remedy=MORE_MEMORY
        )
    if ending.reason in ("StartError", "ContainerCannotRun"):
        prepared = _prepared(ending.message, f"cannot be started ({code}): {line_of(ending.message)}.")
        if prepared is not None:
            return prepared
    if (match := first_meaning(ending.message, ENGINE)) is not None:
        meaning, line = match
        found = fault_by(meaning, f"ended with {code}: {line}.", since=since)
        return replace(found, field="spec.engine.trustRemoteCode") if "trust_remote_code" in line else found
    last = f": {last_error(ending.message)}" if ending.message else ""
    if ending.code == 2 and not any(word in ending.message for word in _PANICS):
        text = f"ended with {code}, with which engines refuse their command line{last}."
        return ContainerFault(reason="BadArguments", code="Engine.BadArgs", text=text, since=since)
    probe = next((e for e in events if e.reason == "Unhealthy" and not e.note.startswith("Readiness")), None)
    if ending.code in _KILLED and probe is not None:
        text = f"was restarted because its probe failed ({code}): {line_of(probe.note)}."
        return ContainerFault(reason="ProbeTimeout", code="Probe.Timeout", text=text, since=since)
    if not sure:
        return None
    text = f"ended with {code}{last}."
    return ContainerFault(reason="CrashLoopBackOff", code="Engine.CrashLoop", text=text, since=since)
