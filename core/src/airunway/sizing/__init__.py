"""How much GPU memory a model needs: weights, KV cache, the engine's reserve, and the nodes that have it. Pure.

Every number is a `Term` with its source. What is not known is an `Unknown`, what may not be read an `Unseen`.
Its modules are imported by name.
"""
