"""The reconciler that every provider shares: gather, observe, plan, apply, report."""
