"""The change stream of a SQLite file: triggers and a log table, which the tool installs."""

from __future__ import annotations

from truecopy.engines.sqlite_annotation import annotate
from truecopy.stream.sqlite.install import install, remove
from truecopy.stream.sqlite.log import SQLiteLog

__all__ = ["SQLiteLog", "annotate", "install", "remove"]
