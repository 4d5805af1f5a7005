"""``airunway controlplane``: a Kubernetes control plane on this machine, for tests and for trying things out."""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

import click

from airunway.cli.parameters import F, Group, option

if TYPE_CHECKING:
    from airunway_testing.controlplane import ControlPlane
    from airunway_testing.controlplane.state import RunningState

app = Group(
    "controlplane", help="A Kubernetes control plane on this machine: no root, no Docker.", no_args_is_help=True
)

# Spelt out here rather than imported: the imports of the commands' bodies would slow down every `airunway --help`.
_Level = Literal["api", "cluster"]
_AuditLevel = Literal["Metadata", "Request", "RequestResponse"]

_name_option = option("--name", help="A name of your choice, to run several. Default: the level.")


def _level_option(default: _Level) -> Callable[[F], F]:
    return option(
        "--level",
        default=default,
        type=click.Choice(get_args(_Level)),
        help="api: an API server with garbage collection. "
        "cluster: scheduler, workload controllers and simulated GPU nodes too.",
    )


@app.command()
@_level_option("api")
@_name_option
@option(
    "--audit",
    default="Metadata",
    type=click.Choice(get_args(_AuditLevel)),
    help="How much of every request the audit log holds.",
)
@option("--detach", is_flag=True, help="Return once it runs; `airunway controlplane down` stops it.")
def up(*, level: _Level, name: str, audit: _AuditLevel, detach: bool) -> None:
    """Start a control plane, print the line that makes tests use it, and keep it until Ctrl-C.

    In scripts: eval "$(airunway controlplane up --detach)"

    That sets AIRUNWAY_TEST_KUBECONFIG (level cluster: AIRUNWAY_TEST_CLUSTER_KUBECONFIG), which tests read. For kubectl
    and airunway, standard error has the line that sets KUBECONFIG.
    """
    from airunway_testing.controlplane import ControlPlane, ControlPlaneError
    from airunway_testing.controlplane.state import RunningState, forget, read_states, save_state

    name = name or level
    states = {state.name: state for state in read_states(os.environ)}
    if name in states:
        _fail(
            f"a control plane named {name} runs already (process {states[name].pid}): use it, choose another --name, "
            f"or stop it with `airunway controlplane down --name {name}`"
        )
    if detach:
        _print_exports(_start_detached(name, level, audit))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ControlPlane(level, audit=audit, report=_report) as plane:
            state = RunningState.of(name=name, level=level, kubeconfig=plane.kubeconfig, audit_log=plane.audit_log)
            save_state(state, os.environ)
            try:
                _print_exports(state)
                _report("running; Ctrl-C stops it")
                _watch(plane)
            finally:
                forget(state, os.environ)
    except KeyboardInterrupt:
        _report("stopped")
    except ControlPlaneError as error:
        _fail(str(error))


@app.command()
@_name_option
def down(*, name: str) -> None:
    """Stop the control plane of that name; without a name, all that `up` started."""
    from airunway_testing.controlplane.state import alive, read_states

    states = [state for state in read_states(os.environ) if not name or state.name == name]
    if not states and name:
        _fail(f"no control plane named {name} is running; `airunway controlplane status` lists those that are")
    if not states:
        _report("nothing is running")
    for state in states:
        os.kill(state.pid, signal.SIGTERM)
    for state in states:
        deadline = time.monotonic() + 30
        while alive(state):
            if time.monotonic() > deadline:
                _fail(f"{state.name}: process {state.pid} does not stop")
            time.sleep(0.05)
        click.echo(f"{state.name} stopped")


@app.command()
def status() -> None:
    """List the control planes that `up` started."""
    from airunway_testing.controlplane.state import read_states

    states = read_states(os.environ)
    if not states:
        _report("nothing is running; start with `airunway controlplane up`")
    for state in states:
        click.echo(f"{state.name}  level {state.level}  process {state.pid}  {state.kubeconfig}")


@app.command()
@_level_option("cluster")
@option("--cache-folder", is_flag=True, help="Only print where they are cached (what CI should keep).")
def binaries(*, level: _Level, cache_folder: bool) -> None:
    """Fetch or build the programs of a level if need be, and print where they are."""
    from airunway_testing.controlplane import ControlPlaneError
    from airunway_testing.controlplane.binaries import find_binaries
    from airunway_testing.controlplane.cache import control_plane_cache

    if cache_folder:
        click.echo(control_plane_cache(os.environ))
        return
    try:
        found = find_binaries(level, report=_report)
    except ControlPlaneError as error:
        _fail(str(error))
    for component, path in found.items():
        click.echo(f"{component}  {path}")


@app.command()
def clean() -> None:
    """Delete the cached programs, and what an interrupted build has left; they are fetched or built when needed."""
    import shutil

    from airunway_testing.controlplane.cache import control_plane_cache
    from airunway_testing.controlplane.state import read_states

    if running := [state.name for state in read_states(os.environ)]:
        _fail(f"{', '.join(running)} runs with these programs: stop it with `airunway controlplane down`")
    folder = control_plane_cache(os.environ).parent
    size = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
    shutil.rmtree(folder, ignore_errors=True)
    click.echo(f"{folder}: {size / 2**20:,.0f} MiB deleted")


def _start_detached(name: str, level: _Level, audit: _AuditLevel) -> "RunningState":
    from airunway_testing.controlplane.processes import ending_of
    from airunway_testing.controlplane.state import read_states, state_folder

    log = state_folder(os.environ) / f"{name}.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = ["--level", level, "--name", name, "--audit", audit]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "airunway", "controlplane", "up", *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    shown = 0
    while True:
        code = process.poll()
        lines = log.read_text().splitlines()
        for line in lines[shown:]:
            # Building may take minutes: pass on what it says.
            if not line.startswith(("export ", "running;")):
                _report(line)
        shown = len(lines)
        if code is not None:
            _fail(f"it {ending_of(code)}; its log is {log}")
        for state in read_states(os.environ):
            if state.name == name:
                return state
        time.sleep(0.1)


def _watch(plane: "ControlPlane") -> None:
    from airunway_testing.controlplane import ControlPlaneError

    components = set(plane.pids)
    while True:
        time.sleep(1)
        gone = components - set(plane.pids)
        if gone:
            raise ControlPlaneError(f"{', '.join(sorted(gone))} ended by itself: the control plane is stopped")


def _print_exports(state: "RunningState") -> None:
    for variable, value in state.exports().items():
        click.echo(f"export {variable}={shlex.quote(value)}")
    sys.stdout.flush()
    _report(f"for kubectl and airunway: export KUBECONFIG={shlex.quote(str(state.kubeconfig))}")


def _report(line: str) -> None:
    click.echo(line, err=True)


def _fail(message: str) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    raise click.exceptions.Exit(1)
