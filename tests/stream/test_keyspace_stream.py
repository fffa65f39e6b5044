"""Single cases of a keyspace's stream, on simulated logs: what random schedules meet too seldom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.stream.simulated import KEYS, Link, Transaction, World
from truecopy.model.change import CHANGE_SCHEMA, INSERT
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.keyspace import WHOLE, KeyRange, Shard, parse_key_range
from truecopy.model.token import KeyspacePosition, parse_keyspace_position
from truecopy.stream import parts, resharding, shard, shards
from truecopy.stream.keyspace import KeyspaceStream
from truecopy.stream.log import LogGone, Mark, Part
from truecopy.stream.offset import Offset
from truecopy.stream.origins import Applied, hop_point
from truecopy.stream.parts import ShardPart
from truecopy.stream.request import Request
from truecopy.stream.reshard import Standing, plan_hops

TWO = "-80", "80-"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path / "keyspace.yaml", TWO)
    monkeypatch.setattr(shard, "open_log", made.open_log)
    monkeypatch.setattr(resharding, "SOURCE_SECONDS", 0.0)
    monkeypatch.setattr(resharding, "PATIENCE_SECONDS", -1.0)
    monkeypatch.setattr(shard, "PATIENCE_SECONDS", -1.0)
    return made


def write(world: World, *keys: str) -> None:
    for key in keys:
        world.tick(1000)
        world.write(world.serving_shard(key), [key], 0)


def request(world: World, **more: Any) -> Request:
    return Request(str(world.file), wait=0.0, **more)


def read(
    stream: KeyspaceStream, start: Offset, limit: Offset | None = None
) -> tuple[list[str], Offset]:
    """The keys of all changes, and where the stream stands then."""
    found: list[str] = []
    at, quiet = start, 0
    while quiet < 3 if limit is None else not stream.has_reached(at, limit):
        after = stream.advance(at, 100, 0.0, limit)
        for part in stream.parts(at, after, 1):
            for batch in part.read():
                found += [key for (key,) in batch.column("key").to_pylist()]
        at, quiet = after, quiet + 1 if after == at else 0
    return found, at


def split(world: World, *target: str, record: bool = True) -> None:
    world.prepare(target, record)
    world.drain()
    world.flip(target, reverse=False)


# Reshards


def test_a_shard_that_was_taken_out_of_the_file(world: World) -> None:
    with KeyspaceStream(request(world)) as stream:
        start = stream.start("current")
        split(world, "-40", "40-80", "80-")
        write(world, "00", "50", "90")
        old = world.shards.pop("-80")
        world.save()
        found, at = read(stream, start)
        assert sorted(found) == ["00", "50", "90"]
        assert set(at.marks) == set(world.serving)
        # So does a new stream from the token of then.
        found, _ = read(stream, stream.start(start.token()))
        assert sorted(found) == ["00", "50", "90"]
        with pytest.raises(CannotFinish, match="keep old shards in the file"):
            stream.parts(start, Offset({**start.marks, "-80": Mark("7")}), 1)
    assert not old.log


def test_a_destination_on_which_nothing_was_recorded_is_read_from_its_beginning(
    world: World,
) -> None:
    write(world, "00", "50")
    with KeyspaceStream(request(world)) as stream:
        start = stream.start("current")
        split(world, "-40", "40-80", "80-", record=False)
        write(world, "10", "60")
        found, _ = read(stream, start)
        assert sorted(found) == ["00", "10", "50", "60"]  # with what was copied


def test_nothing_recorded_where_others_may_have_been_in_between(world: World) -> None:
    write(world, "00", "50")
    world.prepare(("-40", "40-80"))
    with KeyspaceStream(request(world)) as stream:
        start = stream.start("current")
        split(world, "-60", "60-", record=False)
        with pytest.raises(UsageError, match="may have been fed from -40 or 40-80"):
            read(stream, start)


def test_the_end_of_a_stream_that_is_not_where_it_stands(world: World) -> None:
    """`--until current` after a flip: the end is on shards to which the stream has yet to come."""
    with KeyspaceStream(request(world)) as stream:
        start = stream.start("current")
        write(world, "00", "90")
        split(world, "-40", "40-80", "80-")
        write(world, "10", "60")
    with KeyspaceStream(request(world)) as stream:
        limit = stream.current()
        write(world, "20")
        found, at = read(stream, stream.start(start.token()), limit)
        assert sorted(found) == ["00", "10", "60", "90"]
        assert set(at.marks) == {"-40", "40-80", "80-"}


def test_an_end_that_died_with_its_shard(world: World) -> None:
    with KeyspaceStream(request(world)) as stream:
        start = stream.start("current")
        write(world, "00")
        limit = stream.current()
        split(world, "-40", "40-80", "80-")
        world.shards["-80"].is_dead = True
        with pytest.raises(CannotFinish, match="is dead"):
            read(stream, start, limit)


def test_part_of_a_shard_that_is_merged(world: World) -> None:
    with KeyspaceStream(request(world, key_range=parse_key_range("-80"))) as stream:
        start = stream.start("current")
        assert set(start.marks) == {"-80"}
        write(world, "00")
        world.prepare(("-",))
        write(world, "10", "90")
        world.drain()
        world.flip(("-",), reverse=False)
        _, at = read(stream, start, Offset(start.marks))
        at = stream.advance(start, 100, 0.0)
        at = stream.advance(at, 100, 0.0)
        assert set(at.marks) == {"-"}


def test_a_flip_back_goes_on_where_the_old_shards_were_left(world: World) -> None:
    with KeyspaceStream(request(world)) as stream:
        start = stream.start("current")
        write(world, "00", "90")
        world.prepare(("-",))
        world.drain()
        world.flip(("-",), reverse=True)
        found, at = read(stream, start)
        assert sorted(found) == ["00", "90"]
        assert set(at.left) == set(TWO)
        write(world, "10")
        world.drain()
        world.flip(TWO, reverse=False)
        write(world, "20")
        found, at = read(stream, Offset.parse(at.plain()))
        assert found == ["10", "20"]
        assert not set(at.left) & set(at.marks)


# The file


def test_a_file_that_is_being_written_and_one_that_stays_wrong(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with KeyspaceStream(request(world)) as stream:
        at = stream.start("current")
        world.file.write_text("keyspace: sim\nshards: {")
        assert stream.advance(at, 1, 0.0) == at
        write(world, "00")
        found, at = read(stream, at)
        assert found == ["00"]
        monkeypatch.setattr(shards, "UNREADABLE_SECONDS", -1.0)
        with pytest.raises(UsageError, match="cannot read the keyspace file"):
            stream.advance(at, 1, 0.0)
        world.save()
        assert stream.advance(at, 1, 0.0) == at


def test_servers_that_are_changed_in_the_file(world: World) -> None:
    with KeyspaceStream(request(world)) as stream:
        at = stream.start("current")
        text = world.file.read_text()
        world.shards["moved"] = world.shards["-80"]
        world.file.write_text(text.replace("fake://-80/db", "fake://moved/db"))
        write(world, "00")
        found, at = read(stream, at)
        assert found == ["00"]
        assert stream._shards.log("-80").servers[0].host == "moved"


def test_the_token_of_a_stream_in_the_middle_of_a_reshard(world: World) -> None:
    with KeyspaceStream(request(world)) as stream:
        at = stream.start("current")
        write(world, "00", "90")
        split(world, "-40", "40-80", "80-c0", "c0-")
        write(world, "10", "a0")
        # One group has hopped, and the other has not.
        while set(at.marks) != {"-40", "40-80", "80-"}:
            at = stream.advance(at, 1, 0.0)
        token = parse_keyspace_position(str(at.token()))
        assert isinstance(token, KeyspacePosition)
        rest, _ = read(stream, at)
    with KeyspaceStream(request(world)) as stream:
        found, at = read(stream, stream.start(token))
        assert sorted(found) == sorted(rest)
        assert set(at.marks) == set(world.serving)


# The plan, without logs


def shards_named(*names: str) -> tuple[Shard, ...]:
    return tuple(Shard(parse_key_range(name), ()) for name in names)


def planned(
    leaving: Sequence[str],
    arriving: Sequence[str],
    fed_by: dict[str, set[str]],
    staying: Sequence[str] = (),
    key_range: KeyRange = WHOLE,
) -> list[tuple[list[str], list[str]]]:
    known = {*leaving, *arriving, *staying}
    others = shards_named(*(name for name in fed_by if name not in known))
    standing = Standing(
        shards_named(*leaving), shards_named(*staying), shards_named(*arriving), others, key_range
    )
    hops = plan_hops(standing, lambda shard: fed_by.get(shard.name, set()))
    return [([s.name for s in h.sources], [s.name for s in h.destinations]) for h in hops]


def test_groups_hop_on_their_own() -> None:
    fed_by = {"-40": {"-80"}, "40-80": {"-80"}, "80-": {"80-c0", "c0-"}}
    assert planned(["-80", "80-c0", "c0-"], ["-40", "40-80", "80-"], fed_by) == [
        (["-80"], ["-40", "40-80"]),
        (["80-c0", "c0-"], ["80-"]),
    ]


def test_a_split_and_a_merge_at_once_are_one_group() -> None:
    fed_by = {"-40": {"-80"}, "40-c0": {"-80", "80-"}, "c0-": {"80-"}}
    assert planned(["-80", "80-"], ["-40", "40-c0", "c0-"], fed_by) == [
        (["-80", "80-"], ["-40", "40-c0", "c0-"])
    ]


def test_the_way_leads_over_shards_in_between() -> None:
    fed_by = {"-40": {"-80"}, "40-80": {"-80"}, "-": {"-40", "40-80", "80-"}}
    assert planned(["-80", "80-"], ["-"], fed_by) == [(["-80"], ["-40", "40-80"])]
    assert planned(["-40", "40-80", "80-"], ["-"], fed_by) == [(["-40", "40-80", "80-"], ["-"])]


def test_a_way_over_a_shard_that_is_not_there_any_more_is_refused() -> None:
    with pytest.raises(CannotFinish, match="from -80 to -40 leads over -60, which cannot be read"):
        planned(["-80"], ["-40", "40-80"], {"-40": {"-60"}, "40-80": {"-80"}}, ["80-"])


def test_a_way_over_a_shard_that_holds_what_another_one_serves_is_refused() -> None:
    fed_by = {"-": {"-40", "40-c0", "c0-"}, "40-80": {"-"}, "80-c0": {"-"}}
    with pytest.raises(UsageError, match="resharded several times while the stream stood still"):
        planned(["40-c0"], ["40-80", "80-c0"], fed_by, ["-40", "c0-"])


def test_only_what_is_wanted_of_a_shard_must_be_covered() -> None:
    fed_by = {"40-80": {"-80"}}
    wanted = parse_key_range("50-70")
    assert planned(["-80"], ["40-80"], fed_by, key_range=wanted) == [(["-80"], ["40-80"])]


# Where a destination is entered, without logs

_MARKS = [Mark(str(number)) for number in range(20)]


def entered(
    log: str, given: dict[str, str], is_complete: bool = True, applied: dict[str, str] | None = None
) -> str:
    """`a3 b5 w`: position 3 of shard a, position 5 of shard b, and a write of others."""
    transactions = [
        Applied(mark) if word == "w" else Applied(mark, word[0], word[1:])
        for mark, word in zip(_MARKS[1:], log.split(), strict=False)
    ]
    last = {t.shard: t.position for t in transactions if t.shard}
    applied = last if applied is None else applied
    return hop_point(transactions, given, applied, _MARKS[0], is_complete, "d").position


@pytest.mark.parametrize(
    ("log", "given", "point"),
    [
        ("w w a0 a1 a2", {"a": "2"}, "5"),
        ("w w a0 a1 a2 w w", {"a": "2"}, "5"),
        ("w w a0 a1 a2 w w", {"a": "1"}, "4"),
        ("w a0 a1 w a2 w", {"a": "2"}, "3"),  # written to before replication had caught up
        ("a0 b0 a1 b1 a2", {"a": "2", "b": "1"}, "5"),
        ("a0 b0 a1 b1 a2", {"a": "1", "b": "1"}, "4"),
        ("a0 b0 a1 b1 a2", {"a": "2", "b": "0"}, "3"),
        ("a0 c7 w", {"a": "2"}, "1"),  # shards that were not asked for say nothing
        ("w w", {"a": "2"}, "0"),
        ("", {"a": "2"}, "0"),
        ("a0 a1", {"a": "1", "b": "5"}, "2"),
    ],
)
def test_where_a_destination_is_entered(log: str, given: dict[str, str], point: str) -> None:
    assert entered(log, given) == point


@pytest.mark.parametrize(
    ("log", "given", "applied"),
    [
        ("a3 a4", {"a": "2"}, None),  # the copy is newer than what was given
        ("w", {"a": "2"}, {}),
        ("w", {"a": "2"}, {"a": "1"}),  # what was written before may be gone
        ("a1", {"a": "2", "b": "5"}, {"a": "1", "b": "6"}),
    ],
)
def test_a_log_that_starts_later(
    log: str, given: dict[str, str], applied: dict[str, str] | None
) -> None:
    with pytest.raises(LogGone, match="starts after what was replicated from shard"):
        entered(log, given, is_complete=False, applied=applied)


def test_records_of_a_quiet_source_may_be_gone() -> None:
    applied = {"a": "1", "b": "5"}
    assert entered("a1 w", {"a": "2", "b": "5"}, is_complete=False, applied=applied) == "1"


# Second tries


class Flaky:
    """A part whose server goes away after some rows, each time that it is read."""

    def __init__(self, batches: Sequence[Sequence[int]], fails_after: Sequence[int]) -> None:
        self.batches = batches
        self._fails_after = list(fails_after)

    def read(self) -> Iterator[pa.RecordBatch]:
        left = self._fails_after.pop(0) if self._fails_after else 1 << 30
        for batch in self.batches:
            if left <= 0:
                raise CannotFinish("the server went away")
            left -= len(batch)
            rows = [
                {"txn": str(n // 2), "seq": n % 2, "key": [str(n)], "kind": INSERT} for n in batch
            ]
            yield pa.RecordBatch.from_pylist(rows, schema=CHANGE_SCHEMA)


def keys_of(part: Part) -> list[int]:
    batches = ShardPart("s", part, 0).read()
    return [int(key) for batch in batches for (key,) in batch.column("key").to_pylist()]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PAUSE_SECONDS", 0.0)


@pytest.mark.parametrize("fails_after", [(), (0,), (3,), (3, 3), (5, 0), (3, 5, 8)])
def test_a_part_is_read_once(impatient: None, fails_after: tuple[int, ...]) -> None:
    part = Flaky([range(3), range(3, 5), range(5, 8), range(8, 9)], fails_after)
    assert keys_of(part) == list(range(9))


def test_a_part_that_fails_each_time(impatient: None) -> None:
    with pytest.raises(CannotFinish, match="went away"):
        keys_of(Flaky([range(3), range(3, 5)], (3,) * 9))


def test_servers_with_different_logs(impatient: None) -> None:
    part = Flaky([range(3), range(3, 5)], (3,))
    batches = ShardPart("s", part, 0).read()
    next(batches)
    part.batches = [range(1, 4), range(4, 6)]
    with pytest.raises(UsageError, match="two servers of a shard have different logs"):
        list(batches)


def test_links_of_the_simulation_do_not_go_round_in_circles(world: World) -> None:
    """The tool of these tests, too, is worth one."""
    one, two = world.shards["-80"], world.shards["80-"]
    world.links += [Link(one, two, 0), Link(two, one, 0)]
    one.commit(Transaction(1, 1, ((KEYS[0], 1),)))
    world.drain()
    assert len(one.log) == 1
