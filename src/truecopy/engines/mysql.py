"""MySQL 5.7+, MariaDB and TiDB: one dialect with a few differences, seen from the server itself."""

from __future__ import annotations

import io
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pymysql
import pymysql.connections
import pymysql.converters
import pymysql.cursors
from pymysql.constants import CLIENT

from truecopy.engines import (
    creation,
    loading,
    mysql_create,
    mysql_load,
    mysql_replica,
    mysql_rights,
    mysql_sequences,
    mysql_snapshot,
    mysql_views,
    mysql_wire,
    sql,
)
from truecopy.engines.mysql_advice import MySQLAdvisor
from truecopy.engines.mysql_dialect import MySQLDialect
from truecopy.engines.mysql_schema import (
    read_columns,
    read_foreign_keys,
    read_indexes,
    taken_names,
)
from truecopy.engines.mysql_writers import MySQLWriters
from truecopy.engines.protocols import Statement
from truecopy.engines.relational import SharedSession
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, Denied, Refused, TruecopyError, UsageError
from truecopy.model.relation import Buckets, Chunk, Key, Relation
from truecopy.model.table import Column, ForeignKey, Table, TableName
from truecopy.model.types import is_free_text

_COUNT_BELOW = 100_000
_SYSTEM_SCHEMAS = ("mysql", "information_schema", "performance_schema", "sys")


@lru_cache
def _unverified_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class _Connection(pymysql.connections.Connection):  # type: ignore[misc] # no types
    """A connection that does not read every certificate of the system (20 ms) to verify none."""

    def _create_ssl_ctx(self, options: dict[str, object]) -> ssl.SSLContext:
        if options.keys() <= {"check_hostname"}:
            return _unverified_tls()
        context: ssl.SSLContext = super()._create_ssl_ctx(options)
        return context


def open_connection(endpoint: Endpoint) -> Any:
    """A connection in UTC and with UTF-8, whose results stay text; refusals are one line."""
    try:
        return _Connection(
            host=endpoint.host or "127.0.0.1",
            port=endpoint.port or 3306,
            user=endpoint.user or None,
            password=endpoint.password,
            database=endpoint.database or None,
            unix_socket=endpoint.option("socket") or None,
            ssl=_tls(endpoint),
            charset="utf8mb4",
            sql_mode="NO_ENGINE_SUBSTITUTION",
            connect_timeout=int(endpoint.option("connect_timeout", "10")),
            # Results stay text: types are ours to decide, and zero dates have no Python value.
            conv=pymysql.converters.encoders,
            autocommit=True,
            # An UPDATE counts the rows it met, changed or not. Files are sent by `mysql_wire` alone:
            # with `local_infile` off, the driver refuses a server that asks it for one.
            client_flag=CLIENT.FOUND_ROWS | CLIENT.LOCAL_FILES,
            # MySQL 8 keeps what it tells of tables, such as their next number, for a day. MariaDB passes over that.
            init_command="SET time_zone = '+00:00', group_concat_max_len = 1073741824"
            " /*!80003 , information_schema_stats_expiry = 0 */",
        )
    except (pymysql.MySQLError, OSError) as error:
        raise explain_error(error, endpoint) from None


def _tls(endpoint: Endpoint) -> dict[str, object] | None:
    """What `ssl_ca` (verified) or `ssl=required` (encrypted, whoever answers) of the URL ask for."""
    given = {
        name: endpoint.option(f"ssl_{name}")
        for name in ("ca", "cert", "key")
        if endpoint.option(f"ssl_{name}")
    }
    if not given and endpoint.option("ssl") not in ("required", "true"):
        return None
    return {"check_hostname": False, **given}


class MySQL(SharedSession):
    """A connection to MySQL, MariaDB or TiDB, in UTC and with UTF-8, in reads that lock nothing."""

    dialect: MySQLDialect

    transaction_start = ("SET foreign_key_checks = 0", "START TRANSACTION")
    view_start = mysql_replica.VIEW
    array_views = mysql_views.VIEWS

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.dialect = MySQLDialect()
        self._connection = open_connection(endpoint)
        self._version = str(self.fetch(Statement("SELECT VERSION()"))[0][0])

    @property
    def is_mariadb(self) -> bool:
        """Whether the server says so itself; the URL's scheme does not decide."""
        return "mariadb" in self._version.lower()

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()

    # Running statements

    def fetch(self, statement: Statement) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            try:
                cursor.execute(statement.sql, self._arguments(statement))
                rows = list(cursor.fetchall())
                warnings = cursor.warning_count
            except (pymysql.MySQLError, OSError) as error:
                raise explain_error(error, self.endpoint) from None
        if warnings:
            self._refuse_warnings()
        return rows

    def fetch_texts(self, statement: Statement, names: Sequence[str]) -> pa.Table:
        return self.fetch_all_texts((statement,), names)

    def fetch_all_texts(self, statements: Sequence[Statement], names: Sequence[str]) -> pa.Table:
        with self._connection.cursor() as cursor:
            bound = [cursor.mogrify(each.sql, self._arguments(each)) for each in statements]
        try:
            columns = mysql_wire.read_columns(
                self._connection, bound, len(names), self._refuse_warnings
            )
        except (pymysql.MySQLError, OSError) as error:
            raise explain_error(error, self.endpoint) from None
        except pa.ArrowInvalid as error:
            self.close()  # rows of the result are still on their way
            raise CannotFinish(f"{self.endpoint} sent text that is not UTF-8: {error}") from None
        return pa.table(columns, names=list(names))

    def fetch_fingerprints(
        self, relation: Relation, table: TableName, chunk: Chunk, buckets: Buckets | None
    ) -> pa.Table:
        """Packed by the server into one value: a row each would cost more than computing them."""
        if relation.deferred:
            return super().fetch_fingerprints(relation, table, chunk, buckets)
        inner = sql.fingerprints_sql(self.dialect, relation, table, chunk, buckets)
        names = [f"k{i}" for i in range(relation.key_width)] + ["f"]
        hexed = [i for i, kind in enumerate(relation.key_types) if is_free_text(kind)]
        # An empty place is NULL: no other canonical text is empty, and free text starts with an x.
        texts = [
            f"IFNULL(CONCAT('x',HEX({name})),'')" if i in hexed else f"IFNULL({name},'')"
            for i, name in enumerate(names)
        ]
        packed = ",',',".join(texts)
        statement = Statement(
            f"SELECT COUNT(*), GROUP_CONCAT({packed} SEPARATOR '\\n') FROM ({inner.sql}) AS p",
            inner.values,
        )
        ((count, lines),) = self.fetch(statement)
        if not int(count):
            types = [pa.string()] * relation.key_width + [pa.int64()]
            return pa.schema(list(zip(names, types, strict=True))).empty_table()
        found = pa_csv.read_csv(
            io.BytesIO(lines.encode()),
            read_options=pa_csv.ReadOptions(column_names=names),
            convert_options=pa_csv.ConvertOptions(
                column_types={**dict.fromkeys(names, pa.string()), "f": pa.int64()},
                strings_can_be_null=True,
                null_values=[""],
            ),
        )
        if found.num_rows != int(count):
            raise CannotFinish(
                f"{self.endpoint} cut a result short: {found.num_rows} of {count} rows; raise max_allowed_packet"
            )
        for i in hexed:
            plain = [
                text and bytes.fromhex(text[1:]).decode() for text in found.column(i).to_pylist()
            ]
            found = found.set_column(i, names[i], pa.array(plain, pa.string()))
        return found

    def execute(self, statement: Statement) -> int:
        with self._connection.cursor() as cursor:
            try:
                return int(cursor.execute(statement.sql, self._arguments(statement)))
            except (pymysql.MySQLError, OSError) as error:
                raise explain_error(error, self.endpoint) from None

    def begin(self) -> None:
        if self._reads_committed:
            self.execute(Statement("SET TRANSACTION ISOLATION LEVEL READ COMMITTED"))
        for line in self.transaction_start:
            self.execute(Statement(line))

    @cached_property
    def _reads_committed(self) -> bool:
        """Whether writers may do without locks on gaps, by which those of different rows would deadlock.

        A server that logs statements needs these locks, and refuses to write without them.
        """
        try:
            ((logs, form),) = self.fetch(Statement("SELECT @@log_bin, @@binlog_format"))
        except TruecopyError:
            return False
        return not int(logs) or str(form).upper() != "STATEMENT"

    def commit(self) -> None:
        self.execute(Statement("COMMIT"))

    def rollback(self) -> None:
        self.execute(Statement("ROLLBACK"))

    def load(self, relation: Relation, rows: pa.Table, annotation: str | None = None) -> int:
        loading.require_fit(relation, rows)
        if not rows.num_rows:
            return 0
        self.execute(Statement(f"SET SESSION sql_mode = '{mysql_load.SQL_MODE}'"))
        statement = mysql_load.load_sql(relation, rows, annotation)
        try:
            answer = mysql_wire.send_file(
                self._connection, statement, mysql_load.file_of(relation, rows)
            )
        except (pymysql.MySQLError, OSError) as error:
            raise explain_error(error, self.endpoint) from None
        warnings = self._warnings() if answer.warning_count else []
        mysql_load.require_all(relation, rows, answer.affected_rows, warnings)
        return int(answer.affected_rows)

    def delete_keys(self, relation: Relation, keys: pa.Table, annotation: str | None = None) -> int:
        return sum(map(self.execute, mysql_load.deletions(relation, keys, annotation)))

    @contextmanager
    def cascading(self) -> Iterator[None]:
        self.execute(Statement("SET foreign_key_checks = 1"))
        yield
        self.execute(Statement("SET foreign_key_checks = 0"))

    def move_row(
        self, relation: Relation, key: Key, row: Sequence[str | None], annotation: str | None = None
    ) -> int:
        self.execute(Statement(f"SET SESSION sql_mode = '{mysql_load.SQL_MODE}'"))
        return self.execute(mysql_load.moving(relation, key, row, annotation))

    def create_table(self, table: Table) -> list[str]:
        return mysql_create.create_table(self.dialect, self._server, table)

    def add_columns(self, table: Table, columns: Sequence[Column]) -> list[str]:
        return mysql_create.add_columns(self.dialect, self._server, table, columns)

    def create_indexes(self, table: Table) -> list[str]:
        taken = taken_names(self.fetch, table.name)
        return mysql_create.create_indexes(self.dialect, self._server, table, taken)

    def create_foreign_keys(self, table: Table) -> list[str]:
        return creation.foreign_key_statements(self.dialect, table)

    def reference_gaps(self, table: Table, reference: ForeignKey, parent: Table) -> list[str]:
        return mysql_create.reference_gaps(self._server, table, reference, parent)

    def creation_warnings(self, table: Table) -> list[str]:
        return mysql_create.warnings(self._server, table)

    def set_sequences(self, table: Table, annotation: str | None = None) -> list[str]:
        """AUTO_INCREMENT follows the rows; only numbers that the source gave beyond them are missing."""
        found = self.find(str(table.name))
        if found is None or table.next_number is None or not self.describe(found).numbered:
            return []
        statement = mysql_create.numbering_sql(self.dialect, found, table.next_number)
        mark = f"/* {annotation} */ " if annotation else ""
        self.execute(Statement((mark + statement).replace("%", "%%")))
        return [statement]

    def sequences(self) -> dict[TableName, int | None]:
        return mysql_sequences.next_numbers(self) if self.is_mariadb else {}

    def advance_sequence(self, name: TableName, number: int, annotation: str | None = None) -> None:
        mysql_sequences.advance(self, name, number, annotation)

    def require_position(self, relation: Relation) -> None:
        mysql_snapshot.require_position(self, relation)

    def fingerprinted_rows_at(self, relation: Relation) -> tuple[pa.Table, str]:
        return mysql_snapshot.fingerprinted_rows_at(self, relation)

    def logs_cascades(self) -> bool:
        """Since MySQL 9.6, unless InnoDB still does it."""
        asked = Statement("SHOW GLOBAL VARIABLES LIKE 'innodb\\_native\\_foreign\\_keys'")
        return not self.is_mariadb and [value for _, value in self.fetch(asked)] == ["OFF"]

    def snapshot(self, tables: Sequence[TableName]) -> AbstractContextManager[str]:
        return mysql_snapshot.snapshot(self, tables)

    def log_end(self) -> str | None:
        return mysql_snapshot.log_end(self)

    def visible_position(self) -> str | None:
        return mysql_snapshot.visible_position(self)

    def writers(self) -> MySQLWriters:
        return MySQLWriters(self)

    def advisor(self) -> MySQLAdvisor:
        return MySQLAdvisor(self, self._server)

    @property
    def _server(self) -> mysql_create.Server:
        numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", self._version)
        return mysql_create.Server(
            self.is_mariadb,
            tuple(map(int, numbers.groups())) if numbers else (),
            is_tidb="tidb" in self._version.lower(),
        )

    def literal(self, value: object) -> str:
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        return str(self._connection.escape(value))

    def query(self, statement: str, values: Sequence[object] = ()) -> pa.Table:
        with self._connection.cursor() as cursor:
            try:
                cursor.execute(statement, tuple(values) or None)
                rows, names = cursor.fetchall(), [field[0] for field in cursor.description or ()]
            except (pymysql.MySQLError, OSError) as error:
                raise explain_error(error, self.endpoint) from None
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        return pa.table([pa.array(column, pa.string()) for column in columns], names=names)

    def _arguments(self, statement: Statement) -> tuple[Any, ...]:
        return statement.values  # given also when empty, so that %% is always resolved

    def _refuse_warnings(self) -> None:
        """A warning of a SELECT means that a value was cut or dropped, never something to pass over."""
        serious = [warning for warning in self._warnings() if warning.level != "Note"]
        if serious:
            hint = "; raise max_allowed_packet" if serious[0].code == 1301 else ""
            raise CannotFinish(
                f"{self.endpoint} could not compute every value: {serious[0].message}{hint}"
            )

    def _warnings(self) -> list[mysql_load.ServerWarning]:
        with self._connection.cursor() as cursor:
            try:
                cursor.execute("SHOW WARNINGS")
                rows = cursor.fetchall()
            except (pymysql.MySQLError, OSError) as error:
                raise explain_error(error, self.endpoint) from None
        return [mysql_load.ServerWarning(level, int(code), m) for level, code, m in rows]

    # Introspection

    def tables(self) -> list[TableName]:
        condition = (
            "table_schema = %s"
            if self.endpoint.database
            else f"table_schema NOT IN {_SYSTEM_SCHEMAS}"
        )
        values = (self.endpoint.database,) if self.endpoint.database else ()
        rows = self.fetch(
            Statement(
                "SELECT table_schema, table_name FROM information_schema.tables "
                f"WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND {condition} ORDER BY 1, 2",
                values,
            )
        )
        return [TableName(*row) for row in rows]

    def home(self) -> str | None:
        ((name,),) = self.fetch(Statement("SELECT DATABASE()"))
        return str(name) if name else None

    def find(self, name: str) -> TableName | None:
        meant = self._meant(name)
        rows = self.fetch(
            Statement(
                "SELECT table_schema, table_name FROM information_schema.tables "
                "WHERE table_schema = %s AND table_name = %s",
                (meant.schema, meant.table),
            )
        )
        return TableName(*rows[0]) if rows else None

    def denial(self, names: Sequence[str]) -> CannotFinish | None:
        placed = [meant for meant in map(self._meant, names) if meant.schema]
        return mysql_rights.denial(self, placed[-1]) if placed else None

    def _meant(self, name: str) -> TableName:
        schema, _, table = name.rpartition(".")
        return TableName(schema or self.endpoint.database, table)

    def describe(self, name: TableName) -> Table:
        rows = self.fetch(
            Statement(
                "SELECT table_type, table_rows, avg_row_length, auto_increment FROM information_schema.tables "
                "WHERE table_schema = %s AND table_name = %s",
                (name.schema, name.table),
            )
        )
        if not rows:
            absent = UsageError(f"there is no table {name} on {self.endpoint}")
            raise mysql_rights.denial(self, name) or absent
        kind, estimate, row_bytes, next_number = rows[0]
        if "VIEW" in kind:
            raise UsageError(
                f"{name} on {self.endpoint} is a view: verify the tables that it reads from"
            )
        mysql_rights.require_select(self, name)
        found = read_columns(self.fetch, name, is_mariadb=self.is_mariadb)
        indexes = read_indexes(self.fetch, name)
        required = {column.name for column in found.columns if not column.nullable}
        return Table(
            name=name,
            columns=found.columns,
            keys=tuple(key for key in indexes.unique if required.issuperset(key)),
            unique=indexes.unique,
            foreign_keys=read_foreign_keys(self.fetch, name),
            rows=self._count(name, int(estimate or 0)),
            row_bytes=int(row_bytes or 100),
            engine="mariadb" if self.is_mariadb else "mysql",
            primary=indexes.primary,
            indexes=indexes.indexes,
            partly_unique=indexes.partly_unique,
            numbered=found.numbered,
            next_number=int(next_number) if next_number else None,
            collations=found.collations,
            defaulted=found.defaulted,
            uncarried=(*found.uncarried, *indexes.uncarried),
        )

    def _count(self, name: TableName, estimate: int) -> int:
        """The estimate, unless it is small: then it may be stale by far, and counting is cheap."""
        if estimate > _COUNT_BELOW:
            return estimate
        table = sql.table_sql(self.dialect, name)
        counted = f"SELECT COUNT(*) FROM (SELECT 1 FROM {table} LIMIT {2 * _COUNT_BELOW}) AS t"
        return max(estimate, int(self.fetch(Statement(counted))[0][0]))

    def position(self) -> str | None:
        try:
            if self.is_mariadb:
                return str(self.fetch(Statement("SELECT @@gtid_current_pos"))[0][0]) or None
            return (
                str(self.fetch(Statement("SELECT @@gtid_executed"))[0][0]).replace("\n", "") or None
            )
        except TruecopyError:
            return None

    def annotation_gaps(self) -> list[str]:
        name = "binlog_annotate_row_events" if self.is_mariadb else "binlog_rows_query_log_events"
        if int(self.fetch(Statement(f"SELECT @@GLOBAL.{name}"))[0][0]):
            return []
        return [f"{self.endpoint} logs rows without their statements: SET GLOBAL {name} = ON"]

    @property
    def replicated_exactly(self) -> bool:
        return self.is_mariadb

    def replicated_position(self) -> str | None:
        return mysql_replica.replicated_position(self)

    def lag_seconds(self) -> float | None:
        for command in ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS"):
            with self._connection.cursor(pymysql.cursors.DictCursor) as cursor:
                try:
                    cursor.execute(command)
                except pymysql.MySQLError:
                    continue
                row = cursor.fetchone() or {}
            behind = row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master"))
            return None if behind is None else float(behind)
        return None


_DENIED = {1044, 1142, 1143, 1227}
_LOST = {0, 2006, 2013}
"""0 is the driver's own: it knows already that the connection is closed."""
_REFUSED = {
    *(1061, 1062, 1069, 1070, 1071, 1072, 1089, 1118, 1167, 1170, 1709, 3152),  # of an index
    *(1215, 1239, 1452, *range(1821, 1831), 3734, 3780, 6125),  # of a reference
}
"""1005 says so, too, with the storage engine's number 150 or 121; with others it has no room, or no right."""
_MESSAGES = {
    1045: "{user} was refused by {endpoint}: check the user and the password",
    1049: "there is no database {database} on {endpoint}",
}


def explain_error(error: Exception, endpoint: Endpoint) -> TruecopyError:
    """A driver's error as one line: what happened, where, what to do."""
    code = error.args[0] if error.args else None
    message = str(error.args[-1]) if error.args else str(error)
    known = {"user": endpoint.user, "endpoint": endpoint, "database": endpoint.database}
    if code in _MESSAGES:
        return UsageError(_MESSAGES[code].format(**known))
    if code == 1044 and endpoint.database:
        return mysql_rights.no_right_on_database(message, endpoint)
    if code in _DENIED:
        return Denied(
            f"{endpoint.user} may not do that on {endpoint}: {message}; grant that right on the table"
        )
    if code == 1698:
        return UsageError(_MESSAGES[1045].format(**known))
    if code == 2003:
        return CannotFinish(
            f"cannot connect to {endpoint}: {message}; is the server running, host and port right?"
        )
    if code in _LOST:
        return CannotFinish(
            f"lost the connection to {endpoint}; run the same command again to go on"
        )
    if code in (1148, 3948, 4166):
        return UsageError(
            f"{endpoint} does not take rows in bulk: {message}; SET GLOBAL local_infile = 1 there"
        )
    if code in (1146, 1054, 1064):
        return UsageError(f"{endpoint} refused a statement: {message}")
    if code in _REFUSED or (code == 1005 and re.search("errno: (150|121)", message)):
        return Refused(f"{endpoint}: {message}")
    return CannotFinish(f"{endpoint}: {message}")
