"""Truecopy moves data between databases, keeps it moving, and proves that every row arrived."""

from truecopy.stream.changes import read_changes
from truecopy.verify.options import Options
from truecopy.verify.report import Report, TableReport
from truecopy.verify.verification import verify as verify

__all__ = ["Options", "Report", "TableReport", "read_changes", "verify"]
