"""What PostgreSQL says before rows move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from truecopy.engines import postgresql_create
from truecopy.engines.advice import (
    ACCENTS,
    CASE,
    FAR_TIMES,
    NO_NUMBERS,
    SPACES,
    Arrival,
    Retention,
    RowLimit,
    Trigger,
    Uncarried,
)
from truecopy.engines.postgresql_inventory import inventory
from truecopy.engines.postgresql_left_out import changed_keys
from truecopy.engines.protocols import Statement
from truecopy.engines.relational import RelationalSession
from truecopy.engines.sql import table_sql
from truecopy.model.errors import TruecopyError
from truecopy.model.finding import Finding, Level, Subject
from truecopy.model.guarantees import TargetLevel
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Date, Decimal, Float, Timestamp

_TABLE_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")
_TABLE = "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"
_PRIMARY = "JOIN pg_constraint p ON p.conrelid = c.oid AND p.contype = 'p'"
_TRIGGERS = """
SELECT n.nspname::text, c.relname::text, quote_ident(t.tgname), t.tgenabled::text,
    CASE WHEN t.tgtype & 2 > 0 THEN 'BEFORE' WHEN t.tgtype & 64 > 0 THEN 'INSTEAD OF' ELSE 'AFTER' END
    || CASE WHEN t.tgtype & 4 > 0 THEN ' INSERT' ELSE '' END || CASE WHEN t.tgtype & 16 > 0 THEN ' UPDATE' ELSE '' END
    || CASE WHEN t.tgtype & 8 > 0 THEN ' DELETE' ELSE '' END || CASE WHEN t.tgtype & 32 > 0 THEN ' TRUNCATE' ELSE '' END
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE NOT t.tgisinternal ORDER BY 1, 2, 3
"""
_COLLATIONS = """
SELECT a.attname::text, t.typname::text, CASE WHEN NOT l.collisdeterministic
    THEN quote_ident(ln.nspname) || '.' || quote_ident(l.collname) END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_collation l ON l.oid = a.attcollation LEFT JOIN pg_namespace ln ON ln.oid = l.collnamespace
WHERE n.nspname = %s AND c.relname = %s AND (l.oid IS NOT NULL)
"""
_PAIRS = {CASE: ("a", "A"), ACCENTS: ("e", "é"), SPACES: ("a", "a ")}


class PostgreSQLAdvisor:
    """See `truecopy.engines.advice.Advisor`.

    Args:
        session: The session.
        ignores_references: Whether it may switch triggers and foreign keys off for itself.
    """

    target_level = TargetLevel.TRANSACTION
    holds = frozenset({FAR_TIMES, NO_NUMBERS})

    def __init__(self, session: RelationalSession, *, ignores_references: bool) -> None:
        self._session = session
        self._ignores_references = ignores_references

    def as_source(self, tables: Sequence[Table]) -> Iterator[Finding]:
        yield from self._hidden_rows(tables, "reading")
        yield from changed_keys(self._session.fetch, self._name, tables)

    def as_target(self, arrival: Arrival) -> Iterator[Finding]:
        ((standby, read_only),) = self._fetch(
            "SELECT pg_is_in_recovery(),"
            " (SELECT reset_val FROM pg_settings WHERE name = 'default_transaction_read_only') = 'on'"
        )
        if standby:
            yield Finding(
                Level.ERROR,
                Subject.SETTINGS,
                "the target is a standby, which takes no writes",
                "name its primary as the target",
            )
        elif read_only:
            yield Finding(
                Level.ERROR,
                Subject.SETTINGS,
                "transactions of the target are read-only (default_transaction_read_only is on)",
                f"ALTER ROLE {self._user()} SET default_transaction_read_only = off",
            )
        yield from self._hidden_rows(arrival.existing, "writing")
        for schema in sorted({table.name.schema for table in arrival.made if table.name.schema}):
            if not self._fetch("SELECT 1 FROM pg_namespace WHERE nspname = %s", schema):
                yield Finding(
                    Level.ERROR,
                    Subject.TABLES,
                    f"the target has no schema {schema}, to which tables are routed",
                    f"CREATE SCHEMA {self._quote(schema)}",
                )

    def missing_rights(self, arrival: Arrival) -> Iterator[Finding]:
        user = self._user()
        yield from self._schema_rights(user, arrival)
        for table in arrival.existing:
            yield from self._table_rights(user, table, table in arrival.unfinished)
        if not self._ignores_references:
            yield self._replica_role(user, arrival)

    def retention(self) -> Retention | None:
        ((megabytes, version),) = self._fetch(
            "SELECT setting::bigint, current_setting('server_version_num')::int FROM pg_settings"
            " WHERE name = 'max_slot_wal_keep_size'"
        )
        if megabytes < 0:
            return None
        rate = None
        if version >= 140000:
            ((rate,),) = self._fetch(
                "SELECT (wal_bytes / NULLIF(extract(epoch FROM now() - stats_reset), 0))::float8 FROM pg_stat_wal"
            )
        remedy = "ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf()"
        return Retention(
            "max_slot_wal_keep_size", remedy, bytes=megabytes << 20, bytes_per_second=rate
        )

    def triggers(self) -> list[Trigger]:
        firing = "RA" if self._ignores_references else "OA"
        found = []
        for schema, table, name, enabled, event in self._fetch(_TRIGGERS):
            place = TableName(schema, table)
            removal = f"ALTER TABLE {self._name(place)} DISABLE TRIGGER {name}"
            found.append(Trigger(place, name, event, enabled in firing, removal))
        return found

    def passed_over(self, table: Table) -> Mapping[str, frozenset[str]]:
        found = {}
        rows = self._fetch(_COLLATIONS, table.name.schema, table.name.table)
        for column, kind, collation in rows:
            passed = self._collation(collation) if collation else set()
            if kind == "citext":
                passed.add(CASE)
            if kind == "bpchar":
                passed.add(SPACES)
            found[column] = frozenset(passed)
        return found

    def time_zone(self) -> str | None:
        ((zone,),) = self._fetch("SELECT reset_val FROM pg_settings WHERE name = 'TimeZone'")
        return str(zone)

    def set_time_zone(self, zone: str) -> str:
        ((database,),) = self._fetch("SELECT quote_ident(current_database())")
        return f"ALTER DATABASE {database} SET timezone = '{zone}'"

    def free_bytes(self) -> int | None:
        return None

    def space_hint(self) -> str:
        try:
            ((folder,),) = self._fetch("SHOW data_directory")
        except TruecopyError:
            folder = "DATA_DIRECTORY"  # which only some users may know
        return f"df -h {folder} on the server"

    def sql_mode(self) -> frozenset[str] | None:
        return None

    def set_sql_mode(self, modes: frozenset[str]) -> str:  # noqa: ARG002
        return ""

    def row_limit(self) -> RowLimit | None:
        return None

    def largest_row(self, table: Table) -> int:
        sizes = [f"COALESCE(octet_length({self._quote(c.name)}::text), 0)" for c in table.columns]
        name = table_sql(self._session.dialect, table.name)
        ((size,),) = self._fetch(f"SELECT max({' + '.join(sizes)}) FROM {name}")
        return int(size or 0)

    def odd_values(self, table: Table) -> Iterator[tuple[str, str]]:
        name = table_sql(self._session.dialect, table.name)
        for column in table.columns:
            one = self._session.dialect.quote(column.name)
            match column.type:
                case Date() | Timestamp():
                    odd = f"NOT isfinite({one}) OR {one} < '0001-01-01' OR {one} >= '10000-01-01'"
                    what = FAR_TIMES
                case Decimal() | Float():
                    # As texts, which no number is too long for.
                    odd, what = f"{one}::text IN ('NaN', 'Infinity', '-Infinity')", NO_NUMBERS
                case _:
                    continue
            if self._fetch(f"SELECT 1 FROM {name} WHERE {odd} LIMIT 1"):
                yield column.name, what

    def alter_column(self, name: TableName, column: Column, like: Column, of: Table) -> str:
        one = self._quote(column.name)
        native = postgresql_create.type_of(of, like, lambda _: True)
        null = f", ALTER COLUMN {one} DROP NOT NULL" if like.nullable > column.nullable else ""
        return f"ALTER TABLE {self._name(name)} ALTER COLUMN {one} TYPE {native}{null}"

    def change_key(self, table: Table, key: Sequence[str]) -> str:
        held = self._fetch(
            f"SELECT p.conname::text {_TABLE.replace('WHERE', _PRIMARY + ' WHERE')}",
            *(table.name.schema, table.name.table),
        )
        drop = "".join(f"DROP CONSTRAINT {self._quote(name)}, " for (name,) in held)
        columns = ", ".join(map(self._quote, key))
        return f"ALTER TABLE {self._name(table.name)} {drop}ADD PRIMARY KEY ({columns})"

    def inventory(self) -> list[Uncarried]:
        return inventory(self._session.fetch)

    def _hidden_rows(self, tables: Sequence[Table], doing: str) -> Iterator[Finding]:
        for table in tables:
            asked = f"SELECT row_security_active(c.oid) {_TABLE}"
            if self._fetch(asked, table.name.schema, table.name.table) == [(True,)]:
                yield Finding(
                    Level.ERROR,
                    Subject.RIGHTS,
                    f"policies hide rows from {self._user()}: {doing} it is refused",
                    f"ALTER ROLE {self._user()} BYPASSRLS",
                    str(table.name),
                )

    def _schema_rights(self, user: str, arrival: Arrival) -> Iterator[Finding]:
        """To make tables, and those in which the task keeps its progress."""
        ((own,),) = self._fetch("SELECT current_schema()::text")
        if own is None:
            yield Finding(
                Level.ERROR,
                Subject.RIGHTS,
                f"{user} has no schema on its search_path in which the task could keep its progress",
                f"GRANT USAGE, CREATE ON SCHEMA public TO {user}",
            )
        made = {table.name.schema for table in arrival.made}
        for schema in sorted(filter(None, {own, *made})):
            rows = self._fetch(
                "SELECT has_schema_privilege(oid, 'USAGE'), has_schema_privilege(oid, 'CREATE')"
                " FROM pg_namespace WHERE nspname = %s",
                schema,
            )
            for usage, create in rows:
                lacking = [w for w, has in (("USAGE", usage), ("CREATE", create)) if not has]
                if lacking:
                    rights = ", ".join(lacking)
                    yield Finding(
                        Level.ERROR,
                        Subject.RIGHTS,
                        f"{user} lacks {rights} on the schema {schema} of the target",
                        f"GRANT {rights} ON SCHEMA {self._quote(schema)} TO {user}",
                    )

    def _table_rights(self, user: str, table: Table, unfinished: bool) -> Iterator[Finding]:
        asked = ", ".join(f"has_table_privilege(c.oid, '{right}')" for right in _TABLE_RIGHTS)
        rows = self._fetch(
            f"SELECT pg_has_role(c.relowner, 'USAGE'), {asked} {_TABLE}",
            table.name.schema,
            table.name.table,
        )
        for owned, *has in rows:
            lacking = [right for right, fine in zip(_TABLE_RIGHTS, has, strict=True) if not fine]
            if lacking:
                rights = ", ".join(lacking)
                yield Finding(
                    Level.ERROR,
                    Subject.RIGHTS,
                    f"{user} lacks {rights} on the target's table",
                    f"GRANT {rights} ON {self._name(table.name)} TO {user}",
                    str(table.name),
                )
            if not owned and unfinished:
                yield Finding(
                    Level.ERROR,
                    Subject.RIGHTS,
                    f"{user} does not own the target's table, and only an owner may make the indexes and foreign keys"
                    " of the source that it lacks",
                    f"ALTER TABLE {self._name(table.name)} OWNER TO {user}, or make them first",
                    str(table.name),
                )

    def _replica_role(self, user: str, arrival: Arrival) -> Finding:
        ((version,),) = self._fetch("SELECT current_setting('server_version_num')::int")
        remedy = (
            f"GRANT SET ON PARAMETER session_replication_role TO {user}"
            if version >= 150000
            else f"ALTER ROLE {user} SUPERUSER, or leave the foreign keys out until the cutover"
        )
        return Finding(
            Level.ERROR if arrival.references else Level.INFO,
            Subject.RIGHTS,
            f"{user} may not set session_replication_role: foreign keys are checked and triggers fire while rows are"
            " written, and parents and children do not come in an order that they allow",
            remedy,
        )

    def _collation(self, name: str) -> set[str]:
        asked = ", ".join(f"'{a}' = '{b}' COLLATE {name}" for a, b in _PAIRS.values())
        (answers,) = self._fetch(f"SELECT {asked}")
        return {word for word, equal in zip(_PAIRS, answers, strict=True) if equal}

    def _fetch(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._session.fetch(Statement(sql, values))

    def _user(self) -> str:
        ((user,),) = self._fetch("SELECT quote_ident(current_user)")
        return str(user)

    def _name(self, name: TableName) -> str:
        return table_sql(self._session.dialect, name).replace("%%", "%")

    def _quote(self, name: str) -> str:
        return self._session.dialect.quote(name).replace("%%", "%")
