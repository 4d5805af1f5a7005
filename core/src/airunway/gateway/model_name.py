"""Asks a model server for the name that it answers to, for the deployments whose container alone knows it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import aiohttp
import orjson

from airunway.resource import dig

__all__ = ["Answer", "ask"]

log = logging.getLogger(__name__)

_TIMEOUT = 5.0
"""Seconds for the whole request (spec/platform.md, "Model name")."""

_MOST = 2**20
"""Bytes of an answer that are read."""

_LONGEST = 2048
"""Characters of a model name (`status.gateway.modelName`)."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer of a model server to ``/v1/models``."""

    name: str = ""
    """The first model's id; empty if there is none."""
    problem: str = ""
    """Why there is no name, as the end of a sentence; empty if there is one."""


async def ask(session: aiohttp.ClientSession, url: str) -> Answer:
    """Ask the server at `url` (``http://llama.ml.svc:8000``) for the id of its first model. Never raises for what the
    server does.
    """
    where = f"{url.rstrip('/')}/v1/models"
    try:
        async with asyncio.timeout(_TIMEOUT), session.get(where, allow_redirects=False) as response:
            if response.status != 200:
                return Answer(problem=f"{where} answered {response.status}")
            body = b""
            while chunk := await response.content.read(_MOST + 1 - len(body)):
                body += chunk
                if len(body) > _MOST:
                    return Answer(problem=f"{where} answered with more than 1 MiB")
    except TimeoutError:
        return Answer(problem=f"{where} did not answer within {_TIMEOUT:.0f} s")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return Answer(problem=f"{where} cannot be reached ({type(error).__name__})")
    return _name_in(body, where)


def _name_in(body: bytes, where: str) -> Answer:
    try:
        models = dig(orjson.loads(body), "data")
    except orjson.JSONDecodeError:
        return Answer(problem=f"{where} did not answer with JSON")
    first = models[0] if isinstance(models, list) and models else None
    name = dig(first, "id") if isinstance(first, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or not name.isprintable():
        return Answer(problem=f"{where} named no model")
    return Answer(name=name)
