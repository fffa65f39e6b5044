"""The stream as Parquet files, written by Spark, exactly once."""

from __future__ import annotations

from pathlib import Path

from truecopy.model.errors import UsageError
from truecopy.spark import explained, is_local, session
from truecopy.stream.changes import read_changes
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.request import Request


def write_parquet(
    request: Request, start: str, folder: Path, master: str | None, *, once: bool
) -> None:
    """Appends to a folder, by table and day; a checkpoint in it says where to go on."""
    if master is not None and not is_local(master):
        _refuse_local_files(request)
    spark = session(master)
    with explained():
        writer = (
            read_changes(spark, request, start=start)
            .selectExpr("*", "date(committed_at) AS day")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "_checkpoint"))
            .partitionBy("table", "day")
        )
        if once:
            writer = writer.trigger(availableNow=True)
        query = writer.start(str(folder))
        try:
            query.awaitTermination()
        finally:
            query.stop()


def _refuse_local_files(request: Request) -> None:
    with KeyspaceStream(request) as stream:
        if stream.driver_local:
            raise UsageError(
                "the source is a file of this machine, which the executors of a cluster cannot open:"
                " leave --master out"
            )
