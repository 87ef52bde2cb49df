"""The report: one self-contained HTML file that shows which samples look wrong, and why."""

from __future__ import annotations

from inlier.report._findings import Deviation, Findings, Suspect
from inlier.report._page import write
from inlier.report._training import findings_of

__all__ = ["Deviation", "Findings", "Suspect", "findings_of", "write"]
