"""What a deployment keeps while it serves, and what counts as a change of its own spec. Pure."""
