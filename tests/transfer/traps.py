"""The tables that others broke on, as MariaDB declares them, and what happens to their rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Trap:
    """A table, its rows before the copy, and what happens to them afterwards."""

    columns: str
    rows: tuple[str, ...]
    changes: tuple[str, ...]


TRAPS = {
    "json_compared_as_string": Trap(
        "id INT PRIMARY KEY, doc JSON",
        (
            """(1, '{"b": 1, "a": [1.0, 1e2]}'), (2, '[]'), (3, NULL), (4, '"text"')""",
            """(5, '{"long": 1, "b":  {"y": "\\\\u00e9", "x": 1.50}}')""",
        ),
        ("""UPDATE {t} SET doc = '{"z":1,  "y": {"x": 18446744073709551615}}' WHERE id = 1""",),
    ),
    "binary_padding": Trap(
        "id BINARY(4) PRIMARY KEY, fixed BINARY(8), free VARBINARY(8)",
        (r"('a', 'x', 'x'), ('a\0b', 'x\0', 'x\0'), ('', '', ''), (' ', ' ', ' ')",),
        (
            r"UPDATE {t} SET fixed = 'y ', free = 'y ' WHERE id = 'a\0\0\0'",
            r"DELETE FROM {t} WHERE id = '\0\0\0\0'",
        ),
    ),
    "generated_columns_in_where": Trap(
        "id INT PRIMARY KEY, a INT, twice INT AS (a * 2) STORED, thrice INT AS (a * 3) VIRTUAL",
        ("(1, 1, DEFAULT, DEFAULT), (2, 2, DEFAULT, DEFAULT), (3, NULL, DEFAULT, DEFAULT)",),
        ("UPDATE {t} SET a = a + 10", "DELETE FROM {t} WHERE twice = 24"),
    ),
    "enum_index_or_label": Trap(
        "id INT PRIMARY KEY, e ENUM('2', '1', 'b,c'), s SET('x', 'y')",
        ("(1, '2', 'x'), (2, '1', 'x,y'), (3, 'b,c', ''), (4, NULL, NULL)",),
        ("UPDATE {t} SET e = '2' WHERE id = 2", "UPDATE {t} SET s = 'y' WHERE id = 3"),
    ),
    "unsigned_bigint_keys_above_2_63": Trap(
        "id BIGINT UNSIGNED PRIMARY KEY, v BIGINT UNSIGNED",
        (
            "(0, 0), (9223372036854775807, 1), (9223372036854775808, 2), (18446744073709551615, 18446744073709551615)",
        ),
        (
            "UPDATE {t} SET v = v - 1 WHERE id > 9223372036854775807",
            "DELETE FROM {t} WHERE id = 9223372036854775808",
            "INSERT INTO {t} VALUES (18446744073709551614, 5)",
        ),
    ),
    "null_before_images_in_where": Trap(
        "id INT PRIMARY KEY, a INT, b VARCHAR(10)",
        ("(1, NULL, NULL), (2, NULL, ''), (3, 0, 'NULL')",),
        ("UPDATE {t} SET a = 1 WHERE a IS NULL", "DELETE FROM {t} WHERE b IS NULL"),
    ),
    "keys_at_or_below_0": Trap(
        "id INT PRIMARY KEY, v INT",
        ("(-2147483648, 1), (-1, 2), (0, 3), (1, 4)",),
        ("UPDATE {t} SET v = -v WHERE id <= 0", "DELETE FROM {t} WHERE id = -2147483648"),
    ),
    "zero_dates": Trap(
        "id INT PRIMARY KEY, d DATE, dt DATETIME(3), ts TIMESTAMP NULL, y YEAR, tm TIME(2)",
        (
            "(1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00', 0, '-838:59:59')",
            "(2, '2024-00-00', '2024-02-00 12:00:00.123', NULL, 2155, '00:00:00.01')",
        ),
        (
            "UPDATE {t} SET d = '0000-00-00', tm = '838:59:58.99' WHERE id = 2",
            "UPDATE {t} SET d = '1000-01-01' WHERE id = 1",
        ),
    ),
    "decimal_18_14": Trap(
        "id DECIMAL(18,14) PRIMARY KEY, v DECIMAL(65,30)",
        (
            "(0, 0), (-0.00000000000001, 1.5), (9999.99999999999999, -99999999999999999999999999999999999)",
        ),
        ("UPDATE {t} SET v = v / 3", "DELETE FROM {t} WHERE id = -0.00000000000001"),
    ),
    "utf8mb3_and_utf8mb4": Trap(
        "id VARCHAR(20) CHARACTER SET utf8mb3 PRIMARY KEY, v VARCHAR(20) CHARACTER SET utf8mb4,"
        " w VARCHAR(20) CHARACTER SET latin1",
        ("('ä', '💡', 'ÿ'), ('ß', 'é', 'é'), ('', '', '')",),
        ("UPDATE {t} SET v = CONCAT(v, '𝄞') WHERE id <> ''", "DELETE FROM {t} WHERE id = 'ß'"),
    ),
    "float_minus_0": Trap(
        "id INT PRIMARY KEY, f FLOAT, d DOUBLE",
        (
            "(1, 1, 1), (2, 0.1, 0.1), (3, 3.4e38, 1.7976931348623157e308), (4, 1e-45, 5e-324), (5, 0, 0)",
        ),
        ("UPDATE {t} SET d = d / 3 WHERE id = 3",),  # and -0 in rows of their own: see `MINUS_ZERO`
    ),
    "update_that_changes_the_key": Trap(
        "id INT PRIMARY KEY, v VARCHAR(10) UNIQUE",
        ("(1, 'a'), (2, 'b'), (3, 'c')",),
        (
            "UPDATE {t} SET id = id + 100",
            "UPDATE {t} SET id = 1 WHERE id = 103",
            "UPDATE {t} SET v = NULL WHERE id = 1",
            "UPDATE {t} SET v = 'c' WHERE id = 101",
        ),
    ),
    "stale": Trap(
        "id INT PRIMARY KEY, v INT",
        (", ".join(f"({n}, 0)" for n in range(1, 301)),),
        (),
    ),
}
WHILE_STALE = (
    "UPDATE stale SET v = 1 WHERE id <= 100",  # newer than the rows that wait to be written
    "DELETE FROM stale WHERE id BETWEEN 101 AND 150",
    "DELETE FROM stale WHERE id = 300",  # the largest key
    "INSERT INTO stale VALUES (301, 7), (102, 8)",
)
MINUS_ZERO = {"copied": (1,), "replicated": (2, 5)}
"""The rows of `float_minus_0` that hold it, by how they arrive; one of them was 0 before."""
