"""The answer: a verdict for each table with the evidence behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from truecopy.model.endpoint import Endpoint
from truecopy.model.fingerprint import Digest
from truecopy.model.text import readable_text
from truecopy.model.types import Type
from truecopy.verify.differences import Difference, differing_columns, from_arrow, from_bytes
from truecopy.verify.matching import Comparison, Finding
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from truecopy.metastore.runs import RunRecord

EQUAL, DIFFERENT, NOT_COMPARED = "equal", "different", "not_compared"

ARROW_SCHEMA = pa.schema(
    [
        ("source_table", pa.string()),
        ("target_table", pa.string()),
        ("kind", pa.string()),
        ("key", pa.map_(pa.string(), pa.string())),
        ("columns", pa.list_(pa.string())),
        ("source", pa.map_(pa.string(), pa.string())),
        ("target", pa.map_(pa.string(), pa.string())),
    ]
)


@dataclass(frozen=True)
class ChunkSummary:
    """One part of the key space, for pictures and certificates."""

    number: int
    rows: int
    found: int
    seconds: float


@dataclass(frozen=True)
class TableReport:
    """The verdict on one pair of tables.

    Attributes:
        rows_compared: Rows that were looked at on at least one side.
        reason: Why there is no verdict, or why the work stopped early.
        complete: False where the work stopped before every chunk was compared.
    """

    source: str
    target: str
    verdict: str
    reason: str | None = None
    rows_compared: int = 0
    rows_source: int = 0
    rows_target: int = 0
    missing: int = 0
    extra: int = 0
    differing: int = 0
    unsettled: int = 0
    structure: tuple[Finding, ...] = ()
    complete: bool = True
    sampled: bool = False
    digests: tuple[Digest, Digest] = (Digest(), Digest())
    columns: tuple[str, ...] = ()
    types: tuple[Type, ...] = ()
    key: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    chunks: tuple[ChunkSummary, ...] = field(default=(), repr=False)
    comparison: int | None = None

    @property
    def found(self) -> int:
        """Rows that differ."""
        return self.missing + self.extra + self.differing


@dataclass(frozen=True)
class Report:
    """Everything that a verification found; differences are read from its record when asked for."""

    source: Endpoint
    target: Endpoint
    options: Options
    verdict: str
    tables: tuple[TableReport, ...]
    seconds: float
    started_at: float
    positions: Mapping[str, str | None]
    only_source: tuple[str, ...] = ()
    only_target: tuple[str, ...] = ()
    resumed: int = 0
    certificate: str = ""
    comparisons: tuple[Comparison, ...] = field(default=(), repr=False)
    record: RunRecord | None = field(default=None, repr=False)

    @property
    def exit_code(self) -> int:
        """0 equal, 1 differences, 2 nothing could be compared, 3 stopped before the end."""
        if self.verdict == EQUAL:
            return 0
        if self.verdict == DIFFERENT:
            return 1
        stopped = any(not table.complete or table.unsettled for table in self.tables)
        return 3 if stopped else 2

    def differences(self, table: TableReport) -> Iterator[Difference]:
        """The differing rows of a table as whole rows of canonical text, in the order of the key."""
        if self.record is None or table.comparison is None:
            return
        left = self.options.limit
        for chunk in self.record.records(table.comparison, only_found=True):
            for difference in from_arrow(from_bytes(chunk.differences)):
                if left is not None and left <= 0:
                    return
                left = None if left is None else left - 1
                yield difference

    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints."""
        return {
            "verdict": self.verdict,
            "tables": [self._table(table) for table in self.tables],
            "only_source": list(self.only_source),
            "only_target": list(self.only_target),
            "resumed_chunks": self.resumed,
            "seconds": round(self.seconds, 3),
            "certificate": self.certificate,
        }

    def to_arrow(self) -> pa.Table:
        """All differences as one Arrow table, values as text."""
        return pa.concat_tables([*self._arrow_tables(), ARROW_SCHEMA.empty_table()])

    def to_spark(self, spark: SparkSession) -> DataFrame:
        """All differences as a Spark DataFrame."""
        return spark.createDataFrame(self.to_arrow())

    def describe(self, table: TableReport, difference: Difference) -> dict[str, Any]:
        """One difference as reports show it: key, kind, and where they differ both values."""
        columns, types = table.columns, table.types
        width = len(table.key)
        shown: dict[str, Any] = {
            "kind": difference.kind,
            "key": _named(columns[:width], difference.key, types[:width]),
        }
        source, target = difference.source, difference.target
        if source is not None and target is not None:
            where = differing_columns(source, target, types, self.options.float_tolerance)
            shown["columns"] = [columns[i] for i in where]
            for side, row in (("source", source), ("target", target)):
                shown[side] = {columns[i]: readable_text(row[i], types[i]) for i in where}
        elif not width:
            side = "target" if source is None else "source"
            shown[side] = _named(columns, source or target or (), types)
        return shown

    def _table(self, table: TableReport) -> dict[str, Any]:
        document: dict[str, Any] = {
            "source": table.source,
            "target": table.target,
            "verdict": table.verdict,
        }
        if table.reason:
            document["reason"] = table.reason
        counts = (
            "rows_compared",
            "rows_source",
            "rows_target",
            "missing",
            "extra",
            "differing",
            "unsettled",
        )
        document |= {name: getattr(table, name) for name in counts}
        document["complete"] = table.complete
        document["structure"] = [
            {"kind": finding.kind, "column": finding.column, "message": finding.message}
            for finding in table.structure
        ]
        document["differences"] = [
            self.describe(table, difference) for difference in self.differences(table)
        ]
        return document

    def _arrow_tables(self) -> Iterator[pa.Table]:
        for table in self.tables:
            rows = []
            for difference in self.differences(table):
                shown = self.describe(table, difference)
                rows.append(
                    {
                        "source_table": table.source,
                        "target_table": table.target,
                        "kind": shown["kind"],
                        "key": list(shown["key"].items()),
                        "columns": shown.get("columns", []),
                        "source": list(
                            _named(table.columns, difference.source or (), table.types).items()
                        ),
                        "target": list(
                            _named(table.columns, difference.target or (), table.types).items()
                        ),
                    }
                )
            if rows:
                yield pa.Table.from_pylist(rows, schema=ARROW_SCHEMA)


def _named(
    columns: tuple[str, ...], texts: tuple[str | None, ...], types: tuple[Type, ...]
) -> dict[str, str | None]:
    # A side without the row has no texts at all, hence no strict zip.
    return {
        name: readable_text(text, kind)
        for name, text, kind in zip(columns, texts, types, strict=False)
    }


def overall(tables: tuple[TableReport, ...]) -> str:
    """One verdict for all tables; tables that are empty on both sides neither pass nor fail."""
    verdicts = [table.verdict for table in tables]
    if DIFFERENT in verdicts:
        return DIFFERENT
    empty = [t for t in tables if t.comparison is not None and t.complete and not t.rows_compared]
    failed = [t for t in tables if t.verdict == NOT_COMPARED and t not in empty]
    return EQUAL if EQUAL in verdicts and not failed else NOT_COMPARED
