"""What AI Runway is tested and tried out with: a real control plane, faults, simulated upstreams, the sandbox.

Nothing of it belongs into a cluster that serves models; the production code is the distribution `airunway`.
"""
