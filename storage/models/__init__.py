"""Stores of models and predictions."""
