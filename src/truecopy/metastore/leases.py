"""Leases: who may do something, until when. A holder that lost its lease finds its writes refused.

Each taking counts the epoch up. A write that depends on the lease is made in one transaction with a look at it, which
locks its line: a process that was held up for longer than its lease, and was replaced, can write nothing any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from truecopy.metastore.control import lease as _lease
from truecopy.metastore.database import open_metastore
from truecopy.metastore.dialects import database_clock, idle_limit
from truecopy.model.errors import CannotFinish

_MICROSECONDS = 1_000_000
IDLE_SECONDS = 10


class LeaseLost(CannotFinish):
    """The lease ran out, and perhaps another has it by now."""


@dataclass(frozen=True)
class Lease:
    """What was taken, and by whom. `safe_until`: by this process's monotonic clock, never later than it runs out."""

    name: str
    holder: str
    epoch: int
    safe_until: float


@dataclass(frozen=True)
class LeaseLine:
    """A lease as everybody sees it; `seconds_left` is below 0 once it has run out."""

    name: str
    holder: str
    epoch: int
    seconds_left: float


class Leases:
    """The leases of a metastore; their time is that of its server."""

    def __init__(self, url: str | None = None) -> None:
        self._engine: Engine = open_metastore(url)
        self._clock = database_clock(self._engine.dialect)
        self._limit = idle_limit(self._engine.dialect, IDLE_SECONDS)

    def take(self, name: str, holder: str, seconds: float) -> Lease | None:
        """Takes a lease that nobody has; None where somebody has it."""
        asked = time.monotonic()
        self._know(name)
        until = self._clock + int(seconds * _MICROSECONDS)
        with self._engine.begin() as connection:
            free = update(_lease).where(_lease.c.name == name, _lease.c.until <= self._clock)
            values = {"holder": holder, "epoch": _lease.c.epoch + 1, "until": until}
            if not connection.execute(free.values(**values)).rowcount:
                return None
            epoch = select(_lease.c.epoch).where(_lease.c.name == name)
            number = int(connection.execute(epoch).scalar_one())
        return Lease(name, holder, number, asked + seconds)

    def _know(self, name: str) -> None:
        """Makes the line of a lease first: two that look for one and then make it wait for each other."""
        with self._engine.connect() as connection:
            known = connection.execute(select(_lease.c.name).where(_lease.c.name == name)).first()
        if known is None:
            # Where it is there by now, another was quicker.
            with suppress(IntegrityError), self._engine.begin() as connection:
                connection.execute(insert(_lease).values(name=name, holder="", epoch=0, until=0))

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Holds a lease on; `LeaseLost` where it has run out."""
        asked = time.monotonic()
        with self._engine.begin() as connection:
            until = self._clock + int(seconds * _MICROSECONDS)
            self._hold(connection, lease, until)
        return Lease(lease.name, lease.holder, lease.epoch, asked + seconds)

    @contextmanager
    def fenced(self, lease: Lease) -> Iterator[Connection]:
        """A transaction whose writes hold only if the lease does, until they are committed."""
        with self._engine.begin() as connection:
            self._hold(connection, lease, _lease.c.until)
            yield connection

    def release(self, lease: Lease) -> None:
        """Gives a lease back before it runs out; one that was lost is left alone."""
        self.revoke(lease.name, lease.epoch)

    def revoke(self, name: str, epoch: int) -> None:
        """Ends the lease of a holder that is known to be gone."""
        with self._engine.begin() as connection:
            mine = update(_lease).where(_lease.c.name == name, _lease.c.epoch == epoch)
            connection.execute(mine.values(until=0))

    def forget(self, name: str) -> None:
        """Removes the line of something that is gone, if nobody holds it."""
        with self._engine.begin() as connection:
            gone = delete(_lease).where(_lease.c.name == name, _lease.c.until <= self._clock)
            connection.execute(gone)

    def lines(self) -> dict[str, LeaseLine]:
        """All leases that were ever taken, by name."""
        c = _lease.c
        wanted = select(c.name, c.holder, c.epoch, (c.until - self._clock).label("left"))
        with self._engine.connect() as connection:
            return {
                row.name: LeaseLine(row.name, row.holder, row.epoch, int(row.left) / _MICROSECONDS)
                for row in connection.execute(wanted)
            }

    def _hold(self, connection: Connection, lease: Lease, until: object) -> None:
        if self._limit:
            connection.exec_driver_sql(self._limit)
        mine = update(_lease).where(
            _lease.c.name == lease.name,
            _lease.c.epoch == lease.epoch,
            _lease.c.holder == lease.holder,
            _lease.c.until > self._clock,
        )
        if not connection.execute(mine.values(until=until)).rowcount:
            raise LeaseLost(f"the lease of {lease.name} was lost: another process may have it")
