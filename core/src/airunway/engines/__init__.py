"""Command-line flags of the inference engines, for all providers (seed 004 §15; spec/providers.md).

A provider gets an engine's arguments from `engine_arguments` and adds program, model, host and port itself. Arguments
are lists, never shell strings (spec ruling 19).
"""
