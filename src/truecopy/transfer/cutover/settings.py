"""How a cutover is to be done, as plain values; the task file is one way to say it."""

from __future__ import annotations

from dataclasses import dataclass, field

from truecopy.model.secret import Secret

AUTO, COMMAND, CALLBACK, NONE = "auto", "command", "callback", "none"
"""Ways to hold writers off that are no engine's own: its first one, a program, an HTTP address, by hand."""


@dataclass(frozen=True)
class Commands:
    """Shell commands; each may be run again, and must leave everything done when it ends with 0.

    Attributes:
        hold: Keeps writers from the old side.
        release: Lets them in there again.
        switch: Lets them into the new side.
        attempts: How often one that ends otherwise is run.
    """

    hold: str = ""
    release: str = ""
    switch: str = ""
    attempts: int = 3


@dataclass(frozen=True)
class Callback:
    """An HTTP address that is told `hold`, `release` and `switch`; any answer but 2xx is a failure."""

    url: Secret = field(repr=False)
    attempts: int = 5
    seconds: float = 10.0


@dataclass(frozen=True)
class How:
    """One cutover.

    Attributes:
        lock: How writers are held off.
        max_lag: Seconds that a change may take to the target when writers are locked out.
        max_wait: Seconds after which it is given up because it takes longer.
        max_downtime: Seconds after which it is given up, and writers are let in again.
        sequences: Whether sequences and AUTO_INCREMENT of the target are set.
        reverse: Whether changes of the new side are to be replicated back.
        verify: The verifiers that prove it: `inline`, `iterative`, `checksum`, `target`.
    """

    lock: str = AUTO
    max_lag: float = 5.0
    max_wait: float = 600.0
    max_downtime: float = 60.0
    sequences: bool = True
    reverse: bool = True
    commands: Commands = field(default_factory=Commands)
    callback: Callback | None = None
    verify: tuple[str, ...] = ("inline",)
