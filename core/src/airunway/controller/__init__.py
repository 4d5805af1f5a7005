"""The reconcilers of the core: deployments, provider configs, runtime configs."""
