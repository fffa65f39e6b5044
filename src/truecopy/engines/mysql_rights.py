"""What a user of MySQL or MariaDB may read, and the GRANT that is missing.

These servers hide what a user has no right on, columns included, so that a missing right looks like a
missing table or column. Whether it is one, the server tells by refusing a statement that reads no row.
Adding up the grants instead would mean to know roles, wildcards and partial revokes as well as it does.
"""

from __future__ import annotations

import re

from truecopy.engines.protocols import Statement
from truecopy.engines.relational import RelationalSession
from truecopy.engines.sql import table_sql
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import Denied, UsageError
from truecopy.model.table import TableName


def require_select(session: RelationalSession, name: TableName) -> None:
    """Refuses a table of which the user might see some columns only."""
    table = table_sql(session.dialect, name)
    try:
        session.fetch(Statement(f"SELECT * FROM {table} LIMIT 0"))
        # Rights on each single column are not enough for this one, which shows the checks as well.
        session.fetch(Statement(f"SHOW CREATE TABLE {table}"))
    except Denied:
        account = account_of(session)
        raise Denied(
            f"{account} needs SELECT on all columns of {name} on {session.endpoint}:"
            f" {_grant(table, account)}"
        ) from None


def denial(session: RelationalSession, name: TableName) -> Denied | None:
    """The doubt about a table that cannot be seen; None where it certainly does not exist."""
    table = table_sql(session.dialect, name)
    try:
        session.fetch(Statement(f"SELECT 1 FROM {table} LIMIT 0"))
    except UsageError:  # whoever may read it is told that it is not there
        return None
    except Denied:
        account = account_of(session)
        return Denied(
            f"{name} does not exist on {session.endpoint}, or {account} lacks SELECT on it:"
            f" {_grant(table, account)}"
        )
    return None


def no_right_on_database(message: str, endpoint: Endpoint) -> Denied:
    """The refusal of a whole database. Only the server's words know the account that it refused."""
    found = re.search(r"'.*?'@'.*?'", message)
    account = found[0] if found else endpoint.user
    # In a grant on a database, these two stand for any character and any text.
    pattern = re.sub(r"([_%])", r"\\\1", endpoint.database.replace("`", "``"))
    return Denied(
        f"{account} has no right on the database of {endpoint}: {_grant(f'`{pattern}`.*', account)}"
    )


def account_of(session: RelationalSession) -> str:
    """The account that the server took the user for, which has the rights."""
    ((found,),) = session.fetch(Statement("SELECT CURRENT_USER()"))
    user, _, host = str(found).rpartition("@")
    return f"{session.literal(user)}@{session.literal(host)}"


def _grant(on: str, account: str) -> str:
    return f"GRANT SELECT ON {on.replace('%%', '%')} TO {account}"
