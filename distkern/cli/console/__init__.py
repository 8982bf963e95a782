"""Standard output and error, log records, common options and signals of a command."""
