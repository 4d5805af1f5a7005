"""The provider contract: hookspecs, the values they exchange, and discovery and hosting of plugins (spec/providers.md)."""
