"""The state of a block on a worker, and what messages do to it."""
