"""A suite of more than 150 queries over TPC-H: its own 22, and what people ask of such tables.

Every query is written so that all engines read it; where they answer differently, the reason is
theirs, and `EXPLAINED` in the tests says which.
"""

from __future__ import annotations

from pathlib import Path

from truecopy.queries.query import Query, SideQuery

_NUMBERS = {
    "lineitem": ("l_quantity", "l_extendedprice", "l_discount", "l_tax", "l_linenumber"),
    "orders": ("o_totalprice", "o_shippriority", "o_custkey"),
    "customer": ("c_acctbal", "c_nationkey"),
    "part": ("p_retailprice", "p_size"),
    "partsupp": ("ps_supplycost", "ps_availqty"),
    "supplier": ("s_acctbal", "s_nationkey"),
}
_CATEGORIES = {
    "lineitem": ("l_returnflag", "l_linestatus", "l_shipmode", "l_shipinstruct"),
    "orders": ("o_orderstatus", "o_orderpriority", "o_clerk"),
    "customer": ("c_mktsegment", "c_nationkey"),
    "part": ("p_mfgr", "p_brand", "p_type", "p_container"),
    "supplier": ("s_nationkey",),
    "nation": ("n_regionkey",),
}
_DAYS = {"lineitem": ("l_shipdate", "l_commitdate", "l_receiptdate"), "orders": ("o_orderdate",)}
_TEXTS = {
    "customer": ("c_name", "c_address", "c_phone", "c_comment"),
    "supplier": ("s_name", "s_address", "s_phone"),
    "part": ("p_name", "p_comment"),
    "nation": ("n_name",),
    "region": ("r_name",),
}
_TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")

_OTHERS = {
    "join-left": "SELECT c_custkey, COUNT(o_orderkey) AS n FROM customer LEFT JOIN orders ON o_custkey = c_custkey GROUP BY c_custkey",
    "join-self": "SELECT a.n_name, b.n_name AS other FROM nation a JOIN nation b ON a.n_regionkey = b.n_regionkey AND a.n_nationkey < b.n_nationkey",
    "join-cross": "SELECT r_name, n_name FROM region CROSS JOIN nation",
    "join-names": "SELECT * FROM nation JOIN region ON r_regionkey = n_regionkey",
    "semi": "SELECT c_custkey FROM customer WHERE c_custkey IN (SELECT o_custkey FROM orders WHERE o_totalprice > 300000)",
    "anti": "SELECT c_custkey FROM customer WHERE NOT EXISTS (SELECT 1 FROM orders WHERE o_custkey = c_custkey)",
    "scalar": "SELECT o_orderkey FROM orders WHERE o_totalprice = (SELECT MAX(o_totalprice) FROM orders)",
    "union": "SELECT c_nationkey AS k FROM customer UNION SELECT s_nationkey FROM supplier",
    "union-all": "SELECT c_nationkey AS k FROM customer UNION ALL SELECT s_nationkey FROM supplier",
    "except": "SELECT n_nationkey FROM nation EXCEPT SELECT s_nationkey FROM supplier WHERE s_acctbal < 0",
    "intersect": "SELECT c_nationkey FROM customer INTERSECT SELECT s_nationkey FROM supplier",
    "distinct": "SELECT DISTINCT l_shipmode, l_returnflag FROM lineitem",
    "row-number": "SELECT o_orderkey, ROW_NUMBER() OVER (PARTITION BY o_custkey ORDER BY o_orderkey) AS n FROM orders",
    "rank": "SELECT p_partkey, RANK() OVER (PARTITION BY p_brand ORDER BY p_retailprice DESC) AS r FROM part",
    "dense-rank": "SELECT p_partkey, DENSE_RANK() OVER (ORDER BY p_size) AS r FROM part",
    "running-sum": "SELECT o_orderkey, SUM(o_totalprice) OVER (PARTITION BY o_custkey ORDER BY o_orderkey) AS s FROM orders",
    "lag": "SELECT o_orderkey, LAG(o_orderkey) OVER (PARTITION BY o_custkey ORDER BY o_orderkey) AS earlier FROM orders",
    "lead": "SELECT s_suppkey, LEAD(s_name) OVER (ORDER BY s_suppkey) AS next_name FROM supplier",
    "first-value": "SELECT c_custkey, FIRST_VALUE(c_acctbal) OVER (PARTITION BY c_nationkey ORDER BY c_custkey) AS f FROM customer",
    "moving": "SELECT o_orderkey, SUM(o_totalprice) OVER (ORDER BY o_orderkey ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM orders",
    "ntile": "SELECT p_partkey, NTILE(10) OVER (ORDER BY p_partkey) AS n FROM part",
    "case": "SELECT o_orderkey, CASE WHEN o_totalprice > 200000 THEN 'large' WHEN o_totalprice > 100000 THEN 'middle' ELSE 'small' END AS size FROM orders",
    "coalesce": "SELECT c_custkey, COALESCE(NULLIF(c_mktsegment, 'BUILDING'), 'none') AS segment FROM customer",
    "like": "SELECT p_partkey FROM part WHERE p_name LIKE '%azure%'",
    "between": "SELECT l_orderkey, l_linenumber FROM lineitem WHERE l_discount BETWEEN 0.02 AND 0.03",
    "in": "SELECT o_orderkey FROM orders WHERE o_orderpriority IN ('1-URGENT', '5-LOW')",
    "having": "SELECT o_custkey, SUM(o_totalprice) AS s FROM orders GROUP BY o_custkey HAVING COUNT(*) > 20",
    "expression": "SELECT l_orderkey, l_linenumber, l_extendedprice * (1 - l_discount) * (1 + l_tax) AS charge FROM lineitem",
    "modulo": "SELECT o_orderkey % 7 AS m, COUNT(*) AS n FROM orders GROUP BY o_orderkey % 7",
    "absolute": "SELECT s_suppkey, ABS(s_acctbal) AS a FROM supplier",
    "floor": "SELECT s_suppkey, FLOOR(s_acctbal) AS f, CEIL(s_acctbal) AS c FROM supplier",
    "round": "SELECT s_suppkey, ROUND(s_acctbal, 1) AS r FROM supplier",
    "negative": "SELECT s_suppkey, -s_acctbal AS n FROM supplier",
    "square-root": "SELECT p_partkey, SQRT(p_size) AS s FROM part",
    "exponential": "SELECT p_partkey, EXP(p_size / 10.0) AS e, LN(p_size) AS l FROM part",
    "power": "SELECT p_partkey, POWER(p_size, 3) AS p FROM part",
    "float-sum": "SELECT l_suppkey, SUM(SQRT(l_quantity)) AS s FROM lineitem GROUP BY l_suppkey",
    "deviation": "SELECT l_returnflag, STDDEV_SAMP(l_quantity) AS d, VAR_POP(l_quantity) AS v FROM lineitem GROUP BY l_returnflag",
    "upper": "SELECT n_nationkey, UPPER(n_comment) AS u, LOWER(n_name) AS l FROM nation",
    "length": "SELECT c_custkey, LENGTH(c_comment) AS n FROM customer",
    "trim": "SELECT s_suppkey, TRIM(s_address) AS a FROM supplier",
    "replace": "SELECT p_partkey, REPLACE(p_name, 'green', 'red') AS n FROM part",
    "concat": "SELECT c_custkey, CONCAT(c_name, '/', c_phone) AS c FROM customer",
    "left": "SELECT p_partkey, LEFT(p_type, 5) AS l, RIGHT(p_type, 3) AS r FROM part",
    "position": "SELECT p_partkey, POSITION('e' IN p_name) AS n FROM part",
    "greatest": "SELECT l_orderkey, l_linenumber, GREATEST(l_commitdate, l_receiptdate) AS g, LEAST(l_shipdate, l_commitdate) AS l FROM lineitem",
    "extract": "SELECT o_orderkey, EXTRACT(YEAR FROM o_orderdate) AS y, EXTRACT(MONTH FROM o_orderdate) AS m, EXTRACT(DAY FROM o_orderdate) AS d FROM orders",
    "date-filter": "SELECT o_orderkey FROM orders WHERE o_orderdate >= DATE '1996-02-01' AND o_orderdate < DATE '1996-02-01' + INTERVAL '1' MONTH",
    "cast-text": "SELECT o_orderkey, CAST(o_orderdate AS CHAR(10)) AS d FROM orders",
    "cast-number": "SELECT p_partkey, CAST(p_retailprice AS DECIMAL(10,1)) AS r FROM part",
    "cast-day": "SELECT o_orderkey, CAST('1996-02-29' AS DATE) AS d FROM orders WHERE o_orderkey < 100",
    "nulls": "SELECT c_custkey, o_orderkey FROM customer LEFT JOIN orders ON o_custkey = c_custkey AND o_totalprice > 400000",
    "null-sum": "SELECT SUM(o_totalprice) AS s, COUNT(o_totalprice) AS n FROM orders WHERE o_orderkey < 0",
    "top": "SELECT o_orderkey, o_totalprice FROM orders ORDER BY o_totalprice DESC, o_orderkey LIMIT 50",
    "offset": "SELECT c_custkey FROM customer ORDER BY c_custkey LIMIT 10 OFFSET 100",
    "cte": "WITH big AS (SELECT o_custkey, SUM(o_totalprice) AS s FROM orders GROUP BY o_custkey) SELECT COUNT(*) AS n, MAX(s) AS m FROM big WHERE s > 1000000",
    "nested": "SELECT MAX(n) AS m FROM (SELECT o_custkey, COUNT(*) AS n FROM orders GROUP BY o_custkey) AS t",
    "count-distinct": "SELECT l_returnflag, COUNT(DISTINCT l_suppkey) AS n FROM lineitem GROUP BY l_returnflag",
    "conditional": "SELECT SUM(CASE WHEN l_tax > 0.05 THEN 1 ELSE 0 END) AS n FROM lineitem",
    "unnamed": "SELECT COUNT(*), MIN(o_totalprice), MAX(o_totalprice) FROM orders",
    "constant": "SELECT 1 AS one, 'x' AS x, NULL AS nothing FROM region",
    "insert": "INSERT INTO region SELECT r_regionkey + 10, r_name, r_comment FROM region",
    "update": "UPDATE supplier SET s_acctbal = s_acctbal * 2 WHERE s_nationkey = 3",
    "delete": "DELETE FROM part WHERE p_size > 25",
    "ctas": "CREATE TABLE urgent AS SELECT o_orderkey, o_totalprice FROM orders WHERE o_orderpriority = '1-URGENT'",
    "view": "CREATE VIEW late AS SELECT l_orderkey, l_linenumber FROM lineitem WHERE l_receiptdate > l_commitdate",
    "table": "CREATE TABLE plain (a INTEGER, b DECIMAL(10,2), d DATE)",
}


def tpch_suite() -> list[Query]:
    """All queries."""
    found = {path.stem: path.read_text() for path in sorted(Path(__file__).parent.glob("q*.sql"))}
    for table in _TABLES:
        found[f"all-{table}"] = f"SELECT * FROM {table}"
        found[f"count-{table}"] = f"SELECT COUNT(*) AS n FROM {table}"
    for table, columns in _NUMBERS.items():
        for c in columns:
            found[f"sum-{c}"] = f"SELECT SUM({c}) AS s, MIN({c}) AS lo, MAX({c}) AS hi FROM {table}"
            found[f"avg-{c}"] = f"SELECT AVG({c}) AS a FROM {table}"
    for table, columns in _CATEGORIES.items():
        for c in columns:
            found[f"group-{c}"] = f"SELECT {c}, COUNT(*) AS n FROM {table} GROUP BY {c}"
    for table, columns in _DAYS.items():
        for c in columns:
            found[f"days-{c}"] = (
                f"SELECT {c}, COUNT(*) AS n, MIN({c}) AS m FROM {table} GROUP BY {c}"
            )
    for table, columns in _TEXTS.items():
        for c in columns:
            found[f"text-{c}"] = (
                f"SELECT MIN({c}) AS lo, MAX({c}) AS hi, COUNT(DISTINCT {c}) AS n FROM {table}"
            )
    found |= _OTHERS
    return [
        Query("tpch", name, SideQuery(sql.strip()), SideQuery(sql.strip()))
        for name, sql in found.items()
    ]
