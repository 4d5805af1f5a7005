"""The pages of one deployment: how it is and why, its YAML, logs of its containers, weight and deletion."""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import Any

import yaml
from aiohttp import web

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import POD, SERVICE, BadRequest, Conflict, KubeError, NotFound
from airunway.redaction import bounded, printable
from airunway.resource import ObjectKey, Resource, dig, is_integer, key_of, uid_of
from airunway.view import deployment_view
from airunway_ui.identity import Right
from airunway_ui.server import SITE, Drawn, address, key_in, live_page, page, problem_page, see_other
from airunway_ui.watches import Followed

TAIL = 500
"""Last lines of a log that are shown at first."""

MOST_WEIGHT = 1000

# libyaml if PyYAML was built with it: Python takes seconds for a megabyte.
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_CONTAINER = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def base_of(key: ObjectKey) -> str:
    """Returns the path of a deployment's page; its names are those of Kubernetes, so nothing of it is to be quoted."""
    return f"/d/{key.namespace}/{key.name}"


def rights_for(namespace: str) -> dict[str, Right]:
    """Returns what the buttons of a deployment need."""
    return {
        "ask": Right(verb="create", kind=SERVICE, namespace=namespace, subresource="proxy"),
        "edit": Right(verb="update", kind=MODEL_DEPLOYMENT, namespace=namespace),
        "weight": Right(verb="patch", kind=MODEL_DEPLOYMENT, namespace=namespace),
        "copy": Right(verb="create", kind=MODEL_DEPLOYMENT, namespace=namespace),
        "delete": Right(verb="delete", kind=MODEL_DEPLOYMENT, namespace=namespace),
        "logs": Right(verb="get", kind=POD, namespace=namespace, subresource="log"),
    }


async def frame_of(request: web.Request, key: ObjectKey) -> dict[str, Any]:
    """What all pages of one deployment show around their own."""
    identity, rights = request.app[SITE].identity, rights_for(key.namespace)
    may = await identity.may(rights.values()) if identity.lost is None else dict.fromkeys(rights.values(), True)
    return {
        "key": key,
        "base": base_of(key),
        "rights": rights,
        "may": {name: may[each] for name, each in rights.items()},
    }


def absent(followed: Followed) -> dict[str, Any]:
    """What a page shows where there is no snapshot."""
    return {"loading": followed.loading, "gone": followed.gone, "unseen": followed.unseen}


async def overview(request: web.Request) -> web.StreamResponse:
    """How a deployment is, and why."""
    key, site = key_in(request), request.app[SITE]
    async with site.watches.deployment(key) as followed:

        async def draw() -> Drawn:
            values = {**await frame_of(request, key), **absent(followed), "tab": "overview", "view": None}
            title = f"{key.name} – AI Runway"
            if followed.snapshot is not None:
                found = deployment_view(followed.snapshot)
                weight = dig(followed.snapshot.deployment, "spec", "gateway", "weight", default=1)
                values |= {
                    "view": found,
                    "group": printable(str(dig(followed.snapshot.deployment, "spec", "gateway", "group", default=""))),
                    "weight": weight if is_integer(weight) else 1,
                    "most_weight": MOST_WEIGHT,
                }
                title = f"{found.phase}: {title}"
            return Drawn(title=title, template="deployment.html", values=values)

        return await live_page(request, followed, draw)


async def document(request: web.Request) -> web.StreamResponse:
    """Its YAML with the status."""
    key, site = key_in(request), request.app[SITE]
    async with site.watches.deployment(key) as followed:

        async def draw() -> Drawn:
            text = yaml_of(followed.snapshot.deployment) if followed.snapshot is not None else ""
            values = {**await frame_of(request, key), **absent(followed), "tab": "yaml", "text": text}
            return Drawn(title=f"YAML of {key.name} – AI Runway", template="yaml.html", values=values)

        return await live_page(request, followed, draw)


def yaml_of(deployment: Resource) -> str:
    """Returns a deployment as kubectl shows it. Characters that are not ASCII are escaped: none is invisible."""
    metadata = {key: value for key, value in (dig(deployment, "metadata") or {}).items() if key != "managedFields"}
    head = {"apiVersion": MODEL_DEPLOYMENT.api_version, "kind": MODEL_DEPLOYMENT.kind, "metadata": metadata}
    rest = {key: value for key, value in deployment.items() if key not in head}
    return dumped({**head, **rest})


def dumped(obj: Resource) -> str:
    """Returns an object as YAML in ASCII."""
    return str(yaml.dump(obj, Dumper=_Dumper, sort_keys=False, width=120))


# ----------------------------------------------------------------------------------------------------------------- logs


async def logs(request: web.Request) -> web.StreamResponse:
    """The last lines of a container, of the run that is there or of the one before; a script reads on."""
    key, site = key_in(request), request.app[SITE]
    pod, container = request.match_info["pod"], request.match_info["container"]
    if not _CONTAINER.fullmatch(container) or not re.fullmatch(r"[a-z0-9][-a-z0-9.]{0,252}", pod):
        raise web.HTTPNotFound
    previous, at = request.query.get("previous") == "1", ObjectKey(key.namespace, pod)
    if request.query.get("follow") == "1":
        return await _follow(request, at, container)
    lines: list[str] = []
    problem = ""
    try:
        async with site.a_log():
            stream = site.identity.client.logs(at, container=container, previous=previous, tail=TAIL)
            async with aclosing(stream) as found:
                lines = [printable(line) async for line in found]
    except NotFound:
        problem = f"pod {pod} does not exist any more, and its log went with it"
    except BadRequest as error:
        problem = bounded(error.message, 300)
    other = address(request.path, previous="" if previous else "1")
    values = {
        **await frame_of(request, key),
        "tab": "logs",
        "pod": pod,
        "container": container,
        "previous": previous,
        "other": other,
        "problem": problem,
        "text": "\n".join(lines),
        "tail": TAIL,
        "count": len(lines),
        "follow": "" if previous or problem else address(request.path, follow="1"),
    }
    return page(request, Drawn(title=f"Log of {pod} – AI Runway", template="logs.html", values=values))


async def _follow(request: web.Request, pod: ObjectKey, container: str) -> web.StreamResponse:
    """New lines as plain text until the container ends, or the page is closed."""
    site = request.app[SITE]
    async with site.a_log():
        stream = site.identity.client.logs(pod, container=container, follow=True, tail=0)
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await response.prepare(request)
        try:
            async with aclosing(stream) as found:
                async for line in found:
                    await response.write(f"{printable(line)}\n".encode())
        except KubeError as error:
            await response.write(f"(the log broke off: {bounded(str(error), 300)})\n".encode())
        except ConnectionError:
            pass
    return response


# --------------------------------------------------------------------------------------------------- weight, deletion


async def set_weight(request: web.Request) -> web.StreamResponse:
    """Give a deployment another share of its group."""
    key, form = key_in(request), await request.post()
    text = str(form.get("weight", "")).strip()
    if not (text.isascii() and text.isdecimal() and int(text[:9]) <= MOST_WEIGHT and len(text) < 5):
        return problem_page(
            request, f"{bounded(text, 40)!r} is no weight: it is a number from 0 to {MOST_WEIGHT}.", status=422
        )
    patch = {"spec": {"gateway": {"weight": int(text)}}}
    await request.app[SITE].identity.client.merge_patch(
        MODEL_DEPLOYMENT, key, patch, manager="airunway-ui", field_validation="Strict"
    )
    return see_other(base_of(key))


async def ask_to_delete(request: web.Request) -> web.StreamResponse:
    """The question before a deletion."""
    key = key_in(request)
    found = await request.app[SITE].identity.client.find(MODEL_DEPLOYMENT, key)
    if found is None:
        return problem_page(
            request, f"There is no ModelDeployment {key.name} in namespace {key.namespace}.", status=404
        )
    values = {**await frame_of(request, key), "tab": "delete", "uid": uid_of(found), "name": key_of(found).name}
    return page(request, Drawn(title=f"Delete {key.name} – AI Runway", template="delete.html", values=values))


async def delete(request: web.Request) -> web.StreamResponse:
    """Delete the deployment that the question was about: not another one that has its name by now."""
    key, form = key_in(request), await request.post()
    try:
        await request.app[SITE].identity.client.delete(MODEL_DEPLOYMENT, key, uid=str(form.get("uid", "")))
    except Conflict:
        return problem_page(
            request, f"{key.name} was deleted and created anew in the meantime: it was not deleted again.", status=409
        )
    except NotFound:
        return problem_page(request, f"{key.name} is deleted already.", status=404)
    return see_other(address("/", ns=key.namespace))


ROUTES = [
    ("GET", "/d/{namespace}/{name}", overview),
    ("GET", "/d/{namespace}/{name}/yaml", document),
    ("GET", "/d/{namespace}/{name}/logs/{pod}/{container}", logs),
    ("POST", "/d/{namespace}/{name}/weight", set_weight),
    ("GET", "/d/{namespace}/{name}/delete", ask_to_delete),
    ("POST", "/d/{namespace}/{name}/delete", delete),
]
