"""Tables of the source are dropped, renamed and altered while they are carried: nothing is guessed, nothing is lost.

Each test writes before and after the statement, finds the task paused in front of it, twice, runs what the message
proposes, and compares what then arrives by a question of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Database
from tests.transfer.cutting import HOW, cut_over
from truecopy.transfer.proof.verifier import NotProven
from truecopy.transfer.redefinition import DefinitionChanged
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Ends:
    """A source with two tables, and a target that is equal to it."""

    source: Database
    target: Database
    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    task: str = "move"
    verify: tuple[str, ...] = ()

    def run(self, *statements: str, **more: Any) -> None:
        """Runs the task; it meets the statements in the stream."""
        source = self.source

        class Altered(Transfer):
            def _replicate(self, *args: Any, **more: Any) -> None:
                for statement in remaining:
                    source.execute(statement)
                remaining.clear()
                super()._replicate(*args, **more)

        remaining = list(statements)
        given = {
            "tables": self.tables,
            "exclude": self.exclude,
            "verify": self.verify,
            **more,
        }
        Altered(Settings(self.task, source.url, self.target.url, **given)).run(until_caught_up=True)

    def pauses(self, *statements: str, **more: Any) -> str:
        """The message of the pause, which is the same when the task is run again."""
        with pytest.raises(DefinitionChanged) as first:
            self.run(*statements, **more)
        with pytest.raises(DefinitionChanged) as again:
            self.run(**more)
        assert str(again.value) == str(first.value)
        return str(first.value)

    def follow(self, message: str) -> None:
        """Runs what a message proposes for the target."""
        found = re.search(r"\brun (.*?) on the target", message)
        assert found, message
        self.target.execute(found[1])

    def rows(self, columns: str, table: str = "items") -> list[tuple[Any, ...]]:
        """The same rows on both sides."""
        asked = f"SELECT {columns} FROM {table} ORDER BY 1"
        arrived = self.target.execute(asked)
        assert arrived == self.source.execute(asked)
        return arrived


@pytest.fixture(params=["mariadb", "postgresql"])
def ends(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    mariadb_db: Database,
    postgres_db: Database,
) -> Iterator[Ends]:
    engine, _, verifier = request.param.partition(" ")
    is_mariadb = engine == "mariadb"
    # Else rows from before a statement cannot be read any more when it has been run.
    mariadb_db.execute("SET GLOBAL binlog_row_metadata = FULL")
    pair = (mariadb_db, postgres_db) if is_mariadb else (postgres_db, mariadb_db)
    made = Ends(*pair, verify=(verifier,) if verifier else ())
    made.source.execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(20), n SMALLINT)")
    made.source.execute("CREATE TABLE others (id INT PRIMARY KEY)")
    made.source.execute("INSERT INTO items VALUES (1, 'a', 1), (2, 'b', 2)")
    made.run()
    yield made
    mariadb_db.execute("SET GLOBAL binlog_row_metadata = NO_LOG")


pytestmark = pytest.mark.long

BEFORE = "INSERT INTO items VALUES (3, 'before', 3)"

engines_and_proof = pytest.mark.parametrize(
    "ends", ["mariadb", "postgresql", "mariadb inline", "postgresql inline"], indirect=True
)
"""Where tables leave the task or change their key: what a verifier keeps of them must not stand in the way."""
mariadb_and_proof = pytest.mark.parametrize("ends", ["mariadb", "mariadb inline"], indirect=True)


def has_arrived(ends: Ends) -> list[int]:
    return [number for (number,) in ends.target.execute("SELECT id FROM items ORDER BY 1")]


@engines_and_proof
def test_drop_table(ends: Ends) -> None:
    message = ends.pauses(BEFORE, "DROP TABLE items", "INSERT INTO others VALUES (1)")
    assert "items was dropped on the source" in message
    assert has_arrived(ends) == [1, 2, 3]
    settings = Settings("move", ends.source.url, ends.target.url, verify=ends.verify)
    status = read_status(settings)
    assert (status.state, status.ended) == ("paused", message)
    ends.follow(message)
    ends.run("INSERT INTO others VALUES (2)")
    assert read_status(settings).state == "stopped"
    assert ends.rows("id", "others") == [(1,), (2,)]


@engines_and_proof
def test_a_table_that_was_dropped_may_stay_on_the_target(ends: Ends) -> None:
    ends.pauses(BEFORE, "DROP TABLE items", "INSERT INTO others VALUES (1)")
    replace(ends, exclude=("items",)).run("INSERT INTO others VALUES (2)")
    assert ends.rows("id", "others") == [(1,), (2,)]
    assert has_arrived(ends) == [1, 2, 3]


@pytest.mark.parametrize("ends", ["mariadb inline", "postgresql inline"], indirect=True)
def test_a_cutover_after_a_table_was_dropped(ends: Ends) -> None:
    message = ends.pauses(BEFORE, "DROP TABLE items", "INSERT INTO others VALUES (1)")
    ends.follow(message)
    settings = Settings("move", ends.source.url, ends.target.url, verify=ends.verify)
    report = cut_over(settings, replace(HOW, verify=ends.verify), rehearse=True)
    assert report.state == "rehearsed", report.reason
    assert ends.rows("id", "others") == [(1,)]


@engines_and_proof
def test_rename_table(ends: Ends) -> None:
    message = ends.pauses(
        BEFORE,
        "ALTER TABLE items RENAME TO goods",
        "INSERT INTO goods VALUES (4, 'after', 4)",
        "DELETE FROM goods WHERE id = 1",
    )
    assert "goods on the source" in message
    assert has_arrived(ends) == [1, 2, 3]
    ends.follow(message)
    ends.run("UPDATE goods SET name = 'later' WHERE id = 2")
    ends.run("INSERT INTO goods VALUES (5, 'next run', 5)")
    assert [row[0] for row in ends.rows("id, name, n", "goods")] == [2, 3, 4, 5]


def test_a_table_that_is_renamed_and_left_alone(ends: Ends) -> None:
    message = ends.pauses(BEFORE, "ALTER TABLE items RENAME TO goods")
    ends.follow(message)
    ends.run()
    ends.run("INSERT INTO goods VALUES (4, 'after', 4)")
    assert len(ends.rows("id, name, n", "goods")) == 4


def swapped(create: str, *rename: str) -> list[str]:
    """An online schema change: the rows move to a table that takes the old one's place."""
    return [
        BEFORE,
        f"CREATE TABLE _items_new {create}",
        "ALTER TABLE _items_new ADD COLUMN note VARCHAR(10)",
        "INSERT INTO _items_new (id, name, n) SELECT id, name, n FROM items",
        *rename,
        "INSERT INTO items VALUES (4, 'after', 4, 'new')",
        "UPDATE items SET name = 'changed' WHERE id = 1",
    ]


@mariadb_and_proof
def test_a_table_is_swapped_for_one_with_the_same_rows(ends: Ends) -> None:
    carried = replace(ends, tables=("items",))
    rename = "RENAME TABLE items TO _items_old, _items_new TO items"
    message = carried.pauses(*swapped("LIKE items", rename))
    assert "another table has its name now" in message
    assert has_arrived(ends) == [1, 2, 3]
    carried.follow(message)
    carried.run("INSERT INTO items VALUES (5, 'later', 5, NULL)")
    assert len(ends.rows("id, name, n, note")) == 5


TAKEN = (
    BEFORE,
    "CREATE TABLE items_new LIKE items",
    "INSERT INTO items_new SELECT * FROM items",
    "DROP TABLE items",
    "RENAME TABLE items_new TO items",
    "INSERT INTO items VALUES (4, 'after', 4)",
)


@mariadb_and_proof
@pytest.mark.parametrize(("tables", "exclude"), [(("items",), ()), ((), ("items_new",))])
def test_a_table_takes_the_name_of_one_that_was_dropped(
    ends: Ends, tables: tuple[str, ...], exclude: tuple[str, ...]
) -> None:
    """Its rows were logged under another name, if at all: it is not the old table, emptied."""
    carried = replace(ends, tables=tables, exclude=exclude)
    message = carried.pauses(*TAKEN)
    assert "items was dropped" in message
    assert "another table has its name now" in message
    assert has_arrived(ends) == [1, 2, 3]
    carried.follow(message)
    carried.run("UPDATE items SET name = 'changed' WHERE id = 1")
    assert len(ends.rows("id, name, n")) == 4


@pytest.mark.parametrize("ends", ["mariadb"], indirect=True)
def test_a_table_that_took_a_name_is_carried_by_a_task_of_its_own(ends: Ends) -> None:
    carried = replace(ends, exclude=("items_new",))
    carried.pauses(*TAKEN)
    replace(carried, exclude=("items*",)).run("INSERT INTO others VALUES (1)")
    ends.target.execute("DROP TABLE items")
    replace(ends, tables=("items",), task="anew").run()
    assert len(ends.rows("id, name, n")) == 4
    assert len(ends.rows("id", "others")) == 1


@mariadb_and_proof
@pytest.mark.parametrize(
    "create",
    [
        "(id INT PRIMARY KEY, name VARCHAR(20), n SMALLINT)",
        "LIKE items_old",
        "(PRIMARY KEY (id)) SELECT * FROM items_old WHERE id > 1",
    ],
)
def test_a_table_that_is_dropped_and_made_again_is_emptied(ends: Ends, create: str) -> None:
    """Every row that it has since then is in the log under its name."""
    replace(ends, tables=("items",)).run(
        BEFORE,
        "CREATE TABLE items_old LIKE items",
        "INSERT INTO items_old SELECT * FROM items",
        "DROP TABLE items",
        f"CREATE TABLE items {create}",
        "INSERT INTO items VALUES (4, 'after', 4)",
    )
    assert has_arrived(ends) == ([2, 3, 4] if "SELECT" in create else [4])
    ends.rows("id, name, n")


@pytest.mark.parametrize("ends", ["mariadb"], indirect=True)
def test_tables_that_are_dropped_together_are_judged_each(ends: Ends) -> None:
    carried = replace(ends, exclude=("items_new",))
    message = carried.pauses(
        "INSERT INTO others VALUES (1)",
        *TAKEN[:3],
        "DROP TABLE items, others",
        *TAKEN[4:],
        "CREATE TABLE others (id INT PRIMARY KEY)",
        "INSERT INTO others VALUES (2)",
    )
    carried.follow(message)
    carried.run()
    assert len(ends.rows("id, name, n")) == 4
    assert ends.rows("id", "others") == [(2,)]


@pytest.mark.parametrize("ends", ["mariadb"], indirect=True)
def test_a_table_takes_a_name_that_became_free_unseen(ends: Ends) -> None:
    """What is not understood of the log must not let another table's changes in."""
    carried = replace(ends, tables=("items",))
    first = "ALTER TABLE items RENAME TO _items_old, ADD COLUMN more INT"
    second = "RENAME TABLE _items_new TO items"
    message = carried.pauses(*swapped("LIKE items", first, second))
    assert has_arrived(ends) == [1, 2, 3]
    carried.follow(message)
    carried.run()
    assert len(ends.rows("id, name, n, note")) == 4


@pytest.mark.parametrize("ends", ["mariadb"], indirect=True)
def test_a_table_is_swapped_by_two_statements(ends: Ends) -> None:
    """One answer is enough for both."""
    carried = replace(ends, tables=("items",))
    first, second = "RENAME TABLE items TO _items_old", "RENAME TABLE _items_new TO items"
    message = carried.pauses(*swapped("LIKE items", first, second))
    carried.follow(message)
    carried.run()
    assert len(ends.rows("id, name, n, note")) == 4


@pytest.mark.parametrize("ends", ["postgresql"], indirect=True)
def test_a_swapped_table_whose_changes_are_not_in_the_log(ends: Ends) -> None:
    """A publication lists tables, not names: what happens to the new one is not logged for us at first."""
    carried = replace(ends, exclude=("_*",))
    rename = ("ALTER TABLE items RENAME TO _items_old", "ALTER TABLE _items_new RENAME TO items")
    message = carried.pauses(*swapped("(LIKE items INCLUDING ALL)", *rename))
    assert "another table than the one that was copied" in message
    assert has_arrived(ends) == [1, 2, 3]
    replace(carried, exclude=("_*", "items")).run("INSERT INTO others VALUES (1)")
    ends.target.execute("DROP TABLE items")
    replace(carried, tables=("items",), task="anew").run()
    assert len(ends.rows("id, name, n, note")) == 4
    assert len(ends.rows("id", "others")) == 1


def test_modify_type(ends: Ends) -> None:
    is_mariadb = ends.source.url.startswith("mariadb")
    alter = "MODIFY n BIGINT" if is_mariadb else "ALTER COLUMN n TYPE BIGINT"
    message = ends.pauses(
        BEFORE, f"ALTER TABLE items {alter}", "INSERT INTO items VALUES (4, 'after', 5000000000)"
    )
    assert "n of" in message
    assert "which does not hold numbers above 32767" in message
    assert has_arrived(ends) == [1, 2, 3]
    ends.follow(message)
    ends.run("UPDATE items SET n = 6000000000 WHERE id = 1")
    assert len(ends.rows("id, name, n")) == 4


def test_a_type_that_fits_the_target_goes_on(ends: Ends) -> None:
    is_mariadb = ends.source.url.startswith("mariadb")
    alter = "MODIFY name VARCHAR(10)" if is_mariadb else "ALTER COLUMN name TYPE VARCHAR(10)"
    ends.run(BEFORE, f"ALTER TABLE items {alter}", "INSERT INTO items VALUES (4, 'after', 4)")
    assert len(ends.rows("id, name, n")) == 4


def test_new_unique_index(ends: Ends) -> None:
    """The target has fewer constraints, and takes every change: swaps of unique values, too."""
    ends.run(
        BEFORE,
        "CREATE UNIQUE INDEX items_name ON items (name)",
        "UPDATE items SET name = 'x' WHERE id = 1",
        "UPDATE items SET name = 'a' WHERE id = 2",
        "UPDATE items SET name = 'b' WHERE id = 1",
        "INSERT INTO items VALUES (4, 'after', 4)",
    )
    assert [row[1] for row in ends.rows("id, name, n")] == ["b", "a", "before", "after"]


@engines_and_proof
@pytest.mark.parametrize("key", ["name", "id, n"])
def test_primary_key_change(ends: Ends, key: str) -> None:
    is_mariadb = ends.source.url.startswith("mariadb")
    held = "PRIMARY KEY" if is_mariadb else "CONSTRAINT items_pkey"
    after = (
        "INSERT INTO items VALUES (4, 'after', 4)",
        "INSERT INTO items VALUES (1, 'twice', 9)",
        "UPDATE items SET n = 8 WHERE name = 'a'",
        "DELETE FROM items WHERE name = 'b'",
    )
    message = ends.pauses(
        BEFORE,
        *(
            ()
            if is_mariadb
            else ("ALTER TABLE items ALTER name SET NOT NULL, ALTER n SET NOT NULL",)
        ),
        f"ALTER TABLE items DROP {held}, ADD PRIMARY KEY ({key})",
        *after,
    )
    assert f"is ({key}) now, and was (id)" in message
    assert has_arrived(ends) == [1, 2, 3]
    ends.follow(message)
    ends.run("INSERT INTO items VALUES (1, 'thrice', 10)")
    assert len(ends.rows("name, id, n")) == 5


@pytest.mark.parametrize("ends", ["mariadb inline"], indirect=True)
def test_rows_are_verified_under_another_primary_key(ends: Ends) -> None:
    """Keys that were kept under the old one name no row any more, and nothing equals nothing."""
    message = ends.pauses(
        BEFORE,
        "ALTER TABLE items DROP PRIMARY KEY, ADD PRIMARY KEY (name)",
        "INSERT INTO items VALUES (4, 'after', 4)",
    )
    ends.follow(message)
    ends.run()
    ends.target.execute("UPDATE items SET n = 7 WHERE name = 'before'")
    with pytest.raises(NotProven, match=r"name=before of .*items differs in n"):
        ends.run("UPDATE items SET n = 5 WHERE name = 'a'")


def test_drop_column(ends: Ends) -> None:
    message = ends.pauses(
        BEFORE, "ALTER TABLE items DROP COLUMN name", "INSERT INTO items VALUES (4, 4)"
    )
    assert "has no column name any more" in message
    assert has_arrived(ends) == [1, 2, 3]
    assert ends.target.execute("SELECT name FROM items WHERE id = 3") == [("before",)]
    ends.follow(message)
    ends.run("INSERT INTO items VALUES (5, 5)")
    assert len(ends.rows("id, n")) == 5


def test_a_column_that_is_dropped_and_not_written_to(ends: Ends) -> None:
    message = ends.pauses(BEFORE, "ALTER TABLE items DROP COLUMN name")
    assert "has no column name any more" in message
    assert has_arrived(ends) == [1, 2, 3]


def test_add_column(ends: Ends) -> None:
    ends.run(
        BEFORE,
        "ALTER TABLE items ADD COLUMN note VARCHAR(10)",
        "INSERT INTO items VALUES (4, 'after', 4, 'new')",
    )
    assert ends.rows("id, note")[-1] == (4, "new")


def test_add_column_that_needs_a_person(ends: Ends) -> None:
    message = ends.pauses(
        BEFORE,
        "ALTER TABLE items ADD COLUMN state INT NOT NULL DEFAULT 5",
        "INSERT INTO items VALUES (4, 'after', 4, 6)",
    )
    assert has_arrived(ends) == [1, 2, 3]
    assert "state" in message
    ends.target.execute("ALTER TABLE items ADD COLUMN state INT NOT NULL DEFAULT 5")
    ends.run()
    assert [row[1] for row in ends.rows("id, state")] == [5, 5, 5, 6]


def test_pause_stops_at_new_columns_too(ends: Ends) -> None:
    message = ends.pauses(
        BEFORE,
        "ALTER TABLE items ADD COLUMN note VARCHAR(10)",
        "INSERT INTO items VALUES (4, 'after', 4, 'new')",
        ddl="pause",
    )
    assert has_arrived(ends) == [1, 2, 3]
    ends.follow(message)
    ends.run(ddl="pause")
    assert ends.rows("id, note")[-1] == (4, "new")
