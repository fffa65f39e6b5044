"""What the stream makes on the server, and what it needs there: a publication, a slot, and rights."""

from __future__ import annotations

from dataclasses import dataclass

from truecopy.engines.postgresql import PostgreSQL
from truecopy.engines.postgresql_identity import identity_missing, lacking_identity
from truecopy.engines.protocols import Statement
from truecopy.engines.sql import table_sql
from truecopy.model.errors import CannotFinish, TruecopyError, UsageError
from truecopy.model.table import TableName
from truecopy.stream.log import LogGone
from truecopy.stream.postgresql.lsn import parse_lsn
from truecopy.stream.postgresql.names import Names, is_origin, is_wanted

SLOT_SECONDS = 300
"""How long to wait for transactions that are open when the slot is made."""

# While a statement runs, or a transaction, two rows may have one value of a key that can be deferred: whoever follows
# the log by such a key takes one of them for the other.
_TABLES = """
SELECT n.nspname::text, c.relname::text, c.relkind = 'p', c.relpersistence = 'p', COALESCE((
        SELECT NOT bool_or(i.indimmediate) FROM pg_index i
        WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
            AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attnotnull
                AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]))), false),
    pg_has_role(c.relowner, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
    AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY 1, 2
"""
_PUBLISHED = (
    "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = %s"
)
_PUBLICATION = """
SELECT pg_has_role(pubowner, 'USAGE'), obj_description(oid, 'pg_publication') = %s,
    pubinsert AND pubupdate AND pubdelete AND pubtruncate
FROM pg_publication WHERE pubname = %s
"""
_OURS = "made by truecopy"
"""The comment on a publication that may be changed and dropped; others belong to somebody."""
_SLOT = """
SELECT plugin::text, database::text, active_pid, wal_status, confirmed_flush_lsn::text,
    CASE WHEN NOT pg_is_in_recovery()
        THEN pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint END
FROM pg_replication_slots WHERE slot_name = %s
"""
_RIGHTS = """
SELECT current_setting('wal_level'), pg_is_in_recovery(), rolsuper,
    rolreplication OR EXISTS (
        SELECT FROM pg_roles r WHERE r.rolname IN ('rds_replication', 'rds_superuser', 'azure_pg_admin')
        AND pg_has_role(r.oid, 'MEMBER')),
    has_database_privilege(current_database(), 'CREATE'),
    rolname::text, current_database()::text,
    (SELECT count(*) FROM pg_replication_slots), current_setting('max_replication_slots')::int,
    (SELECT count(*) FROM pg_stat_replication), current_setting('max_wal_senders')::int
FROM pg_roles WHERE rolname = current_user
"""
_BLOCKERS = """
SELECT pid, extract(epoch FROM now() - xact_start)::int FROM pg_stat_activity
WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL
ORDER BY xact_start LIMIT 3
"""


@dataclass(frozen=True)
class TableFacts:
    """A table of the database, and whether it can be published.

    Attributes:
        lacking: Itself and its partitions, as far as they have no replica identity.
        deferrable: It has keys, and all of them can be deferred.
    """

    name: TableName
    lacking: tuple[TableName, ...]
    partitioned: bool
    logged: bool
    deferrable: bool
    owned: bool

    @property
    def publishable(self) -> bool:
        return self.logged and not self.deferrable and not self.lacking


@dataclass(frozen=True)
class Slot:
    """A slot as the server knows it.

    Attributes:
        confirmed: Everything before it was received.
        held: Bytes of WAL that the server keeps for it.
    """

    confirmed: int
    held: int
    active_pid: int | None


@dataclass(frozen=True)
class Publication:
    """A publication that exists.

    Attributes:
        owned: This user may change it.
        ours: A stream made it.
        complete: It publishes every kind of change.
    """

    owned: bool
    ours: bool
    complete: bool


@dataclass(frozen=True)
class Plan:
    """What the publication has to become.

    Attributes:
        found: The publication as it is, if it is there.
        add, drop: Tables to list, and to list no more.
        warnings: What should be known, a line each.
        left_out: Tables that the stream will not carry, and why, with the remedy behind the last colon.
    """

    found: Publication | None
    add: tuple[TableFacts, ...]
    drop: tuple[TableName, ...]
    warnings: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...] = ()


def list_tables(session: PostgreSQL) -> list[TableFacts]:
    """Every table of the database."""
    lacking = lacking_identity(session.fetch)
    return [
        TableFacts(name, lacking.get(name, ()), *facts)
        for schema, table, *facts in session.fetch(Statement(_TABLES))
        for name in (TableName(schema, table),)
    ]


def plan_publication(session: PostgreSQL, names: Names, patterns: tuple[str, ...]) -> Plan:
    """Compares the publication with the tables that are wanted and can be published."""
    tables = list_tables(session)
    wanted = [t for t in tables if is_wanted(str(t.name), patterns) or is_origin(str(t.name))]
    listed = {TableName(*row) for row in session.fetch(Statement(_PUBLISHED, (names.publication,)))}
    found = _find_publication(session, names)
    warnings, left_out = [], []
    for pattern in patterns:
        if not any(is_wanted(str(t.name), (pattern,)) for t in tables):
            if "*" not in pattern and not found:
                raise UsageError(f"there is no table {pattern} on {session.endpoint}")
            warnings.append(f"no table is called {pattern}")
    for table in wanted:
        if not table.publishable:
            if {str(table.name), table.name.table} & set(patterns):
                raise UsageError(f"{table.name} cannot be streamed: {_remedy(session, table)}")
            left_out.append((str(table.name), _remedy(session, table)))
        elif table.partitioned:
            warnings.append(
                f"{table.name} is partitioned: TRUNCATE of a single partition does not reach the stream"
            )
    publishable = [table for table in wanted if table.publishable]
    new = tuple(table for table in publishable if table.name not in listed)
    if found and not found.ours:
        why = f"it is not in the publication {names.publication}, which is not ours to change: add it there"
        left_out += [(str(table.name), why) for table in new]
        return Plan(found, (), (), tuple(warnings), tuple(left_out))
    if found:
        warnings += [
            f"{table.name} is new to the stream: what happened to it before is not in there"
            for table in new
        ]
    gone = tuple(sorted(listed - {table.name for table in publishable}))
    return Plan(found, new, gone, tuple(warnings), tuple(left_out))


def sync_publication(session: PostgreSQL, names: Names, plan: Plan) -> None:
    """Makes the publication, or changes its list of tables."""
    publication = session.dialect.quote(names.publication)
    # Without ONLY, children by inheritance would be published as well, which may have no identity.
    added = ", ".join(f"ONLY {table_sql(session.dialect, table.name)}" for table in plan.add)
    if plan.found is None:
        tables = f" FOR TABLE {added}" if added else ""
        made = f"CREATE PUBLICATION {publication}{tables} WITH (publish_via_partition_root = true)"
        session.execute(Statement(f"{made}; COMMENT ON PUBLICATION {publication} IS '{_OURS}'"))
        return
    if added:
        session.execute(Statement(f"ALTER PUBLICATION {publication} ADD TABLE {added}"))
    if plan.drop:
        dropped = ", ".join(f"ONLY {table_sql(session.dialect, name)}" for name in plan.drop)
        session.execute(Statement(f"ALTER PUBLICATION {publication} DROP TABLE {dropped}"))


def find_slot(session: PostgreSQL, names: Names) -> Slot | None:
    """The slot, if there is one; `LogGone` when the server has thrown away what it stood for."""
    rows = session.fetch(Statement(_SLOT, (names.slot,)))
    if not rows:
        return None
    plugin, database, pid, wal_status, confirmed, held = rows[0]
    if plugin != "pgoutput" or database != (session.endpoint.database or database):
        raise UsageError(
            f"the slot {names.slot} on {session.endpoint} is not ours: it belongs to the database"
            f" {database} and decodes with {plugin}; choose another name for the slot"
        )
    if wal_status == "lost" or confirmed is None:
        raise LogGone(
            f"the server removed WAL that the slot {names.slot} on {session.endpoint} still needed"
            " (max_slot_wal_keep_size, idle_replication_slot_timeout): changes are lost;"
            " drop the stream, and start anew from a copy"
        )
    return Slot(parse_lsn(confirmed), int(held or 0), pid)


def make_slot(session: PostgreSQL, names: Names) -> Slot:
    """Makes the slot, which takes until every transaction that is open now has ended."""
    limit = f"SET statement_timeout = '{SLOT_SECONDS}s'"
    session.execute(Statement(limit))
    try:
        session.fetch(
            Statement("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (names.slot,))
        )
    except CannotFinish as error:
        if "statement timeout" not in str(error):
            raise
        blockers = ", ".join(
            f"{pid} (for {seconds} s)" for pid, seconds in session.fetch(Statement(_BLOCKERS))
        )
        raise CannotFinish(
            f"the slot {names.slot} on {session.endpoint} could not be made in {SLOT_SECONDS} s:"
            f" it waits for open transactions to end, of the processes {blockers}"
        ) from None
    finally:
        session.execute(Statement("RESET statement_timeout"))
    slot = find_slot(session, names)
    assert slot is not None
    return slot


def missing(session: PostgreSQL, names: Names, plan: Plan) -> list[str]:
    """What keeps the database from being streamed, a line each with its remedy."""
    (row,) = session.fetch(Statement(_RIGHTS))
    wal_level, standby, superuser, may_replicate, may_create, user, database, *counts = row
    slots, most_slots, senders, most_senders = counts
    quote = session.dialect.quote
    lines = []
    if standby:
        lines.append(f"{session.endpoint} is a standby: stream from its primary")
    if wal_level != "logical":
        lines.append(
            f"wal_level is {wal_level}: ALTER SYSTEM SET wal_level = 'logical', then restart the server"
        )
    if not superuser and not may_replicate:
        lines.append(
            f"{user} may not replicate: ALTER ROLE {quote(user)} REPLICATION"
            f" (on Amazon RDS: GRANT rds_replication TO {quote(user)})"
        )
    if plan.found and not plan.found.complete:
        lines.append(
            f"the publication {names.publication} leaves changes out: ALTER PUBLICATION"
            f" {quote(names.publication)} SET (publish = 'insert, update, delete, truncate')"
        )
    if not superuser:
        lines += _missing_for_publication(session, names, plan, user, database, may_create)
    slot = find_slot(session, names)
    if slot is None and slots >= most_slots:
        lines.append(
            f"all {most_slots} replication slots are taken: drop one that nobody uses"
            " (SELECT pg_drop_replication_slot(…)), or raise max_replication_slots and restart"
        )
    if (slot is None or slot.active_pid is None) and senders >= most_senders:
        lines.append(
            f"all {most_senders} WAL senders are busy: raise max_wal_senders and restart the server"
        )
    return lines


def _missing_for_publication(
    session: PostgreSQL, names: Names, plan: Plan, user: str, database: str, may_create: bool
) -> list[str]:
    quote = session.dialect.quote
    lines = []
    if plan.found is None and not may_create:
        lines.append(
            f"{user} may not make a publication: GRANT CREATE ON DATABASE {quote(database)}"
            f" TO {quote(user)}"
        )
    if plan.found and not plan.found.owned and (plan.add or plan.drop):
        lines.append(
            f"{user} may not change the publication {names.publication}:"
            f" ALTER PUBLICATION {quote(names.publication)} OWNER TO {quote(user)}"
        )
    lines += [
        f"{user} does not own {table.name}, and only an owner may publish a table:"
        f" ALTER TABLE {table_sql(session.dialect, table.name)} OWNER TO {quote(user)},"
        f" or make {quote(user)} a member of the role that owns it"
        for table in plan.add
        if not table.owned
    ]
    return lines


def drop_from_server(session: PostgreSQL, names: Names) -> None:
    """Removes the slot, whoever is still connected to it, and the publication that a stream made."""
    for _ in range(50):
        rows = session.fetch(Statement(_SLOT, (names.slot,)))
        if not rows:
            break
        if rows[0][2] is not None:
            session.fetch(Statement("SELECT pg_terminate_backend(%s)", (rows[0][2],)))
            session.fetch(Statement("SELECT pg_sleep(0.1)"))
        try:
            session.fetch(Statement("SELECT pg_drop_replication_slot(%s)", (names.slot,)))
        except TruecopyError as error:
            if "is active" not in str(error):
                raise
    publication = _find_publication(session, names)
    if publication and publication.ours:
        session.execute(
            Statement(f"DROP PUBLICATION IF EXISTS {session.dialect.quote(names.publication)}")
        )


def _find_publication(session: PostgreSQL, names: Names) -> Publication | None:
    rows = session.fetch(Statement(_PUBLICATION, (_OURS, names.publication)))
    return Publication(*map(bool, rows[0])) if rows else None


def _remedy(session: PostgreSQL, table: TableFacts) -> str:
    name = table_sql(session.dialect, table.name)
    if not table.logged:
        return f"it is not logged: ALTER TABLE {name} SET LOGGED"
    if table.deferrable:
        return (
            "its key can be deferred, so two rows may have it at once in the log, which does not tell them apart then:"
            " drop it and add it NOT DEFERRABLE, or give the table another key"
        )
    return identity_missing(session.dialect, table.name, table.lacking)


def slot_warnings(names: Names, slot: Slot, most: int) -> list[str]:
    """What should be looked at before the disk is full."""
    if slot.held <= most:
        return []
    held = f"the slot {names.slot} holds back {slot.held >> 20:,} MiB of WAL"
    return [
        f"{held}: its reader is behind, or a transaction is open for long; a full disk stops the server"
    ]
