"""A task file that says something else of a table than when its rows were copied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.servers import Database
from truecopy.mapping.plan import MappingRules, TableMapping, plan_table
from truecopy.mapping.routes import Route, Way
from truecopy.mapping.rules import NO_RULES, Computed, Fixed, Mask, Rule, Rules
from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Decimal, Integer, Text
from truecopy.transfer.run import Transfer
from truecopy.transfer.settings import Settings
from truecopy.transfer.terms import broken_terms, terms_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    Column("id", Integer(), "int", nullable=False),
    Column("name", Text(), "varchar(40)"),
    Column("state", Integer(), "int"),
)
T = TableName(None, "t")


def mapping(
    rules: Rules = NO_RULES,
    *,
    to: str = "t",
    more: tuple[Column, ...] = (),
    columns: tuple[Column, ...] = COLUMNS,
) -> TableMapping:
    table = Table(T, (*columns, *more), (("id",),))
    return plan_table(table, Way(T, TableName(None, to)), rules)


MASKED = Rules(mask={"name": Mask(Secret("one"))})
SQL = Rules(sql={"state": Computed("state + 1")})
NEW = (Column("extra", Text(), "varchar(9)"),)
BROKEN: dict[str, tuple[TableMapping, TableMapping, str]] = {
    "route": (mapping(), mapping(to="u"), "go to u now, and went to t"),
    "filter": (mapping(), mapping(Rules(filter=("id > 1",))), "filter"),
    "mask": (mapping(), mapping(MASKED), "its column name was made otherwise"),
    "key of a mask": (
        mapping(MASKED),
        mapping(Rules(mask={"name": Mask(Secret("two"))})),
        "its column name was made otherwise",
    ),
    "expression": (
        mapping(SQL),
        mapping(Rules(sql={"state": Computed("state + 2")})),
        "its column state was made otherwise",
    ),
    "cast": (mapping(), mapping(Rules(cast={"state": Text()})), "its column state was made"),
    "column that was left out": (mapping(Rules(exclude=("name",))), mapping(), "name was left out"),
    "constant": (
        mapping(),
        mapping(Rules(add={"region": Fixed("EU", Text())})),
        "its column region was left out",
    ),
    "new name": (mapping(), mapping(Rules(rename={"name": "label"})), "its column label"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_rows_that_would_not_fit(what: str) -> None:
    then, now, said = BROKEN[what]
    assert said in broken_terms(terms_of(then), now)


def test_what_may_change() -> None:
    assert not broken_terms(terms_of(mapping(MASKED)), mapping(MASKED))
    assert not broken_terms(terms_of(mapping()), mapping(Rules(exclude=("name",))))
    assert not broken_terms(terms_of(mapping()), mapping(more=NEW)), "a column that is new"
    assert not broken_terms(terms_of(mapping(more=NEW)), mapping()), "a column that is gone"
    assert not broken_terms("", mapping(SQL)), "what is not known"
    assert "two" not in terms_of(BROKEN["key of a mask"][1])


def test_what_follows_the_source() -> None:
    """Columns that are another type or have another name there, and a task that says so."""
    wider = tuple(replace(one, type=Decimal(4)) if one.name == "state" else one for one in COLUMNS)
    renamed = tuple(replace(one, name="status") if one.name == "state" else one for one in COLUMNS)
    typed = Rules(sql={"state": Computed("state + 1", Integer())})
    assert not broken_terms(terms_of(mapping(SQL)), mapping(SQL, columns=wider))
    assert not broken_terms(terms_of(mapping(typed)), mapping(typed, columns=wider))
    assert "made otherwise" in broken_terms(terms_of(mapping(typed)), mapping(SQL))
    assert not broken_terms(terms_of(mapping()), mapping(columns=renamed))
    then = mapping(Rules(rename={"state": "x"}, filter=("state > 1",)))
    now = mapping(Rules(rename={"status": "x"}, filter=("status > 1",)), columns=renamed)
    assert not broken_terms(terms_of(then), now)
    assert "filter" in broken_terms(
        terms_of(then),
        mapping(Rules(rename={"status": "x"}, filter=("status > 2",)), columns=renamed),
    )
    computed = Rules(sql={"status": Computed("status + 1")}, rename={"status": "state"})
    assert not broken_terms(terms_of(mapping(SQL)), mapping(computed, columns=renamed))


def test_a_table_with_as_many_columns_as_there_can_be() -> None:
    """They must go into a TEXT of MySQL, with names of 64 characters."""
    wide = tuple(Column(f"{n:064}", Integer(), "int") for n in range(1017))
    terms = terms_of(mapping(more=wide))
    assert len(terms) < 1 << 16
    assert not broken_terms(terms, mapping(more=wide))
    assert "made otherwise" in broken_terms(terms, mapping(SQL, more=wide))


CHANGES: dict[str, Callable[[Settings], Settings]] = {
    "another route": lambda one: replace(one, rules=MappingRules((Route("o", "o_new"),))),
    "a filter": lambda one: replace(
        one, rules=MappingRules(rules=(Rule("o", Rules(filter=("id > 5",))),))
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("snapshot_only", [True, False])
def test_a_run_with_another_file_is_refused(
    spark: SparkSession,
    mariadb_db: Database,
    second_mariadb_db: Database,
    change: str,
    snapshot_only: bool,
) -> None:
    mariadb_db.execute("CREATE TABLE o (id INT PRIMARY KEY)")
    mariadb_db.executemany("INSERT INTO o VALUES (%s)", [(n,) for n in range(10)])
    asked = Settings("told", mariadb_db.url, second_mariadb_db.url)
    Transfer(asked).run(snapshot_only=snapshot_only, until_caught_up=not snapshot_only)
    with pytest.raises(UsageError, match=r"says something else of .*o than when its rows were"):
        Transfer(CHANGES[change](asked)).run(until_caught_up=True)
    tables = [name for (name,) in second_mariadb_db.execute("SHOW TABLES")]
    assert [name for name in tables if not name.startswith("truecopy_")] == ["o"]
    assert (
        Transfer(asked).run(until_caught_up=True).tables[f"{mariadb_db.name}.o"].rows_copied == 10
    )


@pytest.mark.long
def test_a_column_that_was_left_out_for_a_run_does_not_come_back(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    """Rows that were changed meanwhile were written without it."""
    mariadb_db.execute("CREATE TABLE o (id INT PRIMARY KEY, a INT, b INT)")
    mariadb_db.execute("INSERT INTO o VALUES (1, 1, 1)")
    asked = Settings("told", mariadb_db.url, second_mariadb_db.url)
    Transfer(asked).run(until_caught_up=True)
    without = replace(asked, rules=MappingRules(rules=(Rule("o", Rules(exclude=("b",))),)))
    Transfer(without).run(until_caught_up=True)
    mariadb_db.execute("UPDATE o SET a = 2")
    Transfer(without).run(until_caught_up=True)
    with pytest.raises(UsageError, match="its column b was left out"):
        Transfer(asked).run(until_caught_up=True)
    mariadb_db.execute("ALTER TABLE o ADD c INT")
    Transfer(without).run(until_caught_up=True)
    assert second_mariadb_db.execute("SELECT id, a, c FROM o") == [(1, 2, None)]


def test_a_run_that_copied_nothing_yet_may_be_told_otherwise(
    spark: SparkSession, mariadb_db: Database, second_mariadb_db: Database
) -> None:
    mariadb_db.execute("CREATE TABLE o (id INT PRIMARY KEY)")
    mariadb_db.execute("INSERT INTO o VALUES (1)")
    second_mariadb_db.execute("CREATE TABLE o (id INT PRIMARY KEY)")
    second_mariadb_db.execute("INSERT INTO o VALUES (1)")
    asked = Settings("told", mariadb_db.url, second_mariadb_db.url)
    with pytest.raises(UsageError, match="is not empty"):
        Transfer(asked).run(until_caught_up=True)
    elsewhere = CHANGES["another route"](asked)
    Transfer(elsewhere).run(until_caught_up=True)
    assert second_mariadb_db.execute("SELECT id FROM o_new") == [(1,)]
