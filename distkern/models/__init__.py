"""Trained models as values: kernel models and linear models, and their evaluation on rows in memory."""
