"""kopf without the client libraries that it would import if they happen to be installed.

kopf accepts objects of `kubernetes`, `kubernetes_asyncio` and `pykube` from handlers, and imports those that are there
to know their types. Nobody here passes any, and they cost 70 MB in every process (docs/decisions/0001). While kopf is
imported they look as if they were not installed; afterwards everybody can import them as ever.
"""

from __future__ import annotations

import sys

_OPTIONAL = ("kubernetes", "kubernetes_asyncio", "pykube")

_hidden = [name for name in _OPTIONAL if name not in sys.modules]
sys.modules.update(dict.fromkeys(_hidden))  # type: ignore[arg-type] # None is Python's own mark for "cannot be imported"
try:
    import kopf
finally:
    for _name in _hidden:
        del sys.modules[_name]

__all__ = ["kopf"]
