"""The pages on which a deployment is written: a form beside its YAML, what becomes of it, and the write itself."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any

import orjson
from aiohttp import web

from airunway.kinds import MODEL_DEPLOYMENT
from airunway.kube import AlreadyExists, ApiError, Client, Conflict, KubeError
from airunway.plugins.errors import PluginError, PluginFault
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, dig, key_of, text_at, uid_of
from airunway.sizing.catalogue import catalogue
from airunway.sizing.inventory import Inventory
from airunway.snapshots.followed import read_templates
from airunway.snapshots.inventory import read_inventory
from airunway.snapshots.reader import Reader, denied, unseen_for
from airunway.tools.assignment import installed_plugin, provider_among
from airunway.unseen import Unseen
from airunway.upgrades.edit_reading import EditReader
from airunway_ui import drafts
from airunway_ui.checks import sizing_of
from airunway_ui.details import base_of, rights_for
from airunway_ui.drafts import FIELDS, DraftError
from airunway_ui.render import rendered
from airunway_ui.server import SITE, Drawn, context, key_in, page, problem_page, see_other
from airunway_ui.tree import parsed

_MANAGER = "airunway-ui"
_TRIES = 5
"""Writes of a status come between: an edit is sent again as long as the spec is the one that was opened."""

_FRESH = 15.0
"""Seconds for which nodes and pods count as read."""

_MOST_TEMPLATES = 200


# ------------------------------------------------------------------------------------------------- where a page begins


async def new(request: web.Request) -> web.StreamResponse:
    """An empty form."""
    identity = request.app[SITE].identity
    draft = drafts.new(
        namespace=bounded(request.query.get("ns", ""), 63) or identity.namespace,
        model=bounded(request.query.get("model", ""), 1024),
        template=bounded(request.query.get("template", ""), 253),
    )
    return await _page(request, _Asked(text=drafts.text_of(draft), fields=drafts.fields_of(draft)), draft)


async def edit(request: web.Request) -> web.StreamResponse:
    """The form of a deployment of the cluster."""
    found = await _found(request)
    if isinstance(found, web.Response):
        return found
    draft = drafts.written(found)
    asked = _Asked(
        text=drafts.text_of(draft),
        fields=drafts.fields_of(draft),
        mode="edit",
        uid=uid_of(found),
        generation=str(dig(found, "metadata", "generation", default="")),
    )
    return await _page(request, asked, draft)


async def copy(request: web.Request) -> web.StreamResponse:
    """The form of a new deployment like another one."""
    found = await _found(request)
    if isinstance(found, web.Response):
        return found
    draft = drafts.copied(found, suffix="-copy")
    return await _page(request, _Asked(text=drafts.text_of(draft), fields=drafts.fields_of(draft)), draft)


async def beside(request: web.Request) -> web.StreamResponse:
    """The form of a new deployment that is to replace another one without an outage."""
    found = await _found(request)
    if isinstance(found, web.Response):
        return found
    draft, remark = drafts.beside(found)
    asked = _Asked(text=drafts.text_of(draft), fields=drafts.fields_of(draft), remark=remark)
    return await _page(request, asked, draft)


async def _found(request: web.Request) -> Resource | web.Response:
    key = key_in(request)
    found = await request.app[SITE].identity.client.find(MODEL_DEPLOYMENT, key)
    if found is None:
        return problem_page(
            request, f"There is no ModelDeployment {key.name} in namespace {key.namespace}.", status=404
        )
    return found


# ------------------------------------------------------------------------------------------------------- what was typed


class _Asked:
    """A form as it was sent."""

    def __init__(
        self,
        *,
        text: str,
        fields: Mapping[str, str],
        mode: str = "new",
        uid: str = "",
        generation: str = "",
        remark: str = "",
        sequences: str = "1",
        source: str = "form",
    ) -> None:
        self.text, self.fields, self.mode = text, dict(fields), mode
        self.uid, self.generation, self.remark = uid, generation, remark
        self.sequences, self.source = sequences, source

    @property
    def title(self) -> str:
        """What the page is for."""
        return f"Edit {self.fields['name']}" if self.mode == "edit" else "New deployment"


async def _asked(request: web.Request) -> tuple[_Asked, Resource | None, dict[str, str]]:
    """What was typed, the deployment that it is, and what is wrong by field; that of the YAML is under ``yaml``."""
    form = {name: str(value).replace("\r\n", "\n") for name, value in (await request.post()).items()}
    fields = {field.name: form.get(f"f-{field.name}", "") for field in FIELDS}
    asked = _Asked(
        text=form.get("yaml", ""),
        fields=fields,
        mode="edit" if form.get("mode") == "edit" else "new",
        uid=form.get("uid", ""),
        generation=form.get("generation", ""),
        sequences=form.get("sequences", "1"),
        source=form.get("source", "yaml"),
    )
    try:
        draft = drafts.read(asked.text)
    except DraftError as error:
        return asked, None, {"yaml": str(error)}
    errors: dict[str, str] = {}
    if asked.source == "form":
        draft, errors = drafts.with_fields(draft, fields)
        asked.text = drafts.text_of(draft)
        asked.fields = {**drafts.fields_of(draft), **{name: fields[name] for name in errors}}
    else:
        asked.fields = drafts.fields_of(draft)
    if not key_of(draft).name:
        errors.setdefault("name", "it needs a name")
    if not key_of(draft).namespace:
        errors.setdefault("namespace", "it needs a namespace")
    return asked, draft, errors


# ------------------------------------------------------------------------------------------------- what becomes of it


async def check(request: web.Request) -> web.StreamResponse:
    """What becomes of a draft: for a script the parts that change, else the page."""
    asked, draft, errors = await _asked(request)
    found = await _checked(request, asked, draft, errors)
    if "application/json" not in request.headers.get("Accept", ""):
        return await _page(request, asked, draft, **found)
    tree = parsed(rendered("checks.html", {**context(request), **found}))
    answer = {"yaml": asked.text, "fields": asked.fields, "errors": found["errors"], "checks": tree[2]}
    return web.Response(body=orjson.dumps(answer), content_type="application/json")


async def _checked(
    request: web.Request, asked: _Asked, draft: Resource | None, errors: Mapping[str, str]
) -> dict[str, Any]:
    """Plan and sizing of a draft."""
    found: dict[str, Any] = {"errors": dict(errors), "plan": None, "sized": None, "problems": [], "unseen": []}
    if draft is None or "name" in errors or "namespace" in errors:
        return found
    client = request.app[SITE].identity.client
    inventory = await _inventory(request, key_of(draft).namespace)
    if isinstance(inventory, Unseen):
        found["unseen"].append(inventory)
        sizing: dict[str, Any] = {}
    else:
        sequences = int(asked.sequences) if asked.sequences.isdecimal() and len(asked.sequences) < 7 else 1
        sizing = await sizing_of(client, draft, inventory, sequences=max(1, sequences))
    found |= {name: value for name, value in sizing.items() if name in ("sized", "rows")}
    found["unseen"] += sizing.get("unseen", [])
    try:
        reader = EditReader(client, load=installed_plugin, choose=provider_among, store=_as_stored)
        found["plan"] = await reader.plan(draft)
        if asked.mode == "new" and found["plan"].deployment.action != "create":
            text = f"{key_of(draft).name} exists in namespace {key_of(draft).namespace} already"
            found["problems"].append(f"{text}: choose another name, or edit that one")
    except ApiError as error:
        found["errors"] = {**drafts.errors_at(error.causes), **found["errors"]}
        found["problems"] += _sentences(error, key_of(draft).namespace)
    except (KubeError, PluginError, PluginFault) as error:
        found["problems"].append(bounded(str(error), 1000))
    found["problems"] += [sizing["problem"]] if sizing.get("problem") else []
    return found


def _sentences(error: ApiError, namespace: str) -> list[str]:
    """What the API server says against a draft, in its words."""
    if error.status == 403 and "cannot" in str(error):
        return [denied(error, namespace)]  # type: ignore[arg-type]  # a 403 is a Forbidden
    causes = [f"{each.get('field')}: {each.get('message')}" for each in error.causes if each.get("field")]
    return [bounded(each, 500) for each in causes[:32]] or [bounded(error.message or str(error), 1000)]


async def _as_stored(client: Client, draft: Resource, live: Resource | None) -> Resource:
    """What the API server would store of a draft, by a dry run."""
    if live is None:
        return await client.create(MODEL_DEPLOYMENT, draft, manager=_MANAGER, dry_run=True, field_validation="Strict")
    return await client.replace(
        MODEL_DEPLOYMENT, drafts.edited(live, draft), manager=_MANAGER, dry_run=True, field_validation="Strict"
    )


async def _inventory(request: web.Request, namespace: str) -> Inventory | Unseen:
    """Nodes and pods, read at most every few seconds."""
    cached = request.app[_INVENTORIES]
    found = cached.get(namespace)
    if found is None or monotonic() - found[0] > _FRESH:
        try:
            read = await read_inventory(request.app[SITE].identity.client, namespace=namespace)
        except KubeError as error:
            return unseen_for("the cluster's nodes", error)
        cached.clear()
        cached[namespace] = found = (monotonic(), read)
    return found[1]


_INVENTORIES: web.AppKey[dict[str, tuple[float, Inventory]]] = web.AppKey("inventories", dict)


def prepare(app: web.Application) -> None:
    """Give the application the place for what is read now and then."""
    app[_INVENTORIES] = {}


# ------------------------------------------------------------------------------------------------------------ the write


async def apply(request: web.Request) -> web.StreamResponse:
    """Write the draft: a new deployment, or the one that was opened."""
    asked, draft, errors = await _asked(request)
    if draft is None or errors:
        return await _page(request, asked, draft, status=422, errors=errors)
    key, client = key_of(draft), request.app[SITE].identity.client
    try:
        if asked.mode == "new":
            await client.create(MODEL_DEPLOYMENT, draft, manager=_MANAGER, field_validation="Strict")
        else:
            await _replace(client, asked, draft)
    except AlreadyExists:
        found = await _checked(request, asked, draft, errors)
        return await _page(request, asked, draft, status=409, **found)
    except _Changed as error:
        found = await _checked(request, asked, draft, errors)
        asked.generation, asked.uid = error.generation, error.uid
        found["problems"] = [str(error), *found["problems"]]
        return await _page(request, asked, draft, status=409, **found)
    except ApiError as error:
        wrong = {"errors": drafts.errors_at(error.causes), "problems": _sentences(error, key.namespace)}
        return await _page(request, asked, draft, status=422, **wrong)
    return see_other(base_of(key))


class _Changed(Exception):
    """Another person has edited the deployment; the message is a sentence."""

    def __init__(self, message: str, live: Resource) -> None:
        super().__init__(message)
        self.generation = str(dig(live, "metadata", "generation", default=""))
        self.uid = uid_of(live)


async def _replace(client: Client, asked: _Asked, draft: Resource) -> None:
    """Send an edit, if the spec is still the one that was opened. Raises _Changed, and KubeError."""
    key = key_of(draft)
    for attempt in range(_TRIES):
        live = await client.get(MODEL_DEPLOYMENT, key)
        if uid_of(live) != asked.uid:
            raise _Changed(
                f"{key.name} is not the one that you opened: it was deleted and created anew, or renamed", live
            )
        if str(dig(live, "metadata", "generation", default="")) != asked.generation:
            raise _Changed(
                f"{key.name} was edited by another person while you wrote: what your draft changes of it now is below. "
                "Deploy once more to have it your way",
                live,
            )
        try:
            await client.replace(
                MODEL_DEPLOYMENT, drafts.edited(live, draft), manager=_MANAGER, field_validation="Strict"
            )
        except Conflict:
            if attempt == _TRIES - 1:
                raise
        else:
            return


async def download(request: web.Request) -> web.StreamResponse:
    """The YAML as a file."""
    asked, _, _ = await _asked(request)
    headers = {"Content-Disposition": 'attachment; filename="modeldeployment.yaml"'}
    return web.Response(text=asked.text, content_type="application/yaml", headers=headers)


# ------------------------------------------------------------------------------------------------------------- the page


async def _page(
    request: web.Request, asked: _Asked, draft: Resource | None, *, status: int = 200, **found: Any
) -> web.Response:
    identity = request.app[SITE].identity
    namespace = (key_of(draft).namespace if draft is not None else "") or identity.namespace
    right = rights_for(namespace)["edit" if asked.mode == "edit" else "copy"]
    may = await identity.may([right])
    templates, unseen = await _templates(identity.client, namespace)
    key = ObjectKey(namespace, asked.fields.get("name", ""))
    values = {
        "asked": asked,
        "form_fields": FIELDS,
        "templates": templates,
        "templates_unseen": unseen,
        "models": catalogue(),
        "right": right,
        "may_write": may[right],
        "back": base_of(key) if asked.mode == "edit" else "/",
        "errors": {},
        "plan": None,
        "sized": None,
        "problems": [],
        "unseen": [],
        **found,
    }
    drawn = Drawn(title=f"{asked.title} – AI Runway", template="edit.html", values=values, status=status)
    return page(request, drawn)


async def _templates(client: Client, namespace: str) -> tuple[list[tuple[str, str, str]], tuple[Unseen, ...]]:
    """Templates with name, model and why not: those that are ready first."""
    read = await Reader(client, tolerant=True).see("templates", read_templates(client, namespace=namespace))
    if isinstance(read, Unseen):
        return [], (read,)
    rows = []
    for each in read.items[:_MOST_TEMPLATES]:
        phase = text_at(each, "status", "phase") or "unknown"
        why = "" if phase == "Ready" else ": ".join(filter(None, (phase, text_at(each, "status", "reason"))))
        rows.append((key_of(each).name, text_at(each, "spec", "modelName"), why))
    return sorted(rows, key=lambda row: (bool(row[2]), row[0])), read.unseen


ROUTES = [
    ("GET", "/new", new),
    ("GET", "/d/{namespace}/{name}/edit", edit),
    ("GET", "/d/{namespace}/{name}/copy", copy),
    ("GET", "/d/{namespace}/{name}/beside", beside),
    ("POST", "/check", check),
    ("POST", "/apply", apply),
    ("POST", "/download", download),
]
