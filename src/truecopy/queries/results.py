"""A result that can be measured: where its rows are, or what was kept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from truecopy.engines.queries.session import QuerySession
from truecopy.engines.queries.texts import Texts
from truecopy.model.shape import QueryColumn, Shape
from truecopy.queries import checksums
from truecopy.queries.checksums import LeafSums, Look
from truecopy.queries.leaves import Leaf, leaves_of

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What both sides measure: the shapes that they agreed on, and the digits that both have.

    Attributes:
        ordered: The order of lists matters.
        exact_floats: Floats are compared to the last bit.
    """

    agreed: tuple[Shape, ...]
    scales: tuple[int | None, ...]
    ordered: bool = False
    exact_floats: bool = False


class Result(Protocol):
    """What a comparator needs of one side.

    Attributes:
        dialect: By which two results of the same engine are told.
        own_shapes_only: It was measured under its own types, once and for all.
    """

    @property
    def dialect(self) -> str: ...
    @property
    def columns(self) -> tuple[QueryColumn, ...]: ...
    @property
    def own_shapes_only(self) -> bool: ...

    def leaves(self, plan: Plan) -> tuple[Leaf, ...]: ...
    def look(self, plan: Plan) -> Look: ...
    def sums(self, plan: Plan) -> tuple[dict[int, LeafSums], int]: ...


class Asks(Protocol):
    """Runs an action on a session, again where it failed in passing."""

    def __call__(self, what: str, action: Callable[[QuerySession], T]) -> T: ...


class LiveResult:
    """Rows in an engine: a scratch table, or the query itself.

    Results of the same owner share a connection: they are measured one after the other.
    """

    own_shapes_only = False

    def __init__(
        self,
        ask: Asks,
        texts: Texts,
        dialect: str,
        query: str,
        columns: Sequence[QueryColumn],
        seconds: float,
        owner: object,
    ) -> None:
        self.owner = owner
        self.dialect = dialect
        self.texts = texts
        self.query = query
        self.columns = tuple(columns)
        self._ask = ask
        self._seconds = seconds

    def leaves(self, plan: Plan) -> tuple[Leaf, ...]:
        found = leaves_of(self.texts, self.columns, plan.agreed, plan.scales)
        if plan.ordered:
            found = tuple(replace(leaf, sorted=None) for leaf in found)
        if plan.exact_floats:
            found = tuple(replace(leaf, number=None) for leaf in found)
        return found

    def look(self, plan: Plan) -> Look:
        return checksums.look(self.fetch, self.texts, self.leaves(plan), self.columns, self.query)

    def sums(self, plan: Plan) -> tuple[dict[int, LeafSums], int]:
        return checksums.leaf_sums(
            self.fetch, self.texts, self.leaves(plan), self.columns, self.query
        )

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a small result."""
        return self._ask("checksum", lambda session: session.fetch(sql, self._seconds))
