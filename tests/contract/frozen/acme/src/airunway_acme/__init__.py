"""The AI Runway provider for Acme: ModelDeployments in, acmeservers out, and their status back."""
