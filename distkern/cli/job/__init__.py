"""Job files: reading, environment variables, the sections, and messages for what is wrong in them."""
