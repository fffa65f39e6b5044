"""Which objects of a cache a change is part of.

An object is addressed by a key that is made from a row: by a template of its columns (`customer:{customer_id}`), or
by a function of the row. Several rows, of several tables, may be part of one object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from truecopy.cache.invalidation import Changed
from truecopy.model.change import HEARTBEAT, TRUNCATE, Definition
from truecopy.model.errors import CannotFinish, UsageError
from truecopy.model.token import EventToken, token_of_change

_NAME = re.compile(r"\{([^{}]+)\}")

Row = Mapping[str, str | None]
RowFunction = Callable[[str, Row], Iterable[str]]
"""From a table and a row, in canonical texts, to the keys of its objects. Of an update it is asked for both rows."""


class Emptied(Exception):
    """A table was emptied as a whole: its rows are not named."""


def object_key(template: str, **values: object) -> str:
    """The key of an object, for whoever reads it; the same that a change of its rows leads to.

    Values are texts as the stream has them: whole numbers and texts as they are.
    """
    return template.format_map({name: str(value) for name, value in values.items()})


@dataclass(frozen=True)
class Objects:
    """How the rows of tables lead to objects.

    Attributes:
        templates: By table, with or without its schema; tables that are not named are passed over.
        function: Instead of templates, for keys that columns alone do not make.
    """

    templates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    function: RowFunction | None = None

    def __post_init__(self) -> None:
        for table, templates in self.templates.items():
            for template in templates:
                if not _NAME.search(template):
                    raise UsageError(
                        f"the object {template!r} of {table} names no column: write {{COLUMN}}"
                    )

    def of(self, table: str) -> tuple[str, ...]:
        bare = table.rpartition(".")[2]
        return self.templates.get(table) or self.templates.get(bare) or ()

    def changed(
        self, batch: pa.RecordBatch, definitions: Callable[[str], Definition]
    ) -> Iterator[Changed]:
        """The objects that the changes of a batch are part of, each with the token of its change.

        Raises:
            Emptied: A table of these objects was emptied.
        """
        for schema_id in batch.column("schema_id").unique().to_pylist():
            if schema_id is None:
                self._refuse_emptied(batch)
                continue
            some = batch.filter(pc.equal(batch.column("schema_id"), schema_id))
            definition = definitions(schema_id)
            if self.function is None and not self.of(definition.table):
                continue
            self._refuse_emptied(some)
            tokens = _tokens(some)
            keys = self._by_function if self.function else self._by_templates
            for row, key in keys(some, definition):
                yield key, tokens[row]

    def _refuse_emptied(self, batch: pa.RecordBatch) -> None:
        kinds = batch.column("kind").to_pylist()
        for kind, table in zip(kinds, batch.column("table").to_pylist(), strict=True):
            if kind == TRUNCATE and (self.function is not None or self.of(table)):
                raise Emptied(table)
            if kind not in (TRUNCATE, HEARTBEAT) and table is None:
                raise CannotFinish(f"a change of kind {kind} names no table")

    def _by_templates(
        self, batch: pa.RecordBatch, definition: Definition
    ) -> Iterator[tuple[int, str]]:
        for template in self.of(definition.table):
            pieces = _NAME.split(template)
            names = pieces[1::2]
            for name in names:
                if name not in definition.names:
                    raise UsageError(
                        f"{definition.table} has no column {name}, which {template!r} names"
                    )
            if all(name in definition.key for name in names):
                # An update that changes the key comes as a delete and an insert: the key says it all.
                images = [("key", definition.key)]
            else:
                images = [("before", definition.names), ("after", definition.names)]
                _require_rows(batch, definition, template)
                _refuse_unchanged(batch, definition, names)
            for image, columns in images:
                yield from _formatted(batch.column(image), columns, pieces)

    def _by_function(
        self, batch: pa.RecordBatch, definition: Definition
    ) -> Iterator[tuple[int, str]]:
        assert self.function is not None
        _require_rows(batch, definition, "a function of the row")
        befores, afters = (batch.column(image).to_pylist() for image in ("before", "after"))
        for row, images in enumerate(zip(befores, afters, strict=True)):
            for image in images:
                if image is not None:
                    texts = dict(zip(definition.names, image, strict=True))
                    for key in self.function(definition.table, texts):
                        yield row, key


def needs_rows(objects: Objects, keys: Mapping[str, Sequence[str]]) -> bool:
    """Whether keys alone do not lead to the objects; `keys` has the key columns of each table."""
    if objects.function is not None:
        return True
    return any(
        not set(_NAME.findall(template)) <= set(key)
        for table, key in keys.items()
        for template in objects.of(table)
    )


def _require_rows(batch: pa.RecordBatch, definition: Definition, what: str) -> None:
    """An update without the row before it would leave the object that the row has left."""
    kinds, images = batch.column("kind"), (batch.column("before"), batch.column("after"))
    told = [
        pc.or_(pc.is_valid(images[0]), pc.equal(kinds, "insert")),
        pc.or_(pc.is_valid(images[1]), pc.equal(kinds, "delete")),
    ]
    if not all(pc.all(one, min_count=0).as_py() for one in told):
        raise CannotFinish(
            f"a change of {definition.table} does not tell its whole row, which {what!r} needs:"
            " log full row images, and stream rows, not keys"
        )


def _refuse_unchanged(batch: pa.RecordBatch, definition: Definition, names: Sequence[str]) -> None:
    left_out = {place for places in batch.column("unchanged").to_pylist() for place in places or ()}
    for name in names:
        if definition.names.index(name) in left_out:
            raise CannotFinish(
                f"a change of {definition.table} does not tell {name}, which its objects are addressed by: let the"
                f" log have it (ALTER TABLE {definition.table} REPLICA IDENTITY FULL), or use another column"
            )


def _formatted(
    images: pa.Array, columns: Sequence[str], pieces: Sequence[str]
) -> Iterator[tuple[int, str]]:
    """The keys of the rows that have such an image; a NULL is written as nothing."""
    there = pc.is_valid(images)
    rows = pc.indices_nonzero(there).to_pylist()
    if not rows:
        return
    found = images.filter(there)
    texts: list[pa.Array | pa.Scalar] = []
    for number, piece in enumerate(pieces):
        if number % 2:
            texts.append(pc.fill_null(pc.list_element(found, columns.index(piece)), ""))
        else:
            texts.append(pa.scalar(piece))
    joined = pc.binary_join_element_wise(*texts, "")
    yield from zip(rows, joined.to_pylist(), strict=True)


def _tokens(batch: pa.RecordBatch) -> list[EventToken]:
    """A token for each row; rows of one transaction share it."""
    names = ("shard", "position", "committed_at", "origin")
    columns = [batch.column(name).to_pylist() for name in names]
    known: dict[tuple[Any, ...], EventToken] = {}
    tokens = []
    for values in zip(*columns, strict=True):
        token = known.get(values)
        if token is None:
            token = known[values] = token_of_change(dict(zip(names, values, strict=True)))
        tokens.append(token)
    return tokens
