"""A copy that only moves forward: whatever comes twice, late, or in another order."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.changelog.recorded import wait_until
from tests.program import start
from tests.program import truecopy as program
from tests.servers import Database
from tests.transfer.load import fill, writing
from truecopy.changelog.follow import Copy
from truecopy.changelog.forward import (
    CREATE_TURNS,
    TURNS,
    ForwardTable,
    forward_table,
    move,
    with_own_columns,
)
from truecopy.changelog.loading import find_or_make, row_target
from truecopy.engines import connect
from truecopy.engines.lines import Lines
from truecopy.model.change import CHANGE_SCHEMA, Definition
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.position import Comparison
from truecopy.model.table import Column, Table, TableName
from truecopy.model.token import compare_tokens, parse_token
from truecopy.model.types import Integer, Text
from truecopy.stream.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFINITION = Definition(
    "thing",
    (Column("id", Integer(), "int", nullable=False), Column("name", Text(), "text")),
    ("id",),
)
DESCRIBED = Table(
    TableName(None, "thing"),
    DEFINITION.columns,
    keys=(("id",),),
    primary=("id",),
    engine="postgresql",
)
Told = tuple[int, int, str | None, bool]
"""The number of a transaction, the key, the value or None where it is deleted, and whether a new shard brings it.

The key `EVERY` is a truncate."""
EVERY = 0


def as_change(told: Told) -> dict[str, Any]:
    number, key, value, is_copied = told
    own = {"shard": "-80", "position": f"0-1-{number}", "origin": None}
    copied = {"shard": "-40", "position": f"0-2-{number + 7}", "origin": f"-80 0-1-{number}"}
    return {
        **dict.fromkeys(CHANGE_SCHEMA.names),
        **(copied if is_copied else own),
        "commit_order": number,
        "seq": 0,
        "kind": "truncate" if key == EVERY else "delete" if value is None else "update",
        "table": "thing",
        "key": [str(key)] if key != EVERY else None,
        "after": None if value is None else [str(key), value],
        "schema_id": DEFINITION.schema_id,
    }


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Told], list[list[Told]]]:
    """A history, and its changes delivered in some order, each at least once, from one shard or another."""
    count = draw(st.integers(1, 12))
    history: list[Told] = []
    for n in range(1, count + 1):
        key = draw(st.sampled_from([1, 1, 2, 2, 3, 3, EVERY]))
        value = None if key == EVERY else draw(st.one_of(st.none(), st.just(f"v{n}")))
        history.append((n, key, value, False))
    doubled = [
        (*one[:3], draw(st.booleans())) for one in history for _ in range(draw(st.integers(1, 2)))
    ]
    shuffled = draw(st.permutations(doubled))
    cuts = sorted(draw(st.sets(st.integers(1, len(shuffled)), max_size=3)))
    batches = [shuffled[a:b] for a, b in zip([0, *cuts], [*cuts, len(shuffled)], strict=True)]
    return history, [batch for batch in batches if batch]


@pytest.mark.parametrize("engine", ["mariadb_db", "postgres_db"])
def test_order_and_repetition_do_not_matter(engine: str, request: pytest.FixtureRequest) -> None:
    database: Database = request.getfixturevalue(engine)
    with connect(parse_endpoint(database.url)) as session:
        target: Any = session
        lines = Lines(target)
        lines.create((CREATE_TURNS,))
        table = with_own_columns(DESCRIBED)
        found = row_target(session, table, find_or_make(session, table))
        with lines.transaction():
            lines.execute(
                f"INSERT INTO {TURNS} (table_name, turn) VALUES (?, 0)",
                str(found.relation.tables[0]),
            )
        to = forward_table(found.relation, DEFINITION)

        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
        @given(deliveries())
        def check(delivered: tuple[list[Told], list[list[Told]]]) -> None:
            history, batches = delivered
            database.execute("DELETE FROM thing")
            database.execute(f"UPDATE {TURNS} SET emptied = NULL")
            newest = dict[int, int]()
            for batch in batches:
                deliver(lines, target, to, batch)
                newest = only_forward(database, newest)
            rows = database.execute("SELECT id, name, truecopy_deleted FROM thing")
            found = {row[0]: (row[1], row[2]) for row in rows}
            for key, (value, number) in lasts_of(history).items():
                # A row that was never there when all were deleted, as far as the copy knows, leaves nothing.
                assert found.get(key, (None, 1)) == (value, int(value is None))
                assert newest.get(key, number) == number

        check()


def lasts_of(history: Sequence[Told]) -> dict[int, tuple[str | None, int]]:
    """What each row is in the end, and by which transaction."""
    found: dict[int, tuple[str | None, int]] = {}
    for number, key, value, _ in history:
        keys = found.keys() if key == EVERY else (key,)
        found |= dict.fromkeys(keys, (value, number))
    return found


def deliver(lines: Lines, target: Any, to: ForwardTable, batch: Sequence[Told]) -> None:
    """Shard by shard, as tasks do it."""
    for is_copied in (False, True):
        some = [as_change(told) for told in batch if told[3] is is_copied]
        if some:
            changes = pa.Table.from_pylist(some, schema=CHANGE_SCHEMA)
            move(lines, target, to.relation, changes, {DEFINITION.schema_id: to})


def only_forward(database: Database, before: dict[int, int]) -> dict[int, int]:
    """The number of the transaction that each row is of; it never gets smaller."""
    now = {}
    for key, text in database.execute("SELECT id, truecopy_token FROM thing"):
        token = parse_token(text)
        position = token.origin.position if token.origin else token.position
        now[key] = int(str(position).rpartition("-")[2])
    assert all(now[key] >= number for key, number in before.items())
    return now


ITEMS = "SELECT id, code, name, price, note FROM items {} ORDER BY id"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_copy_is_kept_up_to_date(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    """Killed in between; deletes leave their keys and tokens."""
    fill(mariadb_db, 1500)
    command = ("changelog", "follow", mariadb_db.url, "--to", postgres_db.url)
    with writing(mariadb_db, 1500):
        run = start(*command)
        wait_until(lambda: bool(moved(postgres_db)))
        run.kill()
        run.communicate()
    ended = program(*command, "--until", "current", "--json")
    assert ended.code == 0, ended.err
    live = postgres_db.execute(ITEMS.format("WHERE truecopy_deleted = 0"))
    assert live == mariadb_db.execute(ITEMS.format(""))
    gone = postgres_db.execute(
        "SELECT count(*), count(truecopy_token), count(code) FROM items WHERE truecopy_deleted = 1"
    )
    assert gone[0][0] == gone[0][1] > 0
    assert gone[0][2] == 0


def test_a_truncate_leaves_tombstones(
    spark: SparkSession, mariadb_db: Database, postgres_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR(20))")
    mariadb_db.execute("INSERT INTO item VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    request = Request(mariadb_db.url, wait=0.1)
    Copy(request, postgres_db.url).run("current")
    mariadb_db.execute(
        "INSERT INTO item VALUES (4, 'four'); UPDATE item SET name = 'x' WHERE id = 2"
    )
    mariadb_db.execute("TRUNCATE item; INSERT INTO item VALUES (1, 'new'), (5, 'five')")
    Copy(request, postgres_db.url).run("current")
    rows = postgres_db.execute(
        "SELECT id, name, truecopy_deleted, truecopy_token FROM item ORDER BY id"
    )
    assert [row[:3] for row in rows] == [
        (1, "new", 0),
        (2, None, 1),
        (3, None, 1),
        (4, None, 1),
        (5, "five", 0),
    ]
    truncated, inserted = ({row[3] for row in rows if row[2] == deleted} for deleted in (1, 0))
    assert len(truncated) == len(inserted) == 1
    newer, older = (parse_token(tokens.pop()) for tokens in (inserted, truncated))
    assert compare_tokens(newer, older) is Comparison.NEWER


def moved(database: Database) -> list[Any]:
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('items')")
        if cursor.fetchone() == (None,):
            return []
        cursor.execute("SELECT 1 FROM items WHERE truecopy_token IS NOT NULL LIMIT 1")
        return cast(list[Any], cursor.fetchall())
