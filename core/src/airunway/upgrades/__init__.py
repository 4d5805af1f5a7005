"""The effect of new CRDs on existing objects: ours (`crd_compatibility`) and an upstream's (`preflight`)."""
