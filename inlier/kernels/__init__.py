"""Robust loss kernels: the larger a loss, the less it counts.

The idea and the scaling rule are in :mod:`inlier.kernels._base`, the sixteen kernels in
:mod:`inlier.kernels._estimation` and :mod:`inlier.kernels._noisy_labels`, the check of the paper's Definition 1 in
:mod:`inlier.kernels._definition`.
"""

from inlier.kernels._base import FunctionKernel, Kernel, get, names, register
from inlier.kernels._definition import KernelCheck, check
from inlier.kernels._estimation import (
    Barron,
    CauchyLorentzian,
    Charbonnier,
    GemanMcClure,
    Huber,
    Truncated,
    Tukey,
    WelschLeclerc,
)
from inlier.kernels._noisy_labels import (
    AsymmetricExponential,
    AsymmetricGeneralizedCrossEntropy,
    AsymmetricUnhinged,
    GeneralizedCrossEntropy,
    MeanError,
    ReverseCrossEntropy,
    SymmetricCrossEntropy,
    TaylorCrossEntropy,
)

__all__ = [
    "AsymmetricExponential",
    "AsymmetricGeneralizedCrossEntropy",
    "AsymmetricUnhinged",
    "Barron",
    "CauchyLorentzian",
    "Charbonnier",
    "FunctionKernel",
    "GemanMcClure",
    "GeneralizedCrossEntropy",
    "Huber",
    "Kernel",
    "KernelCheck",
    "MeanError",
    "ReverseCrossEntropy",
    "SymmetricCrossEntropy",
    "TaylorCrossEntropy",
    "Truncated",
    "Tukey",
    "WelschLeclerc",
    "check",
    "get",
    "names",
    "register",
]
