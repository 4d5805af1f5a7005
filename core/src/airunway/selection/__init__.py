"""Engine and provider selection: pure, deterministic, and with an explanation (docs/selection.md)."""
