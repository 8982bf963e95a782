"""Class decisions and class probabilities from the outputs of a model, and leave-one-out outputs to calibrate them."""
