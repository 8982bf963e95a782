"""Rows of blocks as they are read, checked and numbered."""
