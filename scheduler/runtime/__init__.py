"""Parts of the engine that know nothing of training: threads, reads ahead, scratch matrices, sums, timings."""
