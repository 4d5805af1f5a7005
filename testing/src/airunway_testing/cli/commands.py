"""The commands that this distribution adds to ``airunway``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from airunway.cli.options import context_option, providers_option
from airunway.cli.parameters import PATH, Group, option
from airunway_testing.cli.controlplane import app as controlplane
from airunway_testing.cli.provider import app as provider
from airunway_testing.cli.simulate import simulate

app = Group("development")
for each in (controlplane, provider, simulate):
    app.add_command(each)


@app.command(short_help="Run all of AI Runway on this machine.")
@option("--demo", is_flag=True, help="Apply the samples, show what becomes of them, and end.")
@option(
    "--level",
    default="cluster",
    type=click.Choice(["cluster", "api"]),
    help="cluster: scheduler, workloads and nodes too; api: no pods, upstreams answer at once.",
)
@providers_option("Providers to run, separated by commas (default: all that have a simulator installed and samples).")
@option(
    "--upstream-crds", type=PATH, help="Install the upstreams' own CRDs from this directory instead of minimal ones."
)
@option("--kubeconfig", type=PATH, help="Use this cluster instead of starting one.")
@context_option
@option("--keep", is_flag=True, help="Keep the logs afterwards.")
@option(
    "--patience",
    default=600.0,
    metavar="SECONDS",
    help="How long to wait for each step while its processes live; slow machines need more.",
)
@option(
    "--together/--apart",
    default=None,
    help="Core and providers in one process, or in one each as in a cluster (default: one process on a machine "
    "with two cores or fewer).",
)
@option(
    "--gateway/--no-gateway",
    default=None,
    help="Add the Gateway API, a Gateway and a simulated gateway controller, when all else is ready (default: "
    "yes, but not with --demo or --kubeconfig).",
)
@option(
    "--storage/--no-storage",
    default=None,
    help="Add a StorageClass, run the Jobs that fetch weights, and a hub with the samples' models, so that "
    "spec.model.cache works (default: yes, but not with --level api or --kubeconfig).",
)
@option(
    "--catalogue/--no-catalogue",
    default=None,
    help="Add the catalogue of templates, and a registry with a model's image and manifests for it (default: "
    "yes, where there is storage and airunway-catalogue is installed, but not with --demo).",
)
def sandbox(
    *,
    demo: bool,
    level: Literal["cluster", "api"],
    providers: str,
    upstream_crds: Path | None,
    kubeconfig: Path | None,
    context: str | None,
    keep: bool,
    patience: float,
    together: bool | None,
    gateway: bool | None,
    storage: bool | None,
    catalogue: bool | None,
) -> None:
    """Run all of AI Runway on this machine: a real control plane, the core, the providers, simulated upstreams."""
    from airunway_testing.cli.sandbox import run_sandbox

    names = [name for part in providers.split(",") if (name := part.strip())]
    raise click.exceptions.Exit(
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
