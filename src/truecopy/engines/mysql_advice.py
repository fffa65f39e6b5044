"""What MySQL and MariaDB say before rows move."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial

from truecopy.engines import mysql_create, mysql_inventory, mysql_write_rights
from truecopy.engines.advice import (
    ACCENTS,
    CASE,
    SPACES,
    ZERO_DATES,
    Arrival,
    Retention,
    RowLimit,
    Trigger,
    Uncarried,
)
from truecopy.engines.mysql_rights import account_of
from truecopy.engines.protocols import Statement
from truecopy.engines.relational import RelationalSession
from truecopy.engines.sql import table_sql
from truecopy.model.errors import CannotFinish, TruecopyError
from truecopy.model.finding import Finding, Level, Subject
from truecopy.model.guarantees import TargetLevel
from truecopy.model.table import Column, Table, TableName
from truecopy.model.types import Date, Timestamp

_SETTINGS = (
    "binlog_expire_logs_auto_purge",
    "binlog_expire_logs_seconds",
    "default_storage_engine",
    "expire_logs_days",
    "innodb_flush_log_at_trx_commit",
    "local_infile",
    "log_bin",
    "log_slave_updates",
    "max_allowed_packet",
    "read_only",
    "sql_mode",
    "super_read_only",
    "sync_binlog",
    "system_time_zone",
    "time_zone",
)
_SHOWING = ("TRIGGER", "EVENT", "EXECUTE", "SHOW VIEW")
"""Rights without which a server hides what there is."""
_DAY = 86_400
_WEEK_SQL = f"SET GLOBAL binlog_expire_logs_seconds = {7 * _DAY}"


class MySQLAdvisor:
    """See `truecopy.engines.advice.Advisor`."""

    target_level = TargetLevel.TRANSACTION
    holds = frozenset({ZERO_DATES})

    def __init__(self, session: RelationalSession, server: mysql_create.Server) -> None:
        self._session = session
        self._server = server

    @cached_property
    def _settings(self) -> dict[str, str]:
        listed = ", ".join(f"'{name}'" for name in _SETTINGS)
        rows = self._fetch(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
        return {name.lower(): value for name, value in rows}

    def as_source(self, tables: Sequence[Table]) -> Iterator[Finding]:
        for table, engine in self._without_transactions(tables):
            yield Finding(
                Level.WARNING,
                Subject.TABLES,
                f"it is kept by {engine}, which has no transactions: what fails half-way stays, and is logged so",
                f"ALTER TABLE {self._name(table)} ENGINE = InnoDB",
                str(table),
            )
        database = self._session.endpoint.database
        has = partial(mysql_write_rights.has_right_on, self._session, database=database)
        hidden = [right for right in _SHOWING if database and not has(right)]
        if hidden:
            rights, account = ", ".join(hidden), account_of(self._session)
            yield Finding(
                Level.INFO,
                Subject.RIGHTS,
                f"{account} may lack {rights} on the source, so that not all that is not carried can be listed",
                f"GRANT {rights} ON {self._plain(database)}.* TO {account}",
            )
        yield from self._forgetful()
        if self._settings.get("log_slave_updates") == "OFF" and self._is_replica():
            yield Finding(
                Level.ERROR,
                Subject.LOG,
                "the source is a replica that does not log what it replicates (log_slave_updates is OFF)",
                "set log_slave_updates = ON in the server's configuration and restart it, or name its primary as the"
                " source",
            )

    def _forgetful(self) -> Iterator[Finding]:
        """Settings under which tables and log are not the same any more after a crash."""
        safe = {"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1"}
        loose = [name for name, value in safe.items() if self._settings.get(name, value) != value]
        if loose:
            found = " and ".join(f"{name} is {self._settings[name]}" for name in loose)
            yield Finding(
                Level.INFO,
                Subject.LOG,
                f"after a crash the source's tables may not have what its log has, or the other way round ({found}):"
                " then verify the copy, and make it anew where it differs",
                f"SET {', '.join(f'GLOBAL {name} = 1' for name in loose)}",
            )

    def as_target(self, arrival: Arrival) -> Iterator[Finding]:
        if self._settings.get("local_infile") == "OFF":
            yield _setting(
                "the target does not take rows in bulk (local_infile is OFF)",
                "SET GLOBAL local_infile = 1",
            )
        yield from self._read_only()
        default = self._settings.get("default_storage_engine", "InnoDB")
        if default not in self._transactional:
            yield _setting(
                f"new tables are kept by {default}, which has no transactions",
                "SET GLOBAL default_storage_engine = InnoDB",
            )
        for table, engine in self._without_transactions(arrival.existing):
            yield Finding(
                Level.ERROR,
                Subject.TABLES,
                f"it is kept by {engine}, which has no transactions: rows and progress would not be written together",
                f"ALTER TABLE {self._name(table)} ENGINE = InnoDB",
                str(table),
            )
        rows = self._fetch("SELECT schema_name FROM information_schema.schemata")
        known = {name.lower() for (name,) in rows}
        for schema in sorted({table.name.schema for table in arrival.made if table.name.schema}):
            if schema.lower() not in known:
                yield Finding(
                    Level.ERROR,
                    Subject.TABLES,
                    f"the target has no database {schema}, to which tables are routed",
                    f"CREATE DATABASE {self._session.dialect.quote(schema)}",
                )

    def missing_rights(self, arrival: Arrival) -> Iterator[Finding]:
        return mysql_write_rights.missing_rights(self._session, arrival)

    def retention(self) -> Retention | None:
        if self._settings.get("log_bin") == "OFF":
            return None  # which is said where the log is asked for
        if self._settings.get("binlog_expire_logs_auto_purge") == "OFF":
            return None
        seconds = float(self._settings.get("binlog_expire_logs_seconds") or 0)
        if seconds:
            return Retention("binlog_expire_logs_seconds", _WEEK_SQL, seconds)
        days = float(self._settings.get("expire_logs_days") or 0)
        if days:
            return Retention("expire_logs_days", "SET GLOBAL expire_logs_days = 7", days * _DAY)
        return None

    def _require_sight(self, right: str) -> None:
        """Refuses to list what the server hides from those who have not this right."""
        database = self._session.endpoint.database
        if not database or mysql_write_rights.has_right_on(self._session, right, database):
            return
        account = account_of(self._session)
        raise CannotFinish(
            f"{account} may lack {right} on {self._session.endpoint}, without which they are hidden: GRANT {right}"
            f" ON {self._plain(database)}.* TO {account}"
        )

    def triggers(self) -> list[Trigger]:
        self._require_sight("TRIGGER")
        rows = self._fetch(
            "SELECT event_object_schema, event_object_table, trigger_schema, trigger_name,"
            " CONCAT(action_timing, ' ', event_manipulation) FROM information_schema.triggers ORDER BY 1, 2, 4"
        )
        return [
            Trigger(
                TableName(schema, table),
                name,
                event,
                True,
                f"DROP TRIGGER {self._name(TableName(place, name))}",
            )
            for schema, table, place, name, event in rows
        ]

    def passed_over(self, table: Table) -> Mapping[str, frozenset[str]]:
        charsets = {column.name: column.charset for column in table.columns}
        return {
            column: self._collation(collation, charsets.get(column) or "utf8mb4")
            for column, collation in table.collations
        }

    def time_zone(self) -> str | None:
        zone = self._settings.get("time_zone", "SYSTEM")
        return self._settings.get("system_time_zone") if zone == "SYSTEM" else zone

    def set_time_zone(self, zone: str) -> str:
        """By its offset, where it has one: names are known only where their tables are loaded."""
        return f"SET GLOBAL time_zone = '{'+00:00' if zone == 'UTC' else zone}'"

    def free_bytes(self) -> int | None:
        return None

    def space_hint(self) -> str:
        ((folder,),) = self._fetch("SELECT @@datadir")
        return f"df -h {folder} on the server"

    def sql_mode(self) -> frozenset[str] | None:
        return frozenset(filter(None, self._settings.get("sql_mode", "").split(",")))

    def set_sql_mode(self, modes: frozenset[str]) -> str:
        return f"SET GLOBAL sql_mode = '{','.join(sorted(modes))}'"

    def row_limit(self) -> RowLimit | None:
        limit = int(self._settings.get("max_allowed_packet") or 0)
        larger = "SET GLOBAL max_allowed_packet = 1073741824"
        return RowLimit(limit, "max_allowed_packet", larger) if limit else None

    def largest_row(self, table: Table) -> int:
        sizes = [
            f"COALESCE(OCTET_LENGTH({self._session.dialect.quote(c.name)}), 0)"
            for c in table.columns
        ]
        name = table_sql(self._session.dialect, table.name)
        ((size,),) = self._fetch(f"SELECT MAX({' + '.join(sizes)}) FROM {name}")
        return int(size or 0)

    def odd_values(self, table: Table) -> Iterator[tuple[str, str]]:
        """Zero dates, and days such as February 0."""
        name = table_sql(self._session.dialect, table.name)
        for column in table.columns:
            if isinstance(column.type, Date | Timestamp):
                one = self._session.dialect.quote(column.name)
                day = f"SELECT 1 FROM {name} WHERE {one} = 0 OR MONTH({one}) = 0 OR DAYOFMONTH({one}) = 0 LIMIT 1"
                if self._fetch(day):
                    yield column.name, ZERO_DATES

    def alter_column(self, name: TableName, column: Column, like: Column, of: Table) -> str:
        null = "NULL" if like.nullable or column.nullable else "NOT NULL"
        native = mysql_create.type_of(self._server, of, like, 0)
        return f"ALTER TABLE {self._name(name)} MODIFY {self._plain(column.name)} {native} {null}"

    def change_key(self, table: Table, key: Sequence[str]) -> str:
        columns = ", ".join(map(self._plain, key))
        drop = "DROP PRIMARY KEY, " if table.primary else ""
        return f"ALTER TABLE {self._name(table.name)} {drop}ADD PRIMARY KEY ({columns})"

    def inventory(self) -> list[Uncarried]:
        return mysql_inventory.inventory(self._session, is_mariadb=self._server.is_mariadb)

    def _read_only(self) -> Iterator[Finding]:
        if self._settings.get("super_read_only") == "ON":
            yield _setting(
                "the target takes no writes (super_read_only is ON)", "SET GLOBAL read_only = OFF"
            )
        elif self._settings.get("read_only", "OFF") not in ("OFF", "0"):
            exempt = ("SUPER", "READ_ONLY ADMIN", "READ ONLY ADMIN", "CONNECTION_ADMIN")
            if not mysql_write_rights.has_right(self._session, exempt):
                yield _setting(
                    "the target takes no writes of this user (read_only is ON)",
                    "SET GLOBAL read_only = OFF",
                )

    @cached_property
    def _transactional(self) -> set[str]:
        rows = self._fetch("SELECT engine, transactions FROM information_schema.engines")
        return {engine for engine, transactions in rows if transactions == "YES"}

    def _without_transactions(self, tables: Sequence[Table]) -> Iterator[tuple[TableName, str]]:
        schemas = sorted({table.name.schema for table in tables if table.name.schema})
        if not schemas:
            return
        places = ", ".join(["%s"] * len(schemas))
        rows = self._session.fetch(
            Statement(
                "SELECT table_schema, table_name, engine FROM information_schema.tables"
                f" WHERE table_schema IN ({places})",
                tuple(schemas),
            )
        )
        engines = {TableName(schema, name): engine for schema, name, engine in rows}
        for table in tables:
            engine = engines.get(table.name)
            if engine and engine not in self._transactional:
                yield table.name, engine

    def _is_replica(self) -> bool:
        for command in ("SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS", "SHOW SLAVE STATUS"):
            try:
                return bool(self._fetch(command))
            except TruecopyError:
                continue
        return False

    def _collation(self, collation: str, charset: str) -> frozenset[str]:
        """The server is asked, since names of collations do not tell all."""
        if not re.fullmatch(r"\w+", collation + charset):
            return frozenset()
        pairs = {CASE: ("a", "A"), SPACES: ("a", "a ")}
        if charset.startswith(("utf8", "latin1", "ucs2", "utf16", "utf32")):
            pairs[ACCENTS] = ("e", "é")
        asked = [
            f"CONVERT('{one}' USING {charset}) COLLATE {collation} = CONVERT('{other}' USING {charset})"
            for one, other in pairs.values()
        ]
        (answers,) = self._fetch(f"SELECT {', '.join(asked)}")
        return frozenset(
            word for word, answer in zip(pairs, answers, strict=True) if int(answer or 0)
        )

    def _fetch(self, sql: str) -> list[tuple[str, ...]]:
        return self._session.fetch(Statement(sql))

    def _name(self, name: TableName) -> str:
        return table_sql(self._session.dialect, name).replace("%%", "%")

    def _plain(self, name: str) -> str:
        return self._session.dialect.quote(name).replace("%%", "%")


def _setting(message: str, remedy: str) -> Finding:
    return Finding(Level.ERROR, Subject.SETTINGS, message, remedy)
