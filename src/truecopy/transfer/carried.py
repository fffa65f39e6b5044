"""The tables that a replication carries: how each is planned now, and how that follows what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from truecopy.engines import pool
from truecopy.engines.protocols import Identifies, Introspects
from truecopy.mapping.plan import TableMapping, as_table, plan_definition, plan_tables
from truecopy.mapping.routes import find_way, parse_name
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import Definition
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.model.table import Table, TableName
from truecopy.stream.log import Wanted, open_log
from truecopy.transfer.apply import run_all
from truecopy.transfer.ledger import Ledger
from truecopy.transfer.narrowing import narrowed
from truecopy.transfer.plan import (
    ChangeTarget,
    TablePlan,
    change_target,
    mapped_target,
    plan_table,
    tied,
)
from truecopy.transfer.proof.shapes import altering
from truecopy.transfer.redefinition import (
    GONE,
    Redefinition,
    Renamed,
    Verdict,
    defined_by,
    has_table,
    judge,
    known_definition,
    refuse_replaced,
    require_accepted,
    require_key,
    require_types,
)
from truecopy.transfer.settings import Settings
from truecopy.transfer.succession import Successor, find_successor
from truecopy.transfer.widening import lost_columns, refuse_lost, widen

LOOK_SECONDS = 5.0


class CarriedTables:
    """Lives on the driver, beside the replication.

    Attributes:
        plans: By the source's names.
        sources: What the ledger says of the source's tables.
        definitions: Those that changes were made under, by `schema_id`.
        targets: Where changes of each definition go, as far as some were met.
        mappings: Of those definitions whose rows are made by expressions.
    """

    def __init__(
        self, settings: Settings, target: Endpoint, plans: Mapping[str, TablePlan], epoch: int
    ) -> None:
        self._settings = settings
        self._epoch = epoch
        self._source = parse_endpoint(settings.source)
        self._target = target
        self.plans = plans
        self.definitions = Definitions()
        self.targets: dict[str, ChangeTarget] = {}
        self.mappings: dict[str, TableMapping] = {}
        with pool.lease(target) as session:
            self.sources = self._ledger(session).sources()

    @property
    def are_all_planned(self) -> bool:
        """Whether there is none that will be planned when its first change is met."""
        late = map(parse_name, self.sources.keys() - self.plans.keys())
        return not any(map(self._settings.wants, late))

    def has(self, table: str) -> bool:
        """Whether it is a table of the task; one that was excluded since it was copied is none any more."""
        is_known = table in self.sources or table in self.plans
        return is_known and self._settings.wants(parse_name(table))

    def judged(
        self,
        table: str,
        renamed: TableName | None,
        at: str,
        successor: Successor | None = None,
    ) -> Verdict:
        """What becomes of a table that was dropped or renamed; a pause is in front of it.

        Args:
            table: Its name until then.
            renamed: Its name from then on; None where it was dropped.
            at: Where in the log; empty where the log does not tell, and it was found so.
            successor: The table that got its name; found out where it is not given.
        """
        name = parse_name(table)
        what = Redefinition(
            self._settings.task,
            name,
            self._onto(name),
            at,
            renamed,
            self._onto(renamed) if renamed and self._settings.wants(renamed) else None,
            table in self.plans and self.plans[table].mapping.merged,
            successor or self._successor(name, at),
        )
        with pool.lease(self._target) as target:
            verdict = judge(what, target, self.sources.get(table))
            if verdict == GONE:
                self._ledger(target).leave_source(table, self._epoch)
            elif isinstance(verdict, Renamed):
                known_by = self._known_by(at)
                self._ledger(target).rename_source(table, str(verdict.name), known_by, self._epoch)
            self.sources = self._ledger(target).sources()
        if verdict == GONE or isinstance(verdict, Renamed):
            self.plans = {name: plan for name, plan in self.plans.items() if name != table}
        return verdict

    def require_accepted(self, table: str, renamed: TableName, at: str) -> None:
        """Pauses where a table that is not carried takes the name of one that is, unless that is said to be right.

        How the name became free was judged before, where the log told of it. A source that knows its tables apart is
        asked for that (`departed`).
        """
        with pool.lease(self._source) as source:
            if isinstance(source, Identifies):
                return
        line, went = self.sources.get(str(renamed)), f"{table} was renamed to {renamed} at {at}"
        require_accepted(self._settings.task, renamed, at, line, went)

    def _successor(self, name: TableName, at: str) -> Successor | None:
        """The table that the source has by a name that became free at a position; None where it has none."""
        with pool.lease(self._source) as source:
            if not has_table(source, name):
                return None
            is_told = at and not isinstance(source, Identifies)
        request = self._settings.request
        wanted = Wanted(request.name, request.tables, settings=request.settings)
        found = None
        if is_told:
            with open_log(self._source, wanted) as log:
                found = find_successor(log, str(name), at)
        if found is None:
            refuse_replaced(name)
        return found

    def _known_by(self, at: str) -> str | None:
        """What a table is known by that got its name at a position; None for what it was known by before."""
        with pool.lease(self._source) as source:
            return None if isinstance(source, Identifies) else at

    def _onto(self, name: TableName) -> TableName:
        """The table of the target that takes the rows of a source table."""
        if (plan := self.plans.get(str(name))) is not None:
            return plan.target.tables[0]
        return find_way(name, self._settings.rules.routes, self._settings.rules.home).target

    def departed(self) -> list[str]:
        """Tables that the source has no more, or another one by their names."""
        with pool.lease(self._source) as source:
            there = set(map(str, cast(Introspects, source).tables()))
            now = source.identities() if isinstance(source, Identifies) else {}
        known = {str(name): identity for name, identity in now.items()}
        return [
            table
            for table in sorted(self.plans.keys() | self.sources.keys())
            if self._settings.wants(parse_name(table))
            and (table not in there or self._identity(table) not in ("", known.get(table, "")))
        ]

    def _identity(self, table: str) -> str:
        """By which the source knows the table that was copied; empty where the log tells it apart."""
        line = self.sources.get(table)
        with pool.lease(self._source) as source:
            return line.identity if line and isinstance(source, Identifies) else ""

    def judge_present(self) -> None:
        """Judges the source's tables as they are now, when everything that happened before is in.

        A log need not tell: of a table that was dropped, or of one that nobody has written to since it was altered.
        """
        for table in self.departed():
            with pool.lease(self._source) as source:
                if table in map(str, cast(Introspects, source).tables()):
                    refuse_replaced(parse_name(table))
                now = source.identities() if isinstance(source, Identifies) else {}
            names = {identity: name for name, identity in now.items()}
            self.judged(table, names.get(self._identity(table)), "")
        for plan in list(self.plans.values()):
            with pool.lease(self._source) as source:
                present: Table = cast(Introspects, source).describe(plan.mapping.source)
            self._fitting(plan, defined_by(present))

    def plan_late(self, table: str, definition: Definition) -> None:
        """Plans a table that has got its name since the run began, and was copied under another one."""
        described = as_table(definition, parse_name(table))
        (mapping,) = plan_tables([described], self._settings.rules)
        with pool.lease(self._target) as target:
            introspects = cast(Introspects, target)
            found = introspects.find(str(self._onto(described.name)))
            if found is None:
                raise CannotFinish(
                    f"{self._target} has no table for {table}, which has changes: was it dropped there?"
                )
            onto = introspects.describe(found)
        plan = plan_table(mapping, self._source, described, self._target, onto)
        self.plans = {**self.plans, table: self._narrowed(plan)}

    def learn(self, schema_ids: set[str]) -> None:
        for schema_id in schema_ids - self.targets.keys():
            definition = self.definitions.find(schema_id)
            plan = self._fitting(self.plans[definition.table], definition)
            self._note(definition)
            if plan.is_mapped:
                mapping = plan_definition(definition, plan.mapping, self._settings.rules)
                self.mappings[schema_id] = mapping
                self.targets[schema_id] = mapped_target(plan, mapping)
            else:
                self.targets[schema_id] = change_target(plan, definition)

    def _fitting(self, plan: TablePlan, definition: Definition) -> TablePlan:
        """The plan for a definition that changes were made under, which may be another one than the copy had."""
        before = known_definition(self.definitions, self.sources.get(plan.source_name))
        arrived = plan.comparison.target_table
        own_key = tuple(plan.mapping.renames.get(name, name) for name in definition.key)
        is_keyed_alike = plan.is_mapped or plan.is_keyless or _is_same(own_key, plan.mapping.key)
        if is_keyed_alike and (before is None or before == definition):
            mapping = plan_definition(definition, plan.mapping, self._settings.rules)
            known = {column.name.lower() for column in mapping.columns}
            if _carries(plan, mapping) and all(
                column.name.lower() in known for column in plan.source.columns
            ):
                return plan
        with pool.lease(self._source) as source, pool.lease(self._target) as target:
            there = plan.mapping.source in cast(Introspects, source).tables()
            now: Table = (
                cast(Any, source).describe(plan.mapping.source)
                if there
                else as_table(definition, plan.mapping.source)
            )
            onto = cast(Any, target).describe(arrived.name)
            kept = plan.mapping
            if before is not None and not plan.is_mapped and not plan.is_keyless:
                require_key(plan.mapping, before, definition, onto, target)
            if not is_keyed_alike and definition.key:
                kept = replace(plan.mapping, key=own_key)
            mapping = plan_definition(definition, kept, self._settings.rules)
            refuse_lost(target, mapping, onto, lost_columns(mapping, plan.source.columns, now))
            if before is not None and there:
                was = as_table(before, plan.mapping.source)
                require_types(mapping, was, now, onto, target)
            added = widen(target, mapping, now, onto, self._settings.ddl)
            if not added and is_keyed_alike and _carries(plan, mapping):
                return plan
            if added:
                with altering(self._settings.task, self._target, [onto.name]):
                    run_all(target, added, self._settings.annotation)
                onto = cast(Any, target).describe(arrived.name)
        table = as_table(definition, plan.mapping.source)
        fitting = tied(plan_table(mapping, self._source, table, self._target, onto), plan.tie)
        # What else the source is unique by is not in the definition, and was asked for when the table was planned.
        fitting = self._narrowed(replace(fitting, sliced=fitting.sliced and plan.sliced))
        self.plans = {**self.plans, plan.source_name: fitting}
        return fitting

    def _narrowed(self, plan: TablePlan) -> TablePlan:
        if self._settings.leg is None:
            return plan
        with pool.lease(self._source) as source, pool.lease(self._target) as target:
            return narrowed(plan, self._settings.leg, source, target)

    def _note(self, definition: Definition) -> None:
        """From here on changes are judged by what this definition allowed."""
        line = self.sources.get(definition.table)
        if line is not None and line.schema_id != definition.schema_id:
            line = replace(line, schema_id=definition.schema_id)
            with pool.lease(self._target) as session:
                self._ledger(session).note_source(definition.table, line, self._epoch)
            self.sources = {**self.sources, definition.table: line}

    def _ledger(self, session: Any) -> Ledger:
        return Ledger(session, self._settings.task)


class Departed(CannotFinish):
    """A table is gone, or another one has its name."""


class Departures:
    """Looks, now and then, for tables that went without a word in the log."""

    def __init__(self, tables: CarriedTables) -> None:
        self._tables = tables
        self._looked_at = time.monotonic()

    def look(self) -> None:
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        if gone := self._tables.departed():
            raise Departed(f"{gone[0]} is gone from the source: run the task again")


def _carries(plan: TablePlan, mapping: TableMapping) -> bool:
    """Whether a plan has every column that rows arrive with; the target may have got one since it was made."""
    there = {column.name.lower() for column in plan.target.columns}
    return all(column.name.lower() in there for column in mapping.columns)


def _is_same(one: Sequence[str], other: Sequence[str]) -> bool:
    return {name.lower() for name in one} == {name.lower() for name in other}
