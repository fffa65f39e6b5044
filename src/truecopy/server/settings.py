"""How a server is to be reached, and what it allows."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from truecopy.model.errors import UsageError
from truecopy.tasks.keeper import LEASE_SECONDS
from truecopy.tasks.supervisor import AUDIT_DAYS, EVENTS_DAYS

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


@dataclass(frozen=True)
class ServerSettings:
    """One server.

    Attributes:
        host, port: Where it listens.
        names: Names by which it may be called besides those of the loopback; each makes tokens necessary.
        require_token: Also on the loopback.
        certificate, key: Files for TLS.
        rate, burst: Requests per second of one address, and how many at once.
        body: The largest request in bytes.
        streams: How many event streams at once.
        program: What the commands of tasks are of; None: this program.
        lease_seconds: For how long a keeper that is gone is waited for.
        events_days, audit_days: For how long events and the audit log are kept; 0 for ever.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    names: tuple[str, ...] = ()
    require_token: bool = False
    certificate: str | None = None
    key: str | None = None
    rate: float = 50.0
    burst: int = 300
    body: int = 1 << 20
    streams: int = 100
    program: Sequence[str] | None = None
    lease_seconds: float = LEASE_SECONDS
    events_days: float = EVENTS_DAYS
    audit_days: float = AUDIT_DAYS

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise UsageError("TLS needs both: --tls-cert FILE and --tls-key FILE")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def needs_token(self) -> bool:
        return self.require_token or not self.is_loopback or bool(self.names)

    @property
    def scheme(self) -> str:
        return "https" if self.certificate else "http"

    def answers_to(self, name: str) -> bool:
        """Whether a request may call it so: a name that somebody else's DNS gave it is none of its own."""
        if name in LOOPBACK_NAMES or name in self.names:
            return True
        return not self.is_loopback and (not self.names or _is_address(name))


def _is_address(name: str) -> bool:
    """An address cannot be made to mean another machine."""
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
