"""Command-line flags of the inference engines, for all providers (seed 004 §15; spec/providers.md).

A provider gets an engine's arguments from `engine_arguments` and adds program, model, host and port itself. Arguments
are lists, never shell strings (spec ruling 19).
"""

from airunway.engines.arguments import (
    EngineArguments,
    KeywordArguments,
    Remark,
    engine_arguments,
    given_flags,
    keyword_arguments,
    literal,
)
from airunway.engines.options import option_warnings, program_of, release_of, unknown_options, whole_option
from airunway.engines.tables import (
    FLAG_TABLES,
    FRONTENDS,
    SGLANG_FRONTEND,
    VLLM_FRONTEND,
    FlagTable,
    Frontend,
    UnknownEngineError,
    flag_table,
)

__all__ = [
    "FLAG_TABLES",
    "FRONTENDS",
    "SGLANG_FRONTEND",
    "VLLM_FRONTEND",
    "EngineArguments",
    "FlagTable",
    "Frontend",
    "KeywordArguments",
    "Remark",
    "UnknownEngineError",
    "engine_arguments",
    "flag_table",
    "given_flags",
    "keyword_arguments",
    "literal",
    "option_warnings",
    "program_of",
    "release_of",
    "unknown_options",
    "whole_option",
]
