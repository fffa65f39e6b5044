"""What a user of MySQL or MariaDB may write, and the GRANT that is missing.

As for reading, the server itself is asked: it checks the rights of a statement that it only explains or
prepares. Of the rights that it checks later, the grants tell; where roles or partial revokes leave a
doubt, nothing is said to be missing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from truecopy.engines.advice import Arrival
from truecopy.engines.mysql_rights import account_of
from truecopy.engines.protocols import Statement
from truecopy.engines.relational import RelationalSession
from truecopy.engines.sql import table_sql
from truecopy.model.errors import Denied, TruecopyError
from truecopy.model.finding import Finding, Level, Subject
from truecopy.model.table import Table, TableName

_NEW = "truecopy_task"
"""A table that a task makes; as good as any that is not there yet."""
_GRANT = re.compile(r"GRANT (?P<rights>.+?) ON (?:TABLE )?(?P<on>\S+|`(?:[^`]|``)*`\.\S+) TO ")


def missing_rights(session: RelationalSession, arrival: Arrival) -> Iterator[Finding]:
    """A finding for each database and table on which rights are missing."""
    databases = {table.name.schema or "" for table in arrival.made} | {session.endpoint.database}
    everywhere: set[str] = set()
    for database in sorted(filter(None, databases)):
        lacking = _lacking_for_new(session, database, arrival)
        everywhere |= set(lacking)
        if lacking:
            yield _finding(session, lacking, f"{session.dialect.quote(database)}.*", database)
    for table in arrival.existing:
        left = [right for right in _lacking_on(session, table) if right not in everywhere]
        if left:
            yield _finding(session, left, table_sql(session.dialect, table.name), str(table.name))


def has_right(session: RelationalSession, forms: Sequence[str]) -> bool:
    """Whether one of these rights on the whole server is among the grants."""
    return any(
        on == "*.*" and (rights & {"ALL PRIVILEGES", *forms}) for rights, on in _grants(session)
    )


def has_right_on(session: RelationalSession, right: str, database: str) -> bool | None:
    """Whether the user has a right on a whole database; None where only the server can add that up."""
    grants = _grants(session)
    if any(rights & {"ALL PRIVILEGES", right} and _covers(on, database) for rights, on in grants):
        return True
    # Lines without a place are roles, whose own grants MariaDB lists as well, or rights taken back.
    return False if all(on for _, on in grants) else None


def _finding(session: RelationalSession, rights: list[str], on: str, name: str) -> Finding:
    account, listed = account_of(session), ", ".join(rights)
    return Finding(
        Level.ERROR,
        Subject.RIGHTS,
        f"{account} lacks {listed} on {name} of the target",
        f"GRANT {listed} ON {on.replace('%%', '%')} TO {account}",
    )


def _lacking_for_new(session: RelationalSession, database: str, arrival: Arrival) -> list[str]:
    name = TableName(database, _NEW)
    probes = {
        "CREATE": f"PREPARE truecopy_probe FROM 'CREATE TABLE {table_sql(session.dialect, name)} (id INT)'",
        **_probes(session, name, "epoch"),
    }
    lacking = [right for right, probe in probes.items() if _is_denied(session, right, probe)]
    if arrival.made or arrival.unfinished:
        wanted = ["INDEX", "ALTER", *(["REFERENCES"] if arrival.references else [])]
        lacking += [r for r in wanted if has_right_on(session, r, database) is False]
    return lacking


def _lacking_on(session: RelationalSession, table: Table) -> list[str]:
    column = next((c.name for c in table.columns if not c.generated), table.columns[0].name)
    probes = _probes(session, table.name, column)
    return [right for right, probe in probes.items() if _is_denied(session, right, probe)]


def _probes(session: RelationalSession, name: TableName, column: str) -> dict[str, str]:
    """Statements whose rights are checked, and which are not run."""
    table, one = table_sql(session.dialect, name), session.dialect.quote(column)
    return {
        "SELECT": f"EXPLAIN SELECT 1 FROM {table} LIMIT 0",
        "INSERT": f"EXPLAIN INSERT INTO {table} ({one}) SELECT {one} FROM {table} WHERE 1 = 0",
        "UPDATE": f"EXPLAIN UPDATE {table} SET {one} = {one} WHERE 1 = 0",
        "DELETE": f"EXPLAIN DELETE FROM {table} WHERE 1 = 0",
    }


def _is_denied(session: RelationalSession, right: str, probe: str) -> bool:
    try:
        session.fetch(Statement(probe))
    except Denied as denied:
        # A statement may need SELECT as well, which is asked for by itself.
        command = re.search(r"(\w+) command denied", str(denied))
        return command is None or command[1] == right
    except TruecopyError:  # the table is not there, which only those are told who may write it
        return False
    return False


def _covers(on: str, database: str) -> bool:
    if on == "*.*":
        return True
    scope, _, table = on.rpartition(".")
    pattern = re.escape(scope.strip("`").replace("``", "`"))
    pattern = pattern.replace(r"\\_", "\0").replace(r"\\%", "\1")
    pattern = pattern.replace("_", ".").replace("%", ".*").replace("\0", "_").replace("\1", "%")
    return table == "*" and re.fullmatch(pattern, database) is not None


def _grants(session: RelationalSession) -> list[tuple[set[str], str]]:
    """Rights and what they are on; nothing of the latter where a line is no plain grant."""
    found = []
    for (line,) in session.fetch(Statement("SHOW GRANTS")):
        match = _GRANT.match(str(line))
        if match is None:
            found.append((set[str](), ""))
            continue
        found.append(({right.strip() for right in match["rights"].split(",")}, match["on"]))
    return found
