"""Linear classifiers, trained in passes over blocks."""
