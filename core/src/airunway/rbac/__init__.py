"""Defines what each process's account may do: RBAC rules, and admission policies for limits that RBAC cannot express.

Controllers do not use it at runtime: charts, docs/reference, doctor and tests are generated from it.
"""
