"""Methods beside OROLS as mathematics on arrays: kernel and linear discriminants, kernel MSE, KRLS, LMS, Ho-Kashyap."""
