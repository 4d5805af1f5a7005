"""`airunway install`, `upgrade` and `uninstall`: helm with the charts in the installed wheels."""
