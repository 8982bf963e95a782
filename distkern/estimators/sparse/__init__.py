"""Sparse kernel models: OROLS, NPD, KRLS, and searches over their settings."""
