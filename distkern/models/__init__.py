"""Trained models as values: what a model is, and how it evaluates rows."""
