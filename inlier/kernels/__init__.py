"""Robust loss kernels: what each loss counts for, once its size has been looked at.

The idea and the scaling rule stand in :mod:`inlier.kernels.base`, the sixteen kernels in
:mod:`inlier.kernels.estimation` and :mod:`inlier.kernels.noisy_labels`, the test of the paper's
Definition 1 in :mod:`inlier.kernels.definition`.
"""

from inlier.kernels.base import FunctionKernel, Kernel, get, names, register
from inlier.kernels.definition import KernelCheck, check
from inlier.kernels.estimation import (
    Barron,
    CauchyLorentzian,
    Charbonnier,
    GemanMcClure,
    Huber,
    Truncated,
    Tukey,
    WelschLeclerc,
)
from inlier.kernels.noisy_labels import (
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
