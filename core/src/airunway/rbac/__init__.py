"""What the account of each process may do: RBAC rules, and admission policies for what RBAC cannot express.

Production code does not use it to decide anything: charts, docs/reference, doctor and tests are made from it.
"""
