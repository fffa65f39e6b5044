"""What becomes of a row change: the rules of `docs/validate.md`, on whole Arrow tables, without a server.

A round has two steps. The first puts new changes upon what is pending, and judges what was seen before and
could not be judged then. The second judges what was seen now. In between, somebody looks at the target.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truecopy.transfer.continuous.entries import (
    CLOCK,
    ENTRIES,
    IMAGE,
    SIGHT,
    Numbers,
    as_changes,
    identities_of,
    lines_of,
    plain,
)
from truecopy.transfer.continuous.newest import Emptied, newest, row_codes, without_emptied
from truecopy.transfer.continuous.past import Past, are_known
from truecopy.transfer.effect import Layouts

MICROSECONDS = 1_000_000


class Compares(Protocol):
    """Tells which images the target holds; see `compare.Comparer`."""

    def equal(self, images: pa.Table, there: Numbers, seen: pa.Array) -> Numbers: ...

    @property
    def layouts(self) -> Layouts: ...

    def forms(self, schema_ids: pa.ChunkedArray) -> pa.Array:
        """What the columns of a seen row are, by definition: rows of other forms are not compared."""
        ...


@dataclass(frozen=True)
class Rules:
    """What a round goes by; times in microseconds.

    Attributes:
        reached: How far the stream was read, by shard.
        marks: Whether errors may be marked by now.
        asked: Keys to look at now, whenever they would be due, as `name_of` names them.
        released: Keys that are of no interest any more until they change: with each, by shard, the position up to
            which changes were known when that was said.
        emptied: Tables that the new changes empty, by shard and table.
    """

    now: int
    interval: int
    delay: int
    longest: int
    reached: Mapping[str, str]
    marks: bool = True
    asked: frozenset[str] = frozenset()
    released: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    emptied: Mapping[tuple[str, str], Emptied] = field(default_factory=dict)


@dataclass(frozen=True)
class Seen:
    """What the target was seen to hold of some rows, in their order.

    Attributes:
        told: Whether the target could be asked at all.
        right: Whether it holds what it should.
        rows: What it holds, as lists of texts, where that is not right; NULL for no row.
        at: The position of the state that was seen; NULL where nothing is known of it.
        exact: Whether the state is of that very position; else it is of an earlier one, or that.
    """

    told: Numbers
    right: Numbers
    rows: pa.Array
    at: pa.Array
    exact: bool = True


@dataclass(frozen=True)
class Event:
    """Something to be told of an error: that it is (still) there, or that it is gone."""

    image: dict[str, Any]
    seen: list[str | None] | None
    first_failed_at: int
    last_failed_at: int
    resolved: bool = False


class Round:
    """Pending rows and new changes, on their way through one round.

    Attributes:
        images: What the target should hold, a line for each row.
        events: What to tell, in order.
        wanted: The lines that the target is to be asked for.
    """

    def __init__(
        self, entries: pa.Table, changes: pa.Table, rules: Rules, compares: Compares
    ) -> None:
        self._rules = rules
        self._compares = compares
        self.events: list[Event] = []
        entries, changes, emptied = without_emptied(entries, changes, rules.emptied)
        entries, changes = entries.combine_chunks(), changes.combine_chunks()
        both = pa.concat_tables([as_changes(entries), changes]).combine_chunks()
        codes = row_codes(both)
        self.images: pa.Table = newest(both, codes, compares.layouts)
        count, pending = self.images.num_rows, entries.num_rows
        self._clock = {
            name: _numbers(entries, name, codes[:pending], count) for name in CLOCK.names
        }
        self._changed = np.zeros(count, bool)
        self._changed[codes[pending:]] = True
        self._changed[codes[:pending][emptied]] = True
        self._open = np.ones(count, bool)
        self._sights = [entries.select(SIGHT.names)]
        self._sight_of = np.full(count, -1)  # a line of those, one after the other; -1 for none
        self._released = self._named(rules.released)
        self._let_go()
        self._recall(entries, changes, codes)
        self._clock["due_at"][self._named(rules.asked)] = 0
        due = self._changed | (self._clock["due_at"] <= rules.now)
        self.wanted: Numbers = np.flatnonzero(self._open & due & (self._sight_of < 0))

    @property
    def asked_for(self) -> pa.Table:
        """The images of the lines that the target is to be asked for."""
        return lines_of(self.images, self.wanted)

    def settle(self, seen: Seen) -> None:
        """Judges what the target was seen to hold of the wanted lines."""
        rules, now = self._rules, self._rules.now
        self._finish(self.wanted[seen.told & seen.right])
        self._clock["due_at"][self.wanted[~seen.told]] = now + rules.interval
        wrong = np.flatnonzero(seen.told & ~seen.right)
        if not len(wrong):
            return
        lines = self.wanted[wrong]
        rows, at = seen.rows.take(pa.array(wrong)), seen.at.take(pa.array(wrong))
        shards = self.images.column("shard").take(pa.array(lines))
        sure = are_known(shards, at, rules.reached)
        self._fail(lines[sure], np.full(int(sure.sum()), now))
        self._mark(lines[sure], rows.filter(pa.array(sure)))
        later = np.flatnonzero(~sure)
        if len(later):
            schemas = self.images.column("schema_id").take(pa.array(lines[later]))
            columns = [
                at.take(pa.array(later)),
                pa.array(np.full(len(later), now)),
                pa.array(np.full(len(later), seen.exact)),
                self._compares.forms(schemas),
                rows.take(pa.array(later)),
            ]
            first = sum(table.num_rows for table in self._sights)
            self._sights.append(pa.table(columns, schema=SIGHT))
            self._sight_of[lines[later]] = first + np.arange(len(later))
            self._judge_soon(lines[later])

    def left(self) -> pa.Table:
        """What is still pending."""
        lines = np.flatnonzero(self._open)
        found = self.images.take(pa.array(lines))
        for column in CLOCK:
            values = self._clock[column.name][lines]
            found = found.append_column(column, pa.array(values, column.type))
        places = self._sight_of[lines]
        sights = pa.concat_tables(self._sights).take(pa.array(places, mask=places < 0))
        for column in SIGHT:
            found = found.append_column(column, sights.column(column.name))
        return found.cast(ENTRIES)

    # What was asked for by hand

    def _named(self, names: Collection[str]) -> Numbers:
        """Which lines somebody has named."""
        if not names:
            return np.zeros(self.images.num_rows, bool)
        return np.array([name in names for name in identities_of(self.images)], bool)

    def _let_go(self) -> None:
        """Forgets rows that somebody has let go of; a change that came after that was said stays."""
        released = self._rules.released
        lines = np.flatnonzero(self._released)
        self._forgive(lines)
        for line in lines.tolist():
            image = self.images.slice(line, 1)
            (name,) = identities_of(image)
            self._open[line] = self._changed[line] or not _is_released(image, released[name])

    # What was seen before

    def _recall(self, entries: pa.Table, changes: pa.Table, codes: Numbers) -> None:
        """Judges what was seen at a position that the stream has passed by now; not of rows that were let go of."""
        is_seen = np.asarray(pc.is_valid(entries.column("seen_at"))).astype(bool)
        seen = np.flatnonzero(is_seen & ~self._released[codes[: entries.num_rows]])
        if not len(seen):
            return
        rules, lines = self._rules, codes[seen]
        sights = entries.take(pa.array(seen))
        exact = sights.column("seen_exact").to_numpy(zero_copy_only=False).astype(bool)
        places = sights.column("shard"), sights.column("seen_at")
        known = are_known(*places, rules.reached)
        past = Past(changes, codes[entries.num_rows :])
        exact &= ~past.are_beside(*places)
        start, end, stop = past.until(lines, *places)
        # The newest change up to there; where there is none, what was known before it was seen.
        last = np.where(end > start, past.at(end - 1), changes.num_rows + seen)
        told = pa.concat_tables([changes.select(IMAGE.names), entries.select(IMAGE.names)])
        then = told.take(pa.array(last))
        comparable = self._comparable(then, sights)
        matches = self._matches(then, sights)
        loose = np.flatnonzero(~exact & ~matches)
        if len(loose):  # any change in between will do
            sizes = end[loose] - start[loose]
            each = np.repeat(loose, sizes)
            steps = np.arange(len(each)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            between = told.take(pa.array(past.at(start[each] + steps)))
            some = sights.take(pa.array(each))
            fits = self._matches(between, some)
            own = entries.select(IMAGE.names).take(pa.array(seen[loose]))
            matches[loose] = self._matches(own, sights.take(pa.array(loose)))
            np.logical_or.at(matches, each, fits)
        # A match counts before the stream has come there only where any change will do.
        right = matches & (known | ~exact)
        waits = ~right & ~known
        wrong = ~right & known & comparable
        self._sight_of[lines[waits]] = seen[waits]
        self._judge_soon(lines[waits])
        self._forgive(lines[right])
        # What was seen settles the newest change only where it is known to have been in by then.
        self._open[lines[right & np.where(exact, stop == end, stop == start)]] = False
        times = sights.column("seen_time").to_numpy()
        self._fail(lines[wrong], times[wrong])
        rows = plain(sights.column("seen_row")).filter(pa.array(wrong))
        self._mark(lines[wrong], rows, then.filter(pa.array(wrong)))
        # That was then, and now it may be otherwise; an error has its own interval.
        again = ~waits & ~(wrong & self._clock["is_error"][lines])
        self._clock["due_at"][lines[again]] = 0

    def _matches(self, images: pa.Table, sights: pa.Table) -> Numbers:
        rows = plain(sights.column("seen_row"))
        usable = np.flatnonzero(self._comparable(images, sights))
        found = np.zeros(images.num_rows, bool)
        some = rows.take(pa.array(usable))
        found[usable] = self._compares.equal(
            images.take(pa.array(usable)), np.asarray(pc.is_valid(some)), some
        )
        return found

    def _comparable(self, images: pa.Table, sights: pa.Table) -> Numbers:
        forms = self._compares.forms(images.column("schema_id"))
        same = pc.equal(forms, plain(sights.column("seen_schema")))
        return np.asarray(pc.fill_null(same, False)).astype(bool)

    # Right and wrong

    def _finish(self, lines: Numbers) -> None:
        self._forgive(lines)
        self._open[lines] = False

    def _forgive(self, lines: Numbers) -> None:
        """The target was seen right: an error is gone, and the clock stands still."""
        for line in lines[self._clock["is_error"][lines]].tolist():
            self._tell(line, None, self.images.slice(line, 1), resolved=True)
        for name in CLOCK.names:
            self._clock[name][lines] = 0

    def _judge_soon(self, lines: Numbers) -> None:
        """Has what was seen thought of in an interval, or when it may become an error."""
        now = self._rules.now
        self._clock["due_at"][lines] = self._ripe(
            lines, np.full(len(lines), now + self._rules.interval)
        )

    def _ripe(self, lines: Numbers, due: Numbers) -> Numbers:
        """When lines are due, or earlier, where they may become an error before that."""
        ripe = self._clock["first_failed_at"][lines] + self._rules.delay
        sooner = ~self._clock["is_error"][lines] & (ripe > self._rules.now) & (ripe < due)
        return np.where(sooner, ripe, due)

    def _fail(self, lines: Numbers, times: Numbers) -> None:
        rules, clock = self._rules, self._clock
        first = clock["first_failed_at"][lines]
        clock["first_failed_at"][lines] = np.where(first > 0, first, times)
        clock["last_failed_at"][lines] = times
        clock["tries"][lines] += 1
        # Errors are looked at less and less often; other rows again when they may become one.
        doubled = np.minimum(clock["tries"][lines], 40).astype(np.float64)
        growing = np.minimum(rules.interval * 2.0**doubled, rules.longest).astype(np.int64)
        due = rules.now + np.where(clock["is_error"][lines], growing, rules.interval)
        clock["due_at"][lines] = self._ripe(lines, due)

    def _mark(self, lines: Numbers, rows: pa.Array, images: pa.Table | None = None) -> None:
        """Tells of rows that have failed for long enough: what they should be, and what was seen."""
        clock, rules = self._clock, self._rules
        ripe = (rules.now - clock["first_failed_at"][lines] >= rules.delay) & rules.marks
        for i in np.flatnonzero(clock["is_error"][lines] | ripe).tolist():
            line = int(lines[i])
            if not clock["is_error"][line]:
                clock["is_error"][line], clock["tries"][line] = True, 0
            image = self.images.slice(line, 1) if images is None else images.slice(i, 1)
            self._tell(line, rows[i].as_py(), image)

    def _tell(
        self, line: int, seen: list[str | None] | None, image: pa.Table, resolved: bool = False
    ) -> None:
        first, last = (
            int(self._clock[name][line]) for name in ("first_failed_at", "last_failed_at")
        )
        self.events.append(Event(image.to_pylist()[0], seen, first, last, resolved))


def without_released(entries: pa.Table, rules: Rules) -> pa.Table:
    """Entries that are not looked at, without those that somebody has let go of."""
    if not rules.released:
        return entries
    kept = [
        name not in rules.released or not _is_released(entries.slice(line, 1), rules.released[name])
        for line, name in enumerate(identities_of(entries))
    ]
    return entries.filter(pa.array(kept, pa.bool_()))


def _is_released(image: pa.Table, up_to: Mapping[str, str]) -> bool:
    """Whether the change of one row was known when the row was let go of."""
    return bool(are_known(image.column("shard"), image.column("position"), up_to)[0])


def _numbers(entries: pa.Table, name: str, codes: Numbers, count: int) -> Numbers:
    kind = bool if pa.types.is_boolean(ENTRIES.field(name).type) else np.int64
    found = np.zeros(count, kind)
    found[codes] = entries.column(name).to_numpy(zero_copy_only=False).astype(kind)
    return found
