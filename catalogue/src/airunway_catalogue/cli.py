"""The command ``airunway catalogue``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from airunway.cli import processes
from airunway.cli.cluster import fail
from airunway.cli.parameters import IntRange, SwitchCommand, option
from airunway.cli.process_options import Common, with_options

if TYPE_CHECKING:
    from airunway.kube import Client
    from airunway.process.manager import Factories


@click.command(cls=SwitchCommand, short_help="Run the catalogue.")
@option(
    "--max-discoveries",
    default=10,
    type=IntRange(min=1),
    help="Discovery Jobs at a time; the other templates wait. Namespaces take turns; of four and more none "
    "takes the last one while it has another.",
)
@with_options(common=Common)
def catalogue(common: Common, *, max_discoveries: int) -> None:
    """Run the catalogue: say of each template whether it can be used here, and ask images for their profiles.

    With --watch-namespaces it also works in its own namespace: Jobs of ClusterModelTemplates run there.
    """
    from airunway.process.caches import Caches
    from airunway.process.effective_settings import EffectiveSettings
    from airunway.process.metric_catalogue import MetricsRole
    from airunway.process.metrics import Metrics
    from airunway_catalogue.application import CatalogueApplication, CatalogueSettings
    from airunway_catalogue.caches import project_deployment
    from airunway_catalogue.gpu_models import installed_models
    from airunway_catalogue.names import CATALOGUE_MANAGER

    home, instance = processes.own_namespace(), processes.instance_name()
    try:
        watched = processes.namespaces_of(common.watch_namespaces)
    except ValueError as error:
        fail(str(error))
    namespaces = tuple(dict.fromkeys((*watched, home))) if watched else ()
    metrics = Metrics(CATALOGUE_MANAGER, role=MetricsRole.CATALOGUE)
    settings = CatalogueSettings(home=home, max_discoveries=max_discoveries, models=installed_models())

    def make(client: Client) -> Factories:
        caches = Caches(client, project=project_deployment, metrics=metrics, namespaces=namespaces)
        return {
            CATALOGUE_MANAGER: partial(
                CatalogueApplication, client=client, caches=caches, instance=instance, settings=settings
            )
        }

    published = EffectiveSettings(
        manager=CATALOGUE_MANAGER,
        pod=instance,
        options={
            "leader-elect": str(common.leader_elect).lower(),
            "watch-namespaces": ",".join(watched),
            "max-discoveries": str(max_discoveries),
        },
    )
    processes.serve_parts(
        common, metrics=metrics, instance=instance, make=make, effective={CATALOGUE_MANAGER: published}
    )
