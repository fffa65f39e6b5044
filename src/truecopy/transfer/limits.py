"""What a transfer may take from the databases, and how that is changed while it runs."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any

from truecopy.model.errors import UsageError
from truecopy.model.hours import Hours, parse_hours


@dataclass(frozen=True)
class Limits:
    """Ceilings of one transfer.

    Attributes:
        rate: Rows per second that the copy reads; 0 for as many as it can.
        connections: The most that are open to either side; 0 for one per core.
        statement_seconds: What one statement of the copy should take at most.
        replicas: URLs of replicas whose lag holds the work up.
        max_lag: The lag in seconds above which it does.
        hours: Parts of the day in which rows are copied; none for the whole day.
        timezone: The zone of `hours`.
    """

    rate: int = 0
    connections: int = 0
    statement_seconds: float = 1.0
    replicas: tuple[str, ...] = field(default=(), repr=False)
    max_lag: float = 1.0
    hours: tuple[Hours, ...] = ()
    timezone: str = "UTC"

    def __post_init__(self) -> None:
        try:
            zoneinfo.ZoneInfo(self.timezone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise UsageError(
                f"there is no time zone {self.timezone}; write for example Europe/Berlin"
            ) from None

    def may_copy_at(self, moment: datetime) -> bool:
        """Whether an instant is in the hours."""
        here = moment.astimezone(zoneinfo.ZoneInfo(self.timezone)).time()
        return not self.hours or any(part.contains(here) for part in self.hours)

    def changed(self, changes: Mapping[str, Any]) -> Limits:
        """With what was changed while it ran, as `plain` writes it; what is not known is passed over."""
        values = {name: read(changes[name]) for name, read in _READ.items() if name in changes}
        return replace(self, **values)

    def plain(self) -> dict[str, Any]:
        """For JSON; the replicas, which hold passwords, are left out."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name in _READ}
        return {**values, "hours": [str(part) for part in self.hours]}


_READ: dict[str, Callable[[Any], Any]] = {
    "rate": int,
    "connections": int,
    "statement_seconds": float,
    "max_lag": float,
    "hours": lambda texts: tuple(map(parse_hours, texts)),
    "timezone": str,
}
"""What may be changed while a task runs. Replicas may not: their passwords would lie in the target."""
