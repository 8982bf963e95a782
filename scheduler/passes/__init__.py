"""Methods by passes: pure functions of blocks, whose results are summed in a fixed tree."""
