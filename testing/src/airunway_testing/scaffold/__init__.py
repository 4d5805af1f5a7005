"""The skeleton of a provider: a distribution that passes its own tests, to be turned into a real one.

It is written from the files in ``template/`` (`string.Template`); what there is to fill in is in `Names`.
"""

from airunway_testing.scaffold.skeleton import ScaffoldError, write_skeleton

__all__ = ["ScaffoldError", "write_skeleton"]
