"""What a training costs its driver with many workers, simulated and on small processes of this machine."""
