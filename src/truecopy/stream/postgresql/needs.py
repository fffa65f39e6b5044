"""What a database lacks to be streamed, asked without the slot and the publication that a stream makes."""

from __future__ import annotations

from truecopy.engines.postgresql import PostgreSQL
from truecopy.model.endpoint import Endpoint
from truecopy.stream.log import Wanted
from truecopy.stream.needs import Needs
from truecopy.stream.postgresql import server
from truecopy.stream.postgresql.log import PostgreSQLLog
from truecopy.stream.postgresql.names import stream_names


def needs(endpoint: Endpoint, wanted: Wanted) -> Needs:
    """See `truecopy.stream.needs`."""
    names = stream_names(endpoint, wanted)
    with PostgreSQL(endpoint) as session:
        plan = server.plan_publication(session, names, wanted.tables)
        missing = server.missing(session, names, plan)
    return Needs(PostgreSQLLog.level, tuple(missing), plan.warnings, plan.left_out)
