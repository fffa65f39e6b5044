"""The definitions that the target's tables should have, where its log does not keep statements.

Our own DDL carries no annotation there. Whoever runs some says so before, and takes the definitions over
afterwards; a table that is *altering* meanwhile is not judged, also after a crash between the two.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import cast

from truecopy.engines import pool
from truecopy.engines.protocols import Introspects
from truecopy.model.endpoint import Endpoint
from truecopy.model.table import Table, TableName
from truecopy.transfer.proof.kept import Kept
from truecopy.transfer.proof.store import ReverifyStore, has_store, open_store
from truecopy.transfer.proof.verifier import ROGUE, SHOWN, Mismatch

SHAPES = "target/shapes"
ALTERING = "target/altering"
_VERSION = "target/version"

_Shapes = Mapping[str, str | None]


@contextmanager
def altering(task: str, endpoint: Endpoint, tables: Collection[TableName]) -> Iterator[None]:
    """A block that runs DDL of our own on tables of the target, which the task's verifier is to expect."""
    if not has_store(task):
        yield
        return
    with open_store(task, endpoint.identity) as store:
        shapes = Shapes(store, endpoint, tables)
        shapes.begin_altering()
        yield
        shapes.take()


class Shapes:
    """The expected definitions of some tables; nothing happens to them before `expect`."""

    def __init__(
        self, store: ReverifyStore, endpoint: Endpoint, tables: Collection[TableName]
    ) -> None:
        self._store = store
        self._endpoint = endpoint
        self._tables = tables

    def expect(self) -> None:
        """From now on they are to stay as they are."""
        self._write(self._now(), set())

    def begin_altering(self) -> None:
        """Compares them a last time; what they are after our own DDL says nothing about others."""
        if self._is_kept:
            self.compare()
            with self._store.together():
                self._write(self._known, self._altering | set(map(str, self._tables)))

    def take(self) -> None:
        """Our own DDL is done."""
        if self._is_kept:
            now = self._now()
            with self._store.together():
                self._write({**self._known, **now}, self._altering - now.keys())

    def settle(self) -> None:
        """Takes tables as they are whose DDL a crash came into; all, if another version described them."""
        if self._is_kept and self._store.note(_VERSION) != version("truecopy"):
            self.expect()
        elif self._is_kept and (left := self._altering):
            tables = [table for table in self._tables if str(table) in left]
            Shapes(self._store, self._endpoint, tables).take()

    def compare(self) -> None:
        """Notes tables that somebody altered, and from then on expects them as they are: it is told of once."""
        if not self._is_kept:
            return
        before, altered = self._known, self._altering
        now = self._now()
        with self._store.together():
            # What we began to alter, or have altered, while definitions were read is not judged by them.
            known, ours = self._known, altered | self._altering
            differ = sorted(
                name
                for name in known.keys() & now.keys() - ours
                if known[name] == before.get(name) != now[name]
            )
            if differ:
                found = [_altered(name, now[name]) for name in differ[:SHOWN]]
                Kept(self._store).add(found, len(differ))
                self._write({**known, **{name: now[name] for name in differ}}, self._altering)

    @property
    def _is_kept(self) -> bool:
        return self._store.note(SHAPES) is not None

    @property
    def _known(self) -> _Shapes:
        return cast(_Shapes, json.loads(self._store.note(SHAPES) or "{}"))

    @property
    def _altering(self) -> set[str]:
        return set(json.loads(self._store.note(ALTERING) or "[]"))

    def _write(self, shapes: _Shapes, altering: Collection[str]) -> None:
        notes = {SHAPES: json.dumps(shapes), ALTERING: json.dumps(sorted(altering))}
        self._store.add({}, {**notes, _VERSION: version("truecopy")})

    def _now(self) -> _Shapes:
        with pool.lease(self._endpoint) as session:
            introspects = cast(Introspects, session)
            there = set(introspects.tables())
            return {
                str(name): _shape(introspects.describe(name)) if name in there else None
                for name in self._tables
            }


def _shape(table: Table) -> str:
    """What DDL changes, and writing rows does not."""
    plain = replace(table, rows=0, row_bytes=0, next_number=None)
    return hashlib.sha256(repr(plain).encode()).hexdigest()


def _altered(name: str, shape: str | None) -> Mismatch:
    done = "is gone from" if shape is None else "was altered on"
    return Mismatch(name, ROGUE, detail=f"{done} the target by somebody else")
