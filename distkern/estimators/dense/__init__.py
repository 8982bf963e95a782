"""Kernel methods that hold all rows in this process."""
