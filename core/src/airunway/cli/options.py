"""Defines the options that several commands share; those of commands that start processes are in `process_options`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from airunway.cli import completers
from airunway.cli.parameters import PATH, F, argument, option

kubeconfig_option = option(
    "--kubeconfig", type=PATH, help="Kubeconfig file (default: as kubectl; in a pod its service account)."
)
context_option = option("--context", default=None, help="Context of the kubeconfig.")


def namespace_option(help: str = "Namespace (default: the context's).", default: str = "") -> Callable[[F], F]:
    """A decorator that adds ``--namespace``."""
    return option("--namespace", "-n", default=default, shell_complete=completers.namespaces, help=help)


def file_option(help: str, *, required: bool = False) -> Callable[[F], F]:
    """A decorator that adds ``--filename``; the command gets it as `file`."""
    return option("file", "--filename", "-f", type=PATH, required=required, help=help)


def providers_option(help: str) -> Callable[[F], F]:
    """A decorator that adds ``--providers``, which takes several with commas."""
    return option("--providers", shell_complete=completers.several_providers, help=help)


def deployment_argument(
    help: str = "A deployment of the cluster.", metavar: str = "md/NAME", *, required: bool = False
) -> Callable[[F], F]:
    """A decorator that adds a deployment as ``md/NAME`` or ``md NAME``; the command gets the words as `target`."""
    complete = completers.deployments
    return argument("target", nargs=-1, required=required, metavar=metavar, shell_complete=complete, help=help)


def cluster_options(command: F) -> F:
    """A decorator that adds the options of the cluster: ``--kubeconfig`` and ``--context``."""
    return kubeconfig_option(context_option(command))


def output_option(*formats: str) -> Callable[[F], F]:
    """A decorator that adds ``--output``; its default is the first format."""
    return option("--output", "-o", default=formats[0], type=click.Choice(formats), help="Format.")


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` texts as a map; the settings' types decide what a value means. Raises click.BadParameter."""
    from airunway.plugins.settings import GivenText

    values: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
        values[key] = GivenText(value)
    return values
