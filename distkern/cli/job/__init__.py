"""Job files: their sections, validated."""
