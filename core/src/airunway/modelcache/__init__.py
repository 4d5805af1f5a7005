"""The model cache part of the core's process: artifacts, their claims and Jobs, and what deployments learn of them."""
