"""The provider contract: hookspecs, the values that pass, finding and hosting plugins (spec/providers.md)."""
