"""A query from a mapping, as YAML, JSON lines and tables give it; wrong keys are one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.queries.query import Override, Query, SideQuery

M = TypeVar("M", bound=BaseModel)


class _Circumstances(BaseModel):
    model_config = ConfigDict(extra="forbid")

    setup: list[str] = []
    teardown: list[str] = []
    catalog: str | None = None
    schema_: str | None = None
    user: str | None = None
    password: str | None = None
    session: dict[str, str] = {}

    @field_validator("setup", "teardown", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return [value] if isinstance(value, str) else (value or [])

    @field_validator("session", mode="before")
    @classmethod
    def _plain(cls, value: object) -> object:
        return (
            {str(k): _word(v) for k, v in value.items()}
            if isinstance(value, dict)
            else (value or {})
        )


class _Side(_Circumstances):
    query: str | None = None


class _Entry(_Circumstances):
    name: str
    suite: str | None = None
    query: str | None = None
    control: _Side | str | None = None
    test: _Side | str | None = None
    key: list[str] = []

    @field_validator("key", mode="before")
    @classmethod
    def _one_key(cls, value: object) -> object:
        return [value] if isinstance(value, str) else (value or [])


def read_query(entry: Mapping[str, Any], suite: str, where: str) -> Query:
    """A query from the keys of its description; `where` names the place in a message.

    `query` is for both sides, `control` and `test` (a text, or a mapping with keys of their own) for
    one; what a side does not say is taken from the entry.
    """
    found = checked(_Entry, entry, where)
    sides = [
        _side(found, side, where, name)
        for name, side in (("control", found.control), ("test", found.test))
    ]
    return Query(found.suite or suite, found.name, sides[0], sides[1], tuple(found.key))


def read_override(entry: Mapping[str, Any], where: str) -> Override:
    """What a side uses whatever its queries say."""
    found = checked(_Circumstances, entry, where)
    if found.setup or found.teardown:
        raise UsageError(f"{where}: set-up and tear-down belong to queries")
    return Override(
        found.catalog,
        found.schema_,
        found.user,
        Secret(found.password) if found.password else None,
        tuple(found.session.items()),
    )


def checked(model: type[M], entry: Mapping[str, Any], where: str) -> M:
    """The entry as the model has it, or a line that says what is wrong."""
    if not isinstance(entry, Mapping):
        raise UsageError(f"{where}: a mapping is expected, not {type(entry).__name__}")
    renamed = {("schema_" if key == "schema" else key): value for key, value in entry.items()}
    for side in ("control", "test"):
        if isinstance(renamed.get(side), Mapping):
            renamed[side] = {
                ("schema_" if key == "schema" else key): value
                for key, value in renamed[side].items()
            }
    try:
        return model.model_validate(renamed)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]).replace("schema_", "schema")
        raise UsageError(f"{where}: {place}: {first['msg']}") from None


def _side(entry: _Entry, side: _Side | str | None, where: str, name: str) -> SideQuery:
    own = _Side(query=side) if isinstance(side, str) else side or _Side()
    sql = own.query or entry.query
    if not sql or not sql.strip():
        raise UsageError(f"{where}: {entry.name} has no query for {name}; give `query` or `{name}`")
    password = own.password or entry.password
    return SideQuery(
        sql.strip().rstrip(";").strip(),
        tuple(own.setup or entry.setup),
        tuple(own.teardown or entry.teardown),
        own.catalog or entry.catalog,
        own.schema_ or entry.schema_,
        own.user or entry.user,
        Secret(password) if password else None,
        tuple({**entry.session, **own.session}.items()),
    )


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
