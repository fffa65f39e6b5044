"""The store of rows to look at again: counts, turns, holds, restarts; keys in their agreed form; shrinking."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from truecopy.model.change import Definition
from truecopy.model.table import Column
from truecopy.model.types import Binary, Decimal, Integer, Text, Type, Uuid
from truecopy.transfer.proof.keys import KeyForm, key_form, pack, packed_keys, unpack
from truecopy.transfer.proof.shrinking import ShrinkRules, shrink
from truecopy.transfer.proof.store import REACHED, UNCOUNTED, ReverifyStore


def store(folder: Path, identity: str = "") -> ReverifyStore:
    return ReverifyStore(folder / "keys.db", identity)


def left(kept: ReverifyStore) -> dict[tuple[str, str], int]:
    return {
        (taken.table, key): count
        for taken in kept.take(1000)
        for key, count in zip(taken.packed, taken.counts, strict=True)
    }


def test_it_counts(tmp_path: Path) -> None:
    with store(tmp_path) as kept:
        kept.add({"a": pa.array(["1", "2", "1"]), "b": pa.array(["1"])})
        kept.add({"a": pa.array(["1"])})
        assert left(kept) == {("a", "1"): 3, ("a", "2"): 1, ("b", "1"): 1}
        assert len(kept) == 3


def test_a_row_that_changes_while_it_is_verified_is_verified_again(tmp_path: Path) -> None:
    with store(tmp_path) as kept:
        kept.add({"a": pa.array(["1", "1", "2"])})
        (taken,) = kept.take(10)
        kept.add({"a": pa.array(["1"])})
        assert kept.unchanged(taken, ["1", "2"]) == {"2"}
        kept.subtract(taken, ["1", "2"])
        assert left(kept) == {("a", "1"): 1}
        assert kept.verified == 2


def test_a_change_that_is_not_applied_yet_is_not_looked_at(tmp_path: Path) -> None:
    with store(tmp_path) as kept:
        kept.add({"a": pa.array(["1", "2"])})
        kept.add({"a": pa.array(["2", "3"])}, held=True)
        assert left(kept) == {("a", "1"): 1}
        kept.release()
        assert left(kept) == {("a", "1"): 1, ("a", "2"): 2, ("a", "3"): 1}


def test_a_row_that_never_comes_right_does_not_keep_others_waiting(tmp_path: Path) -> None:
    with store(tmp_path) as kept:
        kept.add({"a": pa.array(["1", "2", "3"])})
        seen: list[str] = []
        for _ in range(3):
            (taken,) = kept.take(1)
            seen += taken.packed
            kept.put_back(taken, taken.packed)
        assert sorted(seen) == ["1", "2", "3"]
        turn = kept.next_turn()
        kept.add({"a": pa.array(["4"])})
        assert {key for taken in kept.take(10, turn) for key in taken.packed} == {"1", "2", "3"}


def test_a_restart_finds_keys_and_position_as_they_were(tmp_path: Path) -> None:
    with store(tmp_path, "one") as kept:
        kept.add({"a": pa.array(["1"])}, {f"{REACHED}shop": "0-1-7"}, held=True)
    with store(tmp_path, "one") as kept:
        assert len(kept) == 1
        assert kept.reached() == ["0-1-7"]
    with store(tmp_path, "another start of the task") as kept:
        assert not len(kept)
        assert not kept.reached()


def test_a_kill_loses_no_key_before_the_position(tmp_path: Path) -> None:
    """The process is killed while it adds: what the file knows is whole batches, and their positions."""
    script = f"""
import pyarrow as pa
from pathlib import Path
from truecopy.transfer.proof.store import ReverifyStore
kept = ReverifyStore(Path({str(tmp_path / "keys.db")!r}))
number = 0
while True:
    number += 1
    kept.add({{"a": pa.array([f"{{number}}-{{i}}" for i in range(50)])}}, {{"reached/shop": f"0-1-{{number}}"}})
    print(number, flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = ""
    while not said.startswith("20"):
        said = process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with store(tmp_path) as kept:
        reached = int((kept.note("reached/shop") or "").rpartition("-")[2])
        assert reached >= 20
        assert len(kept) == 50 * reached


def test_more_keys_than_its_cache(tmp_path: Path) -> None:
    with store(tmp_path) as kept:
        many = pa.array([f"{'k' * 60}{i}" for i in range(200_000)])
        kept.add({"a": many})
        kept.add({"a": many.slice(0, 100_000)})
        assert len(kept) == 200_000
        assert kept.path.stat().st_size > 10 << 20


@pytest.mark.parametrize(
    "key",
    [
        ("1",),
        ("a", "b"),
        ("a\x1fb", "\x1e", "\x1e1\x1f\x1e0"),
        (None, "\x1eN", ""),
        ("", ""),
        ("\x00", "\x1e0"),
    ],
)
def test_a_packed_key_is_the_key(key: tuple[str | None, ...]) -> None:
    packed = pack([pa.array([part], pa.string()) for part in key]).to_pylist()
    assert unpack(packed) == [key]


def test_keys_joined_by_a_separator_do_not_collide() -> None:
    one = pack([pa.array(["a\x1f"]), pa.array(["b"])]).to_pylist()
    other = pack([pa.array(["a"]), pa.array(["\x1fb"])]).to_pylist()
    assert one != other


@pytest.mark.parametrize(
    ("own", "agreed", "text", "expected"),
    [
        (Integer(), Integer(), "7", "7"),
        (Decimal(2), Decimal(4), "1.50", "1.5000"),
        (Integer(), Decimal(2), "5", "5.00"),
        (Decimal(2), Decimal(None), "1.50", "1.5"),
        (
            Binary(),
            Uuid(),
            "00112233445566778899aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeeff",
        ),
        (Text(), Uuid(), "ABCD", "abcd"),
    ],
)
def test_keys_are_kept_in_the_agreed_form(
    own: Type, agreed: Type, text: str, expected: str
) -> None:
    form = KeyForm((0,), (own,), (agreed,))
    assert packed_keys(pa.array([[text]]), form).to_pylist() == [expected]


def test_the_key_of_a_log_may_be_in_another_order() -> None:
    columns = tuple(Column(name, Integer(), "int") for name in ("x", "a", "b"))
    definition = Definition("t", columns, key=("b", "a"))
    form = key_form(("a", "b"), (Integer(), Integer()), definition)
    assert form is not None
    assert unpack(packed_keys(pa.array([["2", "1"]]), form).to_pylist()) == [("1", "2")]


def test_a_key_of_a_log_that_lacks_a_column_has_no_form() -> None:
    columns = tuple(Column(name, Integer(), "int") for name in ("a", "b"))
    assert key_form(("a",), (Integer(),), Definition("t", columns, key=("b",))) is None


def test_keys_of_tables_that_left_or_have_another_key_are_forgotten(tmp_path: Path) -> None:
    forms = {"stays": "id", "gone": "id", "rekeyed": "id"}
    with store(tmp_path) as kept:
        kept.keep_only(forms)
        for table in forms:
            kept.add_keys(table, [("1",)])
        kept.keep_only(forms)
        assert len(kept) == 3
    with store(tmp_path) as kept:
        kept.keep_only({"stays": "id", "rekeyed": "name"})
        assert left(kept) == {("stays", "1"): 1}
        kept.add_keys("rekeyed", [("a",)])
        kept.keep_only({"stays": "id", "rekeyed": "name"})
        assert len(kept) == 2


def test_tables_whose_changes_could_not_be_counted_are_told_of_once(tmp_path: Path) -> None:
    with store(tmp_path) as kept:
        kept.add({}, {f"{UNCOUNTED}a.b": "", "another": ""})
        assert kept.take_uncounted() == {"a.b"}
        assert kept.take_uncounted() == set()


class Rounds:
    """A store of which each round leaves so many."""

    def __init__(self, *lefts: int, seconds: float = 1.0) -> None:
        self.lefts = list(lefts)
        self.seconds = seconds
        self.now = 0.0

    def left(self) -> int:
        return self.lefts[0]

    def look(self) -> int:
        looked = self.lefts[0]
        if len(self.lefts) > 1:
            self.lefts.pop(0)
        self.now += self.seconds
        return looked


@pytest.mark.parametrize(
    ("lefts", "rounds", "left_over", "stopped"),
    [
        ((0,), 1, 0, "enough"),
        ((5000, 3000, 900, 100), 2, 900, "enough"),
        ((5000, 4000, 4000, 10), 2, 4000, "no progress"),
        ((5000, 6000, 10), 1, 6000, "no progress"),
        (tuple(range(100_000, 50_000, -1000)), 30, 70_000, "rounds"),
    ],
)
def test_shrinking(lefts: tuple[int, ...], rounds: int, left_over: int, stopped: str) -> None:
    script = Rounds(*lefts)
    shrunk = shrink(script.left, script.look, ShrinkRules(), lambda: script.now)
    assert (shrunk.rounds, shrunk.left, shrunk.stopped) == (rounds, left_over, stopped)


def test_the_rest_must_fit_into_the_downtime() -> None:
    rules = ShrinkRules(max_downtime=2.0)
    slow = Rounds(5000, 900, seconds=10.0)
    shrunk = shrink(slow.left, slow.look, rules, lambda: slow.now)
    assert shrunk.rate == pytest.approx(500)
    assert shrunk.expected_downtime == pytest.approx(1.8)
    assert shrunk.fits(rules)
    assert not shrunk.fits(ShrinkRules(max_downtime=1.0))
    none = Rounds(0)
    assert shrink(none.left, none.look, rules, lambda: none.now).fits(ShrinkRules(max_downtime=0.0))


def test_few_rows_that_cannot_be_looked_at_are_not_judged_by_a_rate() -> None:
    rules = ShrinkRules(max_downtime=2.0)
    one = shrink(lambda: 1, lambda: 0, rules)  # of a batch that is being applied, on a quiet source
    assert one.expected_downtime is None
    assert one.fits(rules)
    many = shrink(lambda: 5000, lambda: 0, rules)
    assert not many.fits(rules)
