"""Completes commands, options and names of deployments in bash, zsh, fish, and for kubectl.

Shells and kubectl ask with ``airunway __complete WORD...``, of which the last word is the one that is being typed. The
answer is a candidate a line, with its help after a tab, and ``:0`` (files may follow) or ``:4`` as the last line.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from airunway.cli.completers import Names, names_in_cluster
from airunway.cli.parameters import Command, argument

FILES, NO_FILES = 0, 4
"""The last line of an answer, as in cobra."""

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


@click.command(cls=Command)
@argument("shell", type=click.Choice(list(_SCRIPTS)), metavar="SHELL", help="bash, zsh or fish.")
def completion(shell: str) -> None:
    """Print a script that completes commands, options and names of deployments in a shell.

    source <(airunway completion bash)

    airunway completion fish | source

    Names come from the cluster of the kubeconfig, if it answers within a second. kubectl completes `kubectl airunway`
    by itself: it calls kubectl_complete-airunway, which is installed beside this program.
    """
    click.echo(_SCRIPTS[shell], nl=False)


def completions(command: click.Command, words: Sequence[str], names: Names) -> tuple[list[tuple[str, str]], int]:
    """Returns candidates for the last word, each with its help, and FILES or NO_FILES. Pure but for `names`."""
    from click.shell_completion import ShellComplete

    *before, typed = words or [""]
    found = ShellComplete(command, {"obj": names}, "airunway", "").get_completions(before, typed)
    name, equals, _ = typed.partition("=")
    option = f"{name}=" if equals and name.startswith("-") else ""
    candidates = [(f"{option}{each.value}", each.help or "") for each in found if each.type == "plain"]
    return candidates, NO_FILES if len(candidates) == len(found) else FILES


def complete(command: click.Command, words: Sequence[str]) -> None:
    """Print the answer to a shell."""
    found, directive = completions(command, words, names_in_cluster)
    lines = [f"{word}\t{text}" if text else word for word, text in found]
    sys.stdout.write("".join(f"{line}\n" for line in (*lines, f":{directive}")))
