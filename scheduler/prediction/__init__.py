"""Predictions block by block, here or on workers."""
