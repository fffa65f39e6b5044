"""The stream as Parquet files, written by Spark, exactly once."""

from __future__ import annotations

from pathlib import Path

from truecopy.spark import explain_spark, session
from truecopy.stream.changes import read_changes
from truecopy.stream.request import Request


def write_parquet(
    request: Request, start: str, folder: Path, master: str | None, *, once: bool
) -> None:
    """Appends to a folder, by table and day; a checkpoint in it says where to go on."""
    from pyspark.errors import PySparkException

    spark = session(master)
    changes = read_changes(spark, request, start=start)
    writer = (
        changes.selectExpr("*", "date(committed_at) AS day")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "_checkpoint"))
        .partitionBy("table", "day")
    )
    if once:
        writer = writer.trigger(availableNow=True)
    query = writer.start(str(folder))
    try:
        query.awaitTermination()
    except PySparkException as error:
        raise explain_spark(error) from error
    finally:
        query.stop()
