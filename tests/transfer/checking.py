"""What the tests of `truecopy check` share."""

from __future__ import annotations

from typing import Any

from tests.servers import Database, PostgreSQLServer
from truecopy.model.finding import Finding, Level, Subject
from truecopy.transfer.preflight.check import preflight
from truecopy.transfer.preflight.report import Report
from truecopy.transfer.settings import Settings


def check(source: Database | str, target: Database | str, **more: Any) -> Report:
    here, there = (end if isinstance(end, str) else end.url for end in (source, target))
    return preflight(Settings("move", here, there, **more))


def found(report: Report, subject: Subject, words: str) -> Finding:
    """The finding of a subject that has these words in it."""
    fitting = [f for f in report.findings if f.subject is subject and words in f.message]
    assert len(fitting) == 1, [f"{f.subject}: {f.message}" for f in report.findings]
    return fitting[0]


def errors(report: Report) -> list[str]:
    return [f"{f.subject}: {f.message}" for f in report.errors]


def warnings(report: Report) -> list[str]:
    return [f.message for f in report.findings if f.level is Level.WARNING]


def state(database: Database) -> object:
    """Everything that a check might leave behind."""
    if isinstance(database.server, PostgreSQLServer):
        return [
            database.execute(f"SELECT {what} ORDER BY 1")
            for what in (
                "oid::text FROM pg_class",
                "slot_name::text FROM pg_replication_slots",
                "pubname::text FROM pg_publication",
                "oid::text FROM pg_trigger",
            )
        ]
    return [
        database.execute(what)
        for what in (
            "SHOW TABLES",
            "SHOW TRIGGERS",
            "SELECT @@global.gtid_binlog_pos",  # not one statement was logged
            "SHOW MASTER STATUS",
        )
    ]
