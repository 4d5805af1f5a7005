"""The commands that this distribution adds to ``airunway``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from airunway.cli.options import Context
from airunway.cli.parameters import Command
from airunway_testing.cli.controlplane import app as controlplane
from airunway_testing.cli.provider import app as provider
from airunway_testing.cli.simulate import simulate

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(controlplane, name="controlplane")
app.add_typer(provider, name="provider")
app.command(short_help="Play an upstream operator, for development and tests.")(simulate)


@app.command(cls=Command, short_help="Run all of AI Runway on this machine.")
def sandbox(
    *,
    demo: Annotated[
        bool, typer.Option("--demo", help="Apply the samples, show what becomes of them, and end.")
    ] = False,
    level: Annotated[
        Literal["cluster", "api"],
        typer.Option(help="cluster: scheduler, workloads and nodes too; api: no pods, upstreams answer at once."),
    ] = "cluster",
    providers: Annotated[
        str,
        typer.Option(
            help="Providers to run, separated by commas (default: all that have a simulator installed and samples)."
        ),
    ] = "",
    upstream_crds: Annotated[
        Path | None, typer.Option(help="Install the upstreams' own CRDs from this directory instead of minimal ones.")
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Use this cluster instead of starting one.")] = None,
    context: Context = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the logs afterwards.")] = False,
    patience: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="How long to wait for each step while its processes live; slow machines need more."
        ),
    ] = 600.0,
    together: Annotated[
        bool | None,
        typer.Option(
            "--together/--apart",
            help="Core and providers in one process, or in one each as in a cluster (default: one process on a machine "
            "with two cores or fewer).",
        ),
    ] = None,
    gateway: Annotated[
        bool | None,
        typer.Option(
            "--gateway/--no-gateway",
            help="Add the Gateway API, a Gateway and a simulated gateway controller, when all else is ready (default: "
            "yes, but not with --demo or --kubeconfig).",
        ),
    ] = None,
    storage: Annotated[
        bool | None,
        typer.Option(
            "--storage/--no-storage",
            help="Add a StorageClass, run the Jobs that fetch weights, and a hub with the samples' models, so that "
            "spec.model.cache works (default: yes, but not with --level api or --kubeconfig).",
        ),
    ] = None,
    catalogue: Annotated[
        bool | None,
        typer.Option(
            "--catalogue/--no-catalogue",
            help="Add the catalogue of templates, and a registry with a model's image and manifests for it (default: "
            "yes, where there is storage and airunway-catalogue is installed, but not with --demo).",
        ),
    ] = None,
) -> None:
    """Run all of AI Runway on this machine: a real control plane, the core, the providers, simulated upstreams."""
    from airunway_testing.cli.sandbox import run_sandbox

    names = [name for part in providers.split(",") if (name := part.strip())]
    raise typer.Exit(
        run_sandbox(
            demo=demo,
            level=level,
            providers=names,
            upstream_crds=upstream_crds,
            kubeconfig=kubeconfig,
            context=context,
            keep=keep,
            patience=patience,
            together=together,
            gateway=gateway,
            storage=storage,
            catalogue=catalogue,
        )
    )
