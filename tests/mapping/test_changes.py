"""A target that takes mapped changes ends as the mapping of the source, whatever the log tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mapping.reference import FILTERS, KEY, NAMES, TABLE, Row, Texts, mask, rows, texts
from truecopy.mapping.changes import PASSED, map_changes
from truecopy.mapping.plan import MappingRules, TableMapping, plan_tables
from truecopy.mapping.routes import Route
from truecopy.mapping.rules import Computed, Mask, Rule, Rules
from truecopy.model.change import DELETE, INSERT, TRUNCATE, UPDATE
from truecopy.model.secret import Secret
from truecopy.model.types import Integer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

some = settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SCHEMA = (
    "shard string, position string, txn string, commit_order long, seq int, committed_at timestamp,"
    " restart_at timestamp, kind string, table string, key array<string>, before array<string>,"
    " after array<string>, unchanged array<int>, schema_id string, annotation string, origin string"
)


@dataclass(frozen=True)
class Logged:
    """A change as a log tells it."""

    kind: str
    before: Row | None = None
    after: Row | None = None
    has_before: bool = True
    unchanged: tuple[int, ...] = ()

    def as_row(self, seq: int) -> tuple[Any, ...]:
        row = self.after or self.before
        after = texts(self.after) if self.after else None
        for place in self.unchanged:
            assert after is not None
            after[place] = None
        return (
            "-", f"0-1-{seq}", f"t{seq}", seq // 3, seq, None, None, self.kind, "shop.t",
            [str(row["id"])] if row else None,
            texts(self.before) if self.before and self.has_before else None,
            after, list(self.unchanged) or None, "s", None, None,
        )  # fmt: skip


@st.composite
def histories(draw: st.DrawFn, before: bool = True) -> list[Logged]:
    """Changes as a database makes them, from an empty table on."""
    state: dict[int, Row] = {}
    logged = []
    for row in draw(st.lists(rows(), min_size=20, max_size=60)):
        old = state.get(row["id"])
        if old is None:
            logged.append(Logged(INSERT, after=row))
            state[row["id"]] = row
        elif draw(st.integers(0, 3)) == 0:
            logged.append(Logged(DELETE, old, has_before=before))
            del state[row["id"]]
        else:
            kept = draw(st.sets(st.sampled_from(NAMES[1:])))
            new = {name: old[name] if name in kept else row[name] for name in NAMES}
            places = tuple(sorted(NAMES.index(name) for name in kept))
            unchanged = draw(st.sampled_from([(), places]))
            logged.append(Logged(UPDATE, old, new, before, unchanged))
            state[row["id"]] = new
    return logged


def frame_of(spark: SparkSession, logged: Sequence[Logged]) -> DataFrame:
    found = [one.as_row(seq) for seq, one in enumerate(logged)]
    return spark.createDataFrame(found, SCHEMA).coalesce(1)


def mapped(
    spark: SparkSession, logged: Sequence[Logged], mapping: TableMapping
) -> list[dict[str, Any]]:
    frame = map_changes(frame_of(spark, logged), mapping)
    found = [row.asDict() for row in frame.collect()]
    assert set(frame.columns) == {*PASSED, "kind", "table", "key", "row", "unchanged", "step"}
    return sorted(found, key=lambda change: (change["seq"], change["step"]))


def plan(rules: Rules, *routes: Route) -> TableMapping:
    return plan_tables([TABLE], MappingRules(routes, (Rule("t", rules),), home="shop"))[0]


def final(logged: Sequence[Logged]) -> Iterator[Row]:
    state: dict[int, Row] = {}
    for one in logged:
        row = one.after or one.before
        assert row is not None
        state.pop(row["id"], None)
        if one.after:
            state[row["id"]] = one.after
    return iter(state.values())


def apply(changes: Sequence[dict[str, Any]], strict: bool) -> dict[tuple[Any, ...], Texts]:
    """A target with a unique key; a strict one takes no insert of a row that it has, and so on."""
    target: dict[tuple[Any, ...], Texts] = {}
    for change in changes:
        key = tuple(change["key"])
        had = target.pop(key, None)
        if strict:
            assert (had is None) == (change["kind"] == INSERT), change
        if change["kind"] != DELETE:
            row = list(change["row"])
            for place in change["unchanged"] or ():
                assert had is not None
                row[place] = had[place]
            target[key] = row
    return target


RULES = {
    "nothing": Rules(),
    "choice": Rules(exclude=("data",), rename={"id": "nr"}),
    "masked key": Rules(mask={"id": Mask(Secret(KEY)), "key": Mask(Secret(KEY))}),
    "sql": Rules(sql={"n": Computed("n * 2")}, add={"m": Computed("n + id", Integer())}),
}


def wanted(name: str, row: Row) -> Texts:
    plain: dict[str, str | None] = dict(zip(NAMES, texts(row), strict=True))
    match name:
        case "choice":
            plain.pop("data")
        case "masked key":
            plain.update(id=mask(row, "id"), key=mask(row, "key"))
        case "sql":
            n = row["n"]
            plain["n"] = None if n is None else str(n * 2)
            plain["m"] = None if n is None else str(n + row["id"])
    return list(plain.values())


@pytest.mark.parametrize(
    ("name", "condition"),
    [*((name, None) for name in RULES), *zip(cycle(RULES), FILTERS, strict=False)],
)
def test_with_whole_rows_every_kind_is_exact(
    spark: SparkSession, name: str, condition: str | None
) -> None:
    mapping = plan(replace(RULES[name], filter=(condition,) if condition else ()))

    @some
    @given(logged=histories())
    def check(logged: list[Logged]) -> None:
        target = apply(mapped(spark, logged, mapping), strict=True)
        passes = [r for r in final(logged) if condition is None or FILTERS[condition](r)]
        assert sorted(map(str, target.values())) == sorted(str(wanted(name, r)) for r in passes)

    check()


@pytest.mark.parametrize(
    ("name", "condition"),
    [
        ("nothing", None),
        ("masked key", None),
        ("choice", "n > 0"),
        ("masked key", "n > 0"),
        ("nothing", "id % 2 = 0"),
    ],
)
def test_without_the_row_before_the_target_still_converges(
    spark: SparkSession, name: str, condition: str | None
) -> None:
    mapping = plan(replace(RULES[name], filter=(condition,) if condition else ()))

    @some
    @given(logged=histories(before=False))
    def check(logged: list[Logged]) -> None:
        if condition:  # values that are left out are refused then
            logged = [replace(one, unchanged=()) for one in logged]
        target = apply(mapped(spark, logged, mapping), strict=False)
        passes = [r for r in final(logged) if condition is None or FILTERS[condition](r)]
        assert sorted(map(str, target.values())) == sorted(str(wanted(name, r)) for r in passes)

    check()


def test_key_that_changes_on_the_target_only(spark: SparkSession) -> None:
    mapping = plan(Rules(key=("kind",)))
    nothing: Row = dict.fromkeys(NAMES)
    a, b = ({**nothing, "id": 1, "kind": kind} for kind in "ab")
    logged = [Logged(INSERT, after=a), Logged(UPDATE, a, {**a, "n": 1}), Logged(UPDATE, a, b)]
    found = mapped(spark, logged, mapping)
    assert [(c["seq"], c["step"], c["kind"], c["key"]) for c in found] == [
        (0, 0, INSERT, ["a"]),
        (1, 0, UPDATE, ["a"]),
        (2, 0, DELETE, ["a"]),
        (2, 1, INSERT, ["b"]),
    ]


def test_what_passes(spark: SparkSession) -> None:
    mapping = plan(Rules(filter=("n > 0",)), Route("t", "sales.t"))
    row: Row = {**dict.fromkeys(NAMES), "id": 1, "n": 1}
    found = mapped(spark, [Logged(TRUNCATE), Logged(INSERT, after=row)], mapping)
    assert [(c["kind"], c["key"], c["table"]) for c in found] == [
        (TRUNCATE, None, "sales.t"),
        (INSERT, ["1"], "sales.t"),
    ]
    assert (found[1]["position"], found[1]["txn"], found[1]["schema_id"]) == ("0-1-1", "t1", "s")


def test_merged_tables_have_keys_of_their_own(spark: SparkSession) -> None:
    mapping = plan(Rules(), Route("t", "all", merge=True, source_column="origin"))
    row: Row = {**dict.fromkeys(NAMES), "id": 1}
    [change, gone] = mapped(
        spark, [Logged(INSERT, after=row), Logged(DELETE, row, has_before=False)], mapping
    )
    assert change["key"] == gone["key"] == ["shop.t", "1"]
    assert change["row"][:2] == ["shop.t", "1"]


@pytest.mark.parametrize(
    ("rules", "unchanged", "message"),
    [
        (Rules(filter=("n > 0",)), (3,), "the row may be new to the target"),
        (Rules(add={"x": Computed("n + total")}), (2,), "of which an expression needs some"),
        (Rules(key=("kind",)), (), "the log has no row before the change"),
    ],
)
def test_what_cannot_be_known_is_an_error(
    spark: SparkSession, rules: Rules, unchanged: tuple[int, ...], message: str
) -> None:
    from pyspark.errors import PySparkException

    added = {name: replace(one, type=Integer()) for name, one in rules.add.items()}
    row: Row = {**dict.fromkeys(NAMES), "id": 1, "n": 1}
    update = Logged(UPDATE, row, row, has_before=False, unchanged=unchanged)
    with pytest.raises(PySparkException, match=rf"shop.t at 0-1-0: .*{message}.*REPLICA IDENTITY"):
        mapped(spark, [update], plan(replace(rules, add=added)))
