"""What query verification costs: over the bare queries, and before anything runs.

    python -m bench.queries [--json] [--scale N] [--queries N] [--pair CONTROL-TEST]

What the figures mean and what they should be: docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

if not __package__:  # run by its path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.figures import Figure, at_most, print_figures
from bench.timing import seconds_of, side_by_side
from tests.queries.tpch.ends import tpch_ends
from truecopy.engines.queries.session import open_session
from truecopy.model.endpoint import parse_endpoint
from truecopy.queries.filters import skip_reason
from truecopy.queries.query import Query, SideQuery
from truecopy.queries.result import Status
from truecopy.queries.rewrite import rewrite
from truecopy.queries.settings import Settings
from truecopy.queries.suite import run_queries

TABLES = ("customer", "orders", "lineitem")
LARGE = {
    "orders": "SELECT * FROM orders",
    "prices": "SELECT l_orderkey, l_linenumber, l_extendedprice * (1 - l_discount) AS price FROM lineitem"
    " WHERE l_shipdate < DATE '1994-01-01'",
    "joined": "SELECT o_orderkey, o_orderdate, c_name FROM orders JOIN customer ON c_custkey = o_custkey",
}
PAIRS = (("postgresql", "postgresql"), ("mariadb", "postgresql"))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench.queries", description="Measures `truecopy queries`."
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, metavar="N", help="of TPC-H, default: 1"
    )
    parser.add_argument("--queries", type=int, default=10_000, metavar="N", help="default: 10,000")
    parser.add_argument(
        "--pair",
        action="append",
        metavar="CONTROL-TEST",
        help="of engines: mariadb, postgresql, duckdb, spark",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    pairs = [tuple(pair.split("-")) for pair in chosen.pair or ()] or PAIRS
    with (
        tempfile.TemporaryDirectory() as folder,
        tpch_ends(Path(folder), chosen.scale, TABLES) as ends,
    ):
        figures = [_prepared(ends.url("duckdb"), chosen.queries)]
        for control, test in pairs:
            figures += _overhead(f"{control}_{test}", ends.url(control), ends.url(test))
    print_figures(figures, chosen.json)


def _prepared(url: str, count: int) -> Figure:
    """Parsed, filtered and rewritten; each text is another one, so that none is read from a cache."""
    texts = (
        "SELECT o_orderkey, o_totalprice * {i} AS p FROM orders WHERE o_custkey = {i} ORDER BY 1 LIMIT 5",
        "SELECT c_name, COUNT(*) FROM customer JOIN orders ON o_custkey = c_custkey WHERE o_orderkey > {i} GROUP BY 1",
        "INSERT INTO region SELECT n_nationkey + {i}, n_name, n_comment FROM nation",
        "WITH a AS (SELECT l_suppkey, SUM(l_tax) AS t FROM lineitem WHERE l_tax < {i} GROUP BY 1) SELECT * FROM a",
        "DELETE FROM part WHERE p_size = {i} AND p_brand IN ('Brand#1', 'Brand#2')",
    )
    queries = []
    for i in range(count):
        side = SideQuery(texts[i % len(texts)].format(i=i))
        queries.append(Query("many", f"q{i}", side, side))
    settings = Settings()
    with open_session(parse_endpoint(url)) as session:

        def prepare() -> None:
            for at, query in enumerate(queries):
                if skip_reason(query, (session.dialect, session.dialect), settings) is None:
                    for side, name in ((query.control, "c"), (query.test, "t")):
                        rewrite(session, side.sql, f"tcq_{at}{name}", settings)

        return Figure(
            "prepare_10000_queries_seconds", seconds_of(prepare) * 10_000 / count, at_most(30)
        )


def _overhead(pair: str, control: str, test: str) -> list[Figure]:
    """Verification over the bare CREATE TABLE AS on both engines, for results of over a million rows."""
    figures = []
    for name, sql in LARGE.items():
        times = side_by_side(
            {
                "bare": partial(_bare, (control, test), sql),
                "verified": partial(_verified, control, test, sql),
            }
        )
        ratio = times["verified"] / times["bare"]
        figures.append(Figure(f"verified_over_bare_{pair}_{name}", ratio, at_most(1.3)))
        figures.append(Figure(f"bare_seconds_{pair}_{name}", times["bare"]))
    return figures


def _bare(ends: tuple[str, str], sql: str) -> None:
    for end in ends:
        with open_session(parse_endpoint(end)) as session:
            session.make_scratch()
            form = " USING parquet" if session.dialect == "spark" else ""
            session.run(f"CREATE TABLE {session.scratch_name('tcq_bare')}{form} AS {sql}")
            session.drop("tcq_bare")


def _verified(control: str, test: str, sql: str) -> None:
    side = SideQuery(sql)
    report = run_queries([Query("bench", "q", side, side)], control, test, Settings(concurrency=1))
    if report.results[0].status is not Status.SUCCEEDED:
        raise SystemExit(f"not verified: {report.results[0].detail}")


if __name__ == "__main__":
    main()
