"""The report: one self-contained HTML file that shows what looks wrong in the data, and why."""

from __future__ import annotations

from inlier.report.findings import Deviation, Findings, Suspect
from inlier.report.page import write
from inlier.report.training import findings_of

__all__ = ["Deviation", "Findings", "Suspect", "findings_of", "write"]
