"""Tables that come to a task while its copy is interrupted: the log was held for others, and may lack their changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.engines.places import Place, open_place
from tests.servers import Database
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("mariadb", "postgresql", "sqlite")
Run = Callable[..., None]


class Interrupted(Transfer):
    """Ends when it has begun, and copied nothing."""

    def _copy(self, *_: Any) -> None:
        raise CannotFinish("interrupted")


class NeverBegun(Transfer):
    """Ends before it is known where changes begin."""

    def beginning(self, plans: Any) -> dict[str, Any]:  # noqa: ARG002
        raise CannotFinish("never begun")


@pytest.fixture
def source(request: pytest.FixtureRequest, engine: str) -> Place:
    place = open_place(engine, request, "source")
    place.execute(
        "CREATE TABLE items (id INT NOT NULL PRIMARY KEY, v INT)",
        "CREATE TABLE others (id INT NOT NULL PRIMARY KEY, v INT)",
        "INSERT INTO items VALUES (1, 1), (2, 2)",
        "INSERT INTO others VALUES (1, 1), (2, 2)",
    )
    return place


@pytest.fixture
def run(spark: SparkSession, source: Place, second_mariadb_db: Database) -> Run:
    def start(kind: type[Transfer] = Transfer, **more: Any) -> None:
        asked = Settings("move", source.url, second_mariadb_db.url, **more)
        kind(asked).run(until_caught_up=True)

    return start


def interrupt(run: Run, kind: type[Transfer] = Interrupted, **more: Any) -> None:
    with pytest.raises(CannotFinish, match=r"^(interrupted|never begun)$"):
        run(kind, **more)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_that_is_made_meanwhile(
    run: Run, source: Place, second_mariadb_db: Database
) -> None:
    """It would be copied, and what happens to it until the log is opened again would be lost."""
    interrupt(run)
    source.execute("CREATE TABLE later (id INT NOT NULL PRIMARY KEY)")
    with pytest.raises(UsageError, match=r"later is none of the tables that move began with"):
        run()
    assert not second_mariadb_db.execute("SHOW TABLES LIKE 'later'")
    source.execute("DELETE FROM others WHERE id = 1", "UPDATE items SET v = 5 WHERE id = 2")
    run(exclude=("later",))
    assert second_mariadb_db.execute("SELECT * FROM others") == [(2, 2)]
    assert second_mariadb_db.execute("SELECT v FROM items ORDER BY id") == [(1,), (5,)]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_table_that_is_chosen_meanwhile(run: Run) -> None:
    interrupt(run, tables=("items",))
    with pytest.raises(UsageError, match=r"others is none of the tables that move began with"):
        run(tables=("items", "others"))
    run(tables=("items",))


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_run_had_planned_that_never_began(
    run: Run, source: Place, second_mariadb_db: Database
) -> None:
    """The ledger knows tables from then, and the log is not held for them."""
    interrupt(run, NeverBegun)
    interrupt(run, tables=("items",))
    with pytest.raises(UsageError, match=r"others is none of the tables that move began with"):
        run()
    source.execute("DELETE FROM items WHERE id = 1")
    run(tables=("items",))
    assert second_mariadb_db.execute("SELECT * FROM items") == [(2, 2)]


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_run_that_has_planned_when_another_begins(run: Run, source: Place) -> None:
    """What it has planned beyond the other one's tables, the log is not held for."""

    class Second(Transfer):
        def prepare(self, *ends: Any) -> Any:
            plans = super().prepare(*ends)
            interrupt(run, tables=("items",))
            return plans

    with pytest.raises(CannotFinish, match=r"another run, or a cutover, has taken over move"):
        run(Second)
    source.execute("DELETE FROM items WHERE id = 1")
    run(tables=("items",))


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_table_that_is_made_again_meanwhile(run: Run, source: Place) -> None:
    """A publication lists tables and not names."""
    interrupt(run)
    source.execute("DROP TABLE others", "CREATE TABLE others (id INT PRIMARY KEY, v INT)")
    with pytest.raises(TruecopyError, match=r"others on the source is another table than the one"):
        run()
    run(exclude=("others",))


@pytest.mark.parametrize("engine", ["mariadb", "postgresql"])
@pytest.mark.parametrize("kind", [Transfer, Interrupted])
def test_a_table_that_was_left_out_for_a_run(run: Run, source: Place, kind: type[Transfer]) -> None:
    """Its changes were passed over meanwhile, and some of its rows may not have been copied."""
    if kind is Interrupted:
        interrupt(run)
    else:
        run()
    run(exclude=("others",))
    source.execute("UPDATE others SET v = 9", "UPDATE items SET v = 9")
    run(exclude=("others",))
    with pytest.raises(UsageError, match=r"others .* or was left out since"):
        run()
