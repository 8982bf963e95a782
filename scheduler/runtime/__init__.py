"""What a process needs beside the mathematics: threads, scratch matrices, sums, timings."""
