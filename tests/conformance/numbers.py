"""Cases: whole numbers, decimals, floats."""

from __future__ import annotations

import decimal
import math
import struct
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.conformance.cases import Case, Storage
from truecopy.model.types import Boolean, Decimal, Float, Integer

D = decimal.Decimal
NO_UNSIGNED = "PostgreSQL has no unsigned types; see the case that agrees on decimal(0)"
NO_128_BIT = "no whole number of 128 bits"
ONLY_MYSQL = "a type of MySQL and MariaDB"


def integers(name: str, low: int, high: int, storages: dict[str, Storage], **absent: str) -> Case:
    tried = {low, low + 1, -1, 0, 1, 9, 10, 2**31, 2**53 + 1, 2**63 - 1, 2**63, high - 1, high}
    edges = tuple(sorted(edge for edge in tried if low <= edge <= high))
    return Case(name, Integer(), st.integers(low, high), storages, edges, absent)


def same(ddl: str, arrow: pa.DataType) -> dict[str, Storage]:
    """The engines that share a declaration."""
    return {
        "mariadb": Storage(ddl),
        "postgresql": Storage(ddl),
        "sqlite": Storage("INTEGER"),
        "duckdb": Storage(ddl),
        "lake": Storage(arrow=arrow),
    }


WHOLE_NUMBERS = [
    integers("bigint", -(2**63), 2**63 - 1, same("BIGINT", pa.int64())),
    integers("int", -(2**31), 2**31 - 1, same("INTEGER", pa.int32())),
    integers("smallint", -(2**15), 2**15 - 1, same("SMALLINT", pa.int16())),
    integers(
        "tinyint",
        -128,
        127,
        {
            **same("TINYINT", pa.int8()),
            "postgresql": Storage("SMALLINT"),
            "sqlite": Storage("TINYINT"),
        },
    ),
    integers(
        "mediumint",
        -(2**23),
        2**23 - 1,
        {"mariadb": Storage("MEDIUMINT")},
        **dict.fromkeys(("postgresql", "sqlite", "duckdb", "lake"), ONLY_MYSQL),
    ),
    integers(
        "unsigned bigint",
        0,
        2**64 - 1,
        {
            "mariadb": Storage("BIGINT UNSIGNED"),
            "duckdb": Storage("UBIGINT"),
            "sqlite": Storage("TEXT", store=str),
        },
        postgresql=NO_UNSIGNED,
        lake="Spark reads it as decimal(20,0); see the case that agrees on decimal(0)",
    ),
    integers(
        "unsigned int",
        0,
        2**32 - 1,
        {
            "mariadb": Storage("INT UNSIGNED"),
            "duckdb": Storage("UINTEGER"),
            "sqlite": Storage("INT UNSIGNED"),
            "lake": Storage(arrow=pa.uint32()),
        },
        postgresql=NO_UNSIGNED,
    ),
    integers(
        "zerofill",
        0,
        2**32 - 1,
        {
            "mariadb": Storage("INT(10) UNSIGNED ZEROFILL"),
            "sqlite": Storage("INT UNSIGNED ZEROFILL"),
        },
        **dict.fromkeys(("postgresql", "duckdb", "lake"), ONLY_MYSQL),
    ),
    integers(
        "hugeint",
        -(2**127),
        2**127 - 1,
        {
            "duckdb": Storage("HUGEINT", store=str, place="CAST({} AS HUGEINT)"),
            "sqlite": Storage("TEXT", store=str),
        },
        **dict.fromkeys(("mariadb", "postgresql", "lake"), NO_128_BIT),
    ),
    Case(
        "year",
        Integer(),
        st.integers(1901, 2155),
        {"mariadb": Storage("YEAR"), "sqlite": Storage("YEAR")},
        (1901, 1970, 2000, 2155, 0),
        dict.fromkeys(("postgresql", "duckdb", "lake"), ONLY_MYSQL),
    ),
    *(
        Case(
            f"boolean as {type(kind).__name__.lower()}",
            kind,
            st.booleans(),
            {
                "mariadb": Storage("BOOLEAN"),
                "postgresql": Storage("BOOLEAN"),
                "sqlite": Storage("BOOLEAN"),
                "duckdb": Storage("BOOLEAN"),
                "lake": Storage(arrow=pa.bool_()),
            },
            (True, False),
        )
        for kind in (Boolean(), Integer())
    ),
]


def decimals(
    name: str,
    precision: int,
    scale: int,
    agreed: int | None,
    unheld: dict[str, str] | None = None,
    **storages: Storage,
) -> Case:
    """Decimals of one column type, agreed on at any scale; SQLite keeps more than 15 digits as text."""
    with decimal.localcontext(prec=80):
        tiny = D(1).scaleb(-scale)
        most = D(10) ** (precision - scale) - tiny
        edges = [D(0), D("-0"), tiny, -tiny, most, -most, D(1).quantize(tiny), D(10), D(100)]
        edges += [D("0.50"), D("-1.10"), D("99.99")] if scale >= 2 else []
        edges = [edge for edge in edges if abs(edge) <= most]
    ddl = f"DECIMAL({precision},{scale})"
    every = {
        "mariadb": Storage(ddl),
        "postgresql": Storage(f"NUMERIC({precision},{scale})"),
        "sqlite": Storage("TEXT", store=lambda x: f"{x:f}")
        if precision > 15
        else Storage(ddl, store=lambda x: f"{x:f}"),
        "duckdb": Storage(ddl, store=lambda x: f"{x:f}", place=f"CAST({{}} AS {ddl})"),
        "lake": Storage(arrow=pa.decimal128(min(precision, 38), scale) if scale <= 38 else None),
        **storages,
    }
    units = st.integers(-(10**precision) + 1, 10**precision - 1)
    absent = unheld or {}
    return Case(
        name,
        Decimal(agreed),
        st.builds(lambda n: _scaled(n, scale), units),
        {key: value for key, value in every.items() if key not in absent},
        tuple(edges),
        absent,
    )


def _scaled(units: int, scale: int) -> D:
    sign, digits = int(units < 0), tuple(map(int, str(abs(units))))
    return D((sign, digits, -scale))


TOO_WIDE = {
    "duckdb": "decimals end at 38 digits",
    "lake": "decimals end at 38 digits",
}

DECIMALS = [
    decimals("decimal(10,2)", 10, 2, 2),
    decimals("decimal(10,2) at scale 5", 10, 2, 5),
    decimals("decimal(10,2) trimmed", 10, 2, None),
    decimals("decimal(10,5) at scale 2", 10, 5, 2),
    decimals("decimal(10,0)", 10, 0, 0),
    decimals("decimal(10,0) at scale 3", 10, 0, 3),
    decimals("decimal(10,0) trimmed", 10, 0, None),
    decimals("decimal(18,14)", 18, 14, 14),
    decimals("decimal(5,5) trimmed", 5, 5, None),
    decimals("decimal(38,10)", 38, 10, 10),
    decimals("decimal(38,10) at scale 30", 38, 10, 30),
    decimals("decimal(38,38)", 38, 38, 38, {"mariadb": "scales end at 30 (38 on newer ones)"}),
    decimals("decimal(65,30)", 65, 30, 30, TOO_WIDE),
    decimals("decimal(65,30) trimmed", 65, 30, None, TOO_WIDE),
    decimals("decimal(65,0) at scale 30", 65, 0, 30, TOO_WIDE),
    decimals(
        "decimal zerofill",
        10,
        2,
        2,
        dict.fromkeys(("postgresql", "duckdb", "lake", "sqlite"), ONLY_MYSQL),
        mariadb=Storage("DECIMAL(10,2) UNSIGNED ZEROFILL", holds=lambda x: x >= 0),
    ),
    Case(
        "unconstrained numeric",
        Decimal(None),
        st.builds(
            lambda n, e: D((int(n < 0), tuple(map(int, str(abs(n)))), e)),
            st.integers(-(10**40), 10**40),
            st.integers(-150, 100),
        ),
        {"postgresql": Storage("NUMERIC"), "sqlite": Storage("TEXT", store=str)},
        (
            *(D("0"), D("-0"), D("0.000"), D("1E+10"), D("1E-10"), D("100"), D("1.50"), D("-10")),
            *(D("1E+1000"), D("1E-1000"), D("NaN"), D("Infinity"), D("-Infinity")),
        ),
        dict.fromkeys(("mariadb", "duckdb", "lake"), "every decimal has a scale"),
    ),
    *(
        Case(
            f"bigint at scale {scale}",
            Decimal(scale),
            st.integers(-(2**63), 2**63 - 1),
            same("BIGINT", pa.int64()),
            (0, 1, -1, 10, 100, -(2**63), 2**63 - 1),
        )
        for scale in (0, 2, 30, None)
    ),
    Case(
        "unsigned bigint as decimal(0)",
        Decimal(0),
        st.integers(0, 2**64 - 1),
        {
            "mariadb": Storage("BIGINT UNSIGNED"),
            "postgresql": Storage("NUMERIC(20,0)"),
            "duckdb": Storage("UBIGINT"),
            "sqlite": Storage("TEXT", store=str),
            "lake": Storage(arrow=pa.uint64()),
        },
        (0, 2**63 - 1, 2**63, 2**64 - 1),
    ),
    Case(
        "boolean at scale 2",
        Decimal(2),
        st.booleans(),
        same("BOOLEAN", pa.bool_()) | {"sqlite": Storage("BOOLEAN")},
        (True, False),
    ),
    Case(
        "real agreed with a decimal",
        Decimal(2),
        st.integers(-(10**12), 10**12).map(lambda cents: cents / 100),
        {
            "sqlite": Storage("REAL"),
            "postgresql": Storage("DOUBLE PRECISION"),
            "duckdb": Storage("DOUBLE"),
            "mariadb": Storage("DOUBLE"),
            "lake": Storage(arrow=pa.float64()),
        },
        (0.0, -0.0, 0.1, 1.1, 1e15, -2.5, 0.07, 0.29, 1.005, 0.1234, 1e22, 1e-7),
    ),
]


def _finite(number: float) -> bool:
    return math.isfinite(number)


def _narrow(number: float) -> float:
    return float(struct.unpack(">f", struct.pack(">f", number))[0])


def _beside_powers_of_two() -> tuple[float, ...]:
    """Where a logarithm is off by one: every power of two, and its neighbours on both sides."""
    found: list[float] = []
    for power in range(-1074, 1024):
        number = math.ldexp(1.0, power)
        found += [number, -number, math.nextafter(number, 0.0), math.nextafter(number, math.inf)]
    return tuple(found)


FLOAT_EDGES = (
    *(
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.1,
        0.1 + 0.2,
        1 / 3,
        2 / 3,
        100.0,
        1e15,
        1e16,
        1e17,
        1e21,
        1e22,
        1e23,
    ),
    *(1.5e-7, 1e-5, 1e-4, 123456789012345678.0, 9007199254740993.0, 1.7976931348623157e308),
    *(5e-324, -5e-324, 1e-323, 2.2250738585072014e-308, 2.225073858507201e-308, 4.9e-310),
    *(1e308, -1e308, 1e-300, math.pi, math.e, math.inf, -math.inf, math.nan),
)


def doubles(name: str, values: st.SearchStrategy[Any], edges: tuple[float, ...]) -> Case:
    return Case(
        name,
        Float(),
        values,
        {
            "mariadb": Storage("DOUBLE", holds=_finite),
            "postgresql": Storage("DOUBLE PRECISION"),
            "sqlite": Storage("REAL", holds=lambda x: not math.isnan(x)),
            "duckdb": Storage("DOUBLE"),
            "lake": Storage(arrow=pa.float64()),
        },
        edges,
    )


NARROW_EDGES = (
    *(0.0, -0.0, 0.1, 1 / 3, 16777217.0, 3.4028234e38, 1e-45, 1.1754944e-38, 123456.789),
)

FLOATS = [
    doubles("double", st.floats(), FLOAT_EDGES),
    doubles("double beside powers of two", st.floats(), _beside_powers_of_two()),
    Case(
        "float of 32 bits",
        Float(),
        st.floats(width=32),
        {
            "mariadb": Storage("FLOAT", holds=_finite),
            "postgresql": Storage("REAL"),
            "sqlite": Storage("FLOAT", holds=lambda x: not math.isnan(x)),
            "duckdb": Storage("FLOAT"),
            "lake": Storage(arrow=pa.float32()),
        },
        (*map(_narrow, NARROW_EDGES), math.inf, -math.inf, math.nan),
    ),
]
