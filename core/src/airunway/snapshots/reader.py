"""Reads for people's tools: what may not be read is a value that names the missing right."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

from airunway.api.names import GROUP
from airunway.kube import ApiError, Client, Forbidden, Kind, KubeError, NotFound
from airunway.kube.decoding import Page
from airunway.kube.errors import AnswerTooLarge
from airunway.redaction import bounded
from airunway.resource import ObjectKey, Resource, key_of
from airunway.unseen import Unseen

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """What was read of an object or a list."""

    items: tuple[Resource, ...] = ()
    """The objects, each with its kind."""
    unseen: tuple[Unseen, ...] = ()
    """Why nothing was read; beside `items`: why not all of it."""

    @property
    def found(self) -> tuple[Resource, ...] | Unseen:
        """The objects, or why none were read."""
        return self.unseen[0] if self.unseen and not self.items else self.items


def joined(reads: Iterable[Listed]) -> Listed:
    """Returns what several reads have, each object and each reason once."""
    reads = [*reads]
    items = {(item["kind"], key_of(item)): item for read in reads for item in read.items}
    return Listed(
        items=tuple(items.values()), unseen=tuple(dict.fromkeys(each for read in reads for each in read.unseen))
    )


class Reader:
    """Reads objects and lists; without the right to one it is `Unseen`.

    Other errors are raised as KubeError, unless the reader is `tolerant`: then they are a reason, too.
    """

    def __init__(self, client: Client, *, tolerant: bool = False) -> None:
        self._client = client
        self._errors = (KubeError, ValueError) if tolerant else (Forbidden,)

    async def see(self, what: str, work: Awaitable[T], *, right: str = "") -> T | Unseen:
        """The result of requests that together need one `right`; empty: the API server's message names it."""
        try:
            return await work
        except self._errors as error:
            return unseen_for(what, error, right=right)

    async def get(self, kind: Kind, key: ObjectKey, *, what: str = "") -> Listed:
        """One object; none if it, or its kind, does not exist."""
        work = self._client.find(kind, key)
        found = await self.see(what or f"{kind} {key.name}", work, right=right_to("get", kind, key.namespace))
        if isinstance(found, Unseen):
            return Listed(unseen=(found,))
        return Listed(items=({**found, "kind": found.get("kind") or kind.kind},) if found is not None else ())

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        what: str = "",
        unserved: Literal["empty", "unseen", "error"] = "empty",
    ) -> Listed:
        """All objects; `unserved` says what a kind is that the cluster does not have."""
        work = self._client.list_all(
            kind, namespace=namespace, label_selector=label_selector, field_selector=field_selector
        )
        what, absent = what or str(kind), Listed()
        if unserved == "unseen":
            absent = Listed(unseen=(Unseen(what=what, why=f"the cluster does not serve {kind}"),))
        work_or_none = work if unserved == "error" else _or_none(work)
        found = await self.see(what, work_or_none, right=right_to("list", kind, namespace))
        if found is None:
            return absent
        return Listed(unseen=(found,)) if isinstance(found, Unseen) else Listed(items=tuple(found))

    async def first(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int,
        most: int,
    ) -> Listed:
        """The first `limit` objects of a list in one request; none of one with more than `most` bytes."""
        what = str(kind)

        async def one_page() -> Page | Unseen | None:
            try:
                return await self._client.first_page(
                    kind,
                    namespace=namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    limit=limit,
                    most=most,
                )
            except NotFound:
                return None  # the kind does not exist
            except AnswerTooLarge:
                return Unseen(what=what, why=f"more than {most // 2**20} MiB")

        page = await self.see(what, one_page(), right=right_to("list", kind, namespace))
        if page is None or isinstance(page, Unseen):
            return Listed(unseen=(page,) if page is not None else ())
        cut = Unseen(what=what, why=f"only the first {len(page.items)} of the list were read")
        return Listed(items=tuple(page.items), unseen=(cut,) if page.continue_token else ())


async def _or_none(work: Awaitable[T]) -> T | None:
    """The result; None where the object or its kind does not exist."""
    try:
        return await work
    except NotFound:
        return None


def right_to(verb: str, kind: Kind, namespace: str = "") -> str:
    """Returns the right to do that with objects of a kind, as words of a sentence."""
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    return f"{verb} {kind} {where}" if kind.namespaced else f"{verb} {kind}"


def unseen_for(what: str, error: Exception, *, right: str = "") -> Unseen:
    """Returns why that was not read, with the right that is missing."""
    if isinstance(error, ApiError) and error.status == 403:
        return Unseen(
            what=what, why="you have no right to it" if right else bounded(f"you may not: {error}", 300), right=right
        )
    return Unseen(what=what, why=bounded(str(error), 300))


def denied(error: Forbidden, namespace: str) -> str:
    """One sentence with the right that is missing, and the role to ask for."""
    found = re.search(r"cannot (\w+) resource \"([^\"]+)\" in API group \"([^\"]*)\"", str(error))
    if found is None:
        return str(error)
    verb, resource, group = found.groups()
    resource, _, subresource = resource.partition("/")
    what = f"{resource}{f'.{group}' if group else ''}{f'/{subresource}' if subresource else ''}"
    if "at the cluster scope" in str(error):
        return f"you have no right to {verb} {what} in the cluster: ask for a ClusterRole that allows it"
    # Kubernetes' own `view` has no right to subresources that reach into a pod.
    role = "view" if verb in ("get", "list", "watch") and subresource not in ("proxy", "exec") else "edit"
    if group == GROUP:  # of our kinds the built-in roles have rights only where a chart has brought them
        return (
            f"you have no right to {verb} {what} in namespace {namespace}: ask for the ClusterRole {role} there, or "
            f"for a role that allows it where {role} does not (it does once the chart airunway is installed)"
        )
    return f"you have no right to {verb} {what} in namespace {namespace}: ask for the ClusterRole {role} there"
