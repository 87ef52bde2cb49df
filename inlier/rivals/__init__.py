"""What the adaptive alternation is compared with, one file each: small, pure functions."""

from inlier.rivals import clipping, gnc, trimmed

__all__ = ["clipping", "gnc", "trimmed"]
