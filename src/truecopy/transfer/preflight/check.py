"""The whole check: `preflight(settings)`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from truecopy.engines import connect
from truecopy.engines.protocols import Advises, Introspects, Loads, Session
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.model.finding import Finding, Level, Subject
from truecopy.spark import is_local
from truecopy.telemetry import span
from truecopy.transfer.preflight import (
    columns,
    guarantee,
    inventory,
    keys,
    log,
    references,
    servers,
    sharding,
    tables,
)
from truecopy.transfer.preflight.ends import Check, Ends, attempt, info, told_apart
from truecopy.transfer.preflight.estimate import estimate
from truecopy.transfer.preflight.report import Report
from truecopy.transfer.settings import Settings

_Checks = tuple[tuple[Subject, str, Check], ...]
_AT_EVERY_START: _Checks = (
    (Subject.SETTINGS, "the settings of the source", servers.check_source_server),
    (Subject.SETTINGS, "the settings of the target", servers.check_target_server),
    (Subject.RIGHTS, "the rights on the target", servers.check_target_rights),
    (Subject.LOG, "the target's log", log.check_target_log),
)
_AT_THE_FIRST: _Checks = (
    (Subject.TABLES, "the tables of the target", tables.check_targets),
    (Subject.TABLES, "the tables to make", tables.check_made),
    (Subject.TABLES, "tables that hold rows of others", tables.check_own_rows),
    (Subject.TABLES, "whose rows are whose", sharding.check_sharding),
    (Subject.LOG, "how long the log is kept", log.check_retention),
    (Subject.KEYS, "keys", keys.check_keys),
    (Subject.KEYS, "unique keys", keys.check_unique),
    (Subject.COLLATIONS, "collations", keys.check_collations),
    (Subject.REFERENCES, "foreign keys of the source", references.check_source_references),
    (Subject.REFERENCES, "foreign keys of the target", references.check_target_references),
    (Subject.REFERENCES, "foreign keys to make", references.check_made_references),
    (Subject.TRIGGERS, "triggers", references.check_triggers),
    (Subject.TYPES, "columns", columns.check_columns),
    (Subject.SPACE, "free space", servers.check_space),
)
_AT_LEISURE: _Checks = (
    (Subject.TABLES, "tables that came later", tables.check_later),
    (Subject.SETTINGS, "the sql_mode", servers.check_modes),
    (Subject.SETTINGS, "the size of rows", servers.check_row_sizes),
    (Subject.TYPES, "values", columns.check_odd_values),
    (Subject.TIME, "time zones", columns.check_time_zones),
)
"""A run stops at a row that does not fit, and names it; these say so beforehand, and may read whole tables."""
_READABLE_AT_A_START = 20_000
_ORDER = list(Subject)
_WORST_FIRST = list(Level)


@span("check")
def preflight(settings: Settings) -> Report:
    """Looks at both ends of a task, and changes neither."""
    begun = time.monotonic()
    source_end, target_end = parse_endpoint(settings.source), parse_endpoint(settings.target)
    with connect(source_end) as source, connect(target_end) as target:
        _require(settings, source, target)
        asked = log.ask_stream(settings, source)
        ends, findings = _open(settings, source, target)
        findings += log.log_findings(asked, {pair.name for pair in ends.pairs})
        source_level = guarantee.source_level(asked)
        target_level = guarantee.target_level(ends.target_advisor)
        promise, refused = guarantee.judge(settings, source_level, target_level)
        findings += refused
        findings += _run_all(ends, _AT_EVERY_START + _AT_THE_FIRST + _AT_LEISURE)
        left = attempt(lambda: inventory.inventory(ends), source)
        if isinstance(left, TruecopyError):
            findings.append(
                info(Subject.TABLES, f"what is not carried could not be listed: {left}")
            )
            left = []
    findings.sort(key=lambda one: (_ORDER.index(one.subject), _WORST_FIRST.index(one.level)))
    return Report(
        task=settings.task,
        source=source_end,
        target=target_end,
        tables=tuple((p.name, str(p.onto), p.target is not None) for p in ends.pairs),
        estimate=ends.estimate,
        guarantee=promise,
        source_level=str(source_level or ""),
        target_level=str(target_level or ""),
        findings=tuple(dict.fromkeys(findings)),
        inventory=tuple(left),
        seconds=time.monotonic() - begun,
    )


@span("check")
def before_a_run(settings: Settings) -> list[Finding]:
    """What would make a run fail, or lose rows, as far as that is found without reading large tables.

    A run that goes on has its tables: only what may have changed on the servers is asked for.
    """
    ends_of = parse_endpoint(settings.source), parse_endpoint(settings.target)
    with connect(ends_of[0]) as source, connect(ends_of[1]) as target:
        _require(settings, source, target)
        asked = log.ask_stream(settings, source)
        ends, findings = _open(settings, source, target)
        pairs = tuple(replace(pair, readable=_READABLE_AT_A_START) for pair in ends.pairs)
        ends = replace(ends, pairs=pairs)
        findings += log.log_findings(asked, {pair.name for pair in pairs})
        level = guarantee.source_level(asked), guarantee.target_level(ends.target_advisor)
        findings += guarantee.judge(settings, *level)[1]
        is_first = not ends.begun
        findings += _run_all(ends, _AT_EVERY_START + (_AT_THE_FIRST if is_first else ()))
    told = (Level.ERROR, Level.WARNING) if is_first else (Level.ERROR,)
    return [one for one in dict.fromkeys(findings) if one.level in told]


def _require(settings: Settings, source: Session, target: Session) -> None:
    """What no remedy on a server helps against."""
    if not isinstance(source, Introspects):
        raise UsageError(f"{source.endpoint.scheme}:// cannot be the source of a transfer")
    if not isinstance(target, Loads) or not isinstance(target, Introspects):
        raise UsageError(f"{target.endpoint.scheme}:// {guarantee.NO_TARGET}")
    if target.driver_local and settings.master and not is_local(settings.master):
        raise UsageError(
            f"{target.endpoint} is a file of this machine, which the executors of a cluster cannot open"
        )


def _open(settings: Settings, source: Session, target: Session) -> tuple[Ends, list[Finding]]:
    pairs, findings = tables.find_pairs(settings, source, target)
    begun = attempt(lambda: tables.tables_begun(settings, target), target)
    ends = Ends(
        settings=settings,
        source=source,
        target=target,
        source_advisor=source.advisor() if isinstance(source, Advises) else None,
        target_advisor=target.advisor() if isinstance(target, Advises) else None,
        pairs=tuple(pairs),
        begun=frozenset() if isinstance(begun, TruecopyError) else begun,
        estimate=estimate((pair.source for pair in pairs), settings.limits),
    )
    return ends, findings


def _run_all(ends: Ends, checks: _Checks) -> Iterator[Finding]:
    for subject, name, check in checks:
        found = attempt(lambda check=check: list(check(ends)), ends.source, ends.target)  # type: ignore[misc]
        if isinstance(found, TruecopyError):
            message, remedy = told_apart(found)
            yield info(subject, f"{name} could not be checked: {message}", remedy)
        else:
            yield from found
