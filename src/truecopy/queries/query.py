"""A query of a suite: what runs on either side, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from truecopy.model.secret import Secret

SCRATCH_PLACE = re.compile(r"\{scratch:(\w+)\}")
"""A table of the suite's own in the scratch schema, whose whole name is not known before a run."""


@dataclass(frozen=True)
class SideQuery:
    """One side of a query: its text and the circumstances in which it runs.

    Attributes:
        setup, teardown: Statements of the user around the query; `{scratch:NAME}` is a table in the scratch schema.
        session: Settings of the session.
    """

    sql: str
    setup: tuple[str, ...] = ()
    teardown: tuple[str, ...] = ()
    catalog: str | None = None
    schema: str | None = None
    user: str | None = None
    password: Secret | None = field(default=None, repr=False)
    session: tuple[tuple[str, str], ...] = ()

    @property
    def readable(self) -> str:
        """The query with plain names for scratch tables, fit for a parser."""
        return SCRATCH_PLACE.sub(r"\1", self.sql)

    def overridden(self, override: Override) -> SideQuery:
        """With what the user of the program chose instead of what the suite says."""
        return replace(
            self,
            catalog=override.catalog or self.catalog,
            schema=override.schema or self.schema,
            user=override.user or self.user,
            password=override.password or self.password,
            session=tuple({**dict(self.session), **dict(override.session)}.items()),
        )


@dataclass(frozen=True)
class Override:
    """What one side uses whatever the suite says."""

    catalog: str | None = None
    schema: str | None = None
    user: str | None = None
    password: Secret | None = field(default=None, repr=False)
    session: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Query:
    """A query with its name in a suite.

    Attributes:
        key: Columns that tell rows of the result apart, where the user names them.
    """

    suite: str
    name: str
    control: SideQuery
    test: SideQuery
    key: tuple[str, ...] = ()
