"""A stand-in for vLLM where Ray's own builders run without it, without CUDA and without a GPU.

Ray Serve LLM imports many modules of vLLM and uses few of their names while it builds an application. Every module
``vllm.*`` exists here, and every name in one is an empty pydantic model; `AsyncEngineArgs` and `FrontendArgs` take the
arguments that the real classes of the release in ``VLLM_STUB_FIELDS`` have (a file of ``tools/vllm_fields.py``).
"""

from __future__ import annotations

import dataclasses
import importlib.abc
import importlib.machinery
import json
import os
import sys
from types import ModuleType
from typing import Any

import pydantic

_OWN = __name__


def _fields(class_name: str) -> list[str]:
    with open(os.environ["VLLM_STUB_FIELDS"], encoding="utf-8") as file:
        found: list[str] = json.load(file)[class_name]
    return found


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow", arbitrary_types_allowed=True, protected_namespaces=())


def _arguments(name: str) -> type:
    made = dataclasses.make_dataclass(name, [(field, Any, None) for field in _fields(name)])
    # As the real classes do, for those that build them from a command line.
    made.from_cli_args = classmethod(lambda cls, args: cls(**vars(args)))  # type: ignore[attr-defined]
    return made


class _Platform:
    """No accelerator at all."""

    device_name = "cpu"
    ray_device_key = ""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: False


class _Module(ModuleType):
    """A module of vLLM: whatever is asked of it is there."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in ("AsyncEngineArgs", "FrontendArgs"):
            found: Any = _arguments(name)
        elif name == "current_platform":
            found = _Platform()
        elif name.isupper():
            found = ""
        else:
            found = type(name, (_Model,), {"__module__": self.__name__})
        setattr(self, name, found)
        return found


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.startswith(f"{_OWN}."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


sys.meta_path.insert(0, _Finder())
sys.modules[_OWN].__class__ = _Module
__version__ = "0.0.0+stub"
