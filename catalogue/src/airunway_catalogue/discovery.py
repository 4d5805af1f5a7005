"""The Jobs that ask an image for its profile, and when they are tried again (docs/catalogue.md). Pure.

Example: the template ``llama`` names the image ``registry.example/vllm:1``. The first try is the Job
``discover-llama-1f0c9a3b`` with the arguments ``dry-run --format=json``; if it fails, the second one comes 60 s later.

What the image prints is reported by a shell script (`SCRIPT`) that runs the image's program. A pod's spec does
not say which program an image has: it is in ``spec.discovery.command`` or known from the registry (`Entrypoint`). If it
is neither, the image runs without the script, and must write its report to the termination message itself.

The kubelet reports at most 4 KiB for a container and 12 KiB for a pod. So the script runs in three containers of the
image, one after the other: ``discovery`` runs the program, and ``part-2`` and ``part-3`` report what does not fit into
the first message. Up to 4 KiB are reported as they are; more is compressed: 9 KiB, which is about 60 KiB of JSON.

The program's stderr goes to the container's log. If the program fails, its last words are there, and the kubelet
reports the end of the log.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airunway.api import names
from airunway.artifacts.jobs import (
    CA_FILE,
    ca_mount,
    ca_volume,
    pause_after,
    restricted_container,
    restricted_pod,
)
from airunway.configs.resolution import BUILT_IN, EffectiveConfig, propagated
from airunway.resource import (
    Resource,
    dig,
    digest,
    entries_at,
    filled,
    key_of,
    label_value,
    labels_of,
    list_at,
    text_at,
)
from airunway_catalogue.names import APP_COMPONENT, DISCOVERY, WHY_NO_ENTRYPOINT

TTL = timedelta(seconds=60)
"""How long a finished Job stays."""

DEADLINE = timedelta(minutes=30)
"""After which time a Job fails: large images take long to pull, and an image that never ends must not keep its slot."""

CA_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables by which the programs of images take the authorities that they trust, instead of their own."""

_LONGEST_NAME = 63
_SCRATCH, _LOG = "/tmp", "/dev/termination-log"
_OURS: list[Resource] = [
    {"name": "HOME", "value": _SCRATCH},
    {"name": "AIRUNWAY_TERMINATION_LOG", "value": _LOG},
]
_MOST_SCRATCH = "1Gi"
"""What a dry run may write: a pod that writes more is evicted before its node is full."""
_NO_NAME = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, kw_only=True)
class Request:
    """What an image is asked."""

    image: str
    """The image."""
    command: tuple[str, ...] = ()
    """Program before ``dry-run --format=json``; empty: the image's entrypoint."""
    args: tuple[str, ...] = ()
    """Arguments after ``dry-run --format=json``."""
    env: tuple[Resource, ...] = field(default=(), hash=False)
    """Environment variables of the model server."""
    pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in the template's namespace."""
    service_account: str = ""
    """Empty: that of the namespace."""


@dataclass(frozen=True, kw_only=True)
class Entrypoint:
    """The program that an image runs, as far as it is known."""

    words: tuple[str, ...] | None = None
    """The program and its first arguments; empty: the image has none; None: not known."""
    why: str = ""
    """Why it is not known."""


def request_of(template: Resource) -> Request | None:
    """What the template's image is asked; None if no image is to be asked. Total for any JSON.

    An empty `image` means that the template asks for discovery and names no image. What belongs to the namespace of a
    deployment (its account, values out of its objects) has no meaning for the Job of a ClusterModelTemplate, which runs
    in the operator's namespace.
    """
    spec, namespaced = template.get("spec"), bool(key_of(template).namespace)
    discovery = dig(spec, "discovery")
    if not isinstance(discovery, dict):
        return None
    variables = entries_at(spec, "defaults", "env")
    secrets = list_at(spec, "imagePullSecrets") if namespaced else []
    return Request(
        image=text_at(discovery.get("image")) or text_at(spec, "defaults", "image"),
        command=_words(discovery.get("command")),
        args=_words(discovery.get("args")),
        env=tuple(each for each in variables if namespaced or "valueFrom" not in each),
        pull_secrets=tuple(name for each in secrets if (name := text_at(each, "name"))),
        service_account=text_at(spec, "serviceAccountName") if namespaced else "",
    )


def spec_hash(request: Request) -> str:
    """The digest of what the tries are about: another one starts counting anew."""
    parts = [request.image, request.args, request.env, request.pull_secrets, request.service_account]
    # Absent where there is none: digests of earlier releases stay valid.
    return digest([*parts, request.command] if request.command else parts, length=16)


def job_name(template: str, *, uid: str, hash_: str, attempt: int) -> str:
    """``discover-<template>-<hash8>``, at most 63 characters; each try of each template has a name of its own."""
    ending = f"-{digest([uid, hash_, attempt], length=8)}"
    slug = _NO_NAME.sub("-", template.lower()).strip("-")[: _LONGEST_NAME - len("discover-") - len(ending)]
    return f"discover-{slug.rstrip('-') or 'template'}{ending}"


def next_attempt(*, attempts: int, ended: datetime) -> datetime:
    """When the image is asked again after so many tries: 60 s · 2ⁿ later, at most an hour."""
    return ended + pause_after(attempts)


def pull_secrets_of(request: Request, config: EffectiveConfig | None) -> tuple[str, ...]:
    """Names of the Secrets with which the image is pulled, in the Job's namespace."""
    return tuple(dict.fromkeys((*request.pull_secrets, *(config or BUILT_IN).image_pull_secrets)))


def job_of(
    template: Resource, request: Request, *, name: str, config: EffectiveConfig | None, entrypoint: Entrypoint
) -> Resource:
    """The Job of a try, without owner and namespace.

    The output is in termination messages: the kubelet puts them into the pod's status, so that no log is read.
    """
    labels = {
        **propagated(labels_of(template), config),
        names.MANAGED_BY: names.MANAGED_BY_VALUE,
        names.TEMPLATE: label_value(key_of(template).name),
        APP_COMPONENT: DISCOVERY,
    }
    environment = _environment(template, request, config)
    arguments = ["dry-run", "--format=json", *request.args]
    metadata: Resource = {"name": name, "labels": labels}
    if entrypoint.words is None:
        metadata["annotations"] = {WHY_NO_ENTRYPOINT: entrypoint.why}
        containers: Resource = {"containers": [_container(DISCOVERY, request.image, environment, args=arguments)]}
    else:
        first, *others = (
            _container(
                part,
                request.image,
                environment,
                command=command_of(part),
                args=[*entrypoint.words, *arguments] if part == DISCOVERY else [],
            )
            for part in PARTS
        )
        # Init containers run one after the other, and none of them after one that has failed.
        containers = {"initContainers": [first, *others[:-1]], "containers": others[-1:]}
    volumes: list[Resource] = [{"name": "scratch", "emptyDir": {"sizeLimit": _MOST_SCRATCH}}]
    if (bundle := (config or BUILT_IN).ca_bundle) is not None:
        asked = (containers.get("initContainers") or containers["containers"])[0]
        given = {each["name"] for each in asked["env"]}
        asked["env"] += [{"name": name, "value": CA_FILE} for name in CA_VARIABLES if name not in given]
        asked["volumeMounts"].append(ca_mount())
        volumes.append(ca_volume(bundle))
    pod = filled(
        restartPolicy="Never",
        # The shell, as the first process, does not react to SIGTERM; and nothing of a dry run is to be saved.
        terminationGracePeriodSeconds=1,
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        serviceAccountName=request.service_account,
        imagePullSecrets=[{"name": each} for each in pull_secrets_of(request, config)],
        securityContext=restricted_pod(),
        **containers,
        volumes=volumes,
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": int(TTL.total_seconds()),
            "activeDeadlineSeconds": int(DEADLINE.total_seconds()),
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _container(
    name: str, image: str, environment: list[Resource], *, command: list[str] | None = None, args: list[str]
) -> Resource:
    main = name == DISCOVERY
    requests = {"cpu": "100m", "memory": "256Mi"} if main else {"cpu": "10m", "memory": "16Mi"}
    return filled(
        name=name,
        image=image,
        command=command,
        # The kubelet expands $(NAME) in arguments.
        args=[each.replace("$", "$$") for each in args],
        env=environment if main else [dict(each) for each in _OURS],
        # The image is there by then.
        imagePullPolicy=None if main else "IfNotPresent",
        resources={"requests": requests, "limits": {"memory": "4Gi" if main else "64Mi"}},
        securityContext=restricted_container(),
        terminationMessagePath=_LOG,
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=[{"name": "scratch", "mountPath": _SCRATCH}],
    )


def _environment(template: Resource, request: Request, config: EffectiveConfig | None) -> list[Resource]:
    """The config's variables, then those of the model server, then ours. The Job of a ClusterModelTemplate gets no
    values out of objects of the operator's namespace.
    """
    shared = (config or BUILT_IN).env
    namespaced = bool(key_of(template).namespace)
    found = {str(each.get("name")): dict(each) for each in shared if namespaced or "valueFrom" not in each}
    found |= {str(each["name"]): dict(each) for each in request.env if isinstance(each.get("name"), str)}
    found |= {each["name"]: dict(each) for each in _OURS}
    return list(found.values())


def _words(value: object) -> tuple[str, ...]:
    return tuple(each for each in list_at(value) if isinstance(each, str))


MAX_MESSAGE = 4096
"""Bytes of one container's termination message."""

MAX_OUTPUT = 256 * 2**10
"""Bytes of output that are kept: a program that prints for ever is ended."""

PARTS = (DISCOVERY, "part-2", "part-3")
"""The containers in their order. The kubelet divides 12 KiB among the containers of a pod, so there are no more."""

PACKED = "airunway+gzip:"
"""Before gzip in base64."""

PROBLEM = "airunway+problem:"
"""Before a word and numbers that say why there is no report."""

SHELL = "/bin/sh"
NO_SHELL = f"the image has no {SHELL}"
"""Why an image runs without the script."""

# The kubelet replaces $(NAME) in a command, so the script has none: numbers are read from files.
SCRIPT = f"""\
out=$HOME/airunway-output
log=$AIRUNWAY_TERMINATION_LOG
problem() {{ printf '{PROBLEM}%s' "$*" >"$log"; exit 0; }}
part() {{ [ ! -f "$out.z" ] || tail -c "+$1" "$out.z" | head -c {MAX_MESSAGE} >"$log"; exit 0; }}
case $0 in
{PARTS[1]}) part {MAX_MESSAGE + 1} ;;
{PARTS[2]}) part {2 * MAX_MESSAGE + 1} ;;
esac
for tool in head tail wc; do
  command -v "$tool" >/dev/null || problem "tool $tool"
done
# A pipe, not a limit on files: the program may write large files of its own.
{{ "$@"; echo "$?" >"$out.code"; }} | head -c {MAX_OUTPUT + 1} >"$out"
wc -c <"$out" >"$out.size"
read -r size <"$out.size"
[ "$size" -le {MAX_OUTPUT} ] || problem "endless {MAX_OUTPUT}"
read -r code <"$out.code" || code=1
if [ "$code" -ne 0 ]; then
  tail -c 300 "$out" >&2
  exit "$code"
fi
# The program may have written its report there itself.
[ ! -s "$log" ] || exit 0
if [ "$size" -le {MAX_MESSAGE} ]; then
  head -c {MAX_MESSAGE} "$out" >"$log"
  exit 0
fi
for tool in gzip base64 tr; do
  command -v "$tool" >/dev/null || problem "tool $tool $size"
done
printf '{PACKED}' >"$out.z"
gzip -9 <"$out" | base64 | tr -d '\\n' >>"$out.z"
wc -c <"$out.z" >"$out.size"
read -r packed <"$out.size"
if [ "$packed" -gt {len(PARTS) * MAX_MESSAGE} ]; then
  rm -f "$out.z"
  problem "large $size $packed"
fi
part 1
"""


def command_of(container: str) -> list[str]:
    """The command of a container; its arguments are the program and its arguments."""
    return [SHELL, "-c", SCRIPT, container]
