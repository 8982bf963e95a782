"""The learnt metric: rounds on a sample of the rows, in the driver, before a training."""
