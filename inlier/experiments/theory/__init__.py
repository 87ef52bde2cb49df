"""The paper's theory, measured (section 5). The functions take the losses and gradients of any model.

``variance`` has Lemma 2, ``regions`` Theorems 1 to 3, ``convergence`` empirical convergence and Remark 4,
``landscape`` the loss between two models; ``experiment`` and ``figures`` make the experiment of them.
"""

from inlier.experiments.theory.convergence import conformal_threshold, coverage, reached
from inlier.experiments.theory.landscape import interpolate, loss_landscape
from inlier.experiments.theory.regions import assumptions, regions
from inlier.experiments.theory.variance import lemma_2, outlier_energy, variance_of_descent_direction

__all__ = [
    "assumptions",
    "conformal_threshold",
    "coverage",
    "interpolate",
    "lemma_2",
    "loss_landscape",
    "outlier_energy",
    "reached",
    "regions",
    "variance_of_descent_direction",
]
