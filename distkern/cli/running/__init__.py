"""From a job to a finished training: cluster, progress, run and result."""
