"""The adaptive alternation at the loss of any PyTorch training."""

from inlier.nn._cross_entropy import RobustCrossEntropy
from inlier.nn._index import with_index
from inlier.nn._robust import Robust
from inlier.nn._suspects import check_suspects_path, suspect_columns, with_suspects, write_suspects

__all__ = [
    "Robust",
    "RobustCrossEntropy",
    "check_suspects_path",
    "suspect_columns",
    "with_index",
    "with_suspects",
    "write_suspects",
]
