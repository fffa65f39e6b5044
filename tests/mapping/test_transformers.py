"""Rows through Spark's expressions come out as plain Python makes them."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.mapping.reference import (
    FILTERS,
    KEY,
    NAMES,
    TABLE,
    TRANSFORMED,
    Row,
    Texts,
    rows,
    texts,
)
from truecopy.mapping.plan import MappingRules, TableMapping, plan_tables
from truecopy.mapping.rules import Computed, Mask, Rule, Rules
from truecopy.mapping.transformers import (
    check_expressions,
    hmac_sha256,
    inferred_by,
    map_rows,
)
from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.model.types import (
    Boolean,
    Date,
    Decimal,
    Float,
    Integer,
    Text,
    Timestamp,
    Type,
    Unsupported,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

some = settings(
    max_examples=5,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
MANY_ROWS = st.lists(rows(), min_size=20, max_size=40)


def plan(rules: Rules, infer: Callable[..., Type] | None = None) -> TableMapping:
    return plan_tables([TABLE], MappingRules(rules=(Rule("t", rules),), infer=infer))[0]


def frame_of(spark: SparkSession, found: Sequence[Row]) -> DataFrame:
    columns = ", ".join(f"`{name}` string" for name in NAMES)
    return spark.createDataFrame([tuple(texts(row)) for row in found], columns).coalesce(1)


def mapped(spark: SparkSession, mapping: TableMapping, found: Sequence[Row]) -> list[Texts]:
    return [list(row) for row in map_rows(frame_of(spark, found), mapping).collect()]


def expected(mapping: TableMapping, name: str, row: Row) -> Texts:
    made = TRANSFORMED[name][1]
    plain = dict(zip(NAMES, texts(row), strict=True))
    originals = {new: old for old, new in mapping.renames.items()}
    return [
        made[c.name](row) if c.name in made else plain[originals[c.name]] for c in mapping.columns
    ]


@pytest.mark.parametrize("name", TRANSFORMED)
@some
@given(found=MANY_ROWS)
def test_transformers(spark: SparkSession, name: str, found: list[Row]) -> None:
    mapping = plan(TRANSFORMED[name][0])
    check_expressions(spark, mapping)
    assert mapped(spark, mapping, found) == [expected(mapping, name, row) for row in found]


@pytest.mark.parametrize("condition", FILTERS)
@some
@given(found=MANY_ROWS)
def test_filters(spark: SparkSession, condition: str, found: list[Row]) -> None:
    mapping = plan(Rules(filter=(condition,)))
    check_expressions(spark, mapping)
    wanted = [texts(row) for row in found if FILTERS[condition](row)]
    assert mapped(spark, mapping, found) == wanted


def test_filtered_rows_are_not_computed(spark: SparkSession) -> None:
    rules = Rules(filter=("n <> 0", "id < 3"), add={"share": Computed("id div n", Integer())})
    nothing = dict.fromkeys(NAMES)
    found = [{**nothing, "id": id_, "n": n} for id_, n in ((1, 0), (2, 1), (4, 2), (1, None))]
    assert [row[-1] for row in mapped(spark, plan(rules), found)] == ["2"]


@pytest.mark.parametrize("key", ["k", "a" * 64, "ß" * 50, "longer than a block " * 5])
@some
@given(values=st.lists(st.none() | st.text(st.characters(codec="utf-8"))))
def test_mask_is_hmac(spark: SparkSession, key: str, values: list[str | None]) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame([(value,) for value in values], "v string")
    found = [row[0] for row in frame.select(hmac_sha256(F.col("v"), Secret(key))).collect()]
    assert found == [
        None if v is None else hmac.new(key.encode(), v.encode(), hashlib.sha256).hexdigest()
        for v in values
    ]


def test_plans_do_not_show_the_key(spark: SparkSession) -> None:
    frame = map_rows(frame_of(spark, []), plan(Rules(mask={"key": Mask(Secret(KEY))})))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        frame.explain(True)
    inner = bytes(b ^ 0x36 for b in KEY.encode().ljust(64, b"\0")).hex()
    outer = bytes(b ^ 0x5C for b in KEY.encode().ljust(64, b"\0")).hex()
    assert "sha2" in shown.getvalue()
    for secret in (KEY, KEY.encode().hex(), inner, outer):
        assert secret[:32].lower() not in shown.getvalue().lower()


def test_value_that_does_not_fit_is_an_error(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    row: Row = {**dict.fromkeys(NAMES), "id": 1, "kind": "twelve"}
    with pytest.raises(PySparkException, match=r"shop.t.kind: not of the type integer: twelve"):
        mapped(spark, plan(Rules(cast={"kind": Integer()})), [row])
    assert mapped(spark, plan(Rules(cast={"kind": Integer()})), [{**row, "kind": "12"}])


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("n + 1", Integer()),
        ("total * 2", Decimal(2)),
        ("ratio / 2", Float()),
        ("n > 1", Boolean()),
        ("upper(kind)", Text()),
        ("date(at)", Date()),
        ("seen", Timestamp(zone=True)),
        ("at", Timestamp(zone=False)),
        ("big", Decimal(0)),
        ("unhex(hex(data))", None),
    ],
)
def test_types_of_expressions(spark: SparkSession, sql: str, kind: Type | None) -> None:
    found = inferred_by(spark)(TABLE.columns, sql)
    assert kind is None or found == kind


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Rules(filter=("totl > 1",)), "shop.t: filter: 'totl > 1' is not understood: A column"),
        (Rules(filter=("n +",)), "shop.t: filter: 'n +' is not understood: Syntax error"),
        (Rules(filter=("n + 1",)), "shop.t: filter 'n + 1' is integer and no condition"),
        (Rules(sql={"n": Computed("sum(n)")}), "shop.t.n: 'sum(n)' takes more than the row itself"),
        (Rules(sql={"n": Computed("(select 1)")}), "takes more than the row itself"),
        (Rules(sql={"n": Computed("rand()")}), "is not the same each time"),
        (Rules(sql={"at": Computed("now()")}), "is not the same each time"),
        (
            Rules(sql={"n": Computed("row_number() over (order by n)")}),
            "takes more than the row itself",
        ),
        (Rules(sql={"n": Computed("explode(array(n))")}), "is not understood"),
        (Rules(sql={"kind": Computed("ratio")}), "shop.t.kind: a double has no exact text"),
        (Rules(sql={"kind": Computed("map('a', 1)")}), "shop.t.kind: map<string,int> has no"),
    ],
)
def test_expressions_that_are_refused(spark: SparkSession, rules: Rules, message: str) -> None:
    with pytest.raises(UsageError) as error:
        check_expressions(spark, plan(rules))
    assert message in str(error.value)
    assert "SQLSTATE" not in str(error.value)


def test_added_column_has_the_type_of_its_expression(spark: SparkSession) -> None:
    mapping = plan(Rules(add={"x": Computed("total * n")}), inferred_by(spark))
    assert mapping.columns[-1].type == Decimal(2)
    assert not isinstance(replace(mapping.columns[-1]).type, Unsupported)
