"""Numerical building blocks that know nothing of kernels or models."""
