"""PostgreSQL's change log: a slot, streamed by a receiver into segments that parts are made of."""

from truecopy.stream.postgresql.log import PostgreSQLLog, drop, open_log
from truecopy.stream.postgresql.needs import needs

__all__ = ["PostgreSQLLog", "drop", "needs", "open_log"]
