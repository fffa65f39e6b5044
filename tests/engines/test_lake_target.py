"""Lakes that tasks write: every value, transactions that are whole or nothing, ends between any two steps."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.engines.all_types import ROWS, fill
from tests.engines.places import (
    ENGINES,
    Place,
    described,
    held,
    load,
    make,
    matched,
    open_place,
    own_relation,
    texts,
)
from tests.transfer.lakes import FORMATS, rows, url
from truecopy.engines import connect, lake_ledger
from truecopy.engines.lines import transaction
from truecopy.engines.loading import RowRefused
from truecopy.engines.protocols import Statement
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.relation import WHOLE, Chunk, Relation
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Integer, Text
from truecopy.transfer.ledger import Ledger, Overtaken
from truecopy.verify.matching import match_tables
from truecopy.verify.options import Options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Open = Callable[[str, str], Place]
PAIR = Table(
    TableName(None, "pairs"),
    (Column("id", Integer(), "int", nullable=False), Column("v", Text(), "text")),
    keys=(("id",),),
    primary=("id",),
    unique=(("id",),),
    engine="mariadb",
)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Open:
    return lambda engine, name: open_place(engine, request, name)


def opened(folder: Path, form: str) -> Any:
    return connect(parse_endpoint(url(folder, form)))


def made(session: Any, table: Table = PAIR) -> Relation:
    return own_relation(session, make(session, table, table.name.table))


def found(session: Any) -> Relation:
    return own_relation(session, described(session, "pairs"))


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("source", ENGINES)
def test_every_value_arrives(
    spark: SparkSession, place: Open, tmp_path: Path, source: str, form: str
) -> None:
    here = place(source, "source")
    fill(here)
    lake = tmp_path / "lake"
    lake.mkdir()
    with here.session() as first, opened(lake, form) as second:
        table = described(first, "t")
        pair = matched(first, table, second, make(second, table, "copied"))
        assert not [f for f in pair.findings if f.fatal], pair.findings
        given = first.rows(pair.source, WHOLE)
        second.begin()
        assert second.load(pair.target, given) == ROWS
        inside = second.digest(pair.target, WHOLE)
        second.commit()
        assert held(second, pair.target) == held(first, pair.source)
        assert inside == first.digest(pair.source, WHOLE) == second.digest(pair.target, WHOLE)
        second.begin()
        second.delete_keys(pair.target, pa.table({"k0": given.column("c0")}))
        second.load(pair.target, given)
        second.commit()
        assert second.digest(pair.target, WHOLE) == inside
        with connect(parse_endpoint(f"lake:///{lake}")) as reader:
            seen: Any = reader
            other = match_tables(
                first.endpoint, (table,), reader.endpoint, described(seen, "copied"), Options()
            )
            frame = seen.row_frame(other.target).toArrow()
            read = sorted(zip(*(c.to_pylist() for c in frame.columns), strict=True), key=str)
            assert read == held(first, other.source)


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_not_committed_is_not_seen(tmp_path: Path, form: str) -> None:
    with opened(tmp_path, form) as session, opened(tmp_path, form) as reader:
        relation = made(session)
        load(session, relation, texts(("1", "a"), ("2", "b")))
        session.begin()
        session.delete_keys(relation, pa.table({"k0": ["1", "7"]}))
        session.load(relation, texts(("3", "c")))
        assert held(reader, relation) == [("1", "a"), ("2", "b")]
        session.rollback()
        assert held(session, relation) == [("1", "a"), ("2", "b")]
        session.begin()
        session.delete_keys(relation, pa.table({"k0": ["1", "7", "2"]}))
        session.load(relation, texts(("3", "c"), ("2", "B")))
        session.commit()
        assert held(reader, relation) == [("2", "B"), ("3", "c")]
        session.begin()
        session.execute(Statement('/* truecopy x */ DELETE FROM "pairs"'))
        session.load(relation, texts(("9", "z")))
        session.commit()
        assert held(reader, relation) == [("9", "z")]
        assert reader.digest(relation, Chunk(("9",), None)).count == 1
        assert rows(tmp_path, form, "pairs", "id") == {(9, "z"): 1}
        session.begin()
        session.execute(Statement('DELETE FROM "pairs"'))
        session.commit()
        assert held(reader, relation) == []
        assert rows(tmp_path, form, "pairs", "id") == {}
        assert not list((tmp_path / "_truecopy" / "staged").iterdir())


@pytest.mark.parametrize("form", FORMATS)
def test_columns_that_come_later(spark: SparkSession, tmp_path: Path, form: str) -> None:
    with opened(tmp_path, form) as session:
        relation = made(session)
        load(session, relation, texts(("1", "a")))
        more = Column("n", Integer(), "bigint unsigned")
        before = (tmp_path / "pairs" / "_truecopy.json").read_text(encoding="utf-8")
        for _ in range(2):
            for statement in session.add_columns(PAIR, [more]):
                session.begin()
                session.execute(Statement(statement))
                session.commit()
            after = (tmp_path / "pairs" / "_truecopy.json").read_text(encoding="utf-8")
            # As by a run that ended between the table and its description.
            (tmp_path / "pairs" / "_truecopy.json").write_text(before, encoding="utf-8")
        (tmp_path / "pairs" / "_truecopy.json").write_text(after, encoding="utf-8")
        wide = found(session)
        session.begin()
        session.delete_keys(wide, pa.table({"k0": ["2"]}))
        session.load(wide, texts(("2", "b", str(2**64 - 1))))
        session.commit()
        assert held(session, wide) == [("1", "a", None), ("2", "b", str(2**64 - 1))]
    with connect(parse_endpoint(f"lake:///{tmp_path}")) as reader:
        seen: Any = reader
        frame = seen.row_frame(replace(wide, endpoint=reader.endpoint)).toArrow()
        assert sorted(map(tuple, (r.values() for r in frame.to_pylist()))) == held_texts(wide, form)


def held_texts(relation: Relation, form: str) -> list[tuple[str | None, ...]]:
    with connect(relation.endpoint) as session:
        return held(session, relation)


@pytest.mark.parametrize("form", FORMATS)
def test_rows_and_lines_are_one_step(tmp_path: Path, form: str) -> None:
    """A late attempt, whose rows are ready, finds its line moved, and nothing of it is seen."""
    with opened(tmp_path, form) as late, opened(tmp_path, form) as quick:
        relation = made(quick)
        ledger = Ledger(quick, "move")
        ledger.create()
        epoch = ledger.claim({}).epoch
        ledger.open_part("s/t/pairs", "0-1-1", 0, epoch)
        late.begin()
        assert Ledger(late, "move").advance("s/t/pairs", "0-1-1", "0-1-2", 7, epoch)
        late.delete_keys(relation, pa.table({"k0": ["1"]}))
        late.load(relation, texts(("1", "late")))
        with transaction(quick):
            assert ledger.advance("s/t/pairs", "0-1-1", "0-1-2", 7, epoch)
            quick.delete_keys(relation, pa.table({"k0": ["1"]}))
            quick.load(relation, texts(("1", "quick")))
        with pytest.raises(CannotFinish, match="another attempt has moved on"):
            late.commit()
        assert held(late, relation) == [("1", "quick")]
        late.begin()
        assert not Ledger(late, "move").advance("s/t/pairs", "0-1-1", "0-1-2", 7, epoch)
        late.rollback()
        late.begin()
        assert Ledger(late, "move").advance("s/t/pairs", "0-1-2", "0-1-3", 7, epoch)
        late.load(relation, texts(("2", "of an old driver")))
        ledger.claim({})
        with pytest.raises(CannotFinish, match="another attempt"):
            late.commit()
        late.begin()
        with pytest.raises(Overtaken):
            Ledger(late, "move").advance("s/t/pairs", "0-1-2", "0-1-3", 7, epoch)
        late.rollback()
        assert held(quick, relation) == [("1", "quick")]


ENDS = {
    "staged": ("lake_ledger.LakeLedger.locked", "before"),
    "decided": ("lake_target.LakeTarget._finish", "before"),
    "moved": ("lake_delta.DeltaTable.create_write_transaction", "before"),
    "merged": ("lake_delta.DeltaTable.merge", "before"),
    "published": ("lake_ledger.LakeLedger.forget", "before"),
    "forgotten": ("lake_ledger.LakeLedger.forget", "after"),
}
WRITE = """
    import os, sys
    import pyarrow as pa
    from truecopy.engines import connect, lake_delta, lake_ledger, lake_target
    from truecopy.model.endpoint import parse_endpoint
    from truecopy.transfer.ledger import Ledger
    from truecopy.engines.lines import transaction
    from tests.engines.test_lake_target import found
    from tests.engines.places import texts

    def end(place, when):
        owner, name = place.rsplit(".", 1)
        module, _, kind = owner.partition(".")
        holder = getattr(globals()[module], kind)
        inner = getattr(holder, name)
        def ending(*given, **more):
            if when == "before":
                os._exit(9)
            inner(*given, **more)
            os._exit(9)
        setattr(holder, name, ending)

    session = connect(parse_endpoint(sys.argv[1]))
    relation = found(session)
    ledger = Ledger(session, "move")
    epoch = ledger.find().epoch
    if len(sys.argv) > 2:
        end(*sys.argv[2:4])
    with transaction(session):
        if ledger.advance("s/t/pairs", "0-1-1", "0-1-2", 7, epoch):
            session.delete_keys(relation, pa.table({"k0": ["1", "2"]}))
            session.load(relation, texts(("1", "new"), ("3", "c")))
    with transaction(session):
        if ledger.advance("s/t/heap", "0-1-1", "0-1-2", 7, epoch):
            from tests.engines.places import described, own_relation
            session.load(own_relation(session, described(session, "heap")), texts(("5", "e")))
"""


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("form", FORMATS)
def test_a_process_may_end_between_any_two_steps(tmp_path: Path, form: str, end: str) -> None:
    with opened(tmp_path, form) as session:
        relation = made(session)
        made(session, replace(PAIR, name=TableName(None, "heap"), keys=(), primary=(), unique=()))
        load(session, relation, texts(("1", "a"), ("2", "b")))
        ledger = Ledger(session, "move")
        ledger.create()
        epoch = ledger.claim({}).epoch
        ledger.open_part("s/t/pairs", "0-1-1", 0, epoch)
        ledger.open_part("s/t/heap", "0-1-1", 0, epoch)
    write = [sys.executable, "-c", textwrap.dedent(WRITE), url(tmp_path, form)]
    first = subprocess.run([*write, *ENDS[end]], capture_output=True, text=True, check=False)
    never = form == "parquet" and end in ("moved", "merged")
    assert first.returncode == (0 if never else 9), first.stderr
    again = subprocess.run(write, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert rows(tmp_path, form, "pairs", "id") == {(1, "new"): 1, (3, "c"): 1}
    assert rows(tmp_path, form, "heap") == {(5, "e"): 1}
    with opened(tmp_path, form) as session:
        assert Ledger(session, "move").progress()["s/t/heap"][0] == "0-1-2"


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_that_nobody_writes_to_again_is_finished_by_others(
    tmp_path: Path, form: str
) -> None:
    with opened(tmp_path, form) as session:
        relation = made(session)
        ledger = Ledger(session, "move")
        ledger.create()
        epoch = ledger.claim({}).epoch
        ledger.open_part("s/t/pairs", "0-1-1", 0, epoch)
        ledger.open_part("s/t/heap", "0-1-1", 0, epoch)
        write = [sys.executable, "-c", textwrap.dedent(WRITE), url(tmp_path, form)]
        subprocess.run([*write, *ENDS["decided"]], check=False)
        assert ledger.progress()["s/t/pairs"][0] == "0-1-2"
        assert held(session, relation) == [], "a look finishes nothing"
        ledger.claim({})
        assert held(session, relation) == [("1", "new"), ("3", "c")]


@pytest.mark.parametrize("form", FORMATS)
def test_many_write_at_once(tmp_path: Path, form: str) -> None:
    """Chunks of one table from several writers: all are in, each once."""
    with opened(tmp_path, form) as session:
        relation = made(session)
        ledger = Ledger(session, "move")
        ledger.create()
        epoch = ledger.claim({}).epoch
        ledger.plan("pairs", [WHOLE] * 12, epoch)
    failures = list[BaseException]()

    def copy(lane: int) -> None:
        try:
            with opened(tmp_path, form) as writer:
                for number in range(12):  # every lane tries every chunk
                    chunk = (number + lane * 4) % 12
                    try:
                        with transaction(writer):
                            Ledger(writer, "move").note_copied("pairs", chunk, 1, epoch)
                            writer.load(relation, texts((str(chunk), f"lane {lane}")))
                    except CannotFinish as error:
                        if "another attempt" not in str(error):
                            raise
        except BaseException as error:  # noqa: BLE001 - told to the test
            failures.append(error)

    threads = [threading.Thread(target=copy, args=(lane,)) for lane in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    seen = rows(tmp_path, form, "pairs", "id" if form == "delta" else "")
    assert Counter(row[0] for row in seen.elements()) == Counter(range(12))


def test_a_writer_that_stands_still_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_ledger, "_WAIT_SECONDS", 0.2)
    with opened(tmp_path, "parquet") as session:
        relation = made(session)
        with (
            lake_ledger.LakeLedger(tmp_path).locked(["pairs"]),
            pytest.raises(CannotFinish, match="another process has been writing to pairs"),
        ):
            load(session, relation, texts(("1", "a")))
        assert load(session, relation, texts(("1", "a"))) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_refused(tmp_path: Path, form: str) -> None:
    with opened(tmp_path, form) as session:
        relation = made(session)
        with pytest.raises(RowRefused, match="row id=7"):
            load(session, relation, texts(("1", "a"), ("7", "b"), ("7", "c")))
        with pytest.raises(RowRefused, match="row id=99999999999"):
            load(session, relation, texts(("1", "a"), ("99999999999", "b")))
        assert held(session, relation) == []
        with pytest.raises(UsageError, match="from tasks only"):
            session.insert(relation, ("1", "a"))
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "a.csv").write_text("id\n1\n", encoding="utf-8")
        with pytest.raises(UsageError, match="is there already, and no task keeps it"):
            make(session, PAIR, "mine")
        session.rollback()
        with pytest.raises(UsageError, match="cannot be a table of a lake"):
            make(session, PAIR, "_hidden")
    other = next(one for one in FORMATS if one != form)
    with opened(tmp_path, other) as session, pytest.raises(UsageError, match=f"kept as {form}"):
        described(session, "pairs")
    with pytest.raises(UsageError, match="format=parquet or delta"):
        opened(tmp_path, "csv")


def test_delta_tables_of_others_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """Only the files that count, also where folders stand for a column."""
    table = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"], "p": ["x y", "x y", None]})
    write_deltalake(tmp_path / "t", table, partition_by=["p"])
    DeltaTable(tmp_path / "t").delete("id = 2")
    with connect(parse_endpoint(f"lake:///{tmp_path}")) as session:
        reader: Any = session
        known = described(reader, "t")
        assert known.rows == 2
        relation = Relation(
            session.endpoint, (known.name,), known.columns, tuple(c.type for c in known.columns), 0
        )
        frame = cast(Any, reader).row_frame(relation).toArrow()
        assert sorted(tuple(row.values()) for row in frame.to_pylist()) == [
            ("1", "a", "x y"),
            ("3", "c", None),
        ]
