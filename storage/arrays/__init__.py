"""Rows of any container as checked arrays and block sources."""
