"""The tables of TPC-H behind URLs: servers and files of their own, gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.queries.connect import connect_server
from tests.queries.tpch.data import KEYS, fill_server, make_duckdb, make_parquet
from tests.servers import MariaDB, PostgreSQL


class TpchEnds:
    """URLs by engine, each made where it is first asked for."""

    def __init__(self, folder: Path, scale: float, tables: Sequence[str], stack: ExitStack) -> None:
        self._folder, self._tables, self._stack = folder, tables, stack
        self._parquet = make_parquet(folder / "parquet", scale)
        self._urls: dict[str, str] = {}

    def url(self, engine: str) -> str:
        """The end of an engine: mariadb, postgresql, duckdb, spark or sc."""
        if engine not in self._urls:
            self._urls[engine] = self._make(engine)
        return self._urls[engine]

    def _make(self, engine: str) -> str:
        if engine == "duckdb":
            return f"duckdb:///{make_duckdb(self._parquet, self._folder / 'tpch.duckdb')}"
        if engine == "spark":
            return f"spark:///{self._parquet}"
        if engine == "sc":
            server = self._stack.enter_context(connect_server(self._folder / "connect"))
            return f"{server}?tables={self._parquet}"
        private = (
            MariaDB("--skip-log-bin", buffer_pool="1G")
            if engine == "mariadb"
            else PostgreSQL(shared_buffers="512MB")
        )
        database = self._stack.enter_context(private).create_database("tpch")
        fill_server(self._parquet, database, self._folder, self._tables)
        return database.url


@contextmanager
def tpch_ends(
    folder: Path, scale: float, tables: Sequence[str] = tuple(KEYS)
) -> Iterator[TpchEnds]:
    """The tables at a scale; servers have only those that are named."""
    with ExitStack() as stack:
        yield TpchEnds(folder, scale, tables, stack)
