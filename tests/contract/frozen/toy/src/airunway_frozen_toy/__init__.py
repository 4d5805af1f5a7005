"""The toy provider as of contract v1 before runtime configs; renamed, else unchanged."""
