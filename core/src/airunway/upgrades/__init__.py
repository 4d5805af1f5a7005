"""The effect of new CRDs on existing objects: ours (`definitions`) and an upstream's (`preflight`)."""
