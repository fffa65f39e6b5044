"""One shard: several servers with the same data, of which one is read from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.stream.log import (
    ChangeLog,
    Follows,
    Lag,
    LogGone,
    Mark,
    Part,
    RecordsOrigins,
    Wanted,
    open_log,
)

HEALTH_SECONDS = 5.0

T = TypeVar("T")


class ShardLog:
    """A shard's log (see `ChangeLog`), on whichever of its servers is healthy, current and reaches back far enough."""

    def __init__(self, servers: tuple[Endpoint, ...], wanted: Wanted, max_lag: float) -> None:
        self._servers = servers
        self._wanted = wanted
        self._max_lag = max_lag
        self._at = 0
        self._log: ChangeLog | None = None
        self._checked_at = 0.0

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

    def is_driver_local(self) -> bool:
        """Whether it is a file of this machine, which executors elsewhere cannot open."""
        return self._use(lambda log: bool(getattr(log, "driver_local", False)))

    def oldest(self) -> Mark:
        return self._use(lambda log: log.oldest())

    def current(self) -> Mark:
        return self._use(lambda log: log.current())

    def seek(self, position: str) -> Mark:
        return self._use(lambda log: log.seek(position))

    def seek_time(self, at: int) -> Mark:
        return self._use(lambda log: log.seek_time(at))

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
        return self._use(lambda log: log.advance(start, max_bytes, wait))

    def split(self, start: Mark, end: Mark, parts: int) -> Sequence[Part]:
        return self._use(lambda log: log.split(start, end, parts))

    def lag(self, mark: Mark) -> Lag:
        return self._use(lambda log: log.lag(mark))

    def release(self, mark: Mark) -> None:
        self._use(lambda log: log.release(mark))

    def _use(self, action: Callable[[ChangeLog], T]) -> T:
        """Runs an action on the log of the server in use; where that fails, on the next one's."""
        failures: list[TruecopyError] = []
        for _ in self._servers:
            try:
                return action(self._healthy())
            except CannotFinish as error:
                failures.append(error)
                self._leave()
        if all(isinstance(failure, LogGone) for failure in failures):
            raise failures[0]
        if len(failures) == 1:
            raise failures[0]
        reasons = "; ".join(str(failure) for failure in failures)
        raise CannotFinish(f"no server of shard {self.name} can be streamed from: {reasons}")

    def _healthy(self) -> ChangeLog:
        if self._log is None:
            log = open_log(self._servers[self._at], self._for_server())
            self._refuse_lagging(log)
            self._log = log
            self._checked_at = time.monotonic()
        elif len(self._servers) > 1 and time.monotonic() - self._checked_at > HEALTH_SECONDS:
            self._checked_at = time.monotonic()
            self._refuse_lagging(self._log)
        return self._log

    def _refuse_lagging(self, log: ChangeLog) -> None:
        if len(self._servers) == 1 or not isinstance(log, Follows):
            return  # there is none to go to
        behind = log.behind()
        where = self._servers[self._at]
        if behind is None:
            raise CannotFinish(f"{where} does not follow its source any more")
        if behind > self._max_lag:
            raise CannotFinish(f"{where} is {behind:.0f} s behind its source")

    def _for_server(self) -> Wanted:
        others = tuple(s for i, s in enumerate(self._servers) if i != self._at)
        return replace(self._wanted, fallbacks=others)

    def _leave(self) -> None:
        self.close()
        self._at = (self._at + 1) % len(self._servers)
