"""``airunway top`` shows how busy deployments are, from the metrics of their engines."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from airunway.cli.cluster import Access, about_deployment, duration, fail, on_cluster_reporting
from airunway.cli.options import cluster_options, deployment_argument, namespace_option, output_option
from airunway.cli.parameters import Command, option
from airunway.cli.printing import as_document, object_name
from airunway.resource import ObjectKey, key_of

if TYPE_CHECKING:
    from airunway.cli.printing import Line
    from airunway.kube import Client
    from airunway.view.engine_metrics import LoadRow

REFRESH = 5.0
"""Seconds between two screens."""

_MOST_REASONS = 8


@click.command(cls=Command)
@deployment_argument("Only this deployment of the cluster.", "[md/NAME]")
@namespace_option()
@option("--all-namespaces", "-A", is_flag=True, help="In all namespaces.")
@option("--watch", "-w", is_flag=True, help="Go on: a new table every 5 s, over the last 15 s.")
@option(
    "--window", default="1s", metavar="DURATION", help="Without --watch: time between the two samples that make a rate."
)
@option(
    "--prometheus", metavar="URL", help="Ask this Prometheus instead of the pods; its rates are over the last minute."
)
@output_option("table", "json", "yaml", "name")
@cluster_options
def top(
    target: tuple[str, ...],
    *,
    namespace: str,
    all_namespaces: bool,
    watch: bool,
    window: str,
    prometheus: str,
    output: str,
    kubeconfig: Path | None,
    context: str | None,
) -> None:
    """Show how busy deployments are: requests, KV cache, time to the first token, generated tokens per second.

    The numbers are those of the engines (vLLM, SGLang, TensorRT-LLM, llama.cpp): `kubectl top` has CPU and memory.

    airunway top -n ml

    airunway top -A --prometheus http://localhost:9090

    Needs the right to get pods/proxy, or a Prometheus that scrapes the pods. What cannot be seen is a question mark,
    with its reason below the table, never 0.
    """
    if target and all_namespaces:
        raise click.BadParameter("name one deployment, or use -A")
    if prometheus and not prometheus.startswith(("http://", "https://")):
        raise click.BadParameter("--prometheus needs an http or https URL")
    pause = duration(window).total_seconds()
    if not 0 < pause <= 3600:
        raise click.BadParameter("--window must be longer than 0s, at most 1h")

    async def work(client: Client, key: ObjectKey) -> None:
        await _show(client, key, prometheus=prometheus, watch=watch, pause=pause, output=output)

    if target:
        about_deployment(target, work, namespace=namespace, access=Access(kubeconfig, context))
        return

    async def every(client: Client) -> None:
        await work(client, ObjectKey("" if all_namespaces else namespace or client.config.namespace, ""))

    on_cluster_reporting(every, namespace=namespace, access=Access(kubeconfig, context))


async def _show(client: Client, key: ObjectKey, *, prometheus: str, watch: bool, pause: float, output: str) -> None:
    from airunway.snapshots.loads import PodMetrics, PrometheusError, PrometheusMetrics, deployments_in

    if output == "name":
        for each in sorted(map(key_of, await deployments_in(client, key))):
            click.echo(object_name(each.name))
        return
    loads = PrometheusMetrics(client, key, prometheus) if prometheus else PodMetrics(client, key)
    try:
        if not prometheus:
            await loads.rows()
            await asyncio.sleep(pause)
        while True:
            _print(await loads.rows(), output, wide=not key.namespace, redraw=watch)
            if not watch:
                return
            await asyncio.sleep(REFRESH)
    except PrometheusError as error:
        fail(f"--prometheus {prometheus}: {error}")
    finally:
        if watch and sys.stdout.isatty():
            click.echo()  # what comes next is not to stand in the last line of the screen


def _print(rows: list[LoadRow], output: str, *, wide: bool, redraw: bool) -> None:
    from airunway.cli.printing import Screen, wrapped

    if output != "table":
        document = {"apiVersion": "v1", "kind": "List", "items": [row.as_resource() for row in rows]}
        click.echo(as_document([document], output), nl=False)
        return
    screen = Screen()
    size = shutil.get_terminal_size()
    width = size.columns if screen.is_terminal else None
    lines = list(wrapped(top_lines(rows, wide=wide, width=width), width))
    if redraw and screen.is_terminal:
        screen.draw(lines, rows=size.lines)
    else:
        screen.print(lines)


def top_lines(rows: list[LoadRow], *, wide: bool, width: int | None = None) -> list[Line]:
    """The table, and below it what was not seen; `wide`: with a column for the namespace. `width` is that of the
    terminal.
    """
    from airunway.cli.printing import Line
    from airunway.table import format_table
    from airunway.view import Unseen

    if not rows:
        return [Line("There are no deployments.")]
    header = ("name", "engine", "pods", "run", "wait", "kv", "ttft p50", "p95", "tokens/s")
    cells = [(row.namespace, *_cells(row))[0 if wide else 1 :] for row in rows]
    table = format_table(("namespace", *header)[0 if wide else 1 :], cells, width=width)
    lines = [Line(text) for text in table.split("\n")]
    if any(row.first_token_of == "start" and not isinstance(row.first_token_p50, Unseen) for row in rows):
        lines.append(Line("*: of all requests since the engines started; there was none in the window", "dim"))
    seen = {row.window for row in rows if row.reporting and row.window}
    if seen:
        lines.append(Line(f"Rates are over the last {max(seen):g} s.", "dim"))
    return [*lines, *_unseen_lines(rows)]


def _cells(row: LoadRow) -> tuple[str, ...]:
    from airunway.view import Unseen

    mark = "*" if row.first_token_of == "start" else ""

    def shown(value: float | Unseen, form: str, after: str = "") -> str:
        return "?" if isinstance(value, Unseen) else f"{value:{form}}{after}"

    return (
        row.name,
        row.engine or "-",
        f"{row.reporting}/{row.pods}",
        shown(row.running, ".0f"),
        shown(row.waiting, ".0f"),
        shown(row.kv_use, ".0%"),
        shown(row.first_token_p50, ".2f", f" s{mark}"),
        shown(row.first_token_p95, ".2f", f" s{mark}"),
        shown(row.tokens_per_second, ".1f"),
    )


def _unseen_lines(rows: list[LoadRow]) -> list[Line]:
    """Each reason once, with the deployments that it is about."""
    from airunway.cli.printing import Line
    from airunway.view import Unseen

    about: dict[Unseen, dict[str, None]] = {}
    for row in rows:
        values = (row.running, row.waiting, row.kv_use, row.first_token_p50, row.tokens_per_second)
        for unseen in (*row.unseen, *(each for each in values if isinstance(each, Unseen))):
            about.setdefault(unseen, {})[row.name] = None
    if not about:
        return []
    lines = [Line(""), Line("Not seen:", "bold")]
    for unseen, names in list(about.items())[:_MOST_REASONS]:
        first, *more = names
        lines.append(Line(f"  {first}{f' and {len(more)} more' if more else ''}: {unseen}", "cyan", 4))
    if len(about) > _MOST_REASONS:
        lines.append(Line(f"  {len(about) - _MOST_REASONS} more reasons: -o json has all", "cyan", 4))
    return lines
