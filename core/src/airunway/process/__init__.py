"""A long-running process: its parts, caches, signals, probes, metrics and logs."""
