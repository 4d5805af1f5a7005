"""Completes commands, options and names of deployments in bash, zsh, fish, and for kubectl.

Shells and kubectl ask with ``airunway __complete WORD...``, of which the last word is the one that is being typed. The
answer is a candidate a line, with its help after a tab, and ``:0`` (files may follow) or ``:4`` as the last line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from airunway.cli.cluster import DEPLOYMENT_WORDS

FILES, NO_FILES = 0, 4
"""The last line of an answer, as in cobra."""

PATIENCE = 1.0
"""Seconds for names from the cluster: the user waits for them with a key pressed."""

_MOST_NAMES = 500
_TARGET, _TEMPLATE, _PROVIDER, _MODEL = "md/NAME", "TEMPLATE", "PROVIDER", "MODEL"
"""Metavars of arguments, by which they are known."""

_PROVIDER_OPTIONS = ("--provider", "--why-not", "--providers")
"""Options whose value is a provider, the last one with several, separated by commas."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")

_BASH = """\
# bash completion for airunway: source <(airunway completion bash)
_airunway() {
  local line directive=":0" candidates=()
  while IFS= read -r line; do
    case "$line" in
      :*) directive="$line" ;;
      *) candidates+=("${line%%$'\\t'*}") ;;
    esac
  done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  COMPREPLY=("${candidates[@]}")
  if [[ ${#candidates[@]} -eq 0 && "$directive" == ":4" ]]; then
    compopt +o default 2>/dev/null
  fi
}
complete -o default -F _airunway airunway
"""

_ZSH = """\
#compdef airunway
# zsh completion for airunway: source <(airunway completion zsh)
_airunway() {
  local line directive=":0"
  local -a candidates
  while IFS= read -r line; do
    case "$line" in
      :*) directive="$line" ;;
      *) candidates+=("${${line//:/\\\\:}/$'\\t'/:}") ;;
    esac
  done < <("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( ${#candidates} )); then
    _describe -V airunway candidates
  elif [[ "$directive" != ":4" ]]; then
    _files
  fi
}
compdef _airunway airunway
"""

_FISH = """\
# fish completion for airunway: airunway completion fish | source
function __airunway_complete
    set -l typed (commandline -opc)
    set -l answer (airunway __complete $typed[2..] (commandline -ct) 2>/dev/null)
    if test (count $answer) -le 1; and test "$answer[-1]" != ":4"
        __fish_complete_path (commandline -ct)
    else
        string match -v -r '^:[0-9]+$' -- $answer
    end
end
complete -c airunway -f -a '(__airunway_complete)'
"""

_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print a script that completes commands, options and names of deployments in a shell.

    source <(airunway completion bash)

    airunway completion fish | source

    Names come from the cluster of the kubeconfig, if it answers within a second. kubectl completes `kubectl airunway`
    by itself: it calls kubectl_complete-airunway, which is installed beside this program.
    """
    typer.echo(_SCRIPTS[shell], nl=False)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which names are wanted of the cluster: the options before the word that is being typed."""

    what: Literal["deployments", "namespaces", "templates"]
    """Kind of the names."""
    prefix: str = ""
    """How the names begin."""
    namespace: str = ""
    """Namespace of deployments; empty: the context's."""
    kubeconfig: str = ""
    """Kubeconfig file; empty: as kubectl."""
    context: str = ""
    """Context of it; empty: the current one."""


Names = Callable[[Asked], Sequence[str]]
"""Gives names of the cluster."""


def completions(command: Any, words: Sequence[str], names: Names) -> tuple[list[tuple[str, str]], int]:
    """Returns candidates for the last word, each with its help, and FILES or NO_FILES.

    `command` is that of `typer.main.get_command`. Pure but for `names`.
    """
    *before, typed = words or [""]
    rest = []
    for position, word in enumerate(before):
        if not hasattr(command, "commands"):
            rest = before[position:]
            break
        if word.startswith("-"):
            continue
        if word not in command.commands:
            return [], NO_FILES
        command = command.get_command(None, word)
    if hasattr(command, "commands"):
        found = [(name, _help(each)) for name, each in command.commands.items()]
        return [each for each in found if each[0].startswith(typed)], NO_FILES
    return _of_command(command, rest, typed, names)


def _of_command(command: Any, rest: Sequence[str], typed: str, names: Names) -> tuple[list[tuple[str, str]], int]:
    options = {spelling: p for p in command.params if p.param_type_name == "option" for spelling in _spellings(p)}
    where = _given(rest, options)
    name, equals, value = typed.partition("=")
    if equals and name in options:
        found, directive = _values(options[name], value, where, names)
        return [(f"{name}={each}", text) for each, text in found], directive
    if typed.startswith("-"):
        used = {word.partition("=")[0] for word in rest}
        return sorted(
            (spelling, _line(p.help))
            for spelling, p in options.items()
            if spelling.startswith(typed) and (spelling not in used or p.multiple) and spelling.startswith("--")
        ), NO_FILES
    last = options.get(rest[-1]) if rest else None
    if last is not None and _takes_word(last):
        return _values(last, typed, where, names)
    return _argument(command, [*_plain(rest, options)], typed, where, names)


def _argument(
    command: Any, given: Sequence[str], typed: str, where: Asked, names: Names
) -> tuple[list[tuple[str, str]], int]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    if not arguments:
        return [], NO_FILES
    argument = arguments[min(len(given), len(arguments) - 1)]
    if len(given) >= len(arguments) and argument.nargs != -1:
        return [], NO_FILES
    if _TARGET in (argument.metavar or ""):
        after_word = len(given) == 1 and given[0].lower() in DEPLOYMENT_WORDS and argument.nargs == -1
        if given and not after_word:
            return [], NO_FILES
        word, slash, begun = typed.rpartition("/")
        if not slash and not after_word and "md/".startswith(typed):
            word, slash, begun = "md", "/", ""
        if slash and (after_word or word.lower() not in DEPLOYMENT_WORDS):
            return [], NO_FILES
        matching = names(replace(where, prefix=begun))
        return [(f"{word}{slash}{each}", "") for each in matching if each.startswith(begun)], NO_FILES
    metavar = argument.metavar or ""
    if choices := _choices(argument) or _known(metavar):
        return [(each, "") for each in choices if each.startswith(typed) and each not in given], NO_FILES
    if _TEMPLATE in metavar:
        matching = names(replace(where, what="templates", prefix=typed))
        return [(each, "") for each in matching if each.startswith(typed)], NO_FILES
    return [], NO_FILES if _MODEL in metavar or _PROVIDER in metavar else FILES


def _known(metavar: str) -> list[str]:
    """What an argument may be, of what is known on this machine."""
    if _PROVIDER in metavar:
        return _providers()
    if _MODEL in metavar:
        from airunway.sizing.catalogue import catalogue

        return list(catalogue())
    return []


def _providers() -> list[str]:
    """The providers that are installed here."""
    from airunway.plugins.registry import discover

    return list(dict.fromkeys(each.name for each in discover(on_request=True)))


def _values(option: Any, typed: str, where: Asked, names: Names) -> tuple[list[tuple[str, str]], int]:
    """What an option's value may be."""
    if choices := _choices(option):
        return [(each, "") for each in choices if each.startswith(typed)], NO_FILES
    if named := [each for each in _PROVIDER_OPTIONS if each in option.opts]:
        before, comma, begun = typed.rpartition(",") if named == ["--providers"] else ("", "", typed)
        found = [each for each in _providers() if each.startswith(begun) and each not in before.split(",")]
        return [(f"{before}{comma}{each}", "") for each in found], NO_FILES
    if "--gpu" in option.opts:
        from airunway.sizing.nodes import known_gpus

        return [(each, "") for each in known_gpus() if each.startswith(typed)], NO_FILES
    if "--namespace" in option.opts:
        asked = Asked(what="namespaces", prefix=typed, kubeconfig=where.kubeconfig, context=where.context)
        return [(each, "") for each in names(asked) if each.startswith(typed)], NO_FILES
    return [], FILES if "Path" in str(_type(option)) or "path" in str(_type(option)) else NO_FILES


def _choices(parameter: Any) -> list[str]:
    type_ = _type(parameter)
    found = get_args(type_) if get_origin(type_) is Literal else getattr(type_, "choices", ())
    return [str(each) for each in found]


def _type(parameter: Any) -> object:
    """What a parameter takes: its annotation, or before typer 0.25 its type of click."""
    descriptor = getattr(parameter, "type_descriptor", None)
    return getattr(parameter, "type", None) if descriptor is None else descriptor.annotation


def _spellings(option: Any) -> list[str]:
    return [] if getattr(option, "hidden", False) else [*option.opts, *option.secondary_opts]


def _takes_word(option: Any) -> bool:
    """Whether the next word is its value; a flag has none, and one with an optional value only after ``=``."""
    return not option.is_flag and not (option.metavar or "").startswith("[=")


def _given(rest: Sequence[str], options: dict[str, Any]) -> Asked:
    """The options that say which cluster and namespace is meant."""
    found = {"--namespace": "", "--kubeconfig": "", "--context": ""}
    for position, word in enumerate(rest):
        name, equals, value = word.partition("=")
        option = options.get(name)
        if option is None or not (equals or _takes_word(option)):
            continue
        value = value if equals else rest[position + 1] if position + 1 < len(rest) else ""
        for spelling in found.keys() & set(option.opts):
            found[spelling] = value
    return Asked(
        what="deployments",
        namespace=found["--namespace"],
        kubeconfig=found["--kubeconfig"],
        context=found["--context"],
    )


def _plain(rest: Sequence[str], options: dict[str, Any]) -> Iterator[str]:
    """The words that are neither options nor their values."""
    is_value = False
    for word in rest:
        option = options.get(word)
        if is_value:
            is_value = False
        elif option is not None:
            is_value = _takes_word(option)
        elif not word.startswith("-"):
            yield word


def _help(command: Any) -> str:
    return _line(command.short_help or command.help)


def _line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def names_in_cluster(asked: Asked) -> list[str]:
    """Returns names of the user's cluster; none if it refuses, or does not answer in time: a shell shows no errors."""
    import asyncio

    from airunway.kube import KubeError

    try:
        return asyncio.run(asyncio.wait_for(_read(asked), PATIENCE))
    except (KubeError, TimeoutError, OSError, ValueError):
        return []


async def _read(asked: Asked) -> list[str]:
    from airunway.kinds import CLUSTER_MODEL_TEMPLATE, MODEL_DEPLOYMENT, MODEL_TEMPLATE
    from airunway.kube import NAMESPACE, Client, load_config, user_agent_of

    kubeconfig = Path(asked.kubeconfig).expanduser() if asked.kubeconfig else None
    config = load_config(kubeconfig=kubeconfig, context=asked.context or None)
    async with Client(config, user_agent=user_agent_of("completion"), timeout=PATIENCE) as client:
        if asked.what == "namespaces":
            listed = await client.list_metadata(NAMESPACE)
        elif asked.what == "templates":
            where = asked.namespace or client.config.namespace
            listed = await client.list_metadata(MODEL_TEMPLATE, namespace=where)
            listed = [*listed, *await client.list_metadata(CLUSTER_MODEL_TEMPLATE)]
        else:
            listed = await client.list_metadata(MODEL_DEPLOYMENT, namespace=asked.namespace or client.config.namespace)
    found = (str(each["metadata"]["name"]) for each in listed)
    return sorted(name for name in found if name.startswith(asked.prefix) and _NAME.fullmatch(name))[:_MOST_NAMES]


def complete(app: typer.Typer, words: Sequence[str]) -> None:
    """Print the answer to a shell."""
    found, directive = completions(typer.main.get_command(app), words, names_in_cluster)
    lines = [f"{word}\t{text}" if text else word for word, text in found]
    sys.stdout.write("".join(f"{line}\n" for line in (*lines, f":{directive}")))
