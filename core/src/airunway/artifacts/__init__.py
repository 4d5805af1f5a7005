"""What becomes of a ModelArtifact: its claim, its Jobs, its status, and what deployments learn of it. Pure."""
