"""Computes the status from facts: reasons, conditions, and the roll-up to one phase (docs/reference/conditions.md).

The core and every provider use it. It does not depend on the Kubernetes client.
"""
