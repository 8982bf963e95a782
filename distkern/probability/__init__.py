"""From outputs to decisions and probabilities."""
