"""Whatever happens between two steps of readers and invalidators, the cache never steps back, and ends up right."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.cache.simulated import World
from truecopy.cache import floor
from truecopy.cache.entry import Entry
from truecopy.cache.invalidation import Changed, Invalidator
from truecopy.cache.readthrough import ReadThrough
from truecopy.client.answer import Answer

SCHEDULES = 150


@pytest.fixture(autouse=True, params=[2, 1 << 14], ids=["few buckets", "many buckets"])
def buckets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(floor, "BUCKETS", request.param)


class WithoutTokens(ReadThrough):
    """Puts whatever it was answered."""

    def _admits(self, *_: object) -> bool:
        return True


class WithoutFloor(ReadThrough):
    """Compares with the token that it finds, and puts where it finds none."""

    def _admits(self, _key: str, entry: Entry, answer: Answer) -> bool:
        return entry.token is None or answer.fresher


class WithoutBound(ReadThrough):
    """Takes an answer to show nothing beyond its token."""

    def _admits(self, key: str, entry: Entry, answer: Answer) -> bool:
        exact = Answer(answer.columns, answer.rows, answer.token, answer.token, answer.fresher)
        return super()._admits(key, entry, exact)


class EntriesOnly(Invalidator):
    """Leaves the floors where they are."""

    def invalidate(self, changes: Iterable[Changed]) -> None:
        self._store(dict(changes))


def test_no_schedule_leaves_an_old_value() -> None:
    hits = puts = 0
    for seed in range(SCHEDULES):
        world = World(seed)
        assert world.run() == [], f"schedule {seed}"
        hits += world.hits
        puts += world.puts
    assert hits > SCHEDULES
    assert puts > SCHEDULES


@pytest.mark.slow
def test_no_schedule_of_many_leaves_an_old_value() -> None:
    for seed in range(SCHEDULES, 10_000):
        world = World(seed)
        assert world.run() == [], f"schedule {seed}"


# The seeds are those of schedules that are known to find it, to be quick.


@pytest.mark.parametrize(
    ("reader", "seed"), [(WithoutTokens, 0), (WithoutFloor, 0), (WithoutBound, 355)]
)
def test_a_wrong_reader_is_found_out(reader: type[ReadThrough], seed: int) -> None:
    assert any(World(one, reader=reader).run() for one in range(seed, seed + 2000))


def test_a_wrong_invalidator_is_found_out() -> None:
    assert any(World(one, invalidator=EntriesOnly).run() for one in range(43, 2000))
