"""Templates to HTML: every text is escaped, ages are elements that a script keeps right."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from airunway.redaction import printable
from airunway.unseen import Unseen
from airunway.view import Health, short_age
from airunway.view.plan import step_words, summary_of

_SHAPES = {Health.OK: "●", Health.PROGRESS: "◐", Health.UNKNOWN: "○", Health.PROBLEM: "▲"}
"""A state is a word, a shape and a colour: none of them has a meaning alone."""


@cache
def environment() -> Environment:
    """Returns the templates."""
    made = Environment(
        loader=PackageLoader("airunway_ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {"age": age, "state": state, "plain": printable, "query": urlencode, "part": _part}
    made.globals |= {"summary_of": summary_of, "step_words": step_words}
    made.tests["unseen"] = lambda value: isinstance(value, Unseen)
    return made


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """Returns a page, or a part of one."""
    return environment().get_template(template).render(values)


def age(moment: datetime | None) -> Markup:
    """The time since a moment."""
    if moment is None:
        return Markup("")
    text = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(text, text, short_age(moment, datetime.now(UTC)))


def state(word: str, health: str) -> Markup:
    """A state: its word with shape and colour."""
    found = Health(health)
    return Markup('<span class="state {}"><span class="shape" aria-hidden="true">{}</span> {}</span>').format(
        found.value, _SHAPES[found], escape(word)
    )


def _part(text: object) -> str:
    """A part of a path, or of an element's id."""
    return quote(str(text), safe="")
