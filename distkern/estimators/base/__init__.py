"""The base of all estimators: containers, checks, predictions, model stores and their documentation."""
