"""Events of a training, the state of a run computed from them, metrics and progress displays."""
