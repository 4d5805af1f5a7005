"""What a new CRD does to what is there: ours (the guard) and an upstream's (the preflight)."""
