"""The tables of a validation: how rows of each definition are looked at on the target, and which tables stand still.

What cannot be validated stops alone, with its reason. Definitions are learned as they come in the stream, each
against the target's table as it is then, by column name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from truecopy.engines import pool
from truecopy.engines.protocols import ChecksRights, HidesCascades, Introspects, Session
from truecopy.mapping.plan import TableMapping, as_table, plan_definition, plan_tables
from truecopy.mapping.transformers import check_expressions, inferred_by
from truecopy.metastore.definitions import Definitions
from truecopy.metastore.validations import RUNNING, STOPPED, Stage
from truecopy.model.change import Definition
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import Denied, UsageError
from truecopy.model.table import Table, TableName
from truecopy.transfer.continuous.compare import Check
from truecopy.transfer.narrowing import rows_on_target
from truecopy.transfer.plan import (
    ChangeTarget,
    TablePlan,
    change_target,
    home_of,
    is_mapped,
    mapped_target,
    may_be_sliced,
    plan_table,
)
from truecopy.transfer.settings import Settings
from truecopy.transfer.ties import find_ties
from truecopy.verify.compare import by_meaning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_STOOD_STILL = (
    "it stood still, and was not checked meanwhile; its earlier errors are only looked at by validate start and"
    " recheck: truecopy verify compares it"
)
"""Is looked for in what was said before, too."""


class Tables:
    """What is known of the tables of a task; lives on the driver.

    Attributes:
        stages: How each of them stands, by its name on the source.
        checks: By `schema_id`; definitions of tables that stand still have none.
        mappings: By `schema_id`, where rows are made by expressions on their way.
        unsliced: Tables whose rows the replication does not write in parallel.
    """

    def __init__(self, settings: Settings, spark: SparkSession) -> None:
        self._settings = settings
        self._spark = spark
        self._source = parse_endpoint(settings.source)
        self._target = parse_endpoint(settings.target)
        self._definitions = Definitions()
        self._rules = settings.rules
        self._ways: dict[str, TableMapping] = {}
        self._untold = frozenset[TableName]()
        self.stages: dict[str, Stage] = {}
        self.checks: dict[str, Check] = {}
        self.mappings: dict[str, TableMapping] = {}
        self.unsliced: set[str] = set()
        self._changed: set[str] = set()
        self._lacking: set[str] = set()
        self._troubled: set[str] = set()
        self._notes: dict[str, str] = {}

    def open(self, left_out: Mapping[str, str]) -> None:
        """Finds the tables; `left_out` says which are not in the stream, and why."""
        with pool.lease(self._source) as session:
            tables = self._find(session)
            self._untold = _untold(session, tables)
        self._ways = {str(way.source): way for way in plan_tables(tables, self._rules)}
        with pool.lease(self._target) as session:
            for table in tables:
                self._begin(str(table.name), table, left_out, session)

    def carries(self, table: str | None) -> bool:
        """Whether changes of a table are to be checked."""
        return table in self.stages and self.stages[table].stage == RUNNING

    def learn(self, schema_ids: Iterable[str]) -> None:
        """Makes the checks of definitions that are new."""
        for schema_id in schema_ids:
            definition = self._definitions.find(schema_id)
            self._notice(definition.table)
            if schema_id in self.checks or not self.carries(definition.table):
                continue
            self._try_to_learn(schema_id, definition)

    def learn_lacking(self) -> None:
        """Once the replication has come as far as what is to be checked: columns may be there that were not before."""
        for schema_id in sorted(self._lacking & self.checks.keys()):
            self._try_to_learn(schema_id, self._definitions.find(schema_id))

    def _try_to_learn(self, schema_id: str, definition: Definition) -> None:
        try:
            self._learn(schema_id, definition)
        except (UsageError, Denied) as error:
            self.stop(definition.table, str(error))

    def _notice(self, table: str) -> None:
        """A table that was not there when validation started is not passed over in silence."""
        schema, _, name = table.rpartition(".")
        if table not in self.stages and self._settings.wants(TableName(schema or None, name)):
            why = "it was made after validation started: start that again, and it is taken up"
            self._set(Stage(table, STOPPED, why))

    def learn_again(self, table: str) -> None:
        """Makes the checks of a table anew: it may be another one on the target than it was."""
        mine = [schema_id for schema_id, check in self.checks.items() if check.table == table]
        for schema_id in mine:
            if self.carries(table):
                self._try_to_learn(schema_id, self._definitions.find(schema_id))

    def tell_troubles(self, troubles: Mapping[str, str]) -> None:
        """Why rows of tables could not be read on the target in the last round, where they go on all the same."""
        for table in {*troubles, *self._troubled}:
            if self.carries(table):
                why = troubles.get(table)
                again = f"the target would not tell of its rows, and is asked again: {why}"
                self._set(Stage(table, RUNNING, again if why else self._notes.get(table, "")))
        self._troubled = set(troubles)

    def take_up_again(self, before: Mapping[str, Stage]) -> set[str]:
        """Tables that stood still and go on now: what was known of their rows is not what they should be any more.

        That they did is said from then on, whenever validation starts: nothing else tells of the gap.
        """
        known = [before[name] for name in self.stages if name in before and self.carries(name)]
        again = {stage.name for stage in known if stage.stage == STOPPED}
        for name in again | {stage.name for stage in known if _STOOD_STILL in stage.message}:
            self._notes[name] = _STOOD_STILL
            self._set(Stage(name, RUNNING, _STOOD_STILL))
        return again

    def stop(self, table: str, why: str) -> None:
        """Leaves a table out from now on."""
        self._set(Stage(table, STOPPED, why))
        for schema_id in [one for one, check in self.checks.items() if check.table == table]:
            del self.checks[schema_id]
            self.mappings.pop(schema_id, None)

    def news(self) -> list[Stage]:
        """Stages that have changed since this was asked last."""
        names, self._changed = self._changed, set()
        return [self.stages[name] for name in sorted(names)]

    def _set(self, stage: Stage) -> None:
        if self.stages.get(stage.name) != stage:
            self.stages[stage.name] = stage
            self._changed.add(stage.name)

    def _find(self, session: Session) -> list[Table]:
        if not isinstance(session, Introspects):
            raise UsageError(f"{self._source.scheme}:// cannot be the source of a validation")
        names = [name for name in session.tables() if self._settings.wants(name)]
        if not names:
            raise UsageError(f"no table of {self._source} is chosen by the task")
        self._rules = replace(
            self._settings.rules, home=home_of(session), infer=inferred_by(self._spark)
        )
        return [session.describe(name) for name in names]

    def _begin(
        self, name: str, table: Table, left_out: Mapping[str, str], session: Session
    ) -> None:
        way = self._ways[name]
        if name in left_out:
            self._set(Stage(name, STOPPED, f"its changes are not streamed: {left_out[name]}"))
        elif table.name in self._untold:
            why = (
                "foreign keys change its rows (ON DELETE, ON UPDATE), and the log does not tell, so that what a row"
                " should be is not known: truecopy verify compares it"
            )
            self._set(Stage(name, STOPPED, why))
        elif not table.keys or not way.key:
            why = "it has no key, so that a changed row cannot be found on the target: give it one"
            self._set(Stage(name, STOPPED, why))
        else:
            self._set(Stage(name))
            try:
                onto = self._onto(way, session)
            except (UsageError, Denied) as error:
                self.stop(name, str(error))
            else:
                if not may_be_sliced(way, table, onto, way.key):
                    self.unsliced.add(name)

    def _onto(self, way: TableMapping, session: Session) -> Table:
        target = cast(Introspects, session)
        found = target.find(str(way.target))
        if found is None:
            raise UsageError(f"{self._target} has no table {way.target}: was it dropped there?")
        return target.describe(found)

    def _learn(self, schema_id: str, definition: Definition) -> None:
        base = self._ways[definition.table]
        if _lower(definition.key) != _lower(base.source_key):
            raise UsageError(
                f"its key changed: {_listed(definition.key)} in the log, {_listed(base.source_key)} when validation"
                " started; start it again behind the change (--from)"
            )
        mapping = plan_definition(definition, base, self._rules)
        if is_mapped(mapping):
            check_expressions(self._spark, mapping)
            self.mappings[schema_id] = mapping
        with pool.lease(self._target) as session:
            onto = self._onto(mapping, session)
            absent = [one.name for one in mapping.columns if onto.column(one.name) is None]
            kept = tuple(one for one in mapping.columns if one.name not in absent)
            table = as_table(definition, base.source)
            present = replace(mapping, columns=kept)
            plan = plan_table(present, self._source, table, self._target, onto)
            if plan.is_keyless:
                raise UsageError(f"{mapping.target} has no key: give it one")
            to = (
                mapped_target(plan, mapping)
                if is_mapped(mapping)
                else change_target(plan, definition)
            )
            check = self._check(plan, to, session)
            if isinstance(session, ChecksRights):
                session.require_select(check.relation)
        self.checks[schema_id] = check
        (self._lacking.add if absent else self._lacking.discard)(schema_id)
        lacks = f"not on the target, so not compared: {', '.join(absent)}" if absent else ""
        notes = filter(None, (lacks, self._notes.get(definition.table, "")))
        self._set(Stage(definition.table, RUNNING, "; ".join(notes)))

    def _check(self, plan: TablePlan, to: ChangeTarget, session: Session) -> Check:
        pairs = list(zip(plan.source.columns, plan.target.columns, plan.target.types, strict=True))
        names = {b.name: a.name for a, b, _ in pairs}
        agreed = {b.name: kind for _, b, kind in pairs}
        columns = to.relation.columns
        leg = self._settings.leg
        mine = rows_on_target(leg, plan.mapping, columns, session) if leg else None
        relation = replace(
            to.relation, types=tuple(agreed[column.name] for column in columns), where=mine
        )
        return Check(
            plan.source_name,
            by_meaning(relation),
            tuple(names[column.name] for column in columns),
            to.places,
            to.key_places,
            to.relation.types,
        )


def explain_trouble(tables: Tables, troubles: Mapping[str, str]) -> None:
    """After the target refused to be asked about tables: they are looked at anew, and stop where that fails, too."""
    for table in troubles:
        tables.learn_again(table)
    tables.tell_troubles(troubles)


def _untold(source: Session, tables: Sequence[Table]) -> frozenset[TableName]:
    """Tables of which the log does not tell every change."""
    if not isinstance(source, HidesCascades) or source.logs_cascades():
        return frozenset()
    ties = find_ties({table.name: table for table in tables})
    return frozenset(name for name, tie in ties.items() if tie.follows)


def _lower(names: Sequence[str]) -> set[str]:
    return {name.lower() for name in names}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
