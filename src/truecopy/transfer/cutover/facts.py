"""What becomes known in a cutover, and what it came to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from truecopy.stream.offset import Offset
from truecopy.transfer.cutover import state


@dataclass(frozen=True)
class CutoverReport:
    """What a cutover came to.

    Attributes:
        state: `switched`, `rehearsed` or `rolled-back`.
        downtime_seconds: How long nobody could write.
        position: The last one of the source's log before the switch.
        reason: Why it was rolled back.
        said: What somebody should know or do now.
        over: The task is at its end: nothing is left to be replicated, in neither direction.
        told: To be called when it was shown; see `TruecopyError.told`.
    """

    task: str
    state: str
    downtime_seconds: float = 0.0
    position: str = ""
    certificate: str = ""
    reason: str = ""
    said: tuple[str, ...] = ()
    seconds: float = 0.0
    over: bool = False
    told: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)

    @property
    def exit_code(self) -> int:
        return 3 if self.state == state.ROLLED_BACK else 0


@dataclass
class Facts:
    """What becomes known on the way, and is kept with each step.

    Attributes:
        locked_at: When writers were locked out, by the clock on the wall: whoever finishes it has another process.
        downtime: How long they were, once they are in again.
    """

    way: str = ""
    locked_at: float = 0.0
    downtime: float = 0.0
    before: dict[str, Any] = field(default_factory=dict)
    final: Offset | None = None
    origin: dict[str, Any] = field(default_factory=dict)
    opens: dict[str, Any] = field(default_factory=dict)
    returns: dict[str, Any] = field(default_factory=dict)
    certificate: str = ""

    def plain(self) -> dict[str, Any]:
        plain = {name: value for name, value in vars(self).items() if value}
        return plain | ({"final": self.final.plain()} if self.final else {})

    @classmethod
    def parse(cls, plain: Mapping[str, Any]) -> Facts:
        known = {name: plain[name] for name in vars(cls()) if name in plain}
        if "final" in known:
            known["final"] = Offset.parse(known["final"])
        return cls(**known)
