"""The shell script that runs a model image's program and puts what it prints into termination messages.

The kubelet reports at most 4 KiB for a container and 12 KiB for a pod. So the script runs in three containers of the
image, one after the other: ``discovery`` runs the program, and ``part-2`` and ``part-3`` report what does not fit into
the first message. Up to 4 KiB are reported as they are; more is compressed: 9 KiB, which is about 60 KiB of JSON.

The program's stderr goes to the container's log. If the program fails, its last words are there, and the kubelet
reports the end of the log.
"""

from __future__ import annotations

from airunway_catalogue.names import DISCOVERY

__all__ = ["MAX_MESSAGE", "MAX_OUTPUT", "NO_SHELL", "PACKED", "PARTS", "PROBLEM", "SCRIPT", "SHELL", "command_of"]

MAX_MESSAGE = 4096
"""Bytes of one container's termination message."""

MAX_OUTPUT = 256 * 2**10
"""Bytes of output that are kept: a program that prints for ever is ended."""

PARTS = (DISCOVERY, "part-2", "part-3")
"""The containers in their order. The kubelet divides 12 KiB among the containers of a pod, so there are no more."""

PACKED = "airunway+gzip:"
"""Before gzip in base64."""

PROBLEM = "airunway+problem:"
"""Before a word and numbers that say why there is no report."""

SHELL = "/bin/sh"
NO_SHELL = f"the image has no {SHELL}"
"""Why an image runs without the script."""

# The kubelet replaces $(NAME) in a command, so the script has none: numbers are read from files.
SCRIPT = f"""\
out=$HOME/airunway-output
log=$AIRUNWAY_TERMINATION_LOG
problem() {{ printf '{PROBLEM}%s' "$*" >"$log"; exit 0; }}
part() {{ [ ! -f "$out.z" ] || tail -c "+$1" "$out.z" | head -c {MAX_MESSAGE} >"$log"; exit 0; }}
case $0 in
{PARTS[1]}) part {MAX_MESSAGE + 1} ;;
{PARTS[2]}) part {2 * MAX_MESSAGE + 1} ;;
esac
for tool in head tail wc; do
  command -v "$tool" >/dev/null || problem "tool $tool"
done
# A pipe, not a limit on files: the program may write large files of its own.
{{ "$@"; echo "$?" >"$out.code"; }} | head -c {MAX_OUTPUT + 1} >"$out"
wc -c <"$out" >"$out.size"
read -r size <"$out.size"
[ "$size" -le {MAX_OUTPUT} ] || problem "endless {MAX_OUTPUT}"
read -r code <"$out.code" || code=1
if [ "$code" -ne 0 ]; then
  tail -c 300 "$out" >&2
  exit "$code"
fi
# The program may have written its report there itself.
[ ! -s "$log" ] || exit 0
if [ "$size" -le {MAX_MESSAGE} ]; then
  head -c {MAX_MESSAGE} "$out" >"$log"
  exit 0
fi
for tool in gzip base64 tr; do
  command -v "$tool" >/dev/null || problem "tool $tool $size"
done
printf '{PACKED}' >"$out.z"
gzip -9 <"$out" | base64 | tr -d '\\n' >>"$out.z"
wc -c <"$out.z" >"$out.size"
read -r packed <"$out.size"
if [ "$packed" -gt {len(PARTS) * MAX_MESSAGE} ]; then
  rm -f "$out.z"
  problem "large $size $packed"
fi
part 1
"""


def command_of(container: str) -> list[str]:
    """The command of a container; its arguments are the program and its arguments."""
    return [SHELL, "-c", SCRIPT, container]
