"""Messages of the driver, answers of blocks, and the log of a run."""
