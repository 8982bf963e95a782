"""Benchmarks of trainings with many workers, simulated and on small processes of this machine."""
