"""``airunway simulate``: play an upstream operator against a cluster until it is stopped."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from airunway.cli.options import cluster_options
from airunway.cli.parameters import Command, argument, option

if TYPE_CHECKING:
    from airunway.kube import ClusterConfig
    from airunway_testing.simulators import Simulator


@click.command(cls=Command, short_help="Play an upstream operator, for development and tests.")
@argument("name", metavar="NAME", help="Which operator: the name of an installed simulator.")
@cluster_options
@option(
    "--level",
    default="cluster",
    type=click.Choice(["api", "cluster"]),
    help="cluster: make the workload and follow its pods. api: no pods, answer by scenario.",
)
@option(
    "--scenario",
    help="On level api, the answer to resources without their own: instant, never-ready, fails:REASON, etc.",
)
def simulate(
    name: str, *, kubeconfig: Path | None, context: str | None, level: Literal["api", "cluster"], scenario: str
) -> None:
    """Play an upstream operator against a cluster, for development and tests, until Ctrl-C or SIGTERM.

    Its custom resource definitions must be installed; an operator that runs already must be stopped first.
    """
    from airunway.kube import KubeError, load_config
    from airunway_testing.simulators import ScenarioError, UnknownSimulatorError, load_simulator

    try:
        simulator = load_simulator(name)
        config = load_config(kubeconfig=kubeconfig, context=context)
        asyncio.run(_simulate(simulator, config, level, scenario))
    except (ScenarioError, UnknownSimulatorError) as error:
        raise click.BadParameter(str(error)) from error
    except KubeError as error:
        click.echo(f"airunway simulate {name}: {error}", err=True)
        raise click.exceptions.Exit(1) from error


async def _simulate(
    simulator: Simulator, config: ClusterConfig, level: Literal["api", "cluster"], scenario: str
) -> None:
    from airunway.kube import Client, user_agent_of

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    agent = user_agent_of(f"simulated-{simulator.name}")
    async with Client(config, user_agent=agent) as client:
        await simulator.run(client, level=level, scenario=scenario, stop=stop)
