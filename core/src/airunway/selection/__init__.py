"""Engine and provider selection: pure, deterministic, and with an explanation (spec/core.md, "Selection")."""
