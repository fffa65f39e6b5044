"""Which values of a column do not fit another one, from the declarations alone."""

from __future__ import annotations

import pytest

from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import (
    Binary,
    Boolean,
    Decimal,
    Float,
    Integer,
    Text,
    Time,
    Timestamp,
    Type,
    Uuid,
)
from truecopy.transfer.preflight.fit import longest_row, misfit


def column(kind: Type, native: str, **more: object) -> Column:
    return Column("c", kind, native, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (column(Integer(), "int(11)"), column(Integer(), "int(11)"), None),
        (column(Integer(), "int unsigned"), column(Integer(), "int"), "above 2147483647"),
        (column(Integer(), "int"), column(Integer(), "bigint"), None),
        (column(Integer(), "int"), column(Integer(), "bigint unsigned"), "below 0"),
        (column(Integer(), "bigint"), column(Integer(), "int"), "above 2147483647"),
        (column(Integer(), "int unsigned"), column(Integer(), "bigint"), None),
        (column(Integer(), "int"), column(Boolean(), "boolean"), "other than 0 and 1"),
        (column(Decimal(2), "decimal(10,2)"), column(Decimal(2), "decimal(12,2)"), None),
        (column(Decimal(4), "decimal(12,4)"), column(Decimal(2), "decimal(12,2)"), "2 digits after"),
        (column(Decimal(2), "decimal(12,2)"), column(Decimal(2), "decimal(8,2)"), "6 digits before"),
        (column(Integer(), "int"), column(Decimal(2), "decimal(10,2)"), "8 digits"),
        (column(Integer(), "int"), column(Decimal(0), "decimal(10,0)"), None),
        (column(Float(), "double"), column(Float(), "float"), "double precision"),
        (column(Float(), "float"), column(Float(), "double"), None),
        (column(Text(), "varchar(40)"), column(Text(), "varchar(20)"), "20 characters"),
        (column(Text(), "varchar(20)"), column(Text(), "varchar(40)"), None),
        (column(Text(), "varchar(20)"), column(Text(), "text"), None),
        (column(Text(), "longtext"), column(Text(), "text"), "65,535 bytes"),
        (column(Text(), "varchar(300)"), column(Text(), "tinytext"), "255 bytes"),
        (column(Binary(), "varbinary(10)"), column(Binary(), "varbinary(5)"), "5 bytes"),
        (column(Text(), "enum('a','b')"), column(Text(), "enum('b','a')"), None),
        (column(Text(), "enum('a','c')"), column(Text(), "enum('a','b')"), "label 'c'"),
        (column(Text(), "varchar(5)"), column(Text(), "enum('a')"), "no label"),
        (column(Text(), "enum('ab','abc')"), column(Text(), "varchar(2)"), "2 characters"),
        (column(Text(), "varchar(36)"), column(Uuid(), "uuid"), "no UUID"),
        (
            column(Timestamp(False), "datetime(6)", fraction=6),
            column(Timestamp(False), "datetime", fraction=0),
            "0 digits of a second",
        ),
        (column(Time(), "time(6)", fraction=6), column(Time(), "time(6)", fraction=6), None),
        (
            column(Text(), "varchar(9)", charset="utf8mb4"),
            column(Text(), "varchar(9)", charset="utf8mb3"),
            "emoji",
        ),
        (
            column(Text(), "varchar(9)", charset="utf8mb4"),
            column(Text(), "varchar(9)", charset="latin1"),
            "latin1 does not have",
        ),
        (
            column(Text(), "varchar(9)", charset="latin1"),
            column(Text(), "varchar(9)", charset="utf8mb4"),
            None,
        ),
    ],
)  # fmt: skip
def test_within_one_family(source: Column, target: Column, words: str | None) -> None:
    values = misfit(source, "mariadb", target, "mariadb")
    assert (values is None) if words is None else (words in (values or "")), values


def test_between_engines() -> None:
    text = column(Text(), "text")
    assert misfit(text, "postgresql", text, "mysql") == "more than 65,535 bytes"
    assert misfit(text, "mysql", text, "postgresql") is None
    zoned = column(Timestamp(True), "timestamp with time zone")
    short = column(Timestamp(True), "timestamp(6)", fraction=6)
    assert "2038" in (misfit(zoned, "postgresql", short, "mariadb") or "")
    assert misfit(short, "mariadb", zoned, "postgresql") is None
    span, clock = column(Time(), "time", fraction=0), column(Time(), "time without time zone")
    assert "24:00" in (misfit(span, "mariadb", clock, "postgresql") or "")


def test_a_column_that_binds_nothing_takes_everything() -> None:
    number, loose = column(Integer(), "bigint"), column(Integer(), "INTEGER", weak=True)
    assert misfit(number, "mariadb", loose, "sqlite") is None
    assert misfit(loose, "sqlite", column(Integer(), "int"), "mariadb") is None


def test_the_longest_row() -> None:
    def table(*columns: Column) -> Table:
        return Table(TableName(None, "t"), columns, engine="mariadb")

    assert longest_row(table(column(Text(), "longtext"))) is None
    assert longest_row(table(column(Text(), "varchar(10)", charset="latin1"))) == 10
    assert longest_row(table(column(Binary(), "varbinary(10)"))) == 20, "hex on its way"
