"""Methods in memory: kernel and linear discriminants, KRLS, LMS and Ho-Kashyap as mathematics on arrays."""
