"""Methods whose work is pure functions of blocks, summed over a fixed tree."""
