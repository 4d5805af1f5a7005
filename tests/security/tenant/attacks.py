"""What a tenant who may create, change and delete ModelDeployments can send: a generator that a seed repeats.

Each family is one idea. Those in `HEAVY` send objects as large as an API server takes (it stores 1.5 MiB) and come
seldom: many of them would fill the store, which no controller of ours can help.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from orjson import Fragment

from airunway.api import names
from airunway.resource import Resource

__all__ = ["FAMILIES", "HEAVY", "Attack", "attacks"]

NAMESPACE = "evil"
HEAVY_SHARE, HEAVY_MOST = 0.1, 200
"""Of the attacks; and how many of them in one run, as long as lighter ones are among them."""

ALIVE = 60
"""Objects that are left alive; the oldest is deleted first. A burst goes beyond."""

_CAN_BE = re.compile("[a-z]([-a-z0-9]{0,50}[a-z0-9])?")
"""Names that our CRD takes: only of those can there be anything to change or delete."""

Make = Callable[["Tenant"], "list[Attack]"]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One request; `body` is an object, or a merge patch of the object called `name`."""

    family: str
    verb: Literal["create", "patch", "delete"]
    name: str
    body: Resource = field(default_factory=dict)
    dry_run: bool = False


@dataclass
class Tenant:
    """What the generator knows of what it did."""

    rng: random.Random
    family: str = ""
    number: int = 0
    alive: list[str] = field(default_factory=list)

    def create(self, *, name: str | None = None, metadata: Resource | None = None, **spec: object) -> Attack:
        """A creation: what KAITO can run, but for the given parts of the spec."""
        self.number += 1
        name = f"evil-{self.number}" if name is None else name
        if _CAN_BE.fullmatch(name):
            self.alive.append(name)
        base: Resource = {
            "model": {"id": "google/gemma-3-1b-it-qat-q8_0-gguf/gemma-3-1b-it-q8_0.gguf"},
            "engine": {"type": "llamacpp"},
            "resources": {"memory": "16Gi", "cpu": "8"},
            "image": "ghcr.io/sozercan/llama-cpp-runner:latest",
        }
        body = {
            "apiVersion": names.API_VERSION,
            "kind": "ModelDeployment",
            "metadata": {"name": name, "namespace": NAMESPACE, **(metadata or {})},
            "spec": {**base, **spec},
        }
        return Attack(family=self.family, verb="create", name=name, body=body)

    def overriding(self, overrides: object) -> Attack:
        return self.create(provider={"name": "kaito", "overrides": overrides})

    def patch(self, name: str, body: Resource) -> Attack:
        return Attack(family=self.family, verb="patch", name=name, body=body)

    def delete(self, name: str) -> Attack:
        return Attack(family=self.family, verb="delete", name=name)


# ------------------------------------------------------------------------------------------ as large as it gets


def paths(t: Tenant) -> list[Attack]:
    """A long key above many children (C1)."""
    key = "k" * t.rng.choice((1_000, 50_000, 200_000, 700_000))
    count = t.rng.choice((1_000, 50_000, 200_000))
    children: object = [0] * count if t.rng.random() < 0.5 else {f"{n:x}": 0 for n in range(count // 4)}
    return [t.overriding({key: children})]


def sizes(t: Tenant) -> list[Attack]:
    """Long lists and maps in every place that takes one (H1)."""
    n = t.rng.choice((5_000, 20_000, 60_000))
    parts: list[Resource] = [
        {"tolerations": [{}] * (n * 4)},
        {"env": [{"name": "A"}] * n},
        {"env": [{"name": "A", "value": "v" * (n * 15)}]},
        {"imagePullSecrets": [{"name": "a"}] * n},
        {"nodeSelector": {f"k{i}": "v" for i in range(n)}},
        {"podTemplate": {"metadata": {"labels": {f"k{i}": "v" for i in range(n)}}}},
        {"podTemplate": {"metadata": {"annotations": {"a": "v" * (n * 15)}}}},
        {"engine": {"type": "llamacpp", "args": {f"a{i}": "v" * (n * 15 // 200) for i in range(200)}}},
        {"affinity": {"nodeAffinity": {"x": [{}] * n}}},
        {"provider": {"name": "kaito", "overrides": {"resource": {"preferredNodes": [0] * (n * 8)}}}},
        {"provider": {"name": "kaito", "overrides": {f"unknown{i}": 0 for i in range(n)}}},
    ]
    return [t.create(**t.rng.choice(parts))]


def forbidden(t: Tenant) -> list[Attack]:
    """As many refusals in one object as fit (H1)."""
    return [t.overriding({"x": [{t.rng.choice(("kind", "hostPath", "metadata")): 0}] * 90_000})]


# ------------------------------------------------------------------------------------------ by their shape


def depths(t: Tenant) -> list[Attack]:
    """Nesting, around and above what decoders and encoders take (L1, M9)."""
    opening, closing = t.rng.choice((('{"a":', "}"), ("[", "]")))
    depth = t.rng.choice((30, 200, 250, 260, 500, 1_000, 1_030, 4_000))
    value = Fragment(f"{opening * depth}0{closing * depth}")  # no encoder of ours would write it
    return [t.overriding({"resource": value}) if t.rng.random() < 0.5 else t.create(affinity={"x": value})]


def odd_names(t: Tenant) -> list[Attack]:
    """Names that are something else to a shell, a URL, a label or a StatefulSet."""
    name = t.rng.choice(
        (
            "",
            ".",
            "..",
            "a/../b",
            "%2e%2e",
            "8b",
            "A",
            "a.b.c",
            "a" * 52,
            "a" * 53,
            "a" * 253,
            "a\n",
            "kubernetes",
            "-a",
        )
    )
    return [t.create(name=name), t.create(name=None, metadata={"generateName": "a" * 60})]


STRANGE = (
    "\x00",
    "\u202e",
    "\u2028",
    "\x1b]0;x\x07",
    "\U0001f600" * 50,
    "é" * 300,
    "$(HF_TOKEN)",
    "{{.x}}",
    "%s%n",
    "a\nb",
)


def unicode(t: Tenant) -> list[Attack]:
    """Text that is not what it looks like, wherever text goes."""
    text = t.rng.choice(STRANGE) + t.rng.choice(("", "a", "ﬀ"))
    parts: list[Resource] = [
        {"model": {"id": f"a/{text}"}},
        {"model": {"id": "a/b", "servedName": text}},
        {"env": [{"name": text, "value": text}]},
        {"engine": {"type": "llamacpp", "args": {text: text}, "extraArgs": [text]}},
        {"image": text},
        {"nodeSelector": {text: text}},
        {"provider": {"name": text}},
        {"provider": {"name": "kaito", "overrides": {text: {text: text}}}},
        {"resources": {"memory": text}},
    ]
    return [t.create(**t.rng.choice(parts))]


def overrides(t: Tenant) -> list[Attack]:
    """Values of wrong types and forbidden places in overrides."""
    leaf: object = t.rng.choice((None, True, -1, 2**63 - 1, 1e308, "", "x" * 2_000, [], {}, [[[]]], {"": {"": 0}}))
    keys = (
        "resource",
        "inference",
        "tuning",
        "metadata",
        "spec",
        "status",
        "kind",
        "__proto__",
        "",
        "resorce",
        "count",
    )
    tree = leaf
    for _ in range(t.rng.randint(1, 4)):
        tree = {t.rng.choice(keys): tree}
    return [t.overriding(tree)]


def labels(t: Tenant) -> list[Attack]:
    """Labels, annotations, owners and finalizers that are ours or others' to set."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": f"{t.rng.getrandbits(64):x}", "controller": True}
    metadata: list[Resource] = [
        {"labels": {names.MODEL_DEPLOYMENT: "good-0", names.MANAGED_BY: "x", "kaito.sh/workspace": "good-0"}},
        {"annotations": {"airunway.ai/dry-run": "true"}},
        {"annotations": {"airunway.ai/reconcile-paused": "true"}},
        {"annotations": {"a": "x" * t.rng.choice((10, 200_000))}},
        {"ownerReferences": [owner]},
        {"finalizers": [names.provider_finalizer("kaito"), "example.com/never"]},
    ]
    template = {"metadata": {"labels": {"app": "good-0", names.MODEL_DEPLOYMENT: "good-0"}}}
    return [t.create(metadata=t.rng.choice(metadata), podTemplate=template)]


def quantities(t: Tenant) -> list[Attack]:
    """Sizes never seen before, by dry run (H5), and strange ones."""
    odd = t.rng.choice(
        ("9E999999", "1e-999999", "0", "-1", "1Gi\n", "１Gi", "0.0000001", "1" * 300, f"{t.rng.random()}Gi")
    )
    made = [
        t.create(resources={"memory": f"{t.rng.getrandbits(40)}", "cpu": f"{t.rng.getrandbits(12)}m"}) for _ in range(4)
    ]
    made.append(t.create(resources={"memory": odd, "cpu": odd}))
    t.alive[-5:] = []
    return [Attack(family=t.family, verb="create", name=one.name, body=one.body, dry_run=True) for one in made]


def patterns(t: Tenant) -> list[Attack]:
    """Texts that are slow to match (M8)."""
    text = t.rng.choice(("a-", "token-", " ", "/", "a:", "@")) * t.rng.choice((500, 1_000))
    return [
        t.create(model={"id": f"a{text}"[:2_048]}, image=text[:1_024], engine={"type": text[:63], "extraArgs": [text]})
    ]


# ------------------------------------------------------------------------------------------ by their number


def flapping(t: Tenant) -> list[Attack]:
    """One object that changes its mind faster than anybody can follow."""
    if not t.alive:
        return [t.create()]
    name = t.rng.choice(t.alive)
    changes: list[Resource] = [
        {"spec": {"suspend": True}},
        {"spec": {"suspend": False}},
        {"spec": {"model": {"id": f"other/model-{t.rng.getrandbits(20)}/x.gguf"}}},
        {"spec": {"engine": {"contextLength": t.rng.randint(1, 100_000)}}},
        {"metadata": {"labels": {"flap": f"{t.rng.getrandbits(30)}"}}},
        {"metadata": {"annotations": {"airunway.ai/reconcile-paused": t.rng.choice(("true", "false"))}}},
        {"metadata": {"annotations": {"airunway.ai/dry-run": t.rng.choice(("true", "false"))}}},
        {"spec": {"provider": {"name": t.rng.choice(("kaito", "nobody", None))}}},
    ]
    return [t.patch(name, t.rng.choice(changes)) for _ in range(5)]


def lives(t: Tenant) -> list[Attack]:
    """Made and deleted at once, under one name."""
    name = f"again-{t.rng.randint(0, 3)}"
    one = t.create(name=name)
    t.alive.remove(name)
    return [one, t.delete(name), one, t.delete(name)]


def bursts(t: Tenant) -> list[Attack]:
    """Many objects at a time; one in a hundred bursts has a thousand."""
    return [t.create() for _ in range(1_000 if t.rng.random() < 0.01 else 20)]


FAMILIES: dict[str, Make] = {
    make.__name__: make
    for make in (
        *(paths, sizes, forbidden),
        *(depths, odd_names, unicode, overrides, labels, quantities, patterns),
        *(flapping, lives, bursts),
    )
}
HEAVY = ("paths", "sizes", "forbidden")


def attacks(seed: int, count: int, *, families: Sequence[str] = tuple(FAMILIES)) -> Iterator[Attack]:
    """`count` requests of these families; the same for the same arguments. Raises KeyError for an unknown family."""
    tenant = Tenant(random.Random(seed))
    heavy = [FAMILIES[name] for name in families if name in HEAVY]
    light = [FAMILIES[name] for name in families if name not in HEAVY]
    share = min(HEAVY_SHARE, HEAVY_MOST / max(1, count))
    sent = 0
    while sent < count:
        due = heavy and (not light or tenant.rng.random() < share)
        make = tenant.rng.choice(heavy if due else light)
        tenant.family = make.__name__
        batch = make(tenant)
        while len(tenant.alive) > ALIVE:
            batch.append(tenant.delete(tenant.alive.pop(0)))
        yield from batch[: count - sent]
        sent += len(batch)
