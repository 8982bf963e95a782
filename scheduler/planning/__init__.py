"""Memory, time and traffic of a training from shapes alone."""
