"""Where tables go."""

from __future__ import annotations

import pytest

from truecopy.mapping.choice import Choice, matches
from truecopy.mapping.routes import Route, find_way, find_ways
from truecopy.model.errors import UsageError
from truecopy.model.table import TableName

ORDERS = TableName("shop", "orders")
ITEMS = TableName("shop", "order_items")
OLD = TableName("archive", "orders")


@pytest.mark.parametrize(
    ("pattern", "name", "meant"),
    [
        ("orders", ORDERS, True),
        ("order*", ITEMS, True),
        ("shop.orders", ORDERS, True),
        ("shop.*", ORDERS, True),
        ("*", ORDERS, True),
        ("shop.orders", OLD, False),
        ("s*", ORDERS, False),
        ("Orders", ORDERS, False),
        ("orders", TableName(None, "orders"), True),
    ],
)
def test_patterns(pattern: str, name: TableName, meant: bool) -> None:
    assert matches(pattern, name) is meant


def test_choice() -> None:
    everything = Choice()
    some = Choice(("shop.*",), ("*_items",))
    assert [name for name in (ORDERS, ITEMS, OLD) if everything.wants(name)] == [ORDERS, ITEMS, OLD]
    assert [name for name in (ORDERS, ITEMS, OLD) if some.wants(name)] == [ORDERS]


@pytest.mark.parametrize(
    ("routes", "name", "target"),
    [
        ([], ORDERS, "orders"),
        ([], OLD, "archive.orders"),
        ([Route("orders", "sales.orders")], ORDERS, "sales.orders"),
        ([Route("shop.*", "sales.*")], ITEMS, "sales.order_items"),
        ([Route("order*", "x.o*")], ITEMS, "x.o_items"),
        ([Route("*.order*", "*_new.*")], ORDERS, "shop_new.s"),
        ([Route("*", "a.*"), Route("orders", "b.orders")], ORDERS, "b.orders"),
        ([Route("orders", "a.x"), Route("shop.orders", "b.x")], ORDERS, "b.x"),
        ([Route("order*", "a.*"), Route("*", "b.*")], ORDERS, "a.s"),
        ([Route("orders", columns={"a": "b"})], ORDERS, "orders"),
        ([Route("order[a-t]", "x")], ORDERS, "x"),
        ([Route("[!a-n]rd?r*", "all_*")], ORDERS, "all_s"),
        ([Route("*[]_]*", "a.*_*")], ITEMS, "a.order_items"),
    ],
)
def test_targets(routes: list[Route], name: TableName, target: str) -> None:
    assert str(find_way(name, routes, home="shop").target) == target


def test_two_tables_to_one_are_refused_unless_they_merge() -> None:
    names = [ORDERS, OLD]
    with pytest.raises(UsageError, match=r"shop.orders and archive.orders would both go to orders"):
        find_ways(names, [Route("archive.*", "*")], "shop")
    with pytest.raises(UsageError, match="would both go to"):
        find_ways(names, [Route("archive.*", "*", merge=True)], "shop")
    merged = find_ways(names, [Route("orders", "all", merge=True, source_column="origin")])
    assert [(str(way.target), way.source_column) for way in merged] == [("all", "origin")] * 2


@pytest.mark.parametrize(
    ("route", "message"),
    [
        (lambda: [Route("a", "b.*")], "more * than the pattern"),
        (lambda: [Route("a", "b", source_column="x")], "only with merge: true"),
        (lambda: [Route("ordrs", "b")], "the source has no such table; did you mean orders?"),
    ],
)
def test_mistakes(route: object, message: str) -> None:
    with pytest.raises(UsageError) as error:
        find_ways([ORDERS], route())  # type: ignore[operator]
    assert message in str(error.value)
