"""What a server and a login need before its log can be streamed."""

from __future__ import annotations

import re

from truecopy.model.errors import TruecopyError
from truecopy.stream.binlog.server import Server
from truecopy.stream.log import Wanted
from truecopy.stream.tables import Choice

_CASCADES = ("CASCADE", "SET NULL", "SET DEFAULT")


def missing(server: Server, wanted: Wanted) -> list[str]:
    """A line for each thing that is missing, with its remedy."""
    found = _settings(server, wanted)
    found += _rights(server)
    if server.is_mariadb:
        found += _versioned(server, wanted)
    if not server.logs_cascades and wanted.settings.get("cascades") != "target":
        found += _cascades(server, wanted)
    return found


def _settings(server: Server, wanted: Wanted) -> list[str]:
    found = []
    where = server.endpoint
    if server.setting("log_bin") != "ON":
        return [f"{where} writes no binary log: set log_bin and binlog_format=ROW, and restart it"]
    if (form := server.setting("binlog_format")) != "ROW":
        found.append(
            f"{where} logs in {form} format, which does not say which rows changed: SET GLOBAL binlog_format ="
            " 'ROW', or stream from a replica that logs rows (log_slave_updates, binlog_format=ROW)"
        )
    image = server.setting("binlog_row_image") or "FULL"
    if image != "FULL" and not (wanted.keys_only and image in ("MINIMAL", "NOBLOB")):
        found.append(
            f"{where} logs {image} row images: SET GLOBAL binlog_row_image = 'FULL', or stream keys only"
        )
    return found


def _rights(server: Server) -> list[str]:
    grants = " ".join(str(row[0]) for row in _grants(server))
    everything = re.search(r"GRANT (?:ALL PRIVILEGES|.*\bSUPER\b).* ON \*\.\*", grants)
    user = _current_user(server)
    wanted = {"REPLICATION SLAVE": r"REPLICATION (SLAVE|REPLICA)\b(?! ADMIN)"}
    if server.is_mariadb:
        wanted["BINLOG MONITOR"] = r"BINLOG MONITOR|REPLICATION CLIENT"
    else:
        wanted["REPLICATION CLIENT"] = r"REPLICATION CLIENT"
    lacking = [
        right for right, form in wanted.items() if not everything and not re.search(form, grants)
    ]
    return [
        f"{server.endpoint.user} lacks {right} on {server.endpoint}: GRANT {right} ON *.* TO {user}"
        for right in lacking
    ]


def _grants(server: Server) -> list[tuple[object, ...]]:
    try:
        return server.ask("SHOW GRANTS")
    except TruecopyError:
        return []


def _current_user(server: Server) -> str:
    user, _, host = str(server.ask("SELECT CURRENT_USER()")[0][0]).rpartition("@")
    return f"'{user}'@'{host}'"


def _cascades(server: Server, wanted: Wanted) -> list[str]:
    """Rows that a foreign key changes, and the server does not log, would be lost to the stream."""
    rows = server.ask(
        "SELECT constraint_schema, table_name, constraint_name, delete_rule, update_rule"
        " FROM information_schema.referential_constraints"
    )
    choice = Choice(wanted.tables, server.endpoint.database)
    return [
        f"the foreign key {name} of {schema}.{table} changes rows by itself (ON"
        f" {'DELETE ' + delete if delete in _CASCADES else 'UPDATE ' + update}), which the server does not log: leave"
        f" {table} out, drop the rule, or say cascades=target (a task: cascades: target), by which the target does the"
        " same"
        for schema, table, name, delete, update in rows
        if (delete in _CASCADES or update in _CASCADES) and choice.wants(schema, table)
    ]


def _versioned(server: Server, wanted: Wanted) -> list[str]:
    rows = server.ask(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'SYSTEM VERSIONED'"
    )
    choice = Choice(wanted.tables, server.endpoint.database)
    return [
        f"{schema}.{table} is system-versioned, and its log tells of its history as well as of its rows: leave it out"
        for schema, table in rows
        if choice.wants(schema, table)
    ]
