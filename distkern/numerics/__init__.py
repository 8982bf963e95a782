"""Numerical building blocks: moments, scaling, row draws, linear systems. None of them uses a kernel or a model."""
