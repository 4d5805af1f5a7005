"""Run the argument parser of an unpacked package and print its options: ``reader.py FOLDER PROGRAM``.

Printed is a JSON list of ``[option, kind]``. Kinds: ``flag`` takes no value, ``switch`` neither and has a ``--no-``
form, ``value`` needs one, ``maybe`` may have one.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import inspect
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

_INSTALLED = frozenset(
    {"annotated_types", "cachetools", "cloudpickle", "msgspec", "pydantic", "pydantic_core", "regex"}
    | {"typing_extensions", "typing_inspection", "yaml"}
)
"""Small libraries whose real code the argument classes need."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """How to get at a parser.

    `real` are the modules of the package that run as they are; every other one is a stand-in. `optional` are modules
    that only some releases have: where they are not there, their import fails as it would.
    """

    package: str
    real: tuple[str, ...]
    parser: Callable[[], argparse.ArgumentParser]
    optional: tuple[str, ...] = ()


class _Class(type):
    """Of classes that stand for what is not there: they have every attribute, and take part in every operation."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or name == "_name":
            raise AttributeError(name)
        child = _Class(name, (_Anything,), {"__module__": cls.__module__})
        setattr(cls, name, child)
        return child

    def __getitem__(cls, _item: object) -> Any:
        return cls

    def __setitem__(cls, _item: object, _value: object) -> None:
        return None

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __len__(cls) -> int:
        return 0

    def __contains__(cls, _item: object) -> bool:
        return False

    def __instancecheck__(cls, instance: object) -> bool:
        return type(instance) is _Class or isinstance(type(instance), _Class)

    def __lt__(cls, _other: object) -> bool:
        return False

    def __ge__(cls, _other: object) -> bool:
        return True

    __gt__, __le__ = __ge__, __lt__

    def __index__(cls) -> int:
        return 0

    def __add__(cls, other: object) -> Any:
        return other

    __radd__ = __sub__ = __mul__ = __rmul__ = __truediv__ = __floordiv__ = __add__

    def __str__(cls) -> str:
        return "0"


class _Anything(metaclass=_Class):
    """An object of such a class. As a decorator it leaves what it decorates as it is."""

    def __new__(cls, *given: Any, **named: Any) -> Any:
        if len(given) == 1 and not named and isinstance(given[0], types.FunctionType | type | staticmethod):
            return given[0]
        return object.__new__(cls)

    def __init__(self, *_given: Any, **_named: Any) -> None:
        return

    def __init_subclass__(cls, **_named: Any) -> None:
        return

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: object, _handler: object) -> Any:
        schemas = importlib.import_module("pydantic_core.core_schema")
        return schemas.any_schema()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Class(name, (_Anything,), {})

    def __call__(self, *given: Any, **named: Any) -> Any:
        return given[0] if len(given) == 1 and not named and callable(given[0]) else _Anything()

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getitem__(self, _item: object) -> Any:
        return _Anything()

    def __setitem__(self, _item: object, _value: object) -> None:
        return None

    def __len__(self) -> int:
        return 0

    def __lt__(self, _other: object) -> bool:
        return False

    def __ge__(self, _other: object) -> bool:
        return True

    __gt__, __le__ = __ge__, __lt__

    def __add__(self, other: object) -> Any:
        return other

    __radd__ = __sub__ = __mul__ = __rmul__ = __truediv__ = __add__

    def __fspath__(self) -> str:
        return "/nowhere"

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_error: object) -> None:
        return

    def __str__(self) -> str:
        return "0"


class _Module(types.ModuleType):
    """A module that has every name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":
            return "99.0.0"
        if name.startswith("__"):
            raise AttributeError(name)
        found = _Class(name, (_Anything,), {"__module__": self.__name__})
        setattr(self, name, found)
        return found


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for every module that is not to be real."""

    def __init__(self, folder: str, program: Program) -> None:
        self._folder = folder
        self._program = program

    def find_spec(
        self, fullname: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top in sys.stdlib_module_names or top in _INSTALLED or self._is_real(fullname):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def _is_real(self, name: str) -> bool:
        if name.partition(".")[0] != self._program.package:
            return False
        wanted = self._program.real
        within = any(name == real or name.startswith(f"{real}.") or real.startswith(f"{name}.") for real in wanted)
        place = os.path.join(self._folder, *name.split("."))
        there = os.path.isdir(place) or os.path.exists(f"{place}.py")
        return (within and there) or name in self._program.optional

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _Module(spec.name)
        module.__file__ = f"/nowhere/{spec.name}.py"
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        return


def _first(*places: str) -> Any:
    """The first of these ``module:name`` that the release has."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ModuleNotFoundError, AttributeError):
            continue  # another release has it there
    raise SystemExit(f"none of {', '.join(places)} is there")


class _Platform(_Anything):
    device_type = device_name = "cuda"


def _vllm_parser() -> argparse.ArgumentParser:
    importlib.import_module("vllm.platforms").current_platform = _Platform()  # type: ignore[attr-defined]
    parser = _first("vllm.utils.argparse_utils:FlexibleArgumentParser", "vllm.utils:FlexibleArgumentParser")
    made: argparse.ArgumentParser = parser()
    return made


def _of_server(name: str) -> Any:
    """What the module with the options of ``vllm serve`` has under that name."""
    return _first(*(f"vllm.entrypoints.{package}.cli_args:{name}" for package in ("openai", "common", "launchers")))


def _vllm() -> argparse.ArgumentParser:
    parser = _vllm_parser()
    made: argparse.ArgumentParser = _of_server("make_arg_parser")(parser)
    return made


def _vllm_engine() -> argparse.ArgumentParser:
    """The options of the engine alone, which other programs build in; ``vllm serve`` adds those of its server."""
    parser = _vllm_parser()
    made: argparse.ArgumentParser = _first("vllm.engine.arg_utils:AsyncEngineArgs").add_cli_args(parser)
    return made


def _keywords(*, server: bool) -> Callable[[], argparse.ArgumentParser]:
    """The fields of vLLM's argument classes as options, for programs that fill the classes by name."""

    def parser() -> argparse.ArgumentParser:
        _vllm_parser()
        classes = [_first("vllm.engine.arg_utils:AsyncEngineArgs"), *([_of_server("FrontendArgs")] if server else [])]
        made = argparse.ArgumentParser(add_help=False)
        for name, kind in {
            field.name: str(field.type) for each in classes for field in dataclasses.fields(each)
        }.items():
            switch = argparse.BooleanOptionalAction if "bool" in kind else None
            made.add_argument(f"--{name}", **({"action": switch} if switch else {}))  # type: ignore[arg-type]
        return made

    return parser


def _sglang() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    _first("sglang.srt.server_args:ServerArgs").add_cli_args(parser)
    return parser


class _Parsed(BaseException):
    """A parser was about to read its arguments."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser


class _EngineArgs:
    """In place of vLLM's: the worker's own options only."""

    @staticmethod
    def add_cli_args(parser: argparse.ArgumentParser, *_given: object, **_named: object) -> argparse.ArgumentParser:
        return parser


def _dynamo(*places: str) -> Callable[[], argparse.ArgumentParser]:
    """The options that a Dynamo worker has itself; what it does not know it hands on to the engine's parser."""

    def parser() -> argparse.ArgumentParser:
        def stop(self: argparse.ArgumentParser, *_given: object, **_named: object) -> NoReturn:
            raise _Parsed(self)

        for name in ("vllm.utils", "vllm.utils.argparse_utils"):
            importlib.import_module(name).FlexibleArgumentParser = argparse.ArgumentParser  # type: ignore[attr-defined]
        importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs = _EngineArgs  # type: ignore[attr-defined]
        parse = _first(*(f"{place}:{name}" for place in places for name in ("parse_args", "cmd_line_args")))
        argparse.ArgumentParser.parse_known_args = stop  # type: ignore[method-assign]
        argparse.ArgumentParser.parse_args = stop  # type: ignore[method-assign]
        try:
            running = parse([]) if inspect.signature(parse).parameters else parse()
            if inspect.iscoroutine(running):
                asyncio.run(running)
        except _Parsed as found:
            return found.parser
        raise SystemExit("the worker read no arguments")

    return parser


def _worker(engine: str, *further: str) -> Program:
    places = (f"dynamo.{engine}.args", *further)
    return Program(
        package="dynamo",
        real=(f"dynamo.{engine}", "dynamo.common"),
        parser=_dynamo(*places),
        optional=places,
    )


def _of_vllm(parser: Callable[[], argparse.ArgumentParser]) -> Program:
    return Program(
        package="vllm",
        real=(
            "vllm.engine.arg_utils",
            "vllm.config",
            "vllm.utils",
            "vllm.envs",
            "vllm.logger",
            "vllm.logging_utils",
            "vllm.entrypoints.openai.cli_args",
            "vllm.entrypoints.common.cli_args",
            "vllm.entrypoints.launchers.cli_args",
            "vllm.entrypoints.constants",
            "vllm.entrypoints.openai.constants",
            "vllm.entrypoints.serve.utils",
        ),
        optional=(
            "vllm.utils.argparse_utils",
            "vllm.entrypoints.openai.cli_args",
            "vllm.entrypoints.common.cli_args",
            "vllm.entrypoints.launchers.cli_args",
        ),
        parser=parser,
    )


PROGRAMS = {
    "vllm": _of_vllm(_vllm),
    "vllm.engine": _of_vllm(_vllm_engine),
    "ray": _of_vllm(_keywords(server=True)),
    "ray.engine": _of_vllm(_keywords(server=False)),
    "sglang": Program(
        package="sglang",
        real=(
            "sglang.srt.server_args",
            "sglang.srt.configs",
            "sglang.srt.utils",
            "sglang.srt.environ",
            "sglang.srt.arg_groups",
        ),
        parser=_sglang,
    ),
    "dynamo.vllm": _worker("vllm"),
    "dynamo.sglang": _worker("sglang"),
    "dynamo.trtllm": _worker("trtllm", "dynamo.trtllm.utils.trtllm_utils"),
}


def options(folder: str, program: Program) -> list[tuple[str, str]]:
    """Every option of the parser with its kind, by name. For one process only: what it imports stays changed."""
    package = _Module(program.package)
    package.__path__ = [os.path.join(folder, program.package)]
    sys.modules[program.package] = package
    sys.meta_path.insert(0, _Finder(folder, program))
    sys.path.insert(0, folder)
    importlib.metadata.version = lambda distribution_name: "99.0.0"
    parser = program.parser()
    # Not `action.option_strings`: spellings that are hidden from --help are missing there.
    return sorted((name, _kind(action)) for name, action in parser._option_string_actions.items())


def _kind(action: argparse.Action) -> str:
    if isinstance(action, argparse.BooleanOptionalAction):
        return "switch"
    if action.nargs == 0:
        return "flag"
    return "maybe" if action.nargs in ("?", "*") else "value"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(options(sys.argv[1], PROGRAMS[sys.argv[2]])) + "\n")
