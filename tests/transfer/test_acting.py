"""Where a batch is cut: changes by which foreign keys act stand alone, and in their order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from truecopy.model.change import DELETE, INSERT, UPDATE
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.relation import Relation
from truecopy.model.table import Column, ForeignKey, Table, TableName
from truecopy.model.types import Integer
from truecopy.transfer.acting import cut_at_acts
from truecopy.transfer.apply import EFFECTS
from truecopy.transfer.plan import ChangeTarget, Tie
from truecopy.transfer.ties import find_ties

COLUMNS = (Column("id", Integer(), "int"), Column("code", Integer(), "int"))
RELATION = Relation(
    parse_endpoint("mariadb://h/d"), (TableName("d", "t"),), COLUMNS, (Integer(), Integer()), 1
)


def to(table: str, *, takes: bool = False, referred: tuple[int, ...] = ()) -> ChangeTarget:
    return ChangeTarget(table, RELATION, (0, 1), (0,), takes, referred)


def change(
    order: int, kind: str, table: str, before: str | None = None, after: str | None = None
) -> dict[str, Any]:
    """Rows are said as `id code`."""
    row = after.split() if after else None
    old = before.split() if before else None
    return {
        "table": table,
        "schema_id": table,
        "kind": kind,
        "key": (row or old or ["0"])[:1],
        "row": row,
        "before": old,
        "unchanged": None,
        "commit_order": order // 10,
        "seq": order % 10,
        "step": 0,
        "position": "p",
    }


def cut(changes: list[dict[str, Any]], **targets: ChangeTarget) -> list[tuple[bool, list[str]]]:
    """Whether each piece acts, and its changes: kind, table and key."""
    table = pa.Table.from_pylist(
        changes[::-1], schema=EFFECTS
    )  # the order in which they come is none
    return [
        (
            piece.acts,
            [f"{one['kind']} {one['table']} {one['key'][0]}" for one in piece.changes.to_pylist()],
        )
        for piece in cut_at_acts(table, targets)
    ]


def test_a_batch_by_which_nothing_acts_stays_whole() -> None:
    changes = [change(1, DELETE, "c", "1 1"), change(2, INSERT, "c", None, "1 2")]
    ((acts, _),) = cut(changes, c=to("c"))
    assert not acts


def test_deletes_act_in_their_place() -> None:
    changes = [
        change(1, INSERT, "c", None, "1 1"),
        change(11, DELETE, "p", "1 0"),
        change(12, DELETE, "p", "2 0"),
        change(13, INSERT, "p", None, "1 0"),
        change(21, INSERT, "c", None, "1 1"),
    ]
    assert cut(changes, p=to("p", takes=True), c=to("c")) == [
        (False, ["insert c 1"]),
        (True, ["delete p 1", "delete p 2"]),
        (False, ["insert p 1", "insert c 1"]),
    ]


def test_an_update_acts_only_by_columns_that_others_refer_to() -> None:
    changes = [
        change(1, UPDATE, "p", "1 7", "1 7"),
        change(2, UPDATE, "p", "1 7", "1 8"),
        change(3, UPDATE, "p", "1 8", "1 8"),
    ]
    assert cut(changes, p=to("p", takes=True, referred=(1,))) == [
        (False, ["update p 1"]),
        (True, ["update p 1"]),
        (False, ["update p 1"]),
    ]


@pytest.mark.parametrize("referred", [(0,), ()])
def test_a_row_that_moved_is_one_update_and_no_delete(referred: tuple[int, ...]) -> None:
    """Where nobody refers to the key it is nothing special; it never takes others along."""
    changes = [change(1, DELETE, "p", "1 7"), change(2, INSERT, "p", "1 7", "2 7")]
    pieces = cut(changes, p=to("p", takes=True, referred=referred))
    expected = (True, ["insert p 2"]) if referred else (False, ["delete p 1", "insert p 2"])
    assert pieces == [expected]


def test_nothing_acts_by_changes_of_sessions_without_foreign_keys() -> None:
    changes = [change(1, DELETE, "p"), change(2, UPDATE, "p", None, "1 8")]
    ((acts, told),) = cut(changes, p=to("p", takes=True, referred=(0, 1)))
    assert (acts, len(told)) == (False, 2)


def test_acts_of_two_tables_are_told_apart() -> None:
    changes = [change(1, DELETE, "p", "1 0"), change(2, DELETE, "q", "1 0")]
    pieces = cut(changes, p=to("p", takes=True), q=to("q", takes=True))
    assert pieces == [(True, ["delete p 1"]), (True, ["delete q 1"])]


def test_which_tables_are_tied() -> None:
    def table(name: str, *keys: ForeignKey) -> Table:
        return Table(TableName("d", name), COLUMNS, primary=("id",), foreign_keys=keys)

    def refers(parent: str, columns: str = "id", **rules: str) -> ForeignKey:
        return ForeignKey(("code",), TableName("d", parent), (columns,), **rules)

    tables = [
        table("parents"),
        table("children", refers("parents", on_delete="CASCADE")),
        table("toys", refers("children", "code", on_update="SET NULL")),
        table("owners", refers("toys")),
        table("others"),
        table("friends", refers("others")),
    ]
    ties = find_ties({one.name: one for one in tables})
    assert {name.table: tie for name, tie in ties.items()} == {
        "parents": Tie(takes=True),
        "children": Tie(referred=("code",), follows=True),
        "toys": Tie(follows=True),
        "owners": Tie(),
    }
