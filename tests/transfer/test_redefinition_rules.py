"""Which definition the next changes of a table are planned for. No server is needed."""

from __future__ import annotations

from truecopy.model.change import Definition
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Integer, Text
from truecopy.transfer.redefinition import as_of

NAME = TableName("d", "t")
ID, N = Column("id", Integer(), "int", nullable=False), Column("n", Integer(), "int")
KNOWN = Definition("d.t", (ID, N), ("id",))
ONTO = Table(NAME, (ID, N), (("id",),))


def names(table: Table) -> list[str]:
    return [column.name for column in table.columns]


def test_a_table_that_is_as_it_was_is_taken_as_it_is() -> None:
    present = Table(NAME, (ID, N), (("id",),), rows=7)
    assert as_of(KNOWN, present, ONTO, NAME, {}) is present


def test_columns_that_came_later_are_left_to_the_stream() -> None:
    present = Table(NAME, (ID, N, Column("later", Text(), "text")), (("id",),))
    assert names(as_of(KNOWN, present, ONTO, NAME, {})) == ["id", "n"]


def test_columns_that_are_gone_are_carried_until_the_target_lacks_them() -> None:
    present = Table(NAME, (ID,), (("id",),))
    assert names(as_of(KNOWN, present, ONTO, NAME, {})) == ["id", "n"]
    without = Table(NAME, (ID,), (("id",),))
    assert names(as_of(KNOWN, present, without, NAME, {})) == ["id"]
    renamed = Table(NAME, (ID, Column("number", Integer(), "int")), (("id",),))
    assert names(as_of(KNOWN, present, renamed, NAME, {"n": "number"})) == ["id", "n"]


def test_a_type_is_the_new_one_when_the_target_has_it() -> None:
    text = Column("n", Text(), "varchar(10)")
    present = Table(NAME, (ID, text), (("id",),))
    assert as_of(KNOWN, present, ONTO, NAME, {}).columns[1] == N
    ready = Table(NAME, (ID, text), (("id",),))
    assert as_of(KNOWN, present, ready, NAME, {}).columns[1] == text


def test_a_table_that_is_gone_is_planned_by_what_was_known() -> None:
    table = as_of(KNOWN, None, ONTO, NAME, {})
    assert (names(table), table.keys) == (["id", "n"], (("id",),))
