"""Raw columns and the numbers that are made of them: one rule for files and frames, kept as a schema."""
