"""Plans: what arrives under which name, from where, by which key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from truecopy.mapping.plan import (
    Constant,
    Converted,
    Copied,
    Expressed,
    MappingRules,
    Masked,
    TableMapping,
    plan_definition,
    plan_tables,
)
from truecopy.mapping.routes import Route
from truecopy.mapping.rules import Computed, Fixed, Mask, Rule, Rules
from truecopy.model.change import Definition
from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import (
    Date,
    Decimal,
    Float,
    Integer,
    Text,
    Timestamp,
    Unsupported,
)

KEY = Secret("k")
ORDERS = Table(
    TableName("shop", "orders"),
    (
        Column("id", Integer(), "int(11)", nullable=False),
        Column("cust", Integer(), "int(11)"),
        Column("note", Text(), "text"),
        Column("total", Decimal(2), "decimal(10,2)"),
        Column("at", Timestamp(zone=False), "datetime(6)"),
    ),
    keys=(("id",),),
)
OLD = replace(ORDERS, name=TableName("shop", "orders_2020"))


def plan(rules: Rules, *routes: Route, pattern: str = "orders") -> TableMapping:
    task = MappingRules(routes, (Rule(pattern, rules),), home="shop")
    return plan_tables([ORDERS], task)[0]


def shown(mapping: TableMapping) -> list[tuple[str, object]]:
    return [(column.name, column.origin) for column in mapping.columns]


def test_without_rules_everything_is_copied() -> None:
    [mapping] = plan_tables([ORDERS], MappingRules(home="shop"))
    assert mapping.is_identity
    assert mapping.places == (0, 1, 2, 3, 4)
    assert str(mapping.target) == "orders"
    assert mapping.key == ("id",)
    assert [column.like for column in mapping.columns] == list(ORDERS.columns)


def test_choice_and_names_are_still_an_identity() -> None:
    rules = Rules(exclude=("note",), rename={"TOTAL": "sum"})
    mapping = plan(rules, Route("orders", "sales.o", {"cust": "customer_id", "id": "nr"}))
    assert mapping.is_identity
    assert mapping.places == (0, 1, 3, 4)
    assert [c.name for c in mapping.columns] == ["nr", "customer_id", "sum", "at"]
    assert (mapping.key, mapping.key_places) == (("nr",), (0,))
    assert mapping.renames == {"id": "nr", "cust": "customer_id", "total": "sum", "at": "at"}


def test_every_transformer_has_its_origin() -> None:
    rules = Rules(
        filter=("total > 0",),
        mask={"note": Mask(KEY, 40)},
        cast={"cust": Text()},
        sql={"total": Computed("total * 2"), "at": Computed("date(at)", Date())},
        add={"region": Fixed("EU", Text()), "twice": Computed("id * 2", Integer())},
    )
    mapping = plan(rules)
    assert not mapping.is_identity
    assert shown(mapping) == [
        ("id", Copied(0)),
        ("cust", Converted(1)),
        ("note", Masked(2, KEY, 40)),
        ("total", Expressed("total * 2")),
        ("at", Expressed("date(at)", Date())),
        ("region", Constant("EU")),
        ("twice", Expressed("id * 2", Integer())),
    ]
    assert [c.type for c in mapping.columns][1:6] == [Text(), Text(), Decimal(2), Date(), Text()]


def test_type_of_an_added_expression_is_asked_for() -> None:
    rule = Rule("orders", Rules(add={"twice": Computed("id * 2")}))
    task = MappingRules(rules=(rule,), infer=lambda columns, _: Decimal(len(columns)))
    assert plan_tables([ORDERS], task)[0].columns[-1].type == Decimal(5)


def test_rules_of_several_patterns_add_up() -> None:
    rules = (
        Rule("*", Rules(filter=("a",), exclude=("secret", "note"))),
        Rule("shop.orders", Rules(filter=("b",), rename={"cust": "c"})),
    )
    [mapping] = plan_tables([ORDERS], MappingRules(rules=rules))
    assert mapping.filter == ("a", "b")
    assert [c.name for c in mapping.columns] == ["id", "c", "total", "at"]


def test_included_columns_keep_the_order_of_the_table() -> None:
    assert [c.name for c in plan(Rules(include=("t*", "id"))).columns] == ["id", "total"]


def test_merged_tables_are_told_apart() -> None:
    route = Route("orders*", "all_orders", merge=True, source_column="origin")
    first, second = plan_tables([ORDERS, OLD], MappingRules((route,)))
    assert first.key == second.key == ("origin", "id")
    assert second.columns[0].origin == Constant("shop.orders_2020")
    assert first.merged
    assert not first.is_identity


def test_merged_tables_must_be_alike() -> None:
    route = Route("orders*", "all_orders", merge=True)
    other = replace(OLD, columns=OLD.columns[:-1])
    with pytest.raises(UsageError, match="differ in the column at"):
        plan_tables([ORDERS, other], MappingRules((route,)))


@pytest.mark.parametrize(
    "rules",
    [
        Rules(mask={"id": Mask(KEY)}),
        Rules(mask={"id": Mask(KEY, 32)}),
        Rules(cast={"id": Text()}),
        Rules(cast={"id": Decimal(2)}),
    ],
)
def test_key_survives_what_keeps_values_apart(rules: Rules) -> None:
    assert plan(rules).key == ("id",)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (Rules(exclude=("id",)), "stays behind"),
        (Rules(include=("cust",)), "stays behind"),
        (Rules(mask={"id": Mask(KEY, 16)}), "is masked with fewer than 32 digits"),
        (Rules(sql={"id": Computed("id % 2")}), "is computed by sql"),
    ],
)
def test_lost_key_is_refused_unless_another_is_named(rules: Rules, why: str) -> None:
    with pytest.raises(UsageError) as error:
        plan(rules)
    assert str(error.value).startswith(f"shop.orders.id: this column of the key {why}")
    assert plan(replace(rules, key=("cust",))).key == ("cust",)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            Rules(rename={"custt": "x"}),
            "shop.orders: rename names custt, which is no column of it; did you mean cust?",
        ),
        (Rules(mask={"xyz": Mask(KEY)}), "known are id, cust, note, total, at"),
        (Rules(rename={"cust": "NOTE"}), "shop.orders.note: two columns of the target"),
        (Rules(include=("x*",)), "shop.orders: columns.include leaves no column"),
        (Rules(key=("nr",)), "shop.orders: key names nr, which the target does not have"),
        (Rules(mask={"at": Mask(KEY)}, sql={"at": Computed("1")}), "mask and sql both give"),
        (Rules(add={"n": Computed("1")}), "shop.orders.n: say its type"),
    ],
)
def test_mistakes_name_table_and_column(rules: Rules, message: str) -> None:
    with pytest.raises(UsageError) as error:
        plan(rules)
    assert message in str(error.value)


def test_mistake_in_a_route() -> None:
    with pytest.raises(UsageError, match=r"its route renames custt.*did you mean cust\?"):
        plan(Rules(), Route("orders", columns={"custt": "c"}))
    with pytest.raises(UsageError, match=r"orders.cust: two rules rename it differently"):
        plan(Rules(rename={"cust": "a"}), Route("orders", columns={"cust": "c"}))


def test_rule_for_a_table_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"transformers.ordrs: .*did you mean orders\?"):
        plan(Rules(), pattern="ordrs")


def test_types_that_cannot_travel() -> None:
    shape = Column("shape", Unsupported("geometry has no canonical text"), "geometry")
    ratio = Column("ratio", Float(), "double")
    table = replace(ORDERS, columns=(*ORDERS.columns, shape, ratio))
    with pytest.raises(UsageError, match=r"shop.orders.shape cannot be carried: geometry"):
        plan_tables([table], MappingRules())
    dropped = Rules(exclude=("shape",))
    assert len(plan_tables([table], MappingRules(rules=(Rule("*", dropped),)))[0].columns) == 6
    cast = replace(dropped, cast={"ratio": Text()})
    with pytest.raises(UsageError, match=r"shop.orders.ratio cannot be cast to text: .*round it"):
        plan_tables([table], MappingRules(rules=(Rule("*", cast),)))


def test_changes_are_planned_by_their_definition() -> None:
    task = MappingRules((Route("orders", "o"),), (Rule("orders", Rules(exclude=("note",))),))
    [mapping] = plan_tables([ORDERS], task)
    newer = Definition(
        "shop.orders", (*ORDERS.columns, Column("extra", Text(), "text")), ("id", "cust")
    )
    planned = plan_definition(newer, mapping, task)
    assert [c.name for c in planned.columns] == ["id", "cust", "total", "at", "extra"]
    assert (planned.key, planned.source_key) == (("id",), ("id", "cust"))
    assert str(planned.target) == "o"
