"""Compile the modules below a folder, and leave out the sources of everything but AI Runway itself.

Modules of others are kept as byte code alone: half the size, and a traceback still names file, line and function. Files
are named by where the folder will be, if that is given too. Byte code is valid whatever its source's time is, and the
same in every build.
"""

import py_compile
import sys
from pathlib import Path

KEPT = "airunway"

root, place = Path(sys.argv[1]), Path(sys.argv[-1])
compiled = []
for source in sorted(root.rglob("*.py")):
    ours = source.relative_to(root).parts[0].startswith(KEPT)
    target = None if ours else str(source.with_suffix(".pyc"))
    try:
        py_compile.compile(
            str(source),
            cfile=target,
            dfile=str(place / source.relative_to(root)),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except py_compile.PyCompileError as error:  # templates, and tests of what is no Python
        sys.stderr.write(f"not compiled: {error.file}\n")
        continue
    if not ours:
        compiled.append(source)
for source in compiled:  # only now: some are links to others
    source.unlink()
