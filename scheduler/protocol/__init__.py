"""The messages of the driver, the answers of blocks, and the log of a run."""
