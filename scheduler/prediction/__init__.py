"""Predictions block by block, in this process or on workers."""
