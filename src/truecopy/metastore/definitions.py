"""Table definitions by `schema_id`: what decodes a row that a change stream once gave.

Definitions are never changed and never removed: a change log may hold rows of years ago.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress

from sqlalchemy import Column, MetaData, String, Table, Text, select
from sqlalchemy.exc import IntegrityError

from truecopy.metastore.database import choose_metastore, open_metastore
from truecopy.model.change import Definition
from truecopy.model.errors import CannotFinish

__all__ = ["Definitions", "choose_metastore"]

_metadata = MetaData()
_definition = Table(
    "definition",
    _metadata,
    Column("schema_id", String(16), primary_key=True),
    Column("table_name", String(255), nullable=False),
    Column("document", Text, nullable=False),
)

_set = Table(
    "definition_set",
    _metadata,
    Column("set_id", String(16), primary_key=True),
    Column("document", Text, nullable=False),
)


class Definitions:
    """The store; by default a file in the state folder, which all streams of this machine share."""

    def __init__(self, url: str | None = None) -> None:
        self._engine = open_metastore(url)
        self._known: dict[str, Definition] = {}

    def remember(self, definitions: Iterable[Definition]) -> None:
        for definition in definitions:
            if definition.schema_id in self._known:
                continue
            row = {
                "schema_id": definition.schema_id,
                "table_name": definition.table,
                "document": definition.to_json(),
            }
            # Where it is there already, another stream remembered the same.
            with suppress(IntegrityError), self._engine.begin() as connection:
                connection.execute(_definition.insert().values(row))
            self._known[definition.schema_id] = definition

    def remember_set(self, definitions: Mapping[str, Definition]) -> str:
        """The name of a set of definitions by table, which travels in the place of the set."""
        self.remember(definitions.values())
        members = {table: definition.schema_id for table, definition in definitions.items()}
        document = json.dumps(members, sort_keys=True)
        set_id = hashlib.sha256(document.encode()).hexdigest()[:16]
        with suppress(IntegrityError), self._engine.begin() as connection:
            connection.execute(_set.insert().values(set_id=set_id, document=document))
        return set_id

    def find_set(self, set_id: str) -> dict[str, Definition]:
        """The definitions by table; none for the empty name."""
        if not set_id:
            return {}
        with self._engine.connect() as connection:
            row = connection.execute(select(_set.c.document).where(_set.c.set_id == set_id)).first()
        if row is None:
            raise _not_here(set_id)
        return {table: self.find(schema) for table, schema in json.loads(row.document).items()}

    def find(self, schema_id: str) -> Definition:
        if schema_id not in self._known:
            with self._engine.connect() as connection:
                row = connection.execute(
                    select(_definition.c.document).where(_definition.c.schema_id == schema_id)
                ).first()
            if row is None:
                raise _not_here(schema_id)
            self._known[schema_id] = Definition.from_json(row.document)
        return self._known[schema_id]


def _not_here(name: str) -> CannotFinish:
    return CannotFinish(
        f"the definition {name} of a streamed row is not in the metastore:"
        " it was made with another state folder (TRUECOPY_STATE) or metastore"
    )
