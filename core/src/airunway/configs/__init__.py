"""Runtime configs: which one a deployment follows, its hash, label patterns and path templates. Pure."""
