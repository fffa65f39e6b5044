"""Folders of files as tables: which file belongs to which table, and how Spark reads it whole.

The options are those with which Spark refuses what it would otherwise pass over: short lines,
columns that only some files have, folders below the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from truecopy.engines import lake_log
from truecopy.engines.lake_tables import DELTA_LOG, DESCRIPTION, LakeTable, read_description
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import UsageError
from truecopy.sparksql.dialect import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FORMATS = {
    ".parquet": "parquet",
    ".orc": "orc",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSED = {".gz", ".bz2", ".zst", ".lz4", ".snappy", ".deflate"}
# A log beside the files says which of them count: only a reader of that log knows the rows.
_LOGS = {".hoodie": "Hudi", "metadata/*.metadata.json": "Iceberg"}
_DELTA, _LOG = "delta", "log"
_MISSING = "\x01\x02\x03"  # stands for an empty field without quotes, while Spark reads


@dataclass(frozen=True)
class Files:
    """The data files of one table."""

    path: Path
    format: str

    @cached_property
    def files(self) -> list[Path]:
        """Every file with rows in it that counts."""
        if self.format == _DELTA:
            from truecopy.engines import lake_delta  # whose library not everybody needs

            return lake_delta.data_files(self.path)
        if self.described is not None:
            return lake_log.files(self.described)
        return list(_data_files(self.path)) if self.path.is_dir() else [self.path]

    @cached_property
    def described(self) -> LakeTable | None:
        """What the task says that keeps the table; None where none does."""
        return read_description(self.path) if self.format in (_DELTA, _LOG) else None

    @property
    def key(self) -> tuple[str, ...]:
        """The key that only a description tells."""
        return self.described.key if self.described else ()

    @cached_property
    def partitions(self) -> list[str]:
        """The columns that `name=value` folders stand for, outermost first."""
        names = [folder.partition("=") for folder in self._folders()[0]]
        return [name for name, equals, _ in names if equals]

    @property
    def nested(self) -> bool:
        """Whether there are plain folders inside, which Spark passes over unless it is told."""
        folders = [folder for parts in self._folders() for folder in parts]
        plain = [folder for folder in folders if "=" not in folder]
        if plain and len(plain) < len(folders):
            raise UsageError(
                f"{self.path} mixes name=value folders with others, such as {plain[0]}"
            )
        return bool(plain)

    def weak_columns(self, columns: Sequence[str]) -> set[str]:
        """Columns of text whose type only the other side knows."""
        if self.described is not None:
            return {column.name for column in self.described.columns if column.weak}
        return set(columns) if self.format in ("csv", "json") else set(self.partitions)

    def counted_rows(self) -> int | None:
        """The rows, where the files say it themselves."""
        if self.format not in ("parquet", _DELTA):
            return None
        return sum(int(pq.read_metadata(file).num_rows) for file in self.files)

    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.files)

    def _folders(self) -> list[tuple[str, ...]]:
        if not self.path.is_dir():
            return [()]
        return sorted({file.relative_to(self.path).parent.parts for file in self.files})


def folder_of(endpoint: Endpoint) -> Path:
    """The folder that a URL names; a relative one where no absolute one exists."""
    absolute = Path("/" + endpoint.path.lstrip("/"))
    relative = Path(endpoint.path.lstrip("/"))
    found = next((path for path in (absolute, relative) if path.is_dir()), None)
    if found is None:
        raise UsageError(
            f"there is no folder {absolute}: {endpoint} names the folder of the tables"
        )
    return found.absolute()


def tables_in(folder: Path) -> dict[str, Files]:
    """The tables of a folder by name: without the suffix, unless two would be called the same."""
    found: dict[str, list[Files]] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")):
            continue
        known = _format_of(path)
        if path.is_dir():
            known = _format_in(path)
        if known:
            found.setdefault(_bare_name(path), []).append(Files(path, known))
    return {
        files.path.name if len(group) > 1 else name: files
        for name, group in found.items()
        for files in group
    }


def read_frame(spark: SparkSession, files: Files, endpoint: Endpoint) -> DataFrame:
    """All rows of a table, the columns of text files as text."""
    for log, name in _LOGS.items():
        if any(files.path.glob(log)):
            raise UsageError(
                f"{files.path} is a {name} table: its files alone are not its rows;"
                " register it in Spark's catalog and use lake://"
            )
    match files.format:
        case "delta":
            return _read_delta(spark, files)
        case "log":
            return _read_log(spark, files)
        case "csv":
            return _read_csv(spark, files, endpoint)
        case "json":
            return _read_json(spark, files)
        case _:
            return _read_typed(spark, files)


def _read_typed(spark: SparkSession, files: Files) -> DataFrame:
    options: dict[str, str | bool] = {"mergeSchema": True, "recursiveFileLookup": files.nested}
    frame = spark.read.format(files.format).options(**options).load(str(files.path))
    if not files.partitions:
        return frame
    # As text: Spark would take 01 for the number 1.
    return (
        spark.read.format(files.format)
        .options(**options)
        .schema(_with_text(frame, files.partitions))
        .load(str(files.path))
    )


def _read_delta(spark: SparkSession, files: Files) -> DataFrame:
    """The files that count, with the columns that the table has now."""
    from pyspark.sql.types import StructType

    from truecopy.engines import lake_delta

    schema = StructType.fromJson(lake_delta.spark_schema(files.path))
    if not files.files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", str(files.path))
    return reader.parquet(*map(str, files.files))


def _read_log(spark: SparkSession, files: Files) -> DataFrame:
    """The rows that are left when all that came was done."""
    from pyspark.sql.pandas.types import from_arrow_schema

    assert files.described is not None
    schema = from_arrow_schema(lake_log.log_schema(files.described), prefer_timestamp_ntz=True)
    found = [str(file) for file in files.files]
    log = spark.read.schema(schema).parquet(*found) if found else spark.createDataFrame([], schema)
    return lake_log.current_frame(log, files.key)


def _read_csv(spark: SparkSession, files: Files, endpoint: Endpoint) -> DataFrame:
    """An empty field is NULL, and a quoted empty one is ''.

    Read as Latin-1 and turned back to bytes: as UTF-8 Spark would replace bytes that are none.
    """
    options: dict[str, str | bool] = {
        "header": True,
        "multiLine": True,
        "lineSep": _line_end(files),
        "sep": endpoint.option("sep", ","),
        "quote": '"',
        "escape": '"',
        "nullValue": _MISSING,
        "emptyValue": "",
        "encoding": "ISO-8859-1",
        "mode": "FAILFAST",
        "enforceSchema": False,
        "columnPruning": False,
        "recursiveFileLookup": files.nested,
    }
    if options["lineSep"] == "\r\n":
        raw = spark.read.option("recursiveFileLookup", files.nested).text(str(files.path))
        if raw.where(raw.value.contains("\0")).limit(1).count():
            raise UsageError(
                f"{files.path} holds the character NUL, which Spark drops where lines end in CRLF:"
                " end its lines in LF"
            )
    frame = spark.read.options(**options).csv(str(files.path))
    if not frame.columns:
        raise UsageError(f"{files.path} has no header line with the names of the columns")
    if files.partitions:
        schema = _with_text(frame, files.partitions)
        frame = spark.read.options(**options).schema(schema).csv(str(files.path))
    return frame.selectExpr(
        *(
            f"CAST(encode({quote(name)}, 'ISO-8859-1') AS STRING) AS {quote(_utf8(name))}"
            if name not in files.partitions
            else quote(name)
            for name in frame.columns
        )
    )


def _read_json(spark: SparkSession, files: Files) -> DataFrame:
    """Values as they are written: a number with its digits, an object as its text."""
    options: dict[str, str | bool] = {"mode": "FAILFAST", "recursiveFileLookup": files.nested}
    broken = spark.read.option("recursiveFileLookup", files.nested).text(str(files.path))
    if broken.where("NOT is_valid_utf8(value)").limit(1).count():
        raise UsageError(f"{files.path} is not UTF-8 throughout: Spark would replace what is not")
    inferred = spark.read.options(**options).json(str(files.path), primitivesAsString=True)
    schema = _with_text(inferred, inferred.columns)
    return spark.read.options(**options).schema(schema).json(str(files.path))


def _with_text(frame: DataFrame, columns: Sequence[str]) -> StructType:
    """The schema of a frame with these columns as text."""
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType(
        [
            StructField(field.name, StringType() if field.name in columns else field.dataType)
            for field in frame.schema.fields
        ]
    )


def _line_end(files: Files) -> str:
    """How lines end in all files; left to find out itself, Spark would change ends inside quotes."""
    ends = set()
    for file in files.files:
        with pa.input_stream(file) as stream:  # unpacks what is packed
            header = re.sub(rb'"[^"]*"', b"", stream.read(1 << 20))
        found = re.search(rb"\r?\n", header)
        ends.add(found[0].decode() if found else "\n")
    if len(ends) > 1:
        raise UsageError(f"lines of {files.path} end in CRLF in some files and in LF in others")
    return next(iter(ends), "\n")


def _data_files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        if path.is_file() and not hidden and _format_of(path):
            yield path


def _format_in(folder: Path) -> str | None:
    if (folder / DELTA_LOG).is_dir():
        return _DELTA
    if (folder / DESCRIPTION).is_file():
        return _LOG
    return next((found for found in map(_format_of, _data_files(folder)) if found), None)


def _format_of(path: Path) -> str | None:
    suffixes = [s for s in path.suffixes if s.lower() not in _COMPRESSED]
    return _FORMATS.get(suffixes[-1].lower()) if suffixes else None


def _bare_name(path: Path) -> str:
    name = path.name
    while (suffix := Path(name).suffix.lower()) in _COMPRESSED or suffix in _FORMATS:
        name = name[: -len(suffix)]
    return name


def _utf8(name: str) -> str:
    try:
        return name.encode("latin-1").decode().removeprefix("\ufeff")
    except UnicodeError:
        return name
