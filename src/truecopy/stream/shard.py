"""One shard: several servers with the same data, of which one is read from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.position import contains, parse_position
from truecopy.stream.log import (
    ChangeLog,
    Fed,
    Follows,
    KnowsVisible,
    Lag,
    LogGone,
    Mark,
    Part,
    RecordsOrigins,
    Wanted,
    open_log,
)

HEALTH_SECONDS = 5.0
"""How often the server in use is asked whether it is still current."""

PATIENCE_SECONDS = 60.0
"""How long a shard may have no server at all, as while one restarts, before its stream gives up."""

T = TypeVar("T")


class ShardLog:
    """A shard's log (see `ChangeLog`), on whichever of its servers is healthy, current and reaches back far enough."""

    def __init__(self, servers: tuple[Endpoint, ...], wanted: Wanted, max_lag: float) -> None:
        self.servers = servers
        self._wanted = wanted
        self._max_lag = max_lag
        self._at = 0
        self._log: ChangeLog | None = None
        self._checked_at = 0.0
        self._failing_since: float | None = None

    @property
    def name(self) -> str:
        return self._wanted.shard

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def missing(self) -> list[str]:
        return self._use(lambda log: log.missing())

    def warnings(self) -> list[str]:
        """What the user should know of the source."""
        return self._use(lambda log: list(getattr(log, "warnings", ())))

    def left_out(self) -> dict[str, str]:
        """Tables that are wanted and that it does not carry, and why."""
        return self._use(lambda log: dict(getattr(log, "left_out", {})))

    def is_driver_local(self) -> bool:
        """Whether it is a file of this machine, which executors elsewhere cannot open."""
        return self._use(lambda log: bool(getattr(log, "driver_local", False)))

    def oldest(self) -> Mark:
        return self._use(lambda log: log.oldest())

    def current(self) -> Mark:
        return self._use(lambda log: log.current())

    def visible(self) -> Mark:
        """A visibility point; of a log that is never ahead of its tables, the end."""
        return self._use(
            lambda log: log.visible() if isinstance(log, KnowsVisible) else log.current()
        )

    def seek(self, position: str) -> Mark:
        return self._use(lambda log: log.seek(position))

    def seek_time(self, at: int) -> Mark:
        """As of any log; refused where filtered replication filled the shard only after that time."""

        def seek(log: ChangeLog) -> Mark:
            if isinstance(log, Fed) and log.fed_by() and log.fed_since() > at:
                raise LogGone(
                    f"{self.servers[self._at]} was filled later, by filtered replication from"
                    f" {', '.join(sorted(log.fed_by()))}"
                )
            return log.seek_time(at)

        return self._use(seek)

    def fed_by(self) -> Mapping[str, str] | None:
        """The shards that filtered replication brought changes from, and how far; None where that is not known."""
        return self._use(lambda log: log.fed_by() if isinstance(log, Fed) else None)

    def seek_origin(self, origins: Mapping[str, str]) -> Mark:
        def seek(log: ChangeLog) -> Mark:
            if not isinstance(log, RecordsOrigins):
                raise UsageError(
                    f"the log of shard {self.name} does not say where filtered replication stands, so the stream"
                    " cannot follow a reshard: use stop_on_reshard"
                )
            return log.seek_origin(origins)

        return self._use(seek)

    def advance(self, start: Mark, max_bytes: int, wait: float) -> Mark:
        """As of any log; a shard none of whose servers can be read now has no news for a while."""

        def advance(log: ChangeLog) -> Mark:
            try:
                return log.advance(start, max_bytes, wait)
            except LogGone:
                self._refuse_behind(log, start)
                raise

        try:
            moved = self._use(advance)
        except LogGone:
            raise
        except CannotFinish:
            now = time.monotonic()
            if self._failing_since is None:
                self._failing_since = now
            if now - self._failing_since > PATIENCE_SECONDS:
                raise
            time.sleep(min(wait, PATIENCE_SECONDS))
            return start
        self._failing_since = None
        return moved

    def split(self, start: Mark, end: Mark, parts: int) -> Sequence[Part]:
        return self._use(lambda log: log.split(start, end, parts))

    def lag(self, mark: Mark) -> Lag:
        return self._use(lambda log: log.lag(mark))

    def release(self, mark: Mark) -> None:
        self._use(lambda log: log.release(mark))

    # Which server

    def _use(self, action: Callable[[ChangeLog], T]) -> T:
        """Runs an action on the log of the server in use; where that fails, on the others'."""
        failures: dict[int, CannotFinish] = {}
        while True:
            log = self._healthy(failures)
            if log is None:
                raise self._summary(failures)
            try:
                return action(log)
            except CannotFinish as error:
                failures[self._at] = error
                self.close()

    def _summary(self, failures: Mapping[int, CannotFinish]) -> CannotFinish:
        reasons = list(failures.values())
        if not reasons:
            return CannotFinish(
                f"the stream stands on shard {self.name}, which the keyspace does not have any more: keep old"
                " shards in the file, with serving: false, until the stream has left them"
            )
        # "Too old" is the answer only where every server says so: another may come back.
        if len(reasons) == 1 or all(isinstance(reason, LogGone) for reason in reasons):
            return reasons[0]
        said = "; ".join(str(reason) for reason in reasons)
        return CannotFinish(f"no server of shard {self.name} can be streamed from: {said}")

    def _healthy(self, failures: dict[int, CannotFinish]) -> ChangeLog | None:
        """The log in use, or that of a server that has not failed; a current one before one that lags."""
        if self._log is not None:
            try:
                if not self._is_due() or self._is_current(self._log):
                    return self._log
            except CannotFinish as error:
                failures[self._at] = error
                self.close()
        lagging = self._move_to_current(failures)
        if self._log is None and lagging:
            # Better late than never: with the source gone, a replica that follows nobody has all there is.
            self._choose(lagging[0], self._open(lagging[0]))
        return self._log

    def _move_to_current(self, failures: dict[int, CannotFinish]) -> list[int]:
        """Changes to the next server that is current, if there is one; gives back those that lag."""
        lagging = []
        for at in self._in_turn():
            if at in failures or (at == self._at and self._log is not None):
                continue
            log = self._open(at)
            try:
                if self._is_current(log):
                    self._choose(at, log)
                    return []
            except CannotFinish as error:
                failures[at] = error
            else:
                lagging.append(at)
            log.close()
        return lagging

    def _open(self, at: int) -> ChangeLog:
        others = tuple(server for i, server in enumerate(self.servers) if i != at)
        return open_log(self.servers[at], replace(self._wanted, fallbacks=others))

    def _choose(self, at: int, log: ChangeLog) -> None:
        self.close()
        self._at, self._log, self._checked_at = at, log, time.monotonic()

    def _in_turn(self) -> list[int]:
        count = len(self.servers)
        return [(self._at + step) % count for step in range(count)]

    def _is_due(self) -> bool:
        return (
            len(self.servers) > 1 and time.monotonic() - self._checked_at > HEALTH_SECONDS
        )  # a single one is kept: there is none to go to

    def _is_current(self, log: ChangeLog) -> bool:
        self._checked_at = time.monotonic()
        if len(self.servers) == 1 or not isinstance(log, Follows):
            return True
        behind = log.behind()
        return behind is not None and behind <= self._max_lag

    def _refuse_behind(self, log: ChangeLog, start: Mark) -> None:
        """A server that has not yet got what the stream has given is no server whose log is gone."""
        end = log.current()
        if not contains(parse_position(end.position), parse_position(start.position)):
            where = self.servers[self._at]
            raise CannotFinish(f"{where} is at {end.position}, behind the stream")
