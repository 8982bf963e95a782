"""Kernels k(x, c): the functions themselves, their parameters, and sums that skip centres where a kernel is zero."""

from .base import Kernel
from .radial import Laplacian, Matern, Wendland
from .standard import (
    Gaussian,
    Gaussians,
    Linear,
    Polynomial,
    Sigmoid,
    kernel_from_parameters,
    kernel_of_centers,
    make_kernel,
    width_count,
)

__all__ = [
    "Gaussian",
    "Gaussians",
    "Kernel",
    "Laplacian",
    "Linear",
    "Matern",
    "Polynomial",
    "Sigmoid",
    "Wendland",
    "kernel_from_parameters",
    "kernel_of_centers",
    "make_kernel",
    "width_count",
]
