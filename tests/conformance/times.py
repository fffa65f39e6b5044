"""Cases: days, times, timestamps with and without a zone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from zoneinfo import ZoneInfo

import pyarrow as pa
from hypothesis import strategies as st

from tests.conformance.cases import Case, Storage
from tests.conformance.numbers import ONLY_MYSQL
from truecopy.model.types import Date, Time, Timestamp

WALL = Timestamp(zone=False)
INSTANT = Timestamp(zone=True)
ONLY_POSTGRESQL = "values that only PostgreSQL has"
EVER = (dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999))  # noqa: DTZ001


def at(*parts: int) -> dt.datetime:
    return dt.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


DATE_EDGES = (
    dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1582, 10, 4), dt.date(1582, 10, 10),
    dt.date(1582, 10, 15),
    dt.date(1752, 9, 10), dt.date(1900, 2, 28), dt.date(1969, 12, 31), dt.date(1970, 1, 1),
    dt.date(2000, 2, 29),
    dt.date(2024, 2, 29), dt.date(2038, 1, 20), dt.date(4, 2, 29), dt.date(999, 12, 31),
    dt.date(2024, 12, 31),
)  # fmt: skip

DATES = [
    Case(
        "date",
        Date(),
        st.dates(),
        {
            "mariadb": Storage("DATE"),
            "postgresql": Storage("DATE"),
            "sqlite": Storage("DATE", store=str),
            "duckdb": Storage("DATE"),
            "lake": Storage(arrow=pa.date32()),
        },
        DATE_EDGES,
    ),
    Case(
        "zero date",
        Date(),
        st.sampled_from(["0000-00-00", "2024-00-00", "2024-02-00", "1999-00-00"]),
        {"mariadb": Storage("DATE"), "sqlite": Storage("DATE")},
        ("0000-00-00",),
        dict.fromkeys(("postgresql", "duckdb", "lake"), ONLY_MYSQL),
    ),
    Case(
        "date beyond the calendar",
        Date(),
        st.sampled_from(["infinity", "-infinity", "0044-03-15 BC", "0001-12-31 BC"]),
        {"postgresql": Storage("DATE"), "sqlite": Storage("TEXT")},
        ("infinity", "-infinity", "0001-01-01 BC"),
        dict.fromkeys(("mariadb", "duckdb", "lake"), ONLY_POSTGRESQL),
    ),
    Case(
        "date as timestamp",
        WALL,
        st.dates(),
        {
            "mariadb": Storage("DATE"),
            "postgresql": Storage("DATE"),
            "sqlite": Storage("DATE", store=str),
            "duckdb": Storage("DATE"),
            "lake": Storage(arrow=pa.date32()),
        },
        DATE_EDGES,
    ),
    Case(
        "midnight as date",
        Date(),
        st.dates().map(lambda day: dt.datetime.combine(day, dt.time())),
        {
            "mariadb": Storage("DATETIME(6)"),
            "postgresql": Storage("TIMESTAMP"),
            "sqlite": Storage("TIMESTAMP", store=str),
            "duckdb": Storage("TIMESTAMP"),
            "lake": Storage(arrow=pa.timestamp("us")),
        },
        tuple(dt.datetime.combine(day, dt.time()) for day in DATE_EDGES),
    ),
]


def _milliseconds(time: dt.time) -> dt.time:
    return time.replace(microsecond=time.microsecond // 1000 * 1000)


TIME_EDGES = (
    dt.time(0), dt.time(23, 59, 59, 999_999), dt.time(0, 0, 0, 1), dt.time(12), dt.time(1, 2, 3,
    400_000),
    dt.time(9, 9, 9, 9), dt.time(0, 0, 59, 999_000), dt.time(23, 0),
)  # fmt: skip
SPANS = st.timedeltas(
    dt.timedelta(hours=-838, minutes=-59, seconds=-59),
    dt.timedelta(hours=838, minutes=59, seconds=59),
)


def _span(span: dt.timedelta) -> str:
    """As MySQL reads it; its driver writes negative ones wrongly."""
    micros = abs(span) // dt.timedelta(microseconds=1)
    seconds, fraction = divmod(micros, 1_000_000)
    sign = "-" if span < dt.timedelta() else ""
    return f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}"


def _interval(span: dt.timedelta) -> str:
    return f"{span // dt.timedelta(microseconds=1)} microseconds"


TIMES = [
    Case(
        "time",
        Time(),
        st.times(),
        {
            "mariadb": Storage("TIME(6)", store=str),
            "postgresql": Storage("TIME", store=str),
            "sqlite": Storage("TIME", store=str),
            "duckdb": Storage("TIME", store=str),
            "lake": Storage(arrow=pa.time64("us")),
        },
        TIME_EDGES,
    ),
    Case(
        "time of milliseconds",
        Time(),
        st.times().map(_milliseconds),
        {
            "mariadb": Storage("TIME(3)", store=str),
            "postgresql": Storage("TIME(3)", store=str),
            "sqlite": Storage("TEXT", store=lambda time: time.isoformat(timespec="milliseconds")),
            "duckdb": Storage("TIME", store=str),
        },
        tuple(map(_milliseconds, TIME_EDGES)),
        {"lake": "Spark 4.3 reads times of microseconds and nanoseconds only"},
    ),
    Case(
        "time of seconds",
        Time(),
        st.times().map(lambda time: time.replace(microsecond=0)),
        {
            "mariadb": Storage("TIME", store=str),
            "postgresql": Storage("TIME(0)", store=str),
            "sqlite": Storage("TEXT", store=str),
            "duckdb": Storage("TIME", store=str),
            "lake": Storage(arrow=pa.time64("us")),
        },
        tuple(time.replace(microsecond=0) for time in TIME_EDGES),
    ),
    Case(
        "time beyond a day",
        Time(),
        SPANS,
        {
            "mariadb": Storage("TIME(6)", store=_span),
            "sqlite": Storage("TIME", store=_span),
            "postgresql": Storage("INTERVAL", store=_interval),
        },
        (
            dt.timedelta(), dt.timedelta(microseconds=-1), dt.timedelta(microseconds=1),
            dt.timedelta(hours=24),
            dt.timedelta(hours=99), dt.timedelta(hours=100), dt.timedelta(hours=-100),
            dt.timedelta(seconds=-1),
            dt.timedelta(hours=838, minutes=59, seconds=59), -dt.timedelta(hours=838, minutes=59,
            seconds=59),
            dt.timedelta(days=1, microseconds=-1), dt.timedelta(minutes=-1),
        ),
        dict.fromkeys(("duckdb", "lake"), "a time is one of a day"),
    ),
    Case(
        "the end of a day",
        Time(),
        st.just("24:00:00"),
        {"postgresql": Storage("TIME"), "sqlite": Storage("TIME"), "mariadb": Storage("TIME(6)")},
        (),
        {"duckdb": "24:00:00 is kept by some versions only", "lake": "a time is one of a day"},
    ),
]  # fmt: skip

WALL_EDGES = (
    *EVER, at(1970, 1, 1), at(1969, 12, 31, 23, 59, 59, 999_999), at(2024, 2, 29, 12, 30, 15, 1),
    at(1582, 10, 10, 1), at(1752, 9, 10), at(1900, 1, 1, 0, 0, 0, 100_000), at(2038, 1, 19, 3, 14,
    8),
    at(2024, 3, 31, 2, 30), at(2024, 10, 27, 2, 30), at(2024, 3, 10, 2, 30), at(1883, 11, 18, 12, 3,
    57),
    at(2262, 4, 11, 23, 47, 16, 854_776), at(1677, 9, 21), at(999, 1, 1, 1, 1, 1, 10),
)  # fmt: skip


def _cut(micros: int) -> Callable[[dt.datetime], dt.datetime]:
    return lambda moment: moment.replace(microsecond=moment.microsecond // micros * micros)


def walls(
    name: str, unit: int, mariadb: str, postgresql: str, duckdb: str, lake: pa.DataType | None
) -> Case:
    storages = {
        "mariadb": Storage(mariadb),
        "postgresql": Storage(postgresql),
        "sqlite": Storage("DATETIME", store=str),
        "duckdb": Storage(duckdb),
    }
    absent = {}
    if lake is not None:
        storages["lake"] = Storage(arrow=lake)
    else:
        absent["lake"] = "Parquet has no timestamps of whole seconds"
    values = st.datetimes(*EVER).map(_cut(unit))
    return Case(name, WALL, values, storages, tuple(map(_cut(unit), WALL_EDGES)), absent)


WALL_CLOCKS = [
    walls("timestamp", 1, "DATETIME(6)", "TIMESTAMP", "TIMESTAMP", pa.timestamp("us")),
    walls(
        "timestamp of milliseconds",
        1000,
        "DATETIME(3)",
        "TIMESTAMP(3)",
        "TIMESTAMP_MS",
        pa.timestamp("ms"),
    ),
    walls("timestamp of seconds", 10**6, "DATETIME", "TIMESTAMP(0)", "TIMESTAMP_S", None),
    Case(
        "zero datetime",
        WALL,
        st.sampled_from(["0000-00-00 00:00:00", "2024-00-00 10:00:00", "2024-01-00 00:00:00.5"]),
        {"mariadb": Storage("DATETIME(6)"), "sqlite": Storage("DATETIME")},
        (),
        dict.fromkeys(("postgresql", "duckdb", "lake"), ONLY_MYSQL),
    ),
    Case(
        "zero timestamp",
        INSTANT,
        st.just("0000-00-00 00:00:00"),
        {"mariadb": Storage("TIMESTAMP(6) NULL"), "sqlite": Storage("TIMESTAMPTZ")},
        (),
        dict.fromkeys(("postgresql", "duckdb", "lake"), ONLY_MYSQL),
    ),
    Case(
        "timestamp beyond the calendar",
        WALL,
        st.sampled_from(["infinity", "-infinity", "0044-03-15 12:00:00 BC"]),
        {"postgresql": Storage("TIMESTAMP"), "sqlite": Storage("TEXT")},
        (),
        dict.fromkeys(("mariadb", "duckdb", "lake"), ONLY_POSTGRESQL),
    ),
]

ZONES = tuple(
    map(
        ZoneInfo,
        (
            "UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Pacific/Apia",
            "Australia/Lord_Howe",
            "America/St_Johns", "Asia/Kathmandu", "Pacific/Kiritimati",
        ),
    )
)  # fmt: skip
UNIX_ERA = (
    dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
    dt.datetime(2038, 1, 19, 3, tzinfo=dt.UTC),
)


def _instants(low: dt.datetime, high: dt.datetime) -> st.SearchStrategy[dt.datetime]:
    return st.builds(
        lambda moment, zone: moment.replace(tzinfo=dt.UTC).astimezone(zone),
        st.datetimes(low.replace(tzinfo=None), high.replace(tzinfo=None)),
        st.sampled_from(ZONES),
    )


def _in_unix_era(moment: dt.datetime) -> bool:
    return UNIX_ERA[0] <= moment <= UNIX_ERA[1]


def _utc(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat(" ")


def _iso(moment: dt.datetime) -> str:
    """With the zone's own offset; zones that had seconds in it are written in UTC."""
    offset = moment.utcoffset() or dt.timedelta()
    whole = not offset % dt.timedelta(minutes=1)
    return (moment if whole else moment.astimezone(dt.UTC)).isoformat(" ")


NEW_YORK, BERLIN = ZoneInfo("America/New_York"), ZoneInfo("Europe/Berlin")
INSTANT_EDGES = (
    dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 31, 0, 59, 59, 999_999, tzinfo=dt.UTC).astimezone(BERLIN),
    dt.datetime(2024, 3, 31, 1, 0, tzinfo=dt.UTC).astimezone(BERLIN),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=0),
    dt.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    dt.datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=0),
    dt.datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=1),
    dt.datetime(2024, 3, 10, 3, 30, tzinfo=NEW_YORK),
    dt.datetime(2011, 12, 31, 1, 0, tzinfo=ZoneInfo("Pacific/Apia")),
    dt.datetime(2038, 1, 19, 3, 14, 7, tzinfo=dt.UTC),
    dt.datetime(1, 1, 2, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=dt.UTC),
    dt.datetime(1582, 10, 10, tzinfo=dt.UTC),
    dt.datetime(1883, 11, 18, 17, 0, tzinfo=dt.UTC),
    dt.datetime(1900, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC),
)


def instants(name: str, mariadb_zone: dt.timezone, session_zone: str) -> Case:
    """Instants written by sessions of some zone; how they are read must not depend on it."""

    def wall(moment: dt.datetime) -> str:
        return moment.astimezone(mariadb_zone).replace(tzinfo=None).isoformat(" ")

    offset = dt.datetime(2024, 1, 1, tzinfo=mariadb_zone).strftime("%z")
    ever = tuple(edge.replace(tzinfo=dt.UTC) for edge in (EVER[0] + dt.timedelta(2), EVER[1]))
    return Case(
        name,
        INSTANT,
        _instants(ever[0], ever[1] - dt.timedelta(2)) | _instants(*UNIX_ERA),
        {
            "mariadb": Storage(
                "TIMESTAMP(6) NULL",
                store=wall,
                holds=_in_unix_era,
                before=(f"SET time_zone = '{offset[:3]}:{offset[3:]}'",),
            ),
            "postgresql": Storage(
                "TIMESTAMPTZ", store=_iso, before=(f"SET TIME ZONE '{session_zone}'",)
            ),
            "sqlite": Storage("TIMESTAMPTZ", store=_iso),
            "duckdb": Storage(
                "TIMESTAMPTZ", store=_iso, before=(f"SET TimeZone = '{session_zone}'",)
            ),
            "lake": Storage(arrow=pa.timestamp("us", tz=session_zone)),
        },
        INSTANT_EDGES,
    )


INSTANTS = [
    instants("instant", dt.UTC, "UTC"),
    instants("instant from New York", dt.timezone(dt.timedelta(hours=-5)), "America/New_York"),
    instants(
        "instant from Kolkata", dt.timezone(dt.timedelta(hours=5, minutes=30)), "Asia/Kolkata"
    ),
    Case(
        "instant of seconds",
        INSTANT,
        _instants(*UNIX_ERA).map(lambda moment: moment.replace(microsecond=0)),
        {
            "mariadb": Storage("TIMESTAMP NULL", store=_utc),
            "postgresql": Storage("TIMESTAMPTZ(0)", store=_iso),
            "sqlite": Storage("TEXT", store=_iso),
            "duckdb": Storage("TIMESTAMPTZ", store=_iso),
            "lake": Storage(arrow=pa.timestamp("ms", tz="UTC")),
        },
    ),
]
