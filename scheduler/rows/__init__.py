"""Rows of blocks: reading, checks, encoding of targets, and tiles."""
