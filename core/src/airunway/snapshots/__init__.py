"""Reads what is below one deployment: once in a bounded number of requests, or for as long as it is looked at. Asks the
server of a deployment through the API server's proxy.

Its modules are imported by name, so that a command imports those that it needs.
"""
