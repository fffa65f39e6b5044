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
from truecopy.changelog.forward import (
    CREATE_TURNS,
    TURNS,
    ForwardTable,
    forward_table,
    last_changes,
    move_forward,
    take_turn,
    with_own_columns,
)
from truecopy.changelog.loading import find_or_make, row_target
from truecopy.engines import connect
from truecopy.engines.lines import Lines
from truecopy.model.change import CHANGE_SCHEMA, Definition
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Integer, Text

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
"""The number of a transaction, the key, the value or None where it is deleted, and whether a new shard brings it."""


def as_change(told: Told) -> dict[str, Any]:
    number, key, value, is_copied = told
    own = {"shard": "-80", "position": f"0-1-{number}", "origin": None}
    copied = {"shard": "-40", "position": f"0-2-{number + 7}", "origin": f"-80 0-1-{number}"}
    return {
        **dict.fromkeys(CHANGE_SCHEMA.names),
        **(copied if is_copied else own),
        "commit_order": number,
        "seq": 0,
        "kind": "delete" if value is None else "update",
        "table": "thing",
        "key": [str(key)],
        "after": None if value is None else [str(key), value],
        "schema_id": DEFINITION.schema_id,
    }


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[Told], list[list[Told]]]:
    """A history, and its changes delivered in some order, each at least once, from one shard or another."""
    count = draw(st.integers(1, 12))
    history: list[Told] = [
        (n, draw(st.integers(1, 3)), draw(st.one_of(st.none(), st.just(f"v{n}"))), False)
        for n in range(1, count + 1)
    ]
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
            lines.execute(f"INSERT INTO {TURNS} (table_name, turn) VALUES (?, 0)", "thing")
        to = forward_table(found.relation, DEFINITION)

        @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
        @given(deliveries())
        def check(delivered: tuple[list[Told], list[list[Told]]]) -> None:
            history, batches = delivered
            database.execute("DELETE FROM thing")
            newest = dict[int, int]()
            for batch in batches:
                deliver(lines, target, to, batch)
                newest = only_forward(database, newest)
            last = {key: (value, number) for number, key, value, _ in history}
            rows = database.execute("SELECT id, name, truecopy_deleted FROM thing")
            assert {row[0]: (row[1], row[2]) for row in rows} == {
                key: (value, int(value is None)) for key, (value, _) in last.items()
            }
            assert newest == {key: number for key, (_, number) in last.items()}

        check()


def deliver(lines: Lines, target: Any, to: ForwardTable, batch: Sequence[Told]) -> None:
    """Shard by shard, as tasks do it."""
    for is_copied in (False, True):
        some = [as_change(told) for told in batch if told[3] is is_copied]
        if not some:
            continue
        lasts = last_changes(
            pa.Table.from_pylist(some, schema=CHANGE_SCHEMA), {DEFINITION.schema_id: to}
        )
        with lines.transaction():
            take_turn(lines, "thing")
            move_forward(target, to, lasts[DEFINITION.schema_id])


def only_forward(database: Database, before: dict[int, int]) -> dict[int, int]:
    """The number of the transaction that each row is of; it never gets smaller."""
    from truecopy.model.token import parse_token

    now = {}
    for key, text in database.execute("SELECT id, truecopy_token FROM thing"):
        token = parse_token(text)
        position = token.origin.position if token.origin else token.position
        now[key] = int(str(position).rpartition("-")[2])
    assert all(now[key] >= number for key, number in before.items())
    return now


ITEMS = "SELECT id, code, name, price, note FROM items {} ORDER BY id"


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


def moved(database: Database) -> list[Any]:
    with closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('items')")
        if cursor.fetchone() == (None,):
            return []
        cursor.execute("SELECT 1 FROM items WHERE truecopy_token IS NOT NULL LIMIT 1")
        return cast(list[Any], cursor.fetchall())
