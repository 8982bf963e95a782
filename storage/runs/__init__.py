"""Run directories: journal, events, summary."""
