"""inlier: train models on data of which an unknown part is wrong."""

from inlier import duality, kernels
from inlier.kernels import Kernel
from inlier.scale import LossHistogram, solve_scale

__version__ = "0.1.0"

__all__ = ["Kernel", "LossHistogram", "duality", "kernels", "solve_scale"]
