"""Cases: text in every character set, padded text, labels, bytes, bits, UUIDs."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pyarrow as pa
from hypothesis import strategies as st

from tests.conformance.cases import Case, Storage
from tests.conformance.numbers import ONLY_MYSQL
from truecopy.model.types import Binary, Bits, Integer, Text, Uuid

NO_CHARSETS = "text is UTF-8 here"
NO_ENUM = "no enumerations"
NO_BITS = "no strings of bits"


characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
any_text = st.text(characters, max_size=40)
TEXT_EDGES = (
    "", " ", "  ", "a", "a ", " a", "NULL", "null", "None", "0", "'", "''", '"', "\\", "\\\\",
    "\\n", "\\N", "\\0",
    "a,b", "a;1", ",", ";", "?", "?61", "%", "%s", "%%", "{}", "a\tb", "a\nb", "a\r\nb", "\r", "é",
    "e\u0301",
    "🙂", "👨‍👩‍👧", "\U0010ffff", "ﬀ", "ß", "İ", "\u200b", "\ufeff", "\u00a0", "\uff46", "漢字", "\u0600ع",
    "a\u0308\u0323",
    "\x01", "\x7f", "\x1a", "\x85", "\u2028", "\ufffd", "\ufffe", "\ud7ff", "\ue000",
    "It's \"x\" \\ y", "x" * 255,
    "é" * 127, "🙂" * 60, "A", "a\u200d", "\x0b", "\x1f,\x1e", "\\x41", "0x41", "$1", ":a", "@a",
    "`", "--", "/* */",
)  # fmt: skip


def _cp1252(text: str) -> bool:
    """What MySQL calls latin1."""
    return all(char in LATIN1 for char in text)


LATIN1 = {chr(code) for code in range(1, 128)} | {chr(code) for code in range(0xA0, 0x100)}
LATIN1 |= set(bytes({*range(0x80, 0xA0)} - {0x81, 0x8D, 0x8F, 0x90, 0x9D}).decode("cp1252"))


def _bmp(text: str) -> bool:
    return all(ord(char) < 0x10000 for char in text)


def charset(name: str, holds: st.SearchStrategy[str], edges: tuple[str, ...]) -> Case:
    """Text of a MariaDB column in a character set of its own, UTF-8 elsewhere."""
    return Case(
        f"text in {name}",
        Text(),
        holds,
        {
            "mariadb": Storage(f"VARCHAR(300) CHARACTER SET {name}"),
            "postgresql": Storage("VARCHAR(300)"),
            "sqlite": Storage("VARCHAR(300)"),
            "duckdb": Storage("VARCHAR(300)"),
            "lake": Storage(arrow=pa.string()),
        },
        edges,
    )


bmp_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0", max_codepoint=0xFFFF),
    max_size=40,
)
latin1_text = st.text(st.sampled_from(sorted(LATIN1)), max_size=40)

MAKE_ENUM = (
    "DO $$ BEGIN CREATE TYPE mood AS ENUM ('1','a','b,c','it''s','é🙂','NULL','x y');"
    " EXCEPTION WHEN duplicate_object THEN NULL; END $$"
)

TEXTS = [
    Case(
        "varchar",
        Text(),
        any_text,
        {
            "mariadb": Storage("VARCHAR(300)"),
            "postgresql": Storage("VARCHAR(300)"),
            "sqlite": Storage("VARCHAR(300)"),
            "duckdb": Storage("VARCHAR(300)"),
            "lake": Storage(arrow=pa.string()),
        },
        TEXT_EDGES,
    ),
    Case(
        "text",
        Text(),
        any_text,
        {
            "mariadb": Storage("LONGTEXT"),
            "postgresql": Storage("TEXT"),
            "sqlite": Storage("TEXT"),
            "duckdb": Storage("TEXT"),
            "lake": Storage(arrow=pa.large_string()),
        },
        (*TEXT_EDGES, "x" * 70_000, "🙂é" * 100_000),
    ),
    Case(
        "text that must be there",
        Text(),
        any_text,
        {
            "mariadb": Storage("TEXT COLLATE utf8mb4_bin"),
            "postgresql": Storage('TEXT COLLATE "C"'),
            "sqlite": Storage("TEXT COLLATE NOCASE"),
            "duckdb": Storage("TEXT COLLATE NOCASE"),
            "lake": Storage(arrow=pa.string_view()),
        },
        TEXT_EDGES,
    ),
    Case(
        "text with NUL",
        Text(),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        {
            "mariadb": Storage("TEXT"),
            "sqlite": Storage("TEXT"),
            "duckdb": Storage("TEXT"),
            "lake": Storage(arrow=pa.string()),
        },
        ("\0", "a\0", "\0a", "a\0b", "\0\0", "é\0🙂"),
        {"postgresql": "text holds no NUL"},
    ),
    charset("latin1", latin1_text, (*filter(_cp1252, TEXT_EDGES), "".join(sorted(LATIN1)))),
    charset("utf8mb3", bmp_text, tuple(filter(_bmp, TEXT_EDGES))),
    charset("ucs2", bmp_text, tuple(filter(_bmp, TEXT_EDGES))),
    charset("utf16", any_text, TEXT_EDGES),
    charset("utf32", any_text, TEXT_EDGES),
    charset(
        "ascii", st.text(st.characters(min_codepoint=1, max_codepoint=127)), ("", "a", " ", "\\")
    ),
    *(
        Case(
            f"char(20){where}",
            Text(),
            text.filter(lambda value: len(value) <= 20),
            {
                "mariadb": Storage(f"CHAR(20){where}", kept=lambda text: text.rstrip(" ")),
                "postgresql": Storage("CHAR(20)", kept=lambda text: text.rstrip(" ")),
                "sqlite": Storage("CHAR(20)", kept=lambda text: text.rstrip(" ")),
                "duckdb": Storage("CHAR(20)"),
                "lake": Storage(arrow=pa.string()),
            },
            edges,
        )
        for where, text, edges in (
            (
                "",
                st.text(characters, max_size=20),
                ("", " ", "a ", " a", "a\t", "a\u00a0", "é 🙂", "x" * 20),
            ),
            (" CHARACTER SET latin1", st.text(st.sampled_from("aé€ "), max_size=20), ("é ", "€")),
        )
    ),
    Case(
        "enum",
        Text(),
        st.sampled_from(["a", "b,c", "it's", "é🙂", "NULL", "x y", "1"]),
        {
            "mariadb": Storage("ENUM('1','a','b,c','it''s','é🙂','NULL','x y')"),
            "postgresql": Storage(
                "mood",
                before=(MAKE_ENUM,),
            ),
            "sqlite": Storage("TEXT"),
            "duckdb": Storage("ENUM('1','a','b,c','it''s','é🙂','NULL','x y')"),
        },
        (),
        {"lake": NO_ENUM},
    ),
    Case(
        "enum in latin1",
        Text(),
        st.sampled_from(["é", "ü", "a"]),
        {"mariadb": Storage("ENUM('é','ü','a') CHARACTER SET latin1")},
        (),
        dict.fromkeys(("postgresql", "sqlite", "duckdb", "lake"), ONLY_MYSQL),
    ),
    Case(
        "set",
        Text(),
        st.sampled_from(["", "a", "a,c", "a,b,c", "b"]),
        {"mariadb": Storage("SET('a','b','c')"), "sqlite": Storage("TEXT")},
        (),
        dict.fromkeys(("postgresql", "duckdb", "lake"), ONLY_MYSQL),
    ),
]

BYTE_EDGES = (
    b"", b"\0", b"\0\0", b"a\0", b"\0a", b"\xff", b"\xff\xfe\xfd", b"abc", b" ", b"a ", b"\\", b"'",
    b"\xc3\xa9",
    b"\xc3", b"\xed\xa0\x80", bytes(range(256)), b"\r\n", b"00", b"\\x00",
)  # fmt: skip

BYTES = [
    Case(
        "bytes",
        Binary(),
        st.binary(max_size=60),
        {
            "mariadb": Storage("VARBINARY(300)"),
            "postgresql": Storage("BYTEA"),
            "sqlite": Storage("BLOB"),
            "duckdb": Storage("BLOB"),
            "lake": Storage(arrow=pa.binary()),
        },
        BYTE_EDGES,
    ),
    Case(
        "long bytes",
        Binary(),
        st.binary(max_size=60),
        {
            "mariadb": Storage("LONGBLOB"),
            "postgresql": Storage("BYTEA"),
            "sqlite": Storage("BLOB"),
            "duckdb": Storage("BLOB"),
            "lake": Storage(arrow=pa.large_binary()),
        },
        (*BYTE_EDGES, bytes(range(256)) * 1000),
    ),
    Case(
        "binary(4)",
        Binary(),
        st.binary(min_size=4, max_size=4),
        {
            "mariadb": Storage("BINARY(4)"),
            "postgresql": Storage("BYTEA"),
            "sqlite": Storage("BINARY(4)"),
            "duckdb": Storage("BLOB"),
            "lake": Storage(arrow=pa.binary(4)),
        },
        (b"\0\0\0\0", b"a\0\0\0", b"   \0", b"\xff\xff\xff\xff", b"ab  "),
    ),
    Case(
        "text as bytes",
        Binary(),
        bmp_text,
        {
            "mariadb": Storage("VARCHAR(300) CHARACTER SET ucs2"),
            "postgresql": Storage("TEXT"),
            "sqlite": Storage("TEXT"),
            "duckdb": Storage("TEXT"),
            "lake": Storage(arrow=pa.string()),
        },
        tuple(filter(_bmp, TEXT_EDGES)),
    ),
]

UUID_EDGES = (
    uuid.UUID(int=0),
    uuid.UUID(int=2**128 - 1),
    uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"),
    uuid.UUID("20202020-2020-2020-2020-202020202020"),
    uuid.UUID("00000000-0000-0000-0000-000000000100"),
)


def _is_standard(value: uuid.UUID) -> bool:
    """MariaDB's type takes no others."""
    return value.int in (0, 2**128 - 1) or (
        value.variant == uuid.RFC_4122 and value.version in range(1, 8)
    )


def _hex_bytes(value: uuid.UUID) -> bytes:
    return value.bytes


UUIDS = [
    Case(
        "uuid",
        Uuid(),
        st.uuids(version=1) | st.uuids(version=4) | st.uuids(),
        {
            "mariadb": Storage("UUID", store=str, holds=_is_standard),
            "postgresql": Storage("UUID"),
            "sqlite": Storage("UUID", store=str),
            "duckdb": Storage("UUID", store=str),
            "lake": Storage(arrow=pa.string(), store=str),
        },
        UUID_EDGES,
    ),
    Case(
        "uuid in bytes",
        Uuid(),
        st.uuids(),
        {
            "mariadb": Storage("BINARY(16)", store=_hex_bytes),
            "postgresql": Storage("BYTEA", store=_hex_bytes),
            "sqlite": Storage("BLOB", store=_hex_bytes),
            "duckdb": Storage("BLOB", store=_hex_bytes),
            "lake": Storage(arrow=pa.binary(16), store=_hex_bytes),
        },
        UUID_EDGES,
    ),
    Case(
        "uuid in text",
        Uuid(),
        st.uuids().map(lambda value: str(value).upper()) | any_text,
        {
            "mariadb": Storage("VARCHAR(300)"),
            "postgresql": Storage("TEXT"),
            "sqlite": Storage("TEXT"),
            "duckdb": Storage("TEXT"),
            "lake": Storage(arrow=pa.string()),
        },
        ("", "ABC", "not a uuid", "ÀÉ", "00112233-4455-6677-8899-AABBCCDDEEFF"),
    ),
    Case(
        "bytes that are no uuid",
        Uuid(),
        st.binary(max_size=15) | st.binary(min_size=17, max_size=20),
        {
            "mariadb": Storage("VARBINARY(30)"),
            "postgresql": Storage("BYTEA"),
            "sqlite": Storage("BLOB"),
            "duckdb": Storage("BLOB"),
            "lake": Storage(arrow=pa.binary()),
        },
        (b"", b"\xff", b"abc", b"\x80" * 17),
    ),
]


def _digits(width: int) -> st.SearchStrategy[str]:
    return st.integers(0, 2**width - 1).map(lambda number: format(number, f"0{width}b"))


def _as_digits(width: int) -> Callable[[int], str]:
    return lambda number: format(number, f"0{width}b")


def bits(width: int, agreed: int | None) -> Case:
    return Case(
        f"bit({width}) agreed as {agreed or 'any width'}",
        Bits(agreed),
        _digits(width),
        {
            "mariadb": Storage(f"BIT({width})", store=lambda text: int(text, 2)),
            "postgresql": Storage(f"BIT({width})"),
            "sqlite": Storage("TEXT"),
            "duckdb": Storage("BIT", place="CAST({} AS BIT)"),
        },
        ("0" * width, "1" * width, "1".rjust(width, "0"), "1".ljust(width, "0")),
        {"lake": NO_BITS},
    )


BITS = [
    bits(8, 8),
    bits(8, None),
    bits(1, 1),
    bits(64, 64),
    Case(
        "varying bits",
        Bits(None),
        st.text(st.sampled_from("01"), max_size=70),
        {
            "postgresql": Storage("BIT VARYING(100)"),
            "sqlite": Storage("TEXT"),
            "duckdb": Storage("BIT", place="CAST({} AS BIT)", holds=bool),
        },
        ("", "0", "00", "1", "01"),
        {"mariadb": "widths are fixed", "lake": NO_BITS},
    ),
    *(
        Case(
            f"bit({width}) as integer",
            Integer(),
            st.integers(0, 2**width - 1),
            {
                "mariadb": Storage(f"BIT({width})"),
                "postgresql": Storage(f"BIT({width})", store=_as_digits(width)),
            },
            (0, 1, 2**width - 1, 2 ** (width - 1)),
            {
                "lake": NO_BITS,
                "sqlite": "digits of text are those of a decimal number",
                "duckdb": "its own strings of bits have no number type beside them",
            },
        )
        for width in (8, 63, 64)
    ),
]
