"""Cross-validated searches over settings, by successive elimination."""
