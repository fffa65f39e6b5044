"""What a task file says about tables: which, where to, and what happens to their rows."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, model_validator

from truecopy.mapping.choice import Choice
from truecopy.mapping.routes import Route
from truecopy.mapping.rules import WHOLE_HASH, Computed, Fixed, Mask, Rules
from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.model.text import canonical_text
from truecopy.model.types import (
    Boolean,
    Date,
    Decimal,
    Integer,
    Json,
    Text,
    Timestamp,
    Type,
    Uuid,
    type_name,
)
from truecopy.tasks.values import SecretText, Section, TypeName


def _listed(value: object) -> object:
    """One where some may stand."""
    return [value] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed, json_schema_input_type=str | list[str])]


class ColumnChoice(Section):
    """Which columns go over; a bare list includes those."""

    short: ClassVar = {"type": ["string", "array"], "items": {"type": "string"}}

    include: Names = ()
    """Names or patterns; without any, all columns."""
    exclude: Names = ()
    """Names or patterns of columns that stay behind."""

    @model_validator(mode="before")
    @classmethod
    def _from_list(cls, data: object) -> object:
        return {"include": data} if isinstance(data, list | str) else data


class MaskRule(Section):
    """A keyed hash (HMAC-SHA-256, in hex) in the place of a value. NULL stays NULL."""

    key: SecretText | None = None
    """Whoever knows it can find values by trying. Default: `mask-key` of the task."""
    length: int = Field(default=WHOLE_HASH, ge=8, le=WHOLE_HASH)
    """Hex digits to keep. A column of a key needs 32."""


class Value(Section):
    """A value: a Spark SQL expression over the source's columns, or a constant."""

    short: ClassVar = {"type": ["string", "number", "boolean", "null"]}

    sql: str | None = None
    """An expression; a bare string is one."""
    value: bool | int | float | str | dt.datetime | dt.date | None = None
    """A constant; a bare number, true or false is one."""
    type: TypeName | None = None
    """The type of the result; by default that of the expression, or of the constant."""

    @model_validator(mode="before")
    @classmethod
    def _from_scalar(cls, data: object) -> object:
        if isinstance(data, str):
            return {"sql": data}
        return data if isinstance(data, dict | Value) else {"value": data}

    def computed(self) -> Computed | Fixed:
        if self.sql is not None:
            return Computed(self.sql, self.type)
        kind = self.type or _type_of(self.value)
        text = canonical_text(self.value, kind)
        if text is not None and text.startswith("?") and not isinstance(kind, Text | Json | Uuid):
            raise UsageError(f"{self.value!r} is no {type_name(kind)}")
        return Fixed(text, kind)

    @model_validator(mode="after")
    def _means_something(self) -> Value:
        if self.sql is not None and self.value is not None:
            raise ValueError("either sql or value, not both")
        try:
            self.computed()
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self


def _masks(data: object) -> object:
    """A bare list of columns masks each in the same way."""
    if isinstance(data, list | str):
        return {name: {} for name in _names(data)}
    if isinstance(data, dict):
        return {name: {} if rule is None else rule for name, rule in data.items()}
    return data


def _names(data: list[Any] | str) -> list[Any]:
    return [data] if isinstance(data, str) else data


Masks = Annotated[
    dict[str, MaskRule],
    BeforeValidator(_masks, json_schema_input_type=dict[str, MaskRule | None] | list[str] | str),
]


class TableRules(Section):
    """Which rows and columns of a table go over, and by which key."""

    filter: Names = ()
    """Conditions in Spark SQL on the source row; rows for which one is false or NULL stay behind."""
    columns: ColumnChoice = ColumnChoice()
    """Which columns go over."""
    key: Names = ()
    """Columns of the target that identify a row, where the source's key does not arrive."""

    def rules(self, mask_key: Secret | None = None) -> Rules:  # noqa: ARG002 - transformers need it
        return Rules(
            filter=self.filter,
            include=self.columns.include,
            exclude=self.columns.exclude,
            key=self.key,
        )


class Transformers(TableRules):
    """What happens to the rows of a table on the way. Columns go by the source's names."""

    rename: dict[str, str] = Field(default_factory=dict)
    """New names of columns."""
    mask: Masks = Field(default_factory=dict)
    """Columns to replace by a keyed hash: by name, or a list."""
    cast: dict[str, TypeName] = Field(default_factory=dict)
    """New types. Nothing is lost: a value that the type cannot hold is an error."""
    drop: Names = ()
    """Columns that stay behind: the same as `columns: {exclude: …}`."""
    add: dict[str, Value] = Field(default_factory=dict)
    """New columns, after the others: Spark SQL, or constants."""
    sql: dict[str, Value] = Field(default_factory=dict)
    """New values of columns: Spark SQL over the source's columns."""

    def rules(self, mask_key: Secret | None = None) -> Rules:
        plain = super().rules()
        return Rules(
            filter=plain.filter,
            include=plain.include,
            exclude=plain.exclude + self.drop,
            key=plain.key,
            rename=self.rename,
            mask={name: _mask(name, rule, mask_key) for name, rule in self.mask.items()},
            cast=self.cast,
            sql={name: _expression(name, value) for name, value in self.sql.items()},
            add={name: value.computed() for name, value in self.add.items()},
        )


class Tables(Section):
    """Which tables go over."""

    include: Names = ("*",)
    """Names or patterns (`orders`, `sales.*`)."""
    exclude: Names = ()
    """Names or patterns; what is excluded stays so, whatever includes it."""
    rules: dict[str, TableRules] = Field(default_factory=dict)
    """Rows, columns and keys, by table or pattern."""

    @property
    def choice(self) -> Choice:
        return Choice(self.include, self.exclude)


class RouteTo(Section):
    """Where a table, or the tables of a pattern, go; a bare name is the table."""

    short: ClassVar = {"type": "string"}

    table: str | None = None
    """`schema.table` or `table`; each `*` is what the pattern's `*` stood for. Default: the same name."""
    columns: dict[str, str] = Field(default_factory=dict)
    """New names of columns."""
    merge: bool = False
    """Several tables may go to the same one."""
    source_column: str | None = None
    """With `merge`: a column to add that holds the source table's name, first in the key."""

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, data: object) -> object:
        return {"table": data} if isinstance(data, str) else data

    def route(self, pattern: str) -> Route:
        return Route(pattern, self.table, self.columns, self.merge, self.source_column)


def _type_of(value: object) -> Type:
    match value:
        case bool():
            return Boolean()
        case int():
            return Integer()
        case float():
            return Decimal(None)
        case dt.datetime():
            return Timestamp(zone=value.tzinfo is not None)
        case dt.date():
            return Date()
    return Text()


def _mask(name: str, rule: MaskRule, fallback: Secret | None) -> Mask:
    key = rule.key or fallback
    if key is None:
        raise UsageError(
            f"mask.{name}: no key; write mask-key: file:/path for the task, or key: for the column"
        )
    return Mask(key, rule.length)


def _expression(name: str, value: Value) -> Computed:
    if value.sql is None:
        raise UsageError(f"sql.{name}: not an expression; write it in quotes")
    return Computed(value.sql, value.type)
