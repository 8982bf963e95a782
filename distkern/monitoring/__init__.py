"""Events of a training, the state of a run that they add up to, and what shows it."""
