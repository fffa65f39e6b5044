"""What the conformance suite is made of: a kind of value, and how each engine keeps it.

A case names Python values, the type under which they are compared, and a column for every engine
that can hold them. An engine without a column says why in `absent`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from truecopy.model.types import Type

ENGINES = ("mariadb", "postgresql", "sqlite", "duckdb", "lake")


def as_it_is(value: Any) -> Any:
    return value


def always(value: Any) -> bool:
    return True


@dataclass(frozen=True)
class Storage:
    """A column of one engine.

    Attributes:
        ddl: Its declaration; nothing for a lake.
        arrow: Its type in a lake's files.
        store: From a value of the case to what the driver is given.
        holds: Whether the engine can keep a value at all.
        kept: From a value of the case to the value that the engine is known to keep.
        place: What stands for the value in the INSERT, with `{}` for the driver's placeholder.
        before: Statements that come before the CREATE TABLE.
    """

    ddl: str = ""
    arrow: pa.DataType | None = None
    store: Callable[[Any], object] = as_it_is
    holds: Callable[[Any], bool] = always
    kept: Callable[[Any], Any] = as_it_is
    place: str = "{}"
    before: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """Values of one kind, compared under one type.

    Attributes:
        edges: Values that are always tried, beside the generated ones.
        absent: Why an engine has no column for them.
    """

    name: str
    agreed: Type
    values: st.SearchStrategy[Any]
    storages: Mapping[str, Storage]
    edges: tuple[Any, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unexplained = set(ENGINES) - {*self.storages, *self.absent}
        assert not unexplained, f"{self.name}: nothing is said of {unexplained}"
        assert not {*self.storages} & {*self.absent}, self.name
