"""Reads what a discovery Job came to: the report of its image, or why there is none. Pure and total.

Example: the Job is Complete, its pod's three containers ended with 0, and their messages together are a report.
"""

from __future__ import annotations

from dataclasses import dataclass

from airunway.artifacts.jobs import finished
from airunway.redaction import bounded, tail
from airunway.resource import Resource, annotations_of, dig
from airunway_catalogue.names import DISCOVERY, WHY_NO_ENTRYPOINT
from airunway_catalogue.profile import Report, Unreadable, read_report
from airunway_catalogue.report_script import NO_SHELL, PARTS, SHELL

__all__ = ["Outcome", "has_ended", "outcome_of"]

_NOT_STARTED = ("StartError", "ContainerCannotRun", "RunContainerError")


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a Job came to."""

    report: Report | None = None
    """What the image reported; None: the try failed."""
    reason: str = ""
    """Why it failed: a reason of the registry."""
    message: str = ""
    """Why it failed, as a sentence."""
    shell: bool = True
    """False: the image has no shell to run the script with."""


def has_ended(job: Resource, pod: Resource | None) -> bool:
    """Whether the pod shows what the end of its Job says. The watch of pods may lag behind that of Jobs."""
    ends = _ends(pod)
    return bool(_failing(ends)) if finished(job) == "Failed" else all(part in ends for part in _parts(job))


def outcome_of(job: Resource, pod: Resource | None) -> Outcome:
    """What a Job came to that has ended."""
    ends, note = _ends(pod), _note(job)
    if finished(job) != "Complete" or _failing(ends) or DISCOVERY not in ends:
        failed = _failure(job, ends)
        return Outcome(reason=failed.reason, message=failed.message + note, shell=failed.shell)
    try:
        report = read_report("".join(_text(ends[part].get("message")) for part in PARTS if part in ends))
    except Unreadable as unreadable:
        return Outcome(reason="JobFailed", message=f"{unreadable}{note}")
    return Outcome(report=report)


def _parts(job: Resource) -> list[str]:
    """The names of the Job's containers."""
    spec = dig(job, "spec", "template", "spec")
    lists = [dig(spec, list_) for list_ in ("initContainers", "containers")]
    return [_text(dig(each, "name")) for list_ in lists if isinstance(list_, list) for each in list_]


def _ends(pod: Resource | None) -> dict[str, Resource]:
    """How the containers of a pod ended, by name."""
    ends: dict[str, Resource] = {}
    for list_ in ("initContainerStatuses", "containerStatuses"):
        statuses = dig(pod, "status", list_)
        for status in statuses if isinstance(statuses, list) else ():
            state = dig(status, "state", "terminated")
            if isinstance(state, dict):
                ends[_text(dig(status, "name"))] = state
    return ends


def _failing(ends: dict[str, Resource]) -> str:
    """The first container that failed; empty if none did."""
    return next((part for part in PARTS if part in ends and ends[part].get("exitCode") != 0), "")


def _failure(job: Resource, ends: dict[str, Resource]) -> Outcome:
    """The outcome of a Job of which a container failed, or never ran."""
    part = _failing(ends)
    if not part:
        conditions = dig(job, "status", "conditions")
        said = next(
            (
                _text(each.get("message"))
                for each in (conditions if isinstance(conditions, list) else ())
                if dig(each, "type") == "Failed" and dig(each, "status") == "True"
            ),
            "",
        )
        return Outcome(reason="JobFailed", message=f"the Job ended without a result{': ' + said if said else ''}")
    terminated = ends[part]
    if part != DISCOVERY:
        text = f"the container {part}, which reports a part of the output, ended with {_ending(terminated)}"
        return Outcome(reason="JobFailed", message=text)
    if terminated.get("reason") == "OOMKilled":
        text = "the image needed more memory than the 4Gi that a discovery has"
        return Outcome(reason="PodOOMKilled", message=text)
    if terminated.get("reason") in _NOT_STARTED and SHELL in _text(terminated.get("message")):
        text = f"{NO_SHELL}, with which what it prints is read: it is asked without it next time, and must write its "
        text += "report to the file of AIRUNWAY_TERMINATION_LOG"
        return Outcome(reason="JobFailed", message=text, shell=False)
    return Outcome(reason="JobFailed", message=f"the image ended with {_ending(terminated)}")


def _ending(terminated: Resource) -> str:
    said = tail(_text(terminated.get("message")).strip(), 400)
    return f"exit code {terminated.get('exitCode')}{': ' + said if said else ''}"


def _note(job: Resource) -> str:
    """What else to say of a failed try whose image ran without the script; empty if it ran with it."""
    why = _text(annotations_of(job).get(WHY_NO_ENTRYPOINT))
    if not why:
        return ""
    if why == NO_SHELL:
        return f"; {NO_SHELL}: it must write its report to the file of AIRUNWAY_TERMINATION_LOG"
    return (
        f"; what the image prints was not read, because its entrypoint is not known ({bounded(why, 200)}): name it in "
        "spec.discovery.command"
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
