"""What people's tools ask about deployments: values for a terminal or a page, of resources that were read.

Its modules are imported by name, so that a command imports those that it needs.
"""
