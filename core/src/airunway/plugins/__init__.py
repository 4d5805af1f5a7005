"""The provider contract: hookspecs, the values they exchange, discovery and hosting of plugins."""
