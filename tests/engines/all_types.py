"""A table of everything that an engine has and every other engine can hold.

Each column has its declaration and three values, written as its engine's own SQL reads them; the
fourth row is NULL in all of them.
"""

from __future__ import annotations

from tests.engines.places import Place

HOSTILE = "tab\tnew\nline\rback\\slash \\N \\t 'q' \"d\" `b` %s %% {} \U0001f600 \u00e9 \u200b end"
BYTES = bytes(range(256)).hex()
LARGEST, SMALLEST = "1.7976931348623157e308", "5e-324"
UUIDS = (
    "'123e4567-e89b-12d3-a456-426614174000'",
    "'00000000-0000-0000-0000-000000000000'",
    "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
)
DOCUMENT = '\'{"b": 1.50, "a": [null, "x"], "": {"z": true}}\''
EXACT = ("-1234.00000000000001", "0", "0.00000000000001")

COLUMNS: dict[str, dict[str, tuple[str, str, str, str]]] = {
    "mariadb": {
        "tiny": ("TINYINT(1)", "1", "0", "-128"),
        "small": ("SMALLINT UNSIGNED", "65535", "0", "1"),
        "medium": ("MEDIUMINT", "-8388608", "8388607", "0"),
        "u": ("INT UNSIGNED", "4294967295", "0", "1"),
        "z": ("INT(8) UNSIGNED ZEROFILL", "42", "0", "1"),
        "big": ("BIGINT", "-9223372036854775808", "9223372036854775807", "0"),
        "ubig": ("BIGINT UNSIGNED", "18446744073709551615", "9223372036854775808", "1"),
        "y": ("YEAR", "2155", "1901", "2000"),
        "d": ("DECIMAL(18,14)", *EXACT),
        "d2": ("DECIMAL(5,0)", "99999", "-99999", "0"),
        "f": ("FLOAT", "0.1", "-0.0", "3.4e38"),
        "x": ("DOUBLE", LARGEST, "-0e0", SMALLEST),
        "c": ("CHAR(10)", "'pad  '", "''", "'a'"),
        "v": ("VARCHAR(100)", "{hostile}", "'NULL'", "'\\\\N'"),
        "txt": ("TEXT", "''", "'a,b;c'", "'trailing  '"),
        "latin": ("VARCHAR(40) CHARACTER SET latin1", "'caf\u00e9 \u20ac'", "''", "'z'"),
        "three": ("VARCHAR(40) CHARACTER SET utf8mb3", "'na\u00efve'", "'\u4e2d'", "''"),
        "bin": ("BINARY(16)", "X'00ff'", "''", "X'0102030405060708090a0b0c0d0e0f10'"),
        "vb": ("VARBINARY(300)", f"X'{BYTES}'", "''", "X'5c4e'"),
        "bl": ("BLOB", "X'0a'", "''", "X'00'"),
        "e": ("ENUM('1','a b','0')", "'1'", "'a b'", "'0'"),
        "s": ("SET('x','y')", "'x,y'", "''", "'y'"),
        "b8": ("BIT(8)", "b'00000101'", "b'0'", "b'11111111'"),
        "b64": ("BIT(64)", "~0", "0", "1"),
        "j": ("JSON", DOCUMENT, "'[]'", "'{\"n\": 1234567890.25}'"),
        "da": ("DATE", "'9999-12-31'", "'1000-01-01'", "'2024-02-29'"),
        "ti": ("TIME(6)", "'-838:59:58.000001'", "'00:00:00'", "'838:59:59'"),
        "t0": ("TIME", "'12:00:00'", "'-00:00:01'", "'00:00:00'"),
        "dt": ("DATETIME", "'2024-02-29 23:59:59'", "'1000-01-01'", "'1970-01-01'"),
        "dt6": ("DATETIME(6)", "'0001-01-01 00:00:00.000001'", "'2024-01-01'", "'1970-01-01'"),
        "ts": (
            "TIMESTAMP(6) NULL",
            "'2001-09-09 01:46:40.5'",
            "'2038-01-19 03:14:07.999999'",
            "'1970-01-01 00:00:01'",
        ),
        "uu": ("UUID", *UUIDS),
        "ip": ("INET6", "'2001:db8::1'", "'::'", "'::ffff:1.2.3.4'"),
    },
    "postgresql": {
        "small": ("smallint", "-32768", "0", "32767"),
        "i": ("integer", "-2147483648", "0", "2147483647"),
        "o": ("boolean", "true", "false", "true"),
        "d": ("numeric(18,14)", *EXACT),
        "n": ("numeric(30,0)", "123456789012345678901234567890", "0", "-1"),
        "f": ("real", "0.1", "0", "3.4e38"),
        "x": ("double precision", LARGEST, "-0e0", SMALLEST),
        "c": ("char(10)", "'pad  '", "''", "'a'"),
        "v": ("varchar(100)", "{hostile}", "'NULL'", "'\\N'"),
        "txt": ("text", "''", "'a,b;c'", "'trailing  '"),
        "m": ("mood", "'it''s'", "'sad'", "'1'"),
        "bin": ("bytea", f"'\\x{BYTES}'", "''", "'\\x5c4e'"),
        "b8": ("bit(8)", "B'00000101'", "B'00000000'", "B'11111111'"),
        "j": ("jsonb", DOCUMENT, "'[]'", "'12345678901234567890.5'"),
        "j2": ("json", "'[1,  2]'", "'{}'", "'null'"),
        "da": ("date", "'9999-12-31'", "'0001-01-01'", "'2024-02-29'"),
        "ti": ("time", "'23:59:59.999999'", "'00:00'", "'12:00'"),
        "dt": (
            "timestamp",
            "'0001-01-01 00:00:00.000001'",
            "'2024-01-01'",
            "'9999-12-31 23:59:59.999999'",
        ),
        "dt3": ("timestamp(3)", "'2024-02-29 23:59:59.123'", "'2024-01-01'", "'1970-01-01'"),
        "ts": (
            "timestamptz",
            "'2001-09-09 01:46:40.5+00'",
            "'2038-01-19 03:14:07.999999+00'",
            "'1970-01-01 02:00:01+02'",
        ),
        "uu": ("uuid", *UUIDS),
        "ip": ("inet", "'10.0.0.0/8'", "'::1'", "'1.2.3.4'"),
    },
    "sqlite": {
        "i": ("BIGINT", "-9223372036854775808", "0", "9223372036854775807"),
        "o": ("BOOLEAN", "1", "0", "1"),
        "d": ("DECIMAL(12,4)", "-1234.5", "0", "0.0001"),
        "n": ("TEXT", "'18446744073709551615'", "''", "'1.50'"),
        "x": ("DOUBLE", LARGEST, "-0e0", SMALLEST),
        "c": ("CHAR(10)", "'pad  '", "''", "'a'"),
        "v": ("VARCHAR(100)", "{hostile}", "'NULL'", "'\\N'"),
        "bin": ("BLOB", f"X'{BYTES}'", "X''", "X'5C4E'"),
        "b8": ("BIT(8)", "5", "0", "255"),
        "j": ("JSON", DOCUMENT, "'[]'", "'12.5'"),
        "da": ("DATE", "'9999-12-31'", "'1000-01-01'", "'2024-02-29'"),
        "ti": ("TIME", "'23:59:59.999999'", "'00:00'", "'12:00:01'"),
        "dt": ("TIMESTAMP", "'2024-02-29 23:59:59.123'", "'2024-01-01'", "'1970-01-01'"),
        "ts": (
            "TIMESTAMPTZ",
            "'2001-09-09 01:46:40.5'",
            "'2038-01-19 03:14:07'",
            "'1970-01-01 00:00:01'",
        ),
        "uu": ("UUID", *UUIDS),
        "untyped": ("", "'text'", "''", "'x'"),
    },
    "duckdb": {
        "tiny": ("TINYINT", "-128", "0", "127"),
        "ut": ("UTINYINT", "255", "0", "1"),
        "us": ("USMALLINT", "65535", "0", "1"),
        "i": ("INTEGER", "-2147483648", "0", "2147483647"),
        "ui": ("UINTEGER", "4294967295", "0", "1"),
        "ub": ("UBIGINT", "18446744073709551615", "0", "9223372036854775808"),
        "h": ("HUGEINT", "-170141183460469231731687303715884105728", "0", "1"),
        "o": ("BOOLEAN", "true", "false", "true"),
        "d": ("DECIMAL(18,14)", *EXACT),
        "n": ("DECIMAL(38,0)", "12345678901234567890123456789012345678", "0", "-1"),
        "f": ("FLOAT", "0.1", "0", "3.4e38"),
        "x": ("DOUBLE", LARGEST, "-0e0", SMALLEST),
        "v": ("VARCHAR", "{hostile}", "'NULL'", "'\\N'"),
        "txt": ("VARCHAR", "''", "'a,b;c'", "'trailing  '"),
        "e": ("ENUM ('a b', '1')", "'a b'", "'1'", "'1'"),
        "bin": ("BLOB", f"from_hex('{BYTES}')", "from_hex('')", "from_hex('5C4E')"),
        "j": ("JSON", DOCUMENT, "'[]'", "'12.5'"),
        "da": ("DATE", "'9999-12-31'", "'0001-01-01'", "'2024-02-29'"),
        "ti": ("TIME", "'23:59:59.999999'", "'00:00:00'", "'12:00:00'"),
        "dt": ("TIMESTAMP", "'0001-01-01 00:00:00.000001'", "'2024-01-01'", "'1970-01-01'"),
        "ts": (
            "TIMESTAMPTZ",
            "'2001-09-09 01:46:40.5+00'",
            "'2038-01-19 03:14:07+00'",
            "'1970-01-01 00:00:01+00'",
        ),
        "uu": ("UUID", *UUIDS),
    },
}
COLUMNS["mysql"] = {
    name: spec for name, spec in COLUMNS["mariadb"].items() if spec[0] not in ("UUID", "INET6")
}
_KEYS = {
    "mariadb": ("INT NOT NULL PRIMARY KEY", -5, 2**31 - 1, "INT AS (id) STORED"),
    "postgresql": (
        "bigint PRIMARY KEY",
        -(2**63),
        2**63 - 1,
        "bigint GENERATED ALWAYS AS (id) STORED",
    ),
    "sqlite": ("INTEGER PRIMARY KEY", -(2**63) + 1, 2**63 - 1, "BIGINT AS (id) STORED"),
    "duckdb": ("BIGINT PRIMARY KEY", -(2**63), 2**63 - 1, "BIGINT"),
}
_KEYS["mysql"] = _KEYS["mariadb"]
ROWS = 4


def fill(place: Place, name: str = "t") -> None:
    """Makes the table and its four rows."""
    columns = COLUMNS[place.engine]
    key, low, high, computed = _KEYS[place.engine]
    declared = [f"id {key}", *(f"{column} {spec[0]}" for column, spec in columns.items())]
    if place.engine == "postgresql":
        place.execute("CREATE TYPE mood AS ENUM ('sad', 'it''s', '1')")
    place.execute(f"CREATE TABLE {name} ({', '.join(declared)}, g {computed})")
    names = ", ".join(["id", *columns])
    for number, row in enumerate((low, 0, 7), start=1):
        values = [str(row), *(spec[number] for spec in columns.values())]
        hostile = _quoted(place.engine, HOSTILE)
        listed = ", ".join(value.replace("{hostile}", hostile) for value in values)
        place.execute(f"INSERT INTO {name} ({names}) VALUES ({listed})")
    place.execute(f"INSERT INTO {name} (id) VALUES ({high})")


def _quoted(engine: str, text: str) -> str:
    plain = text.replace("'", "''")
    return (
        f"'{plain.replace(chr(92), chr(92) * 2)}'"
        if engine in ("mariadb", "mysql")
        else f"'{plain}'"
    )
