"""The target verifier: reads the target's own log and knows its own writes by their annotation.

Whoever else writes to a table of the task, with no annotation or with another one first, is told of by
table, key and transaction. Statements that change a table as a whole (TRUNCATE, DDL) are read from the log
where it keeps them; where it does not, the table's definition is compared with what it was.

Every key of the log, ours or not, goes into the store: a write that went to the wrong row is found where
it went to.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.engines import pool
from truecopy.engines.protocols import KeepsAnnotations
from truecopy.metastore.definitions import Definitions
from truecopy.model.change import DROP, TRUNCATE
from truecopy.model.endpoint import Endpoint
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.stream.log import ChangeLog, KeepsStatements, Mark, Wanted, open_log
from truecopy.stream.offset import clip, has_reached
from truecopy.stream.removal import remove_from
from truecopy.transfer.plan import TablePlan
from truecopy.transfer.proof.kept import Kept
from truecopy.transfer.proof.keys import KeyForm, key_form, packed_keys
from truecopy.transfer.proof.mapped import is_looked_up
from truecopy.transfer.proof.shapes import ALTERING, SHAPES, Shapes
from truecopy.transfer.proof.store import UNCOUNTED, ReverifyStore, has_store, open_store
from truecopy.transfer.proof.verifier import ROGUE, SHOWN, Mismatch, Outcome, Scene

BYTES_PER_STEP = 64 << 20
_MARK, _CHANGES, _LEAVING = "target/mark", "target/changes", "target/leaving"
_WAIT_SECONDS = 0.2


def target_log(task: str, endpoint: Endpoint, tables: tuple[str, ...] = ()) -> Wanted:
    """What the verifier of a task asks of the target's log."""
    return Wanted(
        shard="target",
        tables=tables,
        keys_only=True,
        settings={
            "slot": _slot(task, endpoint),
            # Our writes run without the target's foreign keys, and a rogue one is told of itself.
            "cascades": "target",
            "partitions": "ignore",
            # Of rows that were written before a table was altered the keys are enough.
            "alterations": "told",
        },
    )


def remove_target_log(endpoint: Endpoint, task: str) -> bool:
    """Removes what the verifier of a task made on the target's server; False where it makes nothing."""
    with pool.lease(endpoint) as session:
        if not isinstance(session, KeepsAnnotations):
            return False
    return remove_from(endpoint, target_log(task, endpoint))


def stop_watching(task: str, endpoint: Endpoint) -> None:
    """For a task that does not want the verifier any more: a slot that nobody reads would hold the target's log."""
    if not has_store(task):
        return
    with open_store(task, endpoint.identity) as store:
        if store.note(_MARK) is None and store.note(_LEAVING) is None:
            return
        # The mark goes before the slot, as in `finish`; a crash between the two must not forget the slot.
        store.write_note(_LEAVING, "")
        store.forget_notes(_MARK, _CHANGES, SHAPES, ALTERING)
        remove_target_log(endpoint, task)
        store.forget_notes(_LEAVING)


class TargetVerifier:
    """See `verifier.Verifier`. Shares its store with the verifier that looks at rows."""

    name = "target"
    waiting = 0  # its rows are in the store that the other verifier looks at

    def __init__(self, scene: Scene, store: ReverifyStore, endpoint: Endpoint) -> None:
        self._scene = scene
        self._store = store
        self._endpoint = endpoint
        self._plans = {str(plan.target.tables[0]): plan for plan in scene.plans.values()}
        self._names = {name.lower(): name for name in self._plans}
        self._wanted = target_log(scene.task, endpoint, tuple(self._plans))
        self._log: ChangeLog | None = None
        self._kept = Kept(store)
        tables = [plan.target.tables[0] for plan in self._plans.values()]
        self._shapes = Shapes(store, endpoint, tables)
        self._handed_out = 0
        self._definitions = Definitions()
        self._forms: dict[str, KeyForm | None] = {}

    @property
    def has_begun(self) -> bool:
        """Whether an earlier run has noted where the target's log was before the task wrote."""
        return self._store.note(_MARK) is not None

    # The contract

    def start(self, *, resumed: bool) -> None:  # noqa: ARG002 - the store tells where to go on
        """From here on every write to the task's tables must be annotated.

        What an earlier verifier left on the server when it was done is removed first: a slot that is older than
        the mark would hand out writes that are not ours to judge.
        """
        with pool.lease(self._endpoint) as session:
            if not isinstance(session, KeepsAnnotations):
                raise UsageError(
                    f"the target verifier cannot be used: {self._endpoint} keeps no log of who wrote what"
                )
            if gaps := session.annotation_gaps():
                raise CannotFinish("; ".join(gaps))
        if not self.has_begun:
            remove_from(self._endpoint, self._wanted)
        self._log = open_log(self._endpoint, self._wanted)
        if lines := self._log.missing():
            raise CannotFinish("; ".join(lines))
        if self.has_begun:
            self._shapes.settle()
        else:
            self.expect_shapes()
            self._store.write_note(_MARK, json.dumps(self._log.current().plain()))

    def observe(self, changes: pa.Table, reached: Mapping[str, str]) -> None:
        """The source's changes show in the target's log once they are applied."""

    def applied(self) -> None:
        """Likewise."""

    def work(self) -> Outcome:
        """Reads what the log has by now, in steps of some megabytes."""
        return self.drain(self.end())

    def shrink(self) -> Outcome:
        return self.work()

    def finish(self) -> Outcome:
        """Reads everything up to our last write, and stops: writers may be let in afterwards.

        The mark goes before the slot. Whoever starts after a crash between the two begins anew, as after both;
        the other way round a mark without its slot would keep every later run from starting.
        """
        outcome = self.drain(self.end())
        self.close()
        self._store.forget_notes(_MARK, _CHANGES, SHAPES, ALTERING)
        remove_from(self._endpoint, self._wanted)
        return outcome

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def end(self) -> Mark:
        """Where the target's log ends now."""
        return self._opened.current()

    def drain(self, end: Mark) -> Outcome:
        """Reads up to a boundary of the target's log, and not beyond it."""
        began = time.monotonic()
        mark = self.mark
        while not has_reached(mark, end):
            moved = self._opened.advance(mark, BYTES_PER_STEP, _WAIT_SECONDS)
            if moved != mark:
                after = clip(mark, moved, end)
                self._read(mark, after)
                mark = after
        self._shapes.compare()
        found, count = self._hand_out()
        changes = int(self._store.note(_CHANGES) or 0)
        return Outcome(
            self.name,
            tables=len(self._plans),
            rows=changes,
            found=count,
            mismatches=tuple(found),
            seconds=time.monotonic() - began,
            reason="" if changes else "the target's log shows no write to the task's tables",
            told=partial(_forget, self._scene.task, self._endpoint, self._handed_out),
        )

    def _hand_out(self) -> tuple[list[Mismatch], int]:
        """What is kept and was not handed out yet, by this verifier: each write is told of once."""
        named, count = self._kept.read()
        fresh = count - self._handed_out
        self._handed_out = count
        return named[-fresh:][:SHOWN] if fresh else [], fresh

    # Reading

    @property
    def _opened(self) -> ChangeLog:
        assert self._log is not None, "not started"
        return self._log

    @property
    def mark(self) -> Mark:
        """Up to where the log was read."""
        return Mark(**json.loads(self._store.note(_MARK) or "{}"))

    def _read(self, start: Mark, end: Mark) -> None:
        """Notes the rogue writes of a range, its keys, and that it was read, in one step."""
        log = self._opened
        rogue = self._rogue_statements(log, start, end)
        count, changes = len(rogue), 0
        keys: dict[str, list[pa.Array]] = {}
        uncounted: dict[str, str] = {}
        for part in log.split(start, end, 1):
            for batch in part.read():
                changes += batch.num_rows
                some = self._rogue_rows(batch, isinstance(log, KeepsStatements))
                count += some.num_rows
                rogue += self._named(some.slice(0, max(SHOWN - len(rogue), 0)))
                for table, packed in self._keys(batch):
                    if packed is None:
                        uncounted[f"{UNCOUNTED}{table}"] = ""
                    else:
                        keys.setdefault(table, []).append(packed)
        notes = {
            **uncounted,
            _MARK: json.dumps(end.plain()),
            _CHANGES: str(int(self._store.note(_CHANGES) or 0) + changes),
        }
        with self._store.together():
            self._store.add({table: pa.concat_arrays(some) for table, some in keys.items()}, notes)
            self._kept.add(rogue[:SHOWN], count)
        self._let_go(log, end)

    def _let_go(self, log: ChangeLog, end: Mark) -> None:
        """Nothing before this is needed any more."""
        log.release(end)

    def _rogue_rows(self, batch: pa.RecordBatch, keeps_statements: bool) -> pa.RecordBatch:
        ours = pc.fill_null(pc.equal(batch.column("annotation"), self._scene.annotation), False)
        if keeps_statements:
            # A statement that empties a table is told of as a statement, with its own annotation.
            ours = pc.or_(ours, pc.equal(batch.column("kind"), TRUNCATE))
        return batch.filter(pc.invert(ours))

    def _named(self, rows: pa.RecordBatch) -> list[Mismatch]:
        found = []
        for row in rows.select(
            ["kind", "table", "key", "schema_id", "txn", "position", "annotation"]
        ).to_pylist():
            names = self._definitions.find(row["schema_id"]).key if row["schema_id"] else ()
            key = tuple(row["key"] or ())
            found.append(
                _rogue(
                    row["table"],
                    f"{_DONE.get(row['kind'], row['kind'])} on the target by somebody else,"
                    f" in transaction {row['txn']} at {row['position']}, {_marked(row['annotation'])}",
                    key,
                    names if len(names) == len(key) else tuple(map(str, range(len(key)))),
                )
            )
        return found

    def _rogue_statements(self, log: ChangeLog, start: Mark, end: Mark) -> list[Mismatch]:
        if not isinstance(log, KeepsStatements):
            return []
        return [
            _rogue(
                self._names[name.lower()],
                f"was changed on the target by somebody else, in transaction {statement.txn} at"
                f" {statement.position}, by {statement.text[:80]!r}, {_marked(statement.annotation)}",
            )
            for statement in log.statements(start, end)
            if statement.annotation != self._scene.annotation
            for name in self._concerned(statement.tables)
        ]

    def _concerned(self, tables: tuple[str, ...]) -> list[str]:
        """The task's tables among these; `SCHEMA.*` is every one of a schema."""
        found = []
        for table in tables:
            if table.endswith(".*"):
                found += [name for name in self._names if name.startswith(table[:-1].lower())]
            elif table.lower() in self._names:
                found.append(table)
        return found

    def _keys(self, batch: pa.RecordBatch) -> list[tuple[str, pa.Array | None]]:
        """By the source's tables; None where the target's table had another key than rows are looked at by."""
        keyed = batch.filter(
            pc.greater(pc.fill_null(pc.list_value_length(batch.column("key")), 0), 0)
        )
        found = []
        for schema_id in pc.unique(keyed.column("schema_id")).to_pylist():
            some = keyed.filter(pc.equal(keyed.column("schema_id"), schema_id))
            plan = self._plan(some.column("table")[0].as_py())
            if is_looked_up(plan):
                if schema_id not in self._forms:
                    definition = self._definitions.find(schema_id)
                    names = [column.name for column in plan.target.key]
                    self._forms[schema_id] = key_form(names, plan.target.key_types, definition)
                form = self._forms[schema_id]
                packed = packed_keys(some.column("key"), form) if form is not None else None
                found.append((plan.source_name, packed))
        return found

    def _plan(self, table: str) -> TablePlan:
        return self._plans[self._names[table.lower()]]

    def expect_shapes(self) -> None:
        """Takes the definitions of the tables as they are, where the log does not keep statements."""
        if not isinstance(self._opened, KeepsStatements):
            self._shapes.expect()


def _forget(task: str, endpoint: Endpoint, count: int) -> None:
    """By the time that somebody is told, the verifier and its store are closed."""
    if has_store(task):
        with open_store(task, endpoint.identity) as store:
            Kept(store).forget(count)


_DONE = {
    "insert": "was inserted",
    "update": "was updated",
    "delete": "was deleted",
    TRUNCATE: "was emptied",
    DROP: "was dropped or made anew",
}


def _rogue(
    table: str, detail: str, key: tuple[str | None, ...] = (), names: tuple[str, ...] = ()
) -> Mismatch:
    return Mismatch(table, ROGUE, key, key_names=names, detail=detail)


def _marked(annotation: str | None) -> str:
    return f"annotated {annotation!r}" if annotation else "without an annotation"


def _slot(task: str, endpoint: Endpoint) -> str:
    """Slots are a server's: tasks into two of its databases may have the same name."""
    named = f"{endpoint.identity}\n{task}"
    return f"truecopy_target_{hashlib.sha256(named.encode()).hexdigest()[:12]}"
