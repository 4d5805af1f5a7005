"""What an artifact's pods, claims, Jobs and events show, for the one search for root causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airunway.resource import Resource, dig
from airunway.status.evidence import EventFacts, Evidence, PodFacts, claim_facts, pod_facts

__all__ = ["evidence_of"]


def evidence_of(
    artifact: Resource,
    *,
    claims: Iterable[Resource],
    pods: Iterable[Resource],
    events: Iterable[EventFacts],
) -> Evidence:
    """The evidence for one artifact. Its Jobs are left out: the message of a pod says more. So does the provisioner
    that refuses a claim: a pod that waits for that claim is left out, too.
    """
    events = tuple(events)
    refused = any(each.kind == "PersistentVolumeClaim" and each.reason == "ProvisioningFailed" for each in events)
    alive = [facts for pod in pods if (facts := pod_facts(pod)).alive]
    return Evidence(
        pods=tuple(pod for pod in alive if not (refused and _waits_for_claim(pod))),
        events=events,
        claims=tuple(claim_facts(claim) for claim in claims),
        secrets=dict(_secrets(artifact)),
    )


def _waits_for_claim(pod: PodFacts) -> bool:
    return pod.unscheduled is not None and "unbound immediate PersistentVolumeClaim" in pod.unscheduled.message


def _secrets(artifact: Resource) -> Iterator[tuple[str, str]]:
    """The Secrets that the artifact names, each with the field."""
    spec = artifact.get("spec") or {}
    token = dig(spec, "secrets", "huggingFaceToken")
    if isinstance(token, str) and token:
        yield token, "spec.secrets.huggingFaceToken"
    for position, reference in enumerate(dig(spec, "imagePullSecrets") or ()):
        if isinstance(name := dig(reference, "name"), str):
            yield name, f"spec.imagePullSecrets[{position}]"
    for variable in dig(spec, "env") or ():
        if isinstance(name := dig(variable, "valueFrom", "secretKeyRef", "name"), str):
            yield name, f"spec.env[{dig(variable, 'name')}]"
