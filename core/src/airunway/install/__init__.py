"""`airunway install`: rendered manifests of the charts, applied server-side by the command itself, without helm."""
