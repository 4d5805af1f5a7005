"""How simulated pods behave: KWOK's stages (its `Stage` resource; the nodes follow KWOK's own default stages).

A scheduled pod is Ready at once, a Job's pod succeeds, a pod that is being deleted goes once its finalizers allow it.
A pod that carries the annotation OUTCOME fares as the annotation says; setting it on a running pod breaks the pod,
removing it heals it. An image called ``no-such-image`` is in no registry: its pods fare as on any other node. Pods with
a label of PLAYED_BY_RUNNERS are not touched.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from airunway.resource import Resource

OUTCOME = "airunway-testing-outcome"
"""Without a domain: those are refused on pods unless a policy lists them."""

PLAYED_BY_RUNNER = "airunway.ai/artifact"
"""Label of pods of the model cache's Jobs: `airunway_testing.storage.pod_runner` runs them as processes."""

PLAYED_BY_RUNNERS = (PLAYED_BY_RUNNER, "airunway.ai/template")
"""Labels of pods that KWOK leaves alone; the second one is on pods of discovery Jobs."""

Outcome = Literal["NotReady", "ImagePullBackOff", "CrashLoopBackOff", "OOMKilled", "Failed"]
"""NotReady: runs, never ready. ImagePullBackOff: no image. CrashLoopBackOff, OOMKilled: has ended and waits to be
started again. Failed: ends for good (what a Job counts as a failure)."""

_ANNOTATION = f'.metadata.annotations["{OUTCOME}"]'
UNPULLABLE = "(^|/)no-such-image([:@]|$)"
"""Matches images that are in no registry."""
_PULLABLE = f'[ .spec.containers.[].image | test( "{UNPULLABLE}" ) ] | any | not'
_READY = '.status.conditions.[] | select( .type == "Ready" ) | .status'
_NEW_ADDRESS = (
    "PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) .metadata.uid .metadata.name .metadata.namespace"
)
_RUNNING = "running: {startedAt: {{ Now | Quote }}}"


_OURS: list[Resource] = [
    {"key": f'.metadata.labels["{label}"]', "operator": "DoesNotExist"} for label in PLAYED_BY_RUNNERS
]


def pod_stages() -> list[Resource]:
    """The Stage objects for pods."""
    alive = [_absent(".metadata.deletionTimestamp"), _not_in(".status.phase", "Succeeded", "Failed")]
    healthy = [*alive, _absent(_ANNOTATION), _in(_PULLABLE, "true")]
    of_job = '.metadata.ownerReferences.[] | select( .kind == "Job" ) | .kind'
    return [
        _stage("ready", [*healthy, _not_in(_READY, "True"), _absent(of_job)], _status(ready=True, state=_RUNNING)),
        _stage(
            "complete",
            [*healthy, _in(of_job, "Job")],
            _status(ready=False, state=_terminated(0, "Completed"), phase="Succeeded"),
        ),
        _stage(
            "unpullable",
            [*alive, _absent(_ANNOTATION), _in(_PULLABLE, "false"), _not_yet("ImagePullBackOff")],
            _NOT_FOUND,
        ),
        *(
            _stage(outcome.lower(), [*alive, _in(_ANNOTATION, outcome), _not_yet(outcome)], _OUTCOMES[outcome])
            for outcome in get_args(Outcome)
        ),
        _deletion(),
    ]


def _stage(name: str, conditions: Sequence[Resource], status: str) -> Resource:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"pod-{name}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": [*_OURS, *conditions]},
            "next": {"statusTemplate": status},
        },
    }


def _deletion() -> Resource:
    stage = _stage("delete", [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}], "")
    stage["spec"]["next"] = {"delete": True}
    return stage


def _absent(key: str) -> Resource:
    return {"key": key, "operator": "DoesNotExist"}


def _in(key: str, *values: str) -> Resource:
    return {"key": key, "operator": "In", "values": list(values)}


def _not_in(key: str, *values: str) -> Resource:
    return {"key": key, "operator": "NotIn", "values": list(values)}


def _not_yet(outcome: Outcome) -> Resource:
    # A stage whose effect does not end its own condition would be played again and again.
    match outcome:
        case "NotReady":
            return _not_in(_READY, "False")
        case "OOMKilled":
            return _not_in(".status.containerStatuses.[].lastState.terminated.reason", outcome)
        case "Failed":
            return _not_in(".status.phase", outcome)
        case _:
            return _not_in(".status.containerStatuses.[].state.waiting.reason", outcome)


def _terminated(code: int, reason: str) -> str:
    now = "{{ Now | Quote }}"
    return f"terminated: {{exitCode: {code}, reason: {reason}, startedAt: {now}, finishedAt: {now}}}"


def _waiting(reason: str, message: str) -> str:
    return f"waiting: {{reason: {reason}, message: {message}}}"


def _status(*, ready: bool, state: str, last_state: str = "", restarts: int = 0, phase: str = "Running") -> str:
    """A Go template (KWOK adds `Now`, `Quote`, `NodeIPWith` and `PodIPWith`) that gives the pod's status in YAML."""
    verdict = "True" if ready else "False"
    reason = "" if ready else "reason: ContainersNotReady, "
    return f"""
phase: {phase}
startTime: {{{{ Now | Quote }}}}
hostIP: {{{{ NodeIPWith .spec.nodeName | Quote }}}}
podIP: {{{{ or .status.podIP ( {_NEW_ADDRESS} ) | Quote }}}}
conditions:
- {{type: Initialized, status: "True", lastTransitionTime: {{{{ Now | Quote }}}}}}
- {{type: ContainersReady, status: "{verdict}", {reason}lastTransitionTime: {{{{ Now | Quote }}}}}}
- {{type: Ready, status: "{verdict}", {reason}lastTransitionTime: {{{{ Now | Quote }}}}}}
{{{{ range .spec.readinessGates }}}}
- {{type: {{{{ .conditionType | Quote }}}}, status: "True", lastTransitionTime: {{{{ Now | Quote }}}}}}
{{{{ end }}}}
containerStatuses:
{{{{ range .spec.containers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  imageID: ""
  ready: {str(ready).lower()}
  started: {str(state == _RUNNING).lower()}
  restartCount: {restarts}
  state: {{{state}}}
  lastState: {{{last_state}}}
{{{{ end }}}}
initContainerStatuses:
{{{{ range .spec.initContainers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  imageID: ""
  ready: true
  restartCount: 0
  {{{{ if eq ( or .restartPolicy "" ) "Always" }}}}
  started: true
  state: {{{_RUNNING}}}
  {{{{ else }}}}
  started: false
  state: {{{_terminated(0, "Completed")}}}
  {{{{ end }}}}
{{{{ end }}}}
"""


_OUTCOMES: Mapping[Outcome, str] = {
    "NotReady": _status(ready=False, state=_RUNNING),
    "ImagePullBackOff": _status(
        ready=False, state=_waiting("ImagePullBackOff", "Back-off pulling image"), phase="Pending"
    ),
    "CrashLoopBackOff": _status(
        ready=False,
        state=_waiting("CrashLoopBackOff", "back-off restarting failed container"),
        last_state=_terminated(1, "Error"),
        restarts=5,
    ),
    "OOMKilled": _status(
        ready=False,
        state=_waiting("CrashLoopBackOff", "back-off restarting failed container"),
        last_state=_terminated(137, "OOMKilled"),
        restarts=5,
    ),
    "Failed": _status(ready=False, state=_terminated(1, "Error"), phase="Failed"),
}

_PULLING = '"Back-off pulling image %q: ErrImagePull: failed to resolve reference %q: %s: not found"'
_NOT_FOUND = _status(
    ready=False,
    state=_waiting("ImagePullBackOff", f"{{{{ printf {_PULLING} .image .image .image | Quote }}}} "),
    phase="Pending",
)
