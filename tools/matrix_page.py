"""Write the page that says what runs where: samples on every release of every upstream, engines, modes.

python -m tools.matrix_page [--check]

It starts an API server for it, and needs the upstreams' CRDs beside the checkout (../shared/upstream-crds). Without
them the page stays as it is.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.support.matrix import FORMS, Answer, Run, Sample, asked, engine_answers, samples_in_files
from tests.support.releases import Release, stored_releases
from tools.fields_page import cell, providers
from tools.generated import ROOT, write

from airunway.kube import NAMESPACE, Client, load_config
from airunway.plugins.host import ProviderHost
from airunway.plugins.registry import discover, load
from airunway.resource import Resource, dig
from airunway.selection.choice import PREFERENCE
from airunway_testing.controlplane import running
from airunway_testing.sandbox.samples import manifests_of

__all__ = ["CRDS", "PAGE", "excerpt", "page"]

PAGE = "docs/providers/matrix.md"
_LONGEST = 400
"""Characters of a reason; an API server names each field that it does not know."""
CRDS = ROOT.parent / "shared" / "upstream-crds"

_HEAD = """# What runs where

<!-- Generated: python -m tools.matrix_page -->

Each sample that comes with a provider is asked of every provider: its `provider.name` is replaced, and overrides are
left out where they are another provider's. It takes the way of a deployment: admission, the choice of the engine, the
provider with its default settings, and then a real API server with the upstream's own CRD of that release, which takes
what is written in a dry run with strict field validation. No upstream runs, so the page does not cover what its
controller or its webhooks do. Optional kinds are there, each in the newest version, unless the release is the question.

**yes**: on every release that was asked. **from**: on that release and all newer ones. **no**, and everything that is
not *yes*: the reasons are below, by provider.

What becomes of each field of a deployment: [honoured, warned or refused](fields.md).

Which [rules of the contract](contract.md#rules) each provider keeps: `python -m tools.provider_reports DIR` writes a
report and a badge of each, by the kit that [authors use](tutorial.md#a-report-for-others).
"""


async def page(client: Client, namespace: str, folder: Path) -> str:
    """The page, as Markdown; asked of an API server on which nothing else uses the upstreams' kinds."""
    hosts, samples = _hosts_and_samples()
    answers = await asked(client, namespace, hosts=hosts, samples=samples, folder=folder)
    lines = [_HEAD, *_samples(hosts, samples, answers), "", *_engines(hosts)]
    for host in hosts:
        own = [answer for answer in answers if answer.provider == host.name]
        lines += ["", *_provider(host, own, samples), *_left_out(own, folder)]
    return "\n".join([*lines, ""])


async def excerpt(client: Client, namespace: str, folder: Path) -> list[str]:
    """Lines and reasons of the page that follow from the oldest and the newest release of each upstream alone."""
    hosts, samples = _hosts_and_samples()
    answers = await asked(
        client, namespace, hosts=hosts, samples=samples, folder=folder, of="the oldest and the newest"
    )
    lines = [*_engines(hosts)]
    for host in hosts:
        lines += _releases([answer for answer in answers if answer.provider == host.name], len(samples))
    return [*lines, *dict.fromkeys(cell(_shortened(answer.refusal)) for answer in answers if answer.refusal)]


def _hosts_and_samples() -> tuple[list[ProviderHost], list[Sample]]:
    found = {each.name: each for each in discover()}
    hosts = [load(name) for name in providers()]
    return hosts, [each for host in hosts for each in samples_in_files(host.name, manifests_of(found[host.name]))]


# ------------------------------------------------------------------------------------------------------------- samples


def _samples(hosts: Sequence[ProviderHost], samples: Sequence[Sample], answers: Sequence[Answer]) -> Iterator[str]:
    yield "## Samples"
    yield ""
    yield f"| sample of | | asks for | {' | '.join(host.name for host in hosts)} |"
    yield f"|---|---|---|{'---|' * len(hosts)}"
    for sample in samples:
        cells = [
            _verdict([answer for answer in answers if (answer.sample, answer.provider) == (sample.name, host.name)])
            for host in hosts
        ]
        yield f"| {sample.of} | `{sample.name}` | {_request(sample.deployment['spec'])} | {' | '.join(cells)} |"


def _request(spec: Resource) -> str:
    engine = dig(spec, "engine", "type") or "any engine"
    if dig(spec, "serving", "mode") == "disaggregated":
        return f"{engine}, disaggregated"
    gpus = dig(spec, "resources", "gpu", "count", default=0)
    return f"{engine}, {gpus or 'no'} GPU{'s' if gpus > 1 else ''}"


def _verdict(answers: Sequence[Answer]) -> str:
    """In a word; `answers` are in the order of releases, by upstream."""
    if not any(answer.refusal for answer in answers):
        return "yes"
    words = {_since([answer for answer in answers if _upstream(answer) == name]) for name in map(_upstream, answers)}
    if "no" in words:
        return "no"
    words.discard("yes")
    return words.pop() if len(words) == 1 else "in part"


def _upstream(answer: Answer) -> str:
    return answer.release.upstream if answer.release else ""


def _since(answers: Sequence[Answer]) -> str:
    """The verdict on one upstream."""
    first = next((place for place, answer in enumerate(answers) if not answer.refusal), None)
    if first is None:
        return "no"
    if any(answer.refusal for answer in answers[first:]):
        return "in part"
    release = answers[first].release
    return f"from {release.names[0]}" if first and release else "yes"


# ------------------------------------------------------------------------------------------------- engines and modes


def _engines(hosts: Sequence[ProviderHost]) -> Iterator[str]:
    answers = {host.name: {engine: engine_answers(host, engine) for engine in PREFERENCE} for host in hosts}
    yield "## Engines and modes"
    yield ""
    yield "On the newest release of each upstream. **with an image**: only with `spec.image`."
    yield ""
    yield f"| engine | | {' | '.join(answers)} |"
    yield f"|---|---|{'---|' * len(answers)}"
    for engine in PREFERENCE:
        for form in FORMS:
            cells = [of[engine][form][0] for of in answers.values()]
            yield f"| {engine} | {form} | {' | '.join(cells)} |"
    yield ""
    yield "| provider | | why |"
    yield "|---|---|---|"
    for name, of in answers.items():
        for why, where in _by_words(of).items():
            yield f"| {name} | {'; '.join(where)} | {cell(why)} |"


def _by_words(of: Mapping[str, Mapping[str, tuple[Run, str]]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for engine, answers in of.items():
        words = {why for _, why in answers.values()}
        for form, (_, why) in answers.items():
            if why:
                found.setdefault(why, []).append(engine if len(words) == 1 else f"{engine}, {form}")
    return {why: list(dict.fromkeys(where)) for why, where in found.items()}


# ----------------------------------------------------------------------------------------------------------- providers


def _provider(host: ProviderHost, answers: Sequence[Answer], samples: Sequence[Sample]) -> Iterator[str]:
    yield f"## {host.name}"
    yield ""
    yield "| upstream | release | written | by transformer | samples |"
    yield "|---|---|---|---|---|"
    yield from _releases(answers, len(samples))
    yield ""
    yield "| not | on | why |"
    yield "|---|---|---|"
    never = {answer.sample for answer in answers if answer.refusal and answer.release is None}
    others = {sample.name for sample in samples} - never
    for names, where, why in _refusals(answers, list(_by_release(answers)), never):
        which = "every other sample" if names == others else ", ".join(f"`{name}`" for name in sorted(names))
        yield f"| {which} | {where} | {cell(_shortened(why))} |"


def _releases(answers: Sequence[Answer], samples: int) -> Iterator[str]:
    """A row for each release: what is written there, by which transformer, for how many of so many samples."""
    for release, own in _by_release(answers).items():
        taken = [answer for answer in own if not answer.refusal and answer.kinds]
        kinds = ", ".join(dict.fromkeys(kind for answer in taken for kind in answer.kinds))
        writers = ", ".join(dict.fromkeys(f"`{answer.writer}`" for answer in own if answer.writer))
        if release or taken:
            where = f"{release.upstream} | {release.label}" if release else "Kubernetes | any"
            yield f"| {where} | {kinds} | {writers} | {len(taken)} of {samples} |"


def _by_release(answers: Sequence[Answer]) -> dict[Release | None, list[Answer]]:
    found: dict[Release | None, list[Answer]] = {}
    for answer in answers:
        found.setdefault(answer.release, []).append(answer)
    return found


def _refusals(
    answers: Sequence[Answer], releases: Sequence[Release | None], never: Collection[str]
) -> list[tuple[set[str], str, str]]:
    """Who is refused where, and why; samples that are refused alike together.

    Those that are `never` taken are refused with the newest of everything: the reason is given once.
    """
    refused: dict[tuple[str, str], list[Release | None]] = {}
    for answer in answers:
        if answer.refusal and (answer.release is None or answer.sample not in never):
            refused.setdefault((answer.sample, answer.refusal), []).append(answer.release)
    together: dict[tuple[str, str], set[str]] = {}
    for (sample, why), where in refused.items():
        on = "every release" if sample in never else _spans(where, releases)
        together.setdefault((on, why), set()).add(sample)
    return [(names, on, why) for (on, why), names in together.items()]


def _spans(some: Sequence[Release | None], releases: Sequence[Release | None]) -> str:
    """Releases in words: of those that follow each other the first and the last."""
    spans: list[list[Release]] = []
    last = -1
    for place, release in enumerate(releases):
        if release is None or release not in some:
            continue
        if spans and last == place - 1 and spans[-1][-1].upstream == release.upstream:
            spans[-1].append(release)
        else:
            spans.append([release])
        last = place
    labels = (replace(span[0], names=span[0].names + span[-1].names).label for span in spans)
    found = [f"{span[0].upstream} {label}" for span, label in zip(spans, labels, strict=True)]
    return "; ".join([*(["Kubernetes"] if None in some else []), *found])


def _shortened(why: str) -> str:
    return why if len(why) <= _LONGEST else f"{why[:_LONGEST].rstrip()} …"


def _left_out(answers: Sequence[Answer], folder: Path) -> Iterator[str]:
    """The releases of the same kinds of which nothing is known here."""
    names = {name for answer in answers if answer.release for name in answer.release.files}
    missing = [release for release in stored_releases(folder, names) if not release.is_kept]
    if missing:
        yield ""
        yield f"Not asked, for want of their CRDs: {'; '.join(f'{each.upstream} {each.label}' for each in missing)}."


async def _asked_of_an_own_server() -> str:
    with running("api") as plane:
        async with Client(load_config(kubeconfig=plane.kubeconfig), user_agent="airunway-matrix") as client:
            name = "matrix"
            await client.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            return await page(client, name, CRDS)


def main() -> int:
    """The exit code."""
    if not (CRDS / "INDEX.md").is_file():
        sys.stdout.write(f"{PAGE}: left as it is, since ../shared/upstream-crds is not beside the checkout\n")
        return 0
    return write({PAGE: asyncio.run(_asked_of_an_own_server())})


if __name__ == "__main__":
    sys.exit(main())
