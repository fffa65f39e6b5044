"""Trino and Presto as far as they can be shown without a server: their clients, and the syntax of their SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from tests.program import truecopy
from tests.queries.ends import End
from truecopy.engines.queries.trino import PrestoTexts, TrinoQueries, TrinoTexts, shape_of
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.shape import QueryColumn, Scalar, StructOf, agree_shapes
from truecopy.model.types import Decimal, Unsupported
from truecopy.queries import checksums
from truecopy.queries.leaves import leaves_of
from truecopy.queries.rewrite import rewrite
from truecopy.queries.settings import Settings

TYPES = (
    "boolean",
    "bigint",
    "decimal(20,4)",
    "double",
    "real",
    "date",
    "timestamp(6)",
    "timestamp(3) with time zone",
    "varchar(10)",
    "char(3)",
    "varbinary",
    "uuid",
    "json",
    "array(varchar)",
    "array(double)",
    "map(varchar, double)",
    "map(varchar, array(bigint))",
    "row(x bigint, y array(row(z varchar)))",
)


@pytest.mark.parametrize("scheme", ["trino", "presto"])
def test_nothing_listens_is_one_line_and_exit_3(
    scheme: str, duckdb_end: End, tmp_path: Path
) -> None:
    suite = tmp_path / "s.yaml"
    suite.write_text(
        "queries: [{name: q, query: SELECT 1 AS a}]\nsettings: {retries: 1, backoff: 0.1}\n"
    )
    url = f"{scheme}://u@127.0.0.1:1/hive/sales"
    ended = truecopy("queries", "run", str(suite), "--control", duckdb_end.url, "--test", url)
    assert ended.code == 3
    assert ended.err.count("\n") == 1
    assert ended.err.startswith(f"truecopy: {url}: ")


@pytest.mark.parametrize("scheme", ["trino", "presto"])
def test_the_client_is_told_what_the_url_says(scheme: str) -> None:
    """A connection is made without a word to the server."""
    with TrinoQueries(parse_endpoint(f"{scheme}://me@127.0.0.1:9/hive/sales"), "mine") as session:
        session.use(None, "returns")
        session.set({"query_max_run_time": "1h"})
        assert (session.dialect, session.scratch) == (scheme, ("hive", "mine"))
        connection = session._connection
        assert (connection.host, connection.port, connection.user) == ("127.0.0.1", 9, "me")
        assert (connection.catalog, connection.schema) == ("hive", "returns")
        assert connection.session_properties == {"query_max_run_time": "1h"}
        refused = session.explained(ConnectionRefusedError("refused"))
        assert refused is not None
        assert refused.failure.kind == "CONNECTION"


@pytest.mark.parametrize("scheme", ["trino", "presto"])
def test_statements_are_rewritten_in_its_dialect(scheme: str) -> None:
    with TrinoQueries(parse_endpoint(f"{scheme}://me@127.0.0.1:9/hive/sales")) as session:
        for sql in (
            "SELECT a, approx_distinct(b) FROM t GROUP BY a",
            "INSERT INTO t SELECT * FROM u",
            "DELETE FROM t WHERE a > 1",
            "CREATE TABLE x AS SELECT 1 AS a",
        ):
            found = rewrite(session, sql, "tcq_1", Settings())
            assert found.run is not None
            for statement in (*found.setup, found.run):
                assert sqlglot.parse_one(statement, read=scheme)
                assert '"truecopy_scratch"."tcq_1"' in statement


@pytest.mark.parametrize("native", TYPES)
@pytest.mark.parametrize("scheme", ["trino", "presto"])
def test_checksums_are_sql_of_its_dialect(scheme: str, native: str) -> None:
    shape = shape_of(native)
    columns = (QueryColumn("id", shape_of("bigint")), QueryColumn("v", shape))
    texts = TrinoTexts() if scheme == "trino" else PrestoTexts()
    agreed = agree_shapes(shape, shape)
    assert agreed is not None
    leaves = leaves_of(texts, columns, (columns[0].shape, agreed), (None, None))
    statements: list[str] = []

    def heard(sql: str) -> list[tuple[Any, ...]]:
        statements.append(sql)
        parsed = sqlglot.parse_one(sql, read=scheme)
        assert isinstance(parsed, exp.Select)
        return [(0,) * len(parsed.selects)]

    result = 'SELECT * FROM "hive"."truecopy_scratch"."x"'
    checksums.look(heard, texts, leaves, columns, result)
    checksums.leaf_sums(heard, texts, leaves, columns, result)
    assert len(statements) == 2


def test_types_are_read() -> None:
    nested = shape_of("row(x bigint, y array(varchar))")
    assert isinstance(nested, StructOf)
    assert [name for name, _ in nested.fields] == ["x", "y"]
    scalar = shape_of("decimal(38, 10)")
    assert isinstance(scalar, Scalar)
    assert scalar.type == Decimal(10)
    finer = shape_of("timestamp(9)")
    assert isinstance(finer, Scalar)
    assert isinstance(finer.type, Unsupported)
