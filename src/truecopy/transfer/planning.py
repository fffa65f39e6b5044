"""The way of each table of a task, looked at and made sure of before anything moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from truecopy.engines.protocols import (
    ChecksRights,
    Creates,
    Identifies,
    Introspects,
    Loads,
    ReadsAtPosition,
    Session,
)
from truecopy.mapping.plan import MappingRules, TableMapping, plan_tables
from truecopy.mapping.routes import find_way, parse_name
from truecopy.mapping.transformers import check_expressions, inferred_by
from truecopy.metastore.definitions import Definitions
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.table import Column, Table, TableName, require_own_rows
from truecopy.model.types import Type
from truecopy.spark import is_local
from truecopy.spark import session as spark_session
from truecopy.transfer.apply import run_all
from truecopy.transfer.control import Control
from truecopy.transfer.ledger import SNAPSHOT, Ledger, SourceLine
from truecopy.transfer.narrowing import narrowed
from truecopy.transfer.plan import (
    TablePlan,
    Tie,
    arriving,
    home_of,
    is_mapped,
    plan_table,
    tied,
)
from truecopy.transfer.preflight.guarantee import NO_TARGET, require_target
from truecopy.transfer.proof.shapes import altering
from truecopy.transfer.redefinition import as_of, defined_by, known_definition, refuse_replaced
from truecopy.transfer.settings import Settings
from truecopy.transfer.terms import broken_terms, terms_of
from truecopy.transfer.ties import are_wanted, find_ties, require_possible
from truecopy.transfer.widening import widen

_TargetTable = Callable[[Session, TableMapping, Table], Table]


class Planning:
    """Plans a task.

    Args:
        settings: The task.
        said: Hears what is not quite the same on the target.

    Attributes:
        rules: What becomes of rows, completed by what the source's tables tell.
        departed: Tables that were copied, and that the source has no more.
        is_beginning: Whether the ledger knew nothing of the task.
        sources: What the ledger shall say of the source's tables, once the task is claimed; those that it is silent of.
        terms: What the task says now of the others, where it said something else.
    """

    def __init__(self, settings: Settings, said: Callable[[str], None]) -> None:
        self._settings = settings
        self._said = said
        self._source = parse_endpoint(settings.source)
        self._target = parse_endpoint(settings.target)
        self.rules: MappingRules = settings.rules
        self.departed: frozenset[str] = frozenset()
        self.is_beginning = False
        self.sources: Mapping[str, SourceLine] = {}
        self.terms: Mapping[str, str] = {}

    def prepare(self, source: Session, target: Session) -> dict[str, TablePlan]:
        """The way of each table, by its name on the source; missing tables are made, what cannot be is refused."""
        self._refuse_what_cannot_be(target)
        if not isinstance(source, Introspects):
            raise UsageError(f"{self._source.scheme}:// cannot be the source of a transfer")
        ledger = self._ledger(target)
        ledger.create()
        Control(cast(Any, target), self._settings.task).create()
        line, tables = ledger.find(), self._chosen(source)
        self.is_beginning = line is None
        noted: Mapping[str, SourceLine] = {}
        if line is not None and line.phase == SNAPSHOT:
            # What is copied from now on is as it is now.
            self._refuse_joined(source, tables, ledger.sources())
        elif line is not None:
            noted = ledger.sources()
            tables = self._as_of_the_last_change(source, target, tables)
        mappings = self._mapped(source, tables)
        if line is not None:
            self._require_terms(target, mappings.values())
        plans = self._plan(source, target, tables, mappings, self._target_table)
        silent = {name: plans[name].mapping for name in plans.keys() - noted.keys()}
        self.sources = self._source_lines(source, silent)
        self.terms = {
            name: said
            for name, line in noted.items()
            if name in plans and (said := terms_of(plans[name].mapping)) != line.terms
        }
        return plans

    def planned(self, source: Session, target: Session) -> dict[str, TablePlan]:
        """The same for a task that has made its tables; nothing is written."""
        tables = self._chosen(source)
        mappings = self._mapped(source, tables)
        return self._plan(source, target, tables, mappings, self._found_table)

    def _chosen(self, source: Session) -> dict[TableName, Table]:
        """The tables of the task, as they are now."""
        if not isinstance(source, Introspects):
            raise UsageError(f"{self._source.scheme}:// cannot be the source of a transfer")
        names = [name for name in source.tables() if self._settings.wants(name)]
        tables = {name: source.describe(name) for name in names}
        for table in tables.values():
            require_own_rows(table)
        return tables

    def _source_lines(
        self, source: Introspects, tables: Mapping[str, TableMapping]
    ) -> dict[str, SourceLine]:
        """Which tables they are, how they are defined, and made into others: what comes later is judged by that."""
        definitions, lines = Definitions(), {}
        identities = _identities(source)
        for table, mapping in tables.items():
            definition = defined_by(source.describe(mapping.source))
            definitions.remember([definition])
            identity = identities.get(mapping.source, "")
            lines[table] = SourceLine(identity, definition.schema_id, terms_of(mapping))
        return lines

    def _require_terms(self, target: Session, mappings: Iterable[TableMapping]) -> None:
        """Refuses what would be made otherwise than the rows that are on the target already."""
        ledger = self._ledger(target)
        kept, copied = ledger.sources(), ledger.copied()
        for mapping in mappings:
            name = str(mapping.source)
            if name not in kept or not (name in copied and copied[name].chunks_copied):
                continue
            if why := broken_terms(kept[name].terms, mapping):
                raise UsageError(
                    f"the task says something else of {name} than when its rows were written: {why}; put it back, or"
                    " begin anew: truecopy delete, then truecopy run"
                )

    def _as_of_the_last_change(
        self, source: Introspects, target: Session, present: Mapping[TableName, Table]
    ) -> dict[TableName, Table]:
        """The tables that were copied, as the changes see them that come next: the stream tells what they became."""
        ledger, onto = self._ledger(target), cast(Introspects, target)
        copied, noted, definitions = ledger.tables(), ledger.sources(), Definitions()
        missing = map(parse_name, copied - set(map(str, present)))
        departed = {name for name in missing if self._settings.wants(name)}
        self.departed = frozenset(map(str, departed))
        if not departed:
            self._refuse_later(present, copied)
        home = home_of(source)
        tables = {}
        for name in [*(name for name in present if str(name) in copied), *sorted(departed)]:
            known = known_definition(definitions, noted.get(str(name)))
            way = find_way(name, self._settings.rules.routes, home)
            found = onto.find(str(way.target))
            there = onto.describe(found) if found is not None else None
            if known is not None and (there is not None or name in present):
                tables[name] = as_of(known, present.get(name), there, name, way.columns)
            elif name in present:
                tables[name] = present[name]
        return tables

    def _refuse_what_cannot_be(self, target: Session) -> None:
        if not isinstance(target, Loads) or not isinstance(target, Introspects):
            raise UsageError(f"{self._target.scheme}:// {NO_TARGET}")
        require_target(self._settings, target)
        master = self._settings.master
        if target.driver_local and master and not is_local(master):
            raise UsageError(
                f"{self._target} is a file of this machine, which the executors of a cluster cannot open"
            )

    def _refuse_joined(
        self, source: Introspects, tables: Iterable[TableName], begun: Mapping[str, SourceLine]
    ) -> None:
        """The log is held for the tables that the task began with: what happens to others may not be in there."""
        identities = _identities(source)
        for name in tables:
            line = begun.get(str(name))
            if line is None:
                raise UsageError(
                    f"{name} is none of the tables that {self._settings.task} began with, and its changes so far may"
                    " not be in the log: exclude it, or carry it by a task of its own"
                )
            if identities.get(name, line.identity) != line.identity:
                refuse_replaced(name)

    def _refuse_later(self, present: Mapping[TableName, Table], copied: set[str]) -> None:
        """Once the copy is done, the rows of another table would never be copied.

        One that came when another went may be that one: the stream tells.
        """
        for name in present:
            if str(name) not in copied:
                raise UsageError(
                    f"{name} was not there when {self._settings.task} copied its tables, or was left out since: exclude"
                    " it, or carry it by a task of its own"
                )

    def _mapped(
        self, source: Session, tables: Mapping[TableName, Table]
    ) -> dict[TableName, TableMapping]:
        if not tables and not self.departed:
            raise UsageError(f"no table of {self._source} is chosen by the task")
        self.rules = replace(self._settings.rules, home=home_of(source), infer=self._infer)
        return {mapping.source: mapping for mapping in plan_tables(tables.values(), self.rules)}

    def _plan(
        self,
        source: Session,
        target: Session,
        tables: Mapping[TableName, Table],
        mappings: Mapping[TableName, TableMapping],
        onto_for: _TargetTable,
    ) -> dict[str, TablePlan]:
        ties = self._ties(source, target, tables, mappings)
        plans = {}
        for name, mapping in mappings.items():
            if is_mapped(mapping):
                check_expressions(spark_session(self._settings.master), mapping)
            onto = onto_for(target, mapping, tables[name])
            require_own_rows(onto)
            plan = plan_table(mapping, self._source, tables[name], self._target, onto)
            plan = tied(plan, ties.get(name))
            if self._settings.leg:
                plan = narrowed(plan, self._settings.leg, source, target)
            is_there = str(name) not in self.departed
            for side, relation in ((source, plan.read), (target, plan.target))[not is_there :]:
                if isinstance(side, ChecksRights):
                    side.require_select(relation)
            if plan.is_keyless and is_there:
                self._require_position(source, plan)
            plans[str(name)] = plan
        return plans

    def _ties(
        self,
        source: Session,
        target: Session,
        tables: Mapping[TableName, Table],
        mappings: Mapping[TableName, TableMapping],
    ) -> dict[TableName, Tie]:
        if not are_wanted(self._settings, source):
            return {}
        require_possible(self._settings, tables, mappings, target)
        return find_ties(tables)

    def _require_position(self, source: Session, plan: TablePlan) -> None:
        if not isinstance(source, ReadsAtPosition):
            raise UsageError(
                f"{plan.source_name} has no key, and {self._source.scheme}:// does not say of which moment its rows"
                " are: give it a key, or leave it out"
            )
        source.require_position(plan.read)

    def _infer(self, columns: Sequence[Column], sql: str) -> Type:
        """The type of an expression, which Spark is started for only where a task adds one."""
        return inferred_by(spark_session(self._settings.master))(columns, sql)

    def _found_table(self, target: Session, mapping: TableMapping, _: Table) -> Table:
        introspects = cast(Introspects, target)
        found = introspects.find(str(mapping.target))
        if found is None:
            raise UsageError(f"{self._target} has no table {mapping.target}: was it dropped there?")
        return introspects.describe(found)

    def _target_table(self, target: Session, mapping: TableMapping, table: Table) -> Table:
        """The table that takes the rows; made where it is missing."""
        wanted = str(mapping.target)
        introspects = cast(Introspects, target)
        found = introspects.find(wanted)
        if found is not None:
            onto = introspects.describe(found)
            if added := self._widened(target, mapping, table, onto):
                with altering(self._settings.task, self._target, [found]):
                    run_all(target, added, self._settings.annotation)
                onto = introspects.describe(found)
            return onto
        if not isinstance(target, Creates):
            raise UsageError(
                f"{self._target} has no table {wanted}, and cannot make one: make it first"
            )
        named = replace(arriving(mapping, table), name=mapping.target)
        run_all(target, target.create_table(named), self._settings.annotation)
        for line in target.creation_warnings(named):
            self._said(line)
        made = introspects.find(wanted)
        if made is None:
            raise CannotFinish(f"{self._target} made {wanted} and does not show it")
        return introspects.describe(made)

    def _widened(
        self, target: Session, mapping: TableMapping, table: Table, onto: Table
    ) -> list[str]:
        """What a table of the target needs that the source's got while the task was not running."""
        ledger = self._ledger(target)
        if str(mapping.source) not in ledger.tables():
            return []
        return widen(target, mapping, table, onto, self._settings.ddl)

    def _ledger(self, target: Session) -> Ledger:
        return Ledger(cast(Any, target), self._settings.task)


def _identities(source: Introspects) -> Mapping[TableName, str]:
    return source.identities() if isinstance(source, Identifies) else {}
