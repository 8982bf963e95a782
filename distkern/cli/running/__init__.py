"""The training of a job: client, plan, progress, run directory, result; and the state of other runs."""
