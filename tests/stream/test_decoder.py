"""The generated decoder against what the server's own SQL says of the same rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.servers import Database
from tests.stream.logged import RowsEvent, definition, describe, engine_texts, rows_events
from truecopy.model.change import Definition
from truecopy.stream.binlog.decoder import Image, Texts, compile_decoder

SERVERS = ["mariadb_db", pytest.param("mysql_db", marks=pytest.mark.mysql)]


@pytest.fixture(params=SERVERS)
def database(request: pytest.FixtureRequest) -> Database:
    found: Database = request.getfixturevalue(request.param)
    return found


def decoded(events: Sequence[RowsEvent], table: Definition) -> list[tuple[str | None, ...]]:
    """The rows of inserts."""
    values: Texts = []
    keys: Texts = []
    count = 0
    for event in events:
        decoder = compile_decoder(event.columns, table, image=Image(event.present))
        assert decoder.decode is not None
        count += decoder.decode(
            b"junk" + event.rows + b"junk", 4, 4 + len(event.rows), keys, values
        )
    width = len(table.columns)
    assert len(values) == count * width
    texts = [None if value is None else value.decode() for value in values]
    return [tuple(texts[at : at + width]) for at in range(0, len(texts), width)]


def check_inserts(database: Database, declaration: str, values: Sequence[object]) -> None:
    """Inserts the values into a column so declared; the log must say what the engine says."""
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, v {declaration}, w {declaration})")
    # Often enough that rows with a NULL get a function of their own, too.
    again = max(1, 200 // len(values)) if len(repr(values)) < 10_000 else 1
    rows = [(i, value, None if i % 3 else value) for i, value in enumerate([*values] * again)]

    def insert() -> None:
        with database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
            cursor.executemany("INSERT INTO t VALUES (%s, %s, %s)", rows)
            connection.commit()

    events = rows_events(database, "t", insert)
    table = describe(database, "t")
    assert decoded(events, definition(table)) == engine_texts(database, table)


def integers(bits: int, unsigned: bool = False) -> list[object]:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return [None, low, low + 1, 0, 1, high - 1, high, *([] if unsigned else [-1])]


DECIMALS: list[object] = [
    None,
    "0",
    "-0.5",
    "0.05",
    "-0.05",
    "123.45",
    "-99999.99",
    "99999.99",
    "1",
]
DATES: list[object] = [None, "0000-00-00", "2020-00-00", "2020-12-00", "1000-01-01", "9999-12-31"]
DAYTIMES: list[object] = [
    None,
    "0000-00-00 00:00:00",
    "2020-00-00 01:02:03",
    "2024-02-29 23:59:59.999999",
    "9999-12-31 23:59:59",
    "1000-01-01 00:00:00.000001",
]
INSTANTS: list[object] = [
    None,
    0,
    "1970-01-01 00:00:01",
    "2024-02-29 23:59:59.123456",
    "2038-01-19 03:14:07",
    "2001-09-09 01:46:40.5",
    "1970-01-01 00:00:00.25",
]
TIMES: list[object] = [
    None,
    "00:00:00",
    "-00:00:00.4",
    "-00:00:01",
    "-838:59:59",
    "838:59:59",
    "-12:34:56.789",
    "12:34:56.999999",
    "-00:00:00.000001",
    "-100:00:59.99",
]
TEXTS: list[object] = [None, "", "a", " a ", "Grüße", "x" * 60, "'\"\\", "tab\tline\n", "é" * 20]
FRACTIONS = (0, 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("declaration", "values"),
    [
        ("TINYINT", integers(8)),
        ("TINYINT UNSIGNED", integers(8, True)),
        ("SMALLINT", integers(16)),
        ("SMALLINT UNSIGNED", integers(16, True)),
        ("MEDIUMINT", integers(24)),
        ("MEDIUMINT UNSIGNED", integers(24, True)),
        ("INT", integers(32)),
        ("INT UNSIGNED ZEROFILL", integers(32, True)),
        ("BIGINT", integers(64)),
        ("BIGINT UNSIGNED", integers(64, True)),
        ("YEAR", [None, 0, 1901, 2000, 2155]),
        ("DECIMAL(7,2)", DECIMALS),
        ("DECIMAL(10,0)", DECIMALS),
        ("DECIMAL(3,3)", ["0.001", "-0.999", "0"]),
        ("DECIMAL(65,30)", ["9" * 35 + "." + "9" * 30, "-" + "9" * 35 + ".000000001", *DECIMALS]),
        ("DECIMAL(18,9)", ["123456789.987654321", "-1.000000001", *DECIMALS]),
        ("FLOAT", [None, 0, -0.0, 1.5, -3.4e38, 1e-45, 0.1, 16777217]),
        ("DOUBLE", [None, 0, -0.0, 1.5, -1.7e308, 5e-324, 0.1, 2**53 + 1]),
        ("BIT(1)", [None, 0, 1]),
        ("BIT(8)", [None, 0, 1, 255]),
        ("BIT(13)", [None, 0, 1, 8191, 4096]),
        ("BIT(64)", [None, 0, 1, 2**64 - 1]),
        ("DATE", DATES),
        *[(f"DATETIME({n})", DAYTIMES) for n in FRACTIONS],
        *[(f"TIMESTAMP({n}) NULL DEFAULT NULL", INSTANTS) for n in FRACTIONS],
        *[(f"TIME({n})", TIMES) for n in FRACTIONS],
        ("CHAR(60)", TEXTS),
        ("CHAR(255)", [*TEXTS, "€" * 255]),
        ("VARCHAR(60)", TEXTS),
        ("VARCHAR(255)", [*TEXTS, "a" * 255]),
        ("VARCHAR(3000)", [*TEXTS, "€" * 3000]),
        ("TINYTEXT", TEXTS),
        ("TEXT", [*TEXTS, "x" * 65535]),
        ("MEDIUMTEXT", [*TEXTS, "x" * 65536]),
        ("LONGTEXT", [*TEXTS, "x" * 65536]),
        ("BINARY(16)", [None, b"", b"a", b"\0" * 16, b"\xff" * 16, b"a\0b\0\0"]),
        ("BINARY(255)", [b"", b"a" * 255]),
        ("VARBINARY(16)", [None, b"", b"a\0\0", b"\xff" * 16]),
        ("VARBINARY(300)", [b"", b"a\0\0", b"\xff" * 300]),
        ("BLOB", [None, b"", bytes(range(256))]),
        ("LONGBLOB", [None, b"", bytes(range(256)) * 300]),
        (
            "ENUM('a','b''c','ü','d,e','\\\\','x\\ny')",
            [None, "a", "b'c", "ü", "d,e", "bad", "\\", "x\ny"],
        ),
        (f"ENUM({','.join(repr(f'l{i}') for i in range(300))})", ["l0", "l254", "l255", "l299"]),
        ("SET('a','b''c','ü')", [None, "", "a", "a,b'c,ü", "ü,a"]),
        (f"SET({','.join(repr(f'l{i}') for i in range(64))})", ["l0", "l63", "l0,l31,l32,l63"]),
        ("ENUM('é','ß') CHARACTER SET latin1", ["é", "ß"]),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_says_what_the_server_says(
    database: Database, declaration: str, values: Sequence[object]
) -> None:
    check_inserts(database, declaration, values)
