"""Dataset stores: opening, reading and writing."""
