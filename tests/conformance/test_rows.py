"""Whole rows: joined columns are told apart by every engine, and keys find their rows again."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from tests.conformance.cases import Case, Storage
from tests.conformance.check import compare, generated, named, reference
from tests.conformance.engines import Engine
from tests.conformance.numbers import DECIMALS, WHOLE_NUMBERS
from tests.conformance.texts import BYTES, TEXTS, UUIDS
from tests.conformance.times import DATES, INSTANTS, WALL_CLOCKS
from truecopy.engines.protocols import DatabaseSession, Frames, Introspects, Writes
from truecopy.model.fingerprint import digest_of
from truecopy.model.relation import WHOLE, Buckets, Chunk, Relation
from truecopy.model.text import canonical_text
from truecopy.model.types import Text, keeps_order

HARD = ("", "a", "a,b", ",", ";", ";1", ",;0", "0", "NULL", "é", "e\u0301", "🙂", " ", "1,1", "?")
PAIRS = tuple(f"{a}\x1f{b}" for a, b in product(HARD, repeat=2))


def _split(pair: str) -> tuple[str, str]:
    left, _, right = pair.partition("\x1f")
    return left, right


def _named(cases: Sequence[Case], *names: str) -> list[Case]:
    return [case for case in cases if case.name in names]


KEYS = [
    *_named(WHOLE_NUMBERS, "bigint", "unsigned bigint", "unsigned int", "hugeint", "zerofill"),
    *_named(DECIMALS, "decimal(10,2)", "decimal(10,2) at scale 5", "decimal(38,10)"),
    *_named(DECIMALS, "bigint at scale 2", "unsigned bigint as decimal(0)"),
    *_named(DATES, "date"),
    *_named(WALL_CLOCKS, "timestamp", "timestamp of seconds"),
    *_named(INSTANTS, "instant", "instant from New York"),
    *_named(TEXTS, "varchar", "text in latin1", "char(20)", "enum"),
    *_named(BYTES, "bytes", "binary(4)"),
    *_named(UUIDS, "uuid", "uuid in bytes", "uuid in text"),
]


@pytest.fixture
def pairs(engine: Engine) -> Case:
    """Two texts side by side: `id` and `v` hold the key and one text, the rest is done by hand."""
    text = {
        "mariadb": Storage("TEXT"),
        "postgresql": Storage("TEXT"),
        "sqlite": Storage("TEXT"),
        "duckdb": Storage("TEXT"),
        "lake": Storage(arrow=pa.string()),
    }
    return Case("two texts", Text(), st.just(""), text, PAIRS)


def test_columns_that_look_alike_when_joined(engine: Engine, pairs: Case) -> None:
    """`(v, v)` under different splits: the text of a pair is read as two columns by Truecopy."""
    compare(engine, pairs, [_split(pair)[0] for pair in PAIRS])
    with engine.session() as session:
        relation = engine.relation(session, "t", Text())
        doubled = Relation(
            relation.endpoint,
            relation.tables,
            (*relation.columns, relation.columns[1]),
            (*relation.types, Text()),
            1,
        )
        texts = {str(key): _split(pair)[0] for key, pair in enumerate(PAIRS, start=-2)}
        wanted = {k: reference((k, text, text), doubled.types) for k, text in texts.items()}
        if isinstance(session, Frames):
            found = session.fingerprint_frame(doubled).toArrow()
        else:
            found = cast(DatabaseSession, session).fingerprints(doubled, WHOLE)
        assert dict(zip(*(c.to_pylist() for c in found.columns), strict=True)) == wanted


@named([*_named(WHOLE_NUMBERS, "bigint"), *_named(TEXTS, "varchar"), *_named(BYTES, "bytes")])
@pytest.mark.parametrize("digits", [1, 2, 4])
def test_buckets_hold_every_row_once(engine: Engine, case: Case, digits: int) -> None:
    values = [None, *case.edges]
    compare(engine, case, values)
    with engine.session() as session:
        if isinstance(session, Frames):
            pytest.skip("Spark makes the buckets of a lake: see tests/verify")
        database = cast(DatabaseSession, session)
        relation = engine.relation(session, "t", case.agreed)
        prints = database.fingerprints(relation, WHOLE).column("fingerprint").to_pylist()
        expected: dict[int, list[int]] = {}
        for value in prints:
            expected.setdefault(value >> (60 - 4 * digits), []).append(value)
        found = database.bucket_digests(relation, WHOLE, digits)
        assert found == {bucket: digest_of(values) for bucket, values in expected.items()}
        chosen = tuple(sorted(expected))[::2]
        some = database.fingerprints(relation, WHOLE, Buckets(digits, chosen))
        assert sorted(some.column("fingerprint").to_pylist()) == sorted(
            value for bucket in chosen for value in expected[bucket]
        )


@named(KEYS)
def test_keys_find_their_rows(engine: Engine, case: Case) -> None:
    """By their canonical text, one by one, and in ranges that neither overlap nor leave gaps."""
    storage = engine.storage(case)
    if storage is None:
        pytest.skip(case.absent.get(engine.name, "no such column"))
    values = _distinct(case, [*case.edges, *generated(case)], storage)
    engine.make("k", storage, list(enumerate(values)))
    with engine.session() as session:
        if isinstance(session, Frames):
            pytest.skip("Spark joins the keys of a lake: see tests/verify")
        database = cast(DatabaseSession, session)
        by_id = engine.relation(session, "k", case.agreed)
        relation = Relation(by_id.endpoint, by_id.tables, by_id.columns[::-1], by_id.types[::-1], 1)
        texts = [canonical_text(storage.kept(value), case.agreed) for value in values]
        keys = [(text,) for text in texts if text is not None]
        found = database.rows_by_key(relation, keys)
        rows = dict(zip(*(column.to_pylist() for column in found.columns), strict=True))
        assert {key: rows.get(key) for key in texts} == {
            text: str(number) for number, text in enumerate(texts)
        }
        if relation.key[0].order is not None and keeps_order(relation.key[0].type, case.agreed):
            whole = database.digest(relation, WHOLE)
            cuts = database.boundaries(relation, WHOLE, 7)
            ends = [None, *cuts, None]
            chunks = [Chunk(a, b) for a, b in pairwise(ends)]
            parts = [database.digest(relation, chunk) for chunk in chunks]
            assert sum(part.count for part in parts) == whole.count == len(texts)
            assert sum(part.total for part in parts) == whole.total
            # Keys that differ as texts may be equal under a collation, and are never cut apart.
            if not str(relation.key[0].order).startswith("mysql:"):
                assert all(0 < part.count <= 8 for part in parts)


@pytest.mark.timeout(30)
def test_a_chosen_key_that_repeats_can_still_be_cut(engine: Engine) -> None:
    """More rows of one key than a range should hold: no end of cutting at the same place."""
    (case,) = _named(WHOLE_NUMBERS, "bigint")
    storage = engine.storage(case)
    assert storage is not None
    engine.make("r", storage, [(number, min(number, 50) // 25) for number in range(100)])
    with engine.session() as session:
        if isinstance(session, Frames):
            pytest.skip("Spark cuts a lake by its files")
        by_id = engine.relation(session, "r", case.agreed)
        relation = Relation(by_id.endpoint, by_id.tables, by_id.columns[::-1], by_id.types[::-1], 1)
        cuts = cast(DatabaseSession, session).boundaries(relation, WHOLE, 7)
        assert cuts == sorted(set(cuts))


@named(KEYS)
def test_rows_are_written_from_their_texts(engine: Engine, case: Case) -> None:
    """A repair puts a canonical text into a column, and reading gives the same text again."""
    storage = engine.storage(case)
    if storage is None:
        pytest.skip(case.absent.get(engine.name, "no such column"))
    values = [v for v in (*case.edges, *generated(case)[:60]) if storage.holds(v)]
    engine.make("w", storage, [(-1, None)])
    with engine.session() as session:
        if not isinstance(session, Writes):
            pytest.skip("no repairs are written to a lake")
        relation = engine.relation(session, "w", case.agreed)
        texts = [canonical_text(storage.kept(value), case.agreed) for value in values]
        rows = [(str(number), text) for number, text in enumerate(texts)]
        session.apply([session.insert(relation, row) for row in rows])
        session.apply([session.update(relation, ("-1", texts[0]), [1])])
    read = engine.read("w", case.agreed)[0]
    assert read == {-1: texts[0], **dict(enumerate(texts))}


STRANGE = (
    'we"ird',
    "back`tick",
    "per%cent",
    "per%s",
    "quest?ion",
    "it's",
    "spa ce",
    "SELECT",
    "ünï漢",
)


@pytest.mark.parametrize("name", STRANGE)
def test_names_of_any_kind(engine: Engine, name: str) -> None:
    """Tables and columns by names that SQL and drivers would read as something else."""
    if engine.name == "lake":
        pytest.skip("a lake's tables are folders: see tests/engines/test_lake.py")
    quote = "`" if engine.name in ("mariadb", "mysql") else '"'
    quoted = quote + name.replace(quote, quote * 2) + quote
    engine.execute(
        f"DROP TABLE IF EXISTS {quoted}",
        f"CREATE TABLE {quoted} ({quoted} INTEGER PRIMARY KEY, v INTEGER)",
        f"INSERT INTO {quoted} VALUES (1, 10), (2, NULL), (3, 30)",
    )
    with engine.session() as session:
        found = cast(Introspects, session).find(name)
        assert found is not None
        assert found in cast(Introspects, session).tables()
        table = cast(Introspects, session).describe(found)
        types = tuple(column.type for column in table.columns)
        relation = Relation(session.endpoint, (found,), table.columns, types, 1)
        database = cast(DatabaseSession, session)
        expected = [("1", "10"), ("2", None), ("3", "30")]
        assert _pairs(database.rows(relation, WHOLE)) == expected
        assert _pairs(database.rows(relation, Chunk(("2",), ("3",)))) == [("2", None)]
        assert _pairs(database.rows_by_key(relation, [("1",), ("3",)])) == expected[::2]
        wanted = digest_of([reference(row, types) for row in expected])
        assert database.digest(relation, WHOLE) == wanted
        writes = cast(Writes, session)
        writes.apply([writes.update(relation, ("2", "20"), [1])])
        assert ("2", "20") in _pairs(database.rows(relation, WHOLE))


def _pairs(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _distinct(case: Case, values: Sequence[Any], storage: Storage) -> list[Any]:
    """One value for each canonical text."""
    found: dict[str | None, Any] = {}
    for value in values:
        if storage.holds(value):
            found.setdefault(canonical_text(storage.kept(value), case.agreed), value)
    return list(found.values())
