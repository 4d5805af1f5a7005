"""What a deployment runs with: one record, and when something newer is taken (docs/revisions.md). Pure."""
