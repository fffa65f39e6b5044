"""Where results go: lines of JSON, text, a page. A sink is made from the text behind its name.

Other packages register theirs under `truecopy.queries.sinks`: `--sink NAME:TARGET`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, Protocol

from truecopy.model.errors import UsageError
from truecopy.queries.page import render_page
from truecopy.queries.result import QueryResult


class Sink(Protocol):
    """Gets each result as it comes, and is closed at the end, whatever happened."""

    def emit(self, result: QueryResult) -> None: ...
    def close(self) -> None: ...


class JsonLines:
    """One event a line; `docs/query-event.schema.json` says what is in it."""

    def __init__(self, target: str = "") -> None:
        self._file = _opened(target)

    def emit(self, result: QueryResult) -> None:
        self._file.write(json.dumps(result.to_dict(), ensure_ascii=False, default=str) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not sys.stdout:
            self._file.close()


class TextLines:
    """A line a query, for logs."""

    def __init__(self, target: str = "") -> None:
        self._file = _opened(target)

    def emit(self, result: QueryResult) -> None:
        self._file.write(f"{in_a_line(result)}\n")
        self._file.flush()

    def close(self) -> None:
        if self._file is not sys.stdout:
            self._file.close()


class Page:
    """A page with both plans, times, CPU and the differing rows."""

    def __init__(self, target: str = "") -> None:
        if not target:
            raise UsageError("a page needs a file: --sink page:report.html")
        self._path = Path(target)
        self._results: list[QueryResult] = []

    def emit(self, result: QueryResult) -> None:
        self._results.append(result)

    def close(self) -> None:
        self._path.write_text(render_page(self._results), encoding="utf-8")


def in_a_line(result: QueryResult) -> str:
    """The verdict on a query in one line."""
    parts = [str(result.status), f"{result.suite}.{result.name}"]
    parts += [str(word) for word in (result.skipped_reason, result.determinism) if word]
    if result.resolved_by:
        parts.append(f"by {result.resolved_by}")
    if result.detail:
        parts.append(result.detail)
    return " ".join(parts)


def _opened(target: str) -> IO[str]:
    if target in ("", "-"):
        return sys.stdout
    try:
        return Path(target).open("w", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None
