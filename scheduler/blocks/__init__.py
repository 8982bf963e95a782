"""State of blocks on a worker, and the effects and answers of messages."""
