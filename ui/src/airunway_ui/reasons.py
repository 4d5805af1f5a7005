"""The page that says why a deployment has its provider, and where each field of what it runs with comes from."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from airunway.kinds import INFERENCE_PROVIDER_CONFIG, MODEL_ARTIFACT, MODEL_DEPLOYMENT
from airunway.kube import Client
from airunway.plugins.errors import PluginError
from airunway.resource import Resource
from airunway.selection.facts import provider_facts
from airunway.snapshots.followed import read_followed, read_for
from airunway.snapshots.reader import Reader
from airunway.tools.expanded import SpecError, expanded, is_open, reference_text
from airunway.tools.explained import (
    cache_explanation,
    config_explanation,
    selection_explanation,
    template_explanation,
)
from airunway.unseen import Unseen
from airunway.view.explanation import ExplanationView, explanation_view
from airunway_ui.details import frame_of
from airunway_ui.server import SITE, Drawn, key_in, page, problem_page


async def why(request: web.Request) -> web.StreamResponse:
    """The page."""
    key, client = key_in(request), request.app[SITE].identity.client
    deployment = await client.find(MODEL_DEPLOYMENT, key)
    if deployment is None:
        return problem_page(
            request, f"There is no ModelDeployment {key.name} in namespace {key.namespace}.", status=404
        )
    found = await reasons_for(client, {**deployment, "kind": MODEL_DEPLOYMENT.kind})
    values = {**await frame_of(request, key), "tab": "why", "reference": reference_text, **found}
    return page(
        request, Drawn(title=f"Why {key.name} has its provider – AI Runway", template="why.html", values=values)
    )


async def reasons_for(client: Client, deployment: Resource) -> dict[str, Any]:
    """Returns the selection, and what is said of template, config, route and cache; with what was not seen."""
    configs = await Reader(client).list(INFERENCE_PROVIDER_CONFIG)
    templates = await read_for(client, [deployment] if is_open(deployment) else [])
    try:
        (found,) = expanded([deployment], templates.items)
    except SpecError as error:
        return {"problem": str(error), "view": None, "unseen": ()}
    followed = await read_followed(client, found.own, found.deployment)
    artifacts = [each for each in followed.items if each["kind"] == MODEL_ARTIFACT.kind]
    runtime_configs = [each for each in followed.items if each not in artifacts]
    unseen: tuple[Unseen, ...] = (*configs.unseen, *templates.unseen, *followed.unseen)

    def explained() -> ExplanationView:
        facts = [provider_facts(config) for config in configs.items]
        return explanation_view(selection_explanation(found, facts, now=datetime.now(UTC)))

    try:
        view = await asyncio.to_thread(explained)  # plugins that are installed here are asked, too: a second or more
    except PluginError as error:
        return {"problem": str(error), "view": None, "unseen": unseen}
    return {
        "problem": "",
        "view": view,
        "unseen": unseen,
        "template": template_explanation(found).get("template"),
        "cache": None,
        **{
            "config" if name == "runtimeConfig" else name: value
            for name, value in config_explanation(
                found.deployment, runtime_configs, own=found.own, template=found.origin
            ).items()
        },
        **{
            {"modelCache": "cache"}.get(name, name): value
            for name, value in cache_explanation(found.deployment, runtime_configs, artifacts).items()
        },
    }


ROUTES = [("GET", "/d/{namespace}/{name}/why", why)]
