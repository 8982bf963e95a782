"""Forward selection of centres in coefficient space: pool, criteria, factors, lambda, stop rules and final weights.

Rows of the data stay with the blocks, in `distkern.scheduler`; only `forward_path` takes all rows.
"""
