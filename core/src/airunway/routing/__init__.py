"""Decides how a model is reached from outside: Gateway, path and model name, route, pool and picker.

Pure functions over plain dicts and frozen values, without I/O. The gateway part reads the facts, calls `decide` and
writes what it returns.
"""
