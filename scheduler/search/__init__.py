"""Cross-validated searches over settings."""
