"""The generated decoder against what the server's own SQL says of the same rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers import Database
from tests.stream.logged import RowsEvent, definition, describe, engine_texts, rows_events
from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish
from truecopy.model.table import Column
from truecopy.model.types import Integer
from truecopy.stream.binlog import charsets, columns
from truecopy.stream.binlog.columns import LoggedColumn
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
UUIDS: list[object] = [
    None,
    "123e4567-e89b-12d3-a456-426655440000",
    "123e4567-e89b-42d3-a456-426655440000",
    "018f3c2e-7b1a-7c3d-9e4f-5a6b7c8d9e0f",
    "1ef3c2e7-b1a6-6c3d-9e4f-5a6b7c8d9e00",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "00000000-0000-1000-8000-000000000000",
    "12345678-1234-8234-8234-123456780000",
    "80808080-8080-8080-8080-808080808080",
    "01010101-0101-0101-0101-010101010101",
]
ADDRESSES: list[object] = [
    None,
    "::",
    "::1",
    "::1.2.3.4",
    "::ffff:1.2.3.4",
    "1:2:3:4:5:6:7:8",
    "1:0:2:3:4:5:6:7",
    "1:0:0:3:0:0:6:7",
    "0:0:1::",
    "0:1::",
    "fe80::ffff:1.2.3.4",
    "::5678",
    "::1:0",
    "ff00::",
]
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


@pytest.mark.parametrize(
    ("declaration", "values"),
    [
        ("UUID", ["00000000-0000-0000-0000-000000000000", *UUIDS]),
        ("INET4", [None, "0.0.0.0", "255.255.255.255", "10.1.0.0"]),
        ("INET6", ADDRESSES),
        ("VARCHAR(100) COMPRESSED", [*TEXTS, "x" * 100, "short" * 10]),
        ("VARCHAR(3000) COMPRESSED", [*TEXTS, "é" * 3000]),
        ("VARCHAR(300) COMPRESSED CHARACTER SET latin1", [*TEXTS, "é" * 300]),
        ("TEXT COMPRESSED", [*TEXTS, "x" * 20000]),
        ("LONGBLOB COMPRESSED", [None, b"", b"\0", bytes(range(256)) * 100]),
        ("JSON", [None, "{}", '{ "a" : 1.50 }', "[1, 2]"]),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_types_of_mariadb(mariadb_db: Database, declaration: str, values: Sequence[object]) -> None:
    check_inserts(mariadb_db, declaration, values)


@pytest.mark.parametrize("kind", ["DATETIME", "TIMESTAMP", "TIME"])
def test_times_as_mariadb_kept_them_before(mariadb_db: Database, kind: str) -> None:
    values = {"DATETIME": DAYTIMES, "TIMESTAMP": INSTANTS, "TIME": TIMES}[kind]
    mariadb_db.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        for fraction in FRACTIONS:
            check_inserts(mariadb_db, f"{kind}({fraction}) NULL DEFAULT NULL", values)
            mariadb_db.execute("DROP TABLE t")
    finally:
        mariadb_db.execute("SET GLOBAL mysql56_temporal_format = ON")


def test_shapes_are_their_bytes(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, g GEOMETRY, p POINT)")
    events = rows_events(
        database,
        "t",
        lambda: database.execute(
            "INSERT INTO t VALUES (1, ST_GeomFromText('LINESTRING(0 0, 1 2)'), POINT(3, 4)),"
            " (2, NULL, ST_GeomFromText('POINT(1 1)', 4326))"
        ),
    )
    table = definition(describe(database, "t"))
    printed = database.execute("SELECT CONCAT(id), LOWER(HEX(g)), LOWER(HEX(p)) FROM t ORDER BY id")
    assert decoded(events, table) == printed


@pytest.mark.mysql
def test_vectors_are_their_bytes(mysql_db: Database) -> None:
    mysql_db.execute("CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(3))")
    events = rows_events(
        mysql_db,
        "t",
        lambda: mysql_db.execute(
            "INSERT INTO t VALUES (1, STRING_TO_VECTOR('[1,2,3]')), (2, NULL)"
        ),
    )
    table = definition(describe(mysql_db, "t"))
    printed = mysql_db.execute("SELECT CONCAT(id), LOWER(HEX(v)) FROM t ORDER BY id")
    assert decoded(events, table) == printed


CHARSETS = [
    "armscii8", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "cp932", "dec8",
    "euckr", "gb2312", "gbk", "geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8r", "koi8u", "latin1",
    "latin2", "latin5", "latin7", "macce", "macroman", "sjis", "swe7", "tis620", "ujis",
]  # fmt: skip


@pytest.mark.long
def test_every_character_of_every_charset(database: Database) -> None:
    names = [*CHARSETS, *(["gb18030"] if database.server.scheme == "mysql" else [])]
    for name in names:
        characters = [bytes((n,)) for n in range(256)]
        if name in ("big5", "cp932", "euckr", "gb2312", "gbk", "sjis", "ujis", "gb18030"):
            characters += [bytes((a, b)) for a in range(0x81, 0xFF) for b in range(0x40, 0xFF)]
        if name == "ujis":
            edge = range(0xA1, 0xFF)
            characters += [bytes((0x8F, a, b)) for a in edge for b in edge]
        check_characters(database, name, characters)


def check_characters(database: Database, name: str, characters: list[bytes]) -> None:
    """Every character as the server converts it, or refused where that gives its question mark."""
    database.execute(
        f"CREATE TABLE {name} (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(4) CHARACTER SET {name})"
    )
    # Not all bytes are characters: what the server cuts is not logged either.
    places = ",".join(f"(X'{raw.hex()}')" for raw in characters)
    statement = f"SET sql_mode = ''; INSERT INTO {name} (v) VALUES {places}"
    database.execute(statement)
    printed = database.execute(
        f"SELECT id, CONVERT(v USING utf8mb4), HEX(v) FROM {name} ORDER BY id"
    )
    lost = {n for n, text, raw in printed if text.count("?") > bytes.fromhex(raw).count(b"?")}
    raws = {n: raw for n, _, raw in printed}
    convert = charsets.to_utf8(name)
    assert convert is not None
    for n in lost:
        with pytest.raises(UnicodeDecodeError):
            convert(bytes.fromhex(raws[n]))
    good = [n for n in raws if n not in lost]
    places = ",".join(map(str, good))
    again = f"INSERT INTO {name} (v) SELECT v FROM {name} WHERE id IN ({places}) ORDER BY id"
    events = rows_events(database, name, lambda: database.execute(again))
    database.execute(f"DELETE FROM {name} WHERE id <= {max(raws)}")
    table = describe(database, name)
    assert decoded(events, definition(table)) == engine_texts(database, table), name


def test_a_value_without_a_character_is_refused(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT CHARACTER SET cp1250)")
    statement = "INSERT INTO t VALUES (1, X'414281')"
    events = rows_events(mariadb_db, "t", lambda: mariadb_db.execute(statement))
    table = definition(describe(mariadb_db, "t"))
    with pytest.raises(CannotFinish, match=r"column v holds bytes \(81\) that cp1250"):
        decoded(events, table)


@pytest.mark.parametrize("name", ["ucs2", "utf16", "utf16le", "utf32", "utf8mb3", "utf8mb4"])
def test_unicode(database: Database, name: str) -> None:
    beyond = [] if name in ("ucs2", "utf8mb3") else ["😀", "a😀b"]
    check_inserts(
        database, f"VARCHAR(60) CHARACTER SET {name}", [*TEXTS, "中文", "\u0301", *beyond]
    )
    database.execute("DROP TABLE t")
    check_inserts(database, f"CHAR(60) CHARACTER SET {name}", [*TEXTS, "中文", *beyond])
    database.execute("DROP TABLE t")
    check_inserts(database, f"TEXT CHARACTER SET {name}", [*TEXTS, "中文", *beyond])


def test_a_charset_without_an_exact_codec_is_refused(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY, v TEXT CHARACTER SET eucjpms)")
    events = rows_events(
        mariadb_db, "t", lambda: mariadb_db.execute("INSERT INTO t VALUES (1, 'a')")
    )
    table = definition(describe(mariadb_db, "t"))
    with pytest.raises(CannotFinish, match=r"column v .* eucjpms.*convert it to utf8mb4"):
        decoded(events, table)


@given(
    rows=st.lists(
        st.tuples(
            st.decimals(-(10**40), 10**40, places=20),
            st.decimals(-(10**7), 10**7, places=3),
            st.floats(width=32, allow_nan=False, allow_infinity=False),
            st.floats(allow_nan=False, allow_infinity=False),
            st.integers(-838 * 3600 * 10**6, 838 * 3600 * 10**6),
            st.datetimes(dt.datetime.fromisoformat("1000-01-01")),
            st.datetimes(*map(dt.datetime.fromisoformat, ("1970-01-02", "2038-01-01"))),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
            st.binary(max_size=40),
        )
        | st.none(),
        min_size=50,
        max_size=200,
    )
)
@settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.large_base_example,
        HealthCheck.data_too_large,
        HealthCheck.too_slow,
    ],
)
def test_any_values(database: Database, rows: list[tuple[object, ...] | None]) -> None:
    database.execute("DROP TABLE IF EXISTS t")
    database.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a DECIMAL(65,20), b DECIMAL(11,3), c FLOAT, d DOUBLE, e TIME(6),"
        " f DATETIME(4), g TIMESTAMP(5) NULL, h VARCHAR(40), i VARBINARY(300))"
    )
    written: list[tuple[object, ...]] = []
    for n, row in enumerate(rows):
        if row is None:
            written.append((n, *[None] * 9))
            continue
        a, b, c, d, micros, *rest = row
        assert isinstance(micros, int)
        written.append((n, a, b, c, d, dt.timedelta(microseconds=micros), *rest))

    def insert() -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.executemany(f"INSERT INTO t VALUES ({','.join(['%s'] * 10)})", written)

    events = rows_events(database, "t", insert)
    table = describe(database, "t")
    assert decoded(events, definition(table)) == engine_texts(database, table)


def updates(
    events: Sequence[RowsEvent],
    table: Definition,
    *,
    keys_only: bool = False,
    first_image: bool = True,
) -> tuple[list[int], Texts, Texts, Texts]:
    keys: Texts = []
    before: Texts = []
    after: Texts = []
    (event,) = events
    image = Image(event.present, event.after, keys_only, first_image)
    decoder = compile_decoder(event.columns, table, image=image)
    assert decoder.decode is None
    assert decoder.decode_updates is not None
    count, moved = decoder.decode_updates(event.rows, 0, len(event.rows), keys, before, after)
    assert len(keys) == (count + len(moved)) * len(table.key)
    return moved, keys, before, after


def test_updates_and_moved_keys(database: Database) -> None:
    database.execute("CREATE TABLE t (v VARCHAR(300), a INT, b CHAR(5), n INT, PRIMARY KEY (a, b))")
    database.execute(
        "INSERT INTO t VALUES ('one', 1, 'x', NULL), ('two', 2, 'y', 5), ('three', 3, 'z', NULL)"
    )
    statement = "UPDATE t SET v = CONCAT(v, '!'), n = IF(n IS NULL, a, NULL), b = IF(a = 2, 'w', b) ORDER BY a"
    events = rows_events(database, "t", lambda: database.execute(statement))
    table = definition(describe(database, "t"))
    moved, keys, before, after = updates(events, table)
    assert moved == [1]
    assert keys == [b"1", b"x", b"2", b"y", b"2", b"w", b"3", b"z"]
    assert before == [
        *(b"one", b"1", b"x", None),
        *(b"two", b"2", b"y", b"5"),
        *(b"three", b"3", b"z", None),
    ]
    assert after == [
        *(b"one!", b"1", b"x", b"1"),
        *(b"two!", b"2", b"w", None),
        *(b"three!", b"3", b"z", b"3"),
    ]
    assert updates(events, table, keys_only=True) == ([1], keys, [], [])
    assert updates(events, table, first_image=False) == ([1], keys, [], after)


def test_many_updates_with_the_same_nulls(database: Database) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(9), c DATE, d TEXT)")
    database.executemany(
        "INSERT INTO t VALUES (%s, %s, %s, NULL, %s)",
        [(n, n if n % 2 else None, f"<{n}>", "text" * n) for n in range(100)],
    )
    rows = sorted(database.execute("SELECT * FROM t"))
    statement = "UPDATE t SET b = CONCAT(b, '+'), a = IF(id % 7 = 0, id, NULL) ORDER BY id"
    events = rows_events(database, "t", lambda: database.execute(statement))
    table = definition(describe(database, "t"))
    found: list[list[bytes | None]] = [[], [], []]
    for event in events:
        moved, *lists = updates([event], table)
        keys, _, after = lists
        assert updates([event], table, first_image=False) == (moved, keys, [], after)
        for i, texts in enumerate(lists):
            found[i] += texts
    new = sorted(database.execute("SELECT * FROM t"))
    changed = [(old, now) for old, now in zip(rows, new, strict=True) if old != now]

    def flat(rows: list[Any]) -> Texts:
        return [None if value is None else str(value).encode() for row in rows for value in row]

    assert found[1] == flat([old for old, _ in changed])
    assert found[2] == flat([now for _, now in changed])
    assert found[0] == [b"%d" % old[0] for old, _ in changed]


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_keys_of_smaller_images(database: Database, image: str) -> None:
    database.execute(
        "CREATE TABLE t (v VARCHAR(300), a INT, d DECIMAL(20,5), b CHAR(5), n INT, x BLOB, y DOUBLE,"
        " PRIMARY KEY (b, a))"
    )
    table = definition(describe(database, "t"))

    def work(statement: str) -> list[RowsEvent]:
        full = f"SET SESSION binlog_row_image = '{image}'; {statement}"
        return rows_events(database, "t", lambda: database.execute(full))

    def keys(events: list[RowsEvent]) -> Texts:
        (event,) = events
        decoder = compile_decoder(event.columns, table, image=Image(event.present, keys_only=True))
        assert decoder.decode is not None
        found: Texts = []
        values: Texts = []
        decoder.decode(event.rows, 0, len(event.rows), found, values)
        assert values == []
        return found

    inserts = work("INSERT INTO t (b, a, x) VALUES ('p', 1, 'blob'), ('q', 2, NULL)")
    assert keys(inserts) == [b"p", b"1", b"q", b"2"]
    changes = work("UPDATE t SET y = 1.5, v = 'text', b = IF(a = 2, 'r', b) ORDER BY a")
    moved, found, before, after = updates(changes, table, keys_only=True)
    assert (moved, before, after) == ([1], [], [])
    assert found == [b"p", b"1", b"q", b"2", b"r", b"2"]
    changes = work("UPDATE t SET n = 7 ORDER BY a")
    assert updates(changes, table, keys_only=True)[:2] == ([], [b"p", b"1", b"r", b"2"])
    assert keys(work("DELETE FROM t ORDER BY a")) == [b"p", b"1", b"r", b"2"]


def test_a_missing_key_is_refused(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (a INT DEFAULT 7 PRIMARY KEY, b INT)")
    statement = "SET SESSION binlog_row_image = 'MINIMAL'; INSERT INTO t (b) VALUES (1)"
    (event,) = rows_events(mariadb_db, "t", lambda: mariadb_db.execute(statement))
    table = definition(describe(mariadb_db, "t"))
    with pytest.raises(CannotFinish, match=r"lacks the key's column a.*binlog_row_image"):
        compile_decoder(event.columns, table, image=Image(event.present, keys_only=True))


def test_rows_without_a_column_are_refused() -> None:
    table = Definition("t", (Column("a", Integer(), "int(11)"),))
    with pytest.raises(CannotFinish, match="rows without a column"):
        compile_decoder((LoggedColumn(columns.LONG),), table, image=Image(b"\0"))


def test_a_table_without_a_key(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (a INT, b VARCHAR(3))")
    events = rows_events(
        mariadb_db, "t", lambda: mariadb_db.execute("INSERT INTO t VALUES (1, 'x'), (NULL, NULL)")
    )
    table = definition(describe(mariadb_db, "t"))
    assert decoded(events, table) == [("1", "x"), (None, None)]
    changes = rows_events(
        mariadb_db, "t", lambda: mariadb_db.execute("UPDATE t SET b = 'y' WHERE a = 1")
    )
    assert updates(changes, table) == ([], [], [b"1", b"x"], [b"1", b"y"])


def test_damage_is_refused(mariadb_db: Database) -> None:
    mariadb_db.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(20), b VARCHAR(900), c DECIMAL(10,2), e ENUM('x'), t TEXT)"
    )
    (event,) = rows_events(
        mariadb_db,
        "t",
        lambda: mariadb_db.execute(
            "INSERT INTO t VALUES (1, 'a', 'bb', 1.5, 'x', 'text'), (2, NULL, 'b', NULL, 'x', NULL)"
        ),
    )
    table = definition(describe(mariadb_db, "t"))
    decoder = compile_decoder(event.columns, table, image=Image(event.present))
    assert decoder.decode is not None
    first = len(event.rows) - 2  # no row ends before it but the first
    ends = [end for end in range(1, first) if end != _length_of_first_row(event)]
    for end in ends:
        for rest in (b"", event.rows[end:] + bytes(5000)):
            with pytest.raises(CannotFinish, match="does not fit the table's definition"):
                decoder.decode(event.rows[:end] + rest, 0, end, [], [])
    wrong = event.rows.replace(b"\x01\x04\x00text", b"\x09\x04\x00text")
    with pytest.raises(CannotFinish, match="does not fit"):
        decoder.decode(wrong, 0, len(wrong), [], [])


def _length_of_first_row(event: RowsEvent) -> int:
    return event.rows.index(b"text") + 4


def test_a_definition_with_other_columns_is_refused(mariadb_db: Database) -> None:
    mariadb_db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    events = rows_events(mariadb_db, "t", lambda: mariadb_db.execute("INSERT INTO t VALUES (1)"))
    mariadb_db.execute("ALTER TABLE t ADD COLUMN v INT")
    with pytest.raises(CannotFinish, match="1 columns in the log and 2"):
        decoded(events, definition(describe(mariadb_db, "t")))
