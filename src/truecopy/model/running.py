"""Positions that grow by one transaction after another, and know their text at every step.

A log reader asks for the text after each transaction, hundreds of thousands of times a second, and
nearly always only the last number of one interval has changed. So the text around that number is
kept, and made anew only when another interval, source or domain moves.
"""

from __future__ import annotations

from bisect import bisect_right

from truecopy.model.errors import UsageError
from truecopy.model.position import (
    Beginning,
    Intervals,
    MariaDBPosition,
    MySQLPosition,
    Source,
    intervals_text,
    parse_position,
)

_NO_LIMIT = 2**64


class RunningGtidSet:
    """A MySQL GTID set that transactions are added to, in any order."""

    def __init__(self, text: str = "") -> None:
        start = parse_position(text)
        if not isinstance(start, MySQLPosition | Beginning):
            raise UsageError(f"not a GTID set: {text}")
        sources = start.sources if isinstance(start, MySQLPosition) else ()
        self._intervals = {source: _GrowingIntervals(runs) for source, runs in sources}
        # The source that grows, by the names that it was last given, and the text of all others.
        self._uuid, self._tag, self._growing = "", "", _GrowingIntervals()
        self._before, self._after = str(start), ""

    def add(self, uuid: str, number: int, tag: str = "") -> None:
        if uuid != self._uuid or tag != self._tag:
            self._turn_to(uuid, tag)
        self._growing.add(number)

    def text(self) -> str:
        """As `str` of the position."""
        return f"{self._before}{self._growing.text()}{self._after}"

    def _turn_to(self, uuid: str, tag: str) -> None:
        source: Source = uuid.lower(), tag.lower()
        self._uuid, self._tag = uuid, tag
        self._growing = self._intervals.setdefault(source, _GrowingIntervals())
        self._before = self._after = last = ""
        for other in sorted(self._intervals):
            separator = ":" if other[0] == last else f",{other[0]}:" if last else f"{other[0]}:"
            last = other[0]
            head = f"{separator}{other[1]}:" if other[1] else separator
            if other < source:
                self._before += head + self._intervals[other].text()
            elif other == source:
                self._before += head
            else:
                self._after += head + self._intervals[other].text()


class _GrowingIntervals:
    """The intervals of one source, of which one grows."""

    def __init__(self, runs: Intervals = ()) -> None:
        self._firsts = [first for first, _ in runs]
        self._lasts = [last for _, last in runs]
        # The interval that grows; `_lasts` learns its end when another one takes over.
        self._at, self._end = len(runs) - 1, runs[-1][1] if runs else 0
        # Growing to this number takes more than a new end: the interval would meet the next one.
        self._limit = 0
        self._head, self._tail = intervals_text(runs).removesuffix(str(self._end)), ""

    def add(self, number: int) -> None:
        if number == self._end + 1 and number < self._limit:
            self._end = number
        else:
            self._put(number)

    def text(self) -> str:
        return f"{self._head}{self._end}{self._tail}" if self._firsts else ""

    def _put(self, number: int) -> None:
        firsts, lasts = self._firsts, self._lasts
        if firsts:
            lasts[self._at] = self._end
        at = bisect_right(firsts, number) - 1
        if at >= 0 and number <= lasts[at] + 1:
            lasts[at] = max(lasts[at], number)
        else:
            at += 1
            firsts.insert(at, number)
            lasts.insert(at, number)
        if at + 1 < len(firsts) and lasts[at] + 1 == firsts[at + 1]:
            lasts[at] = lasts[at + 1]
            del firsts[at + 1], lasts[at + 1]
        self._at, self._end = at, lasts[at]
        if firsts[at] == lasts[at]:
            self._limit = 0  # a number alone is written without a dash, which its growth adds
        else:
            self._limit = firsts[at + 1] - 1 if at + 1 < len(firsts) else _NO_LIMIT
        runs = tuple(zip(firsts, lasts, strict=True))
        self._head = intervals_text(runs[: at + 1]).removesuffix(str(self._end))
        self._tail = ":" + intervals_text(runs[at + 1 :]) if at + 1 < len(runs) else ""


class RunningGtids:
    """A MariaDB position that transactions are added to.

    Attributes:
        last: The transaction that was added last. It is all of the position where there is one domain.
    """

    def __init__(self, text: str = "") -> None:
        start = parse_position(text)
        if not isinstance(start, MariaDBPosition | Beginning):
            raise UsageError(f"not a MariaDB position: {text}")
        domains = start.domains if isinstance(start, MariaDBPosition) else ()
        self._last = {domain: (server, number) for domain, server, number in domains}
        self._domain = -1
        self._server = self._number = 0
        self.last = ""
        self._head, self._tail = str(start), ""
        self._is_alone = False

    def add(self, domain: int, server: int, sequence: int) -> bool:
        """Whether that was news. A log out of order gives False: its position cannot tell what was seen."""
        if domain != self._domain and sequence > 0:
            self._turn_to(domain)
        if sequence <= self._number:
            return False
        self._server, self._number = server, sequence
        self.last = f"{domain}-{server}-{sequence}"
        return True

    def add_all(
        self, domain: int, server: int, sequences: list[int]
    ) -> tuple[list[str], list[str]] | None:
        """As `add` of ever greater numbers: the positions and the transactions; None where they are no news."""
        if not self.add(domain, server, sequences[0]):
            return None
        txns = [f"{domain}-{server}-{sequence}" for sequence in sequences]
        self._number, self.last = sequences[-1], txns[-1]
        if self._is_alone:
            return txns, txns
        return [f"{self._head}{txn}{self._tail}" for txn in txns], txns

    def text(self) -> str:
        """As `str` of the position."""
        return self.last if self._is_alone else f"{self._head}{self.last}{self._tail}"

    def _turn_to(self, domain: int) -> None:
        if self._number:
            self._last[self._domain] = self._server, self._number
        self._domain = domain
        self._server, self._number = self._last.get(domain, (0, 0))
        self.last = f"{domain}-{self._server}-{self._number}"
        gtids = sorted((d, s, n) for d, (s, n) in self._last.items() if d != domain)
        before = str(MariaDBPosition(tuple(gtid for gtid in gtids if gtid[0] < domain)))
        after = str(MariaDBPosition(tuple(gtid for gtid in gtids if gtid[0] > domain)))
        self._head, self._tail = before and f"{before},", after and f",{after}"
        self._is_alone = not gtids
