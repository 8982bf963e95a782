"""The driver side of a path: which centres a problem takes."""
