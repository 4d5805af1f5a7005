"""Command-line flags of the inference engines, for all providers (docs/providers/fields.md).

A provider gets an engine's arguments from `engine_arguments` and adds program, model, host and port itself. Arguments
are lists, never shell strings.
"""
