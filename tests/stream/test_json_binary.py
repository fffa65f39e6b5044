"""MySQL's binary JSON, whole and partially updated, against the documents that MySQL prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers import Database
from tests.stream.logged import UPDATE, definition, describe, rows_events
from truecopy.model.text import canonical_json
from truecopy.stream.binlog import json_binary
from truecopy.stream.binlog.decoder import Image, Texts, compile_decoder

# What JSON has no word for goes in by SQL.
EXPRESSIONS = [
    "CAST('null' AS JSON)",
    "JSON_ARRAY()",
    "JSON_OBJECT()",
    "CAST(1.10 AS JSON)",
    "JSON_ARRAY(CAST('-12345678901234567890.0987654321' AS DECIMAL(40,10)), CAST(0 AS DECIMAL(3,2)))",
    "JSON_ARRAY(CAST('2020-01-01' AS DATE), CAST('1000-12-31 23:59:59.999999' AS DATETIME(6)))",
    "JSON_ARRAY(CAST('-838:59:59' AS TIME), CAST('10:11:12.5' AS TIME(1)), CAST('-00:00:00.000001' AS TIME(6)))",
    "JSON_ARRAY(TIMESTAMP'2024-02-29 10:11:12', CAST(2020 AS YEAR))",
    "JSON_ARRAY(x'00ff', b'101', CAST(REPEAT('x', 100) AS BINARY), x'')",
    "JSON_ARRAY(1e16, 1e-7, -0.0, 1.0, 0.1, 1.7976931348623157e308, 5e-324, 123456789012345680)",
    "JSON_ARRAY(true, false, null, 12345678901234567890, -9223372036854775808, 65535, 65536, -32768)",
    "JSON_OBJECT('b', 1, 'a', 2, 'aa', 3, 'é', 4, '', 5, 'quo\"te', 6, '😀', 7)",
    r"JSON_ARRAY('tab\t', '\n', '\\', '\"', 'é😀', '\0', REPEAT('y', 200))",
    "JSON_ARRAY(REPEAT('x', 70000), 1, 100000, 4000000000, -100000, JSON_OBJECT('k', REPEAT('z', 70000)))",
    "JSON_OBJECT('big', REPEAT('x', 70000), 'n', 7, 'm', 70000, 'deep', JSON_ARRAY(JSON_ARRAY(JSON_OBJECT('x', 1))))",
    "CAST(ST_GeomFromText('POINT(1 2)') AS JSON)",
]


def logged_documents(database: Database, insert: Callable[[Any], object]) -> None:
    """Inserts, and compares every document of the log with what MySQL prints of it."""
    database.execute("DROP TABLE IF EXISTS t")
    database.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, j JSON)")

    def work() -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("BEGIN")
            insert(cursor)
            cursor.execute("COMMIT")

    values: Texts = []
    events = rows_events(database, "t", work)
    table = definition(describe(database, "t"))
    for event in events:
        decoder = compile_decoder(event.columns, table, image=Image(event.present))
        assert decoder.decode is not None
        decoder.decode(event.rows, 0, len(event.rows), [], values)
    printed = database.execute("SELECT CAST(j AS CHAR) FROM t ORDER BY id")
    expected = [None if text is None else canonical_json(text) for (text,) in printed]
    assert [None if value is None else value.decode() for value in values[1::2]] == expected


@pytest.mark.mysql
def test_every_kind_of_value(mysql_db: Database) -> None:
    def insert(cursor: Any) -> None:
        for expression in EXPRESSIONS:
            cursor.execute(f"INSERT INTO t (j) VALUES ({expression})")
        cursor.execute("INSERT INTO t (j) VALUES (NULL)")

    logged_documents(mysql_db, insert)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=6),
    max_leaves=30,
)


@pytest.mark.mysql
@given(many=st.lists(documents, min_size=100, max_size=300))
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
def test_any_document(mysql_db: Database, many: list[object]) -> None:
    written = [(json.dumps(document),) for document in many]

    def insert(cursor: Any) -> None:
        cursor.executemany("INSERT INTO t (j) VALUES (%s)", written)

    logged_documents(mysql_db, insert)


START = '{"a": 1, "b": [1, 2, {"c": "long enough to be kept in place"}], "odd name": {"x": null}, "é\\"": 2}'
CHANGES = [
    "JSON_SET(j, '$.a', 2)",
    "JSON_SET(j, '$.new', 'value')",
    "JSON_SET(j, '$.b[1]', 'x', '$.b[2].c', 'shorter')",
    "JSON_SET(j, '$.b[9]', 4)",
    "JSON_SET(j, '$.b[last]', 4)",
    "JSON_SET(j, '$.\"odd name\".x', JSON_OBJECT('deep', JSON_ARRAY(1, 2.5)))",
    'JSON_SET(j, \'$."é\\\\""\', 3)',
    "JSON_SET(j, '$.a[0]', 5)",
    "JSON_REPLACE(j, '$.b', JSON_ARRAY())",
    "JSON_REMOVE(j, '$.b[0]')",
    "JSON_REMOVE(j, '$.b[last]', '$.a')",
    "JSON_REMOVE(j, '$.\"odd name\"')",
    "JSON_SET(JSON_REMOVE(j, '$.b[1]'), '$.b[0]', 'both')",
    "JSON_SET(j, '$.a', CAST('2020-01-01' AS DATE))",
    "JSON_SET(j, '$.a', JSON_EXTRACT(j, '$.a'))",
    "j",
    "NULL",
    "'[1]'",
]


@pytest.mark.mysql
def test_partial_updates(mysql_db: Database) -> None:
    for number, change in enumerate(CHANGES):
        check_partial_update(mysql_db, f"t{number}", change)


def check_partial_update(database: Database, name: str, change: str) -> None:
    database.execute(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, k JSON, v VARCHAR(50), j JSON, w INT, l JSON)"
    )
    database.executemany(
        f"INSERT INTO {name} VALUES (%s, %s, %s, %s, %s, %s)",
        [(n, "[7]", "text", START, n, None if n % 2 else '{"z": 1}') for n in range(4)],
    )

    def update() -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("SET binlog_row_value_options = PARTIAL_JSON")
            cursor.execute(f"UPDATE {name} SET j = {change}, w = w + 1, l = JSON_SET(l, '$.z', 2)")

    (event,) = rows_events(database, name, update)
    assert event.kind == UPDATE
    assert event.partial
    printed = database.execute(
        f"SELECT id, CAST(k AS CHAR), v, CAST(j AS CHAR), w, CAST(l AS CHAR) FROM {name} ORDER BY id"
    )
    expected = [
        None if value is None else canonical_json(str(value)).encode()
        for row in printed
        for value in row
    ]
    table = definition(describe(database, name))
    for keys_only, first_image in ((False, True), (True, True), (False, False)):
        image = Image(event.present, event.after, keys_only, first_image, partial=True)
        decoder = compile_decoder(event.columns, table, image=image)
        assert decoder.decode_updates is not None
        keys: Texts = []
        before: Texts = []
        after: Texts = []
        found = decoder.decode_updates(event.rows, 0, len(event.rows), keys, before, after)
        assert found == (4, [])
        assert keys == [b"0", b"1", b"2", b"3"]
        assert after == ([] if keys_only else expected), change
        documents = [canonical_json(START).encode()] * 4
        assert before[3::6] == ([] if keys_only or not first_image else documents)


@pytest.mark.parametrize(
    "damaged",
    [b"\x00\x05\x00\x10\x00", b"\x0c\x05ab", b"\x0b\x00", b"\x63", b"\x04\x09", b"\x02\x01\x00"],
)
def test_damage_is_refused(damaged: bytes) -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_binary.canonical(damaged)


def test_nothing_is_null() -> None:
    assert json_binary.canonical(b"") == b"null"
