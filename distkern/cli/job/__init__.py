"""Job files: reading, environment variables, the sections, and validation messages."""
