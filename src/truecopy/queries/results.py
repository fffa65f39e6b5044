"""A result that can be measured: where its rows are, or what was kept of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from truecopy.engines.queries.frames import can_spread, frame_of
from truecopy.engines.queries.session import QuerySession
from truecopy.engines.queries.texts import Texts
from truecopy.model.shape import QueryColumn, Shape
from truecopy.queries import checksums
from truecopy.queries.checksums import LeafSums, Look
from truecopy.queries.leaves import Leaf, leaves_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """What both sides measure: the shapes that they agreed on, and the digits that both have.

    Attributes:
        ordered: The order of lists matters.
        exact_floats: Floats are compared to the last bit.
        own_hash: Both sides are of one engine, whose own hash of its values tells whether all are equal.
    """

    agreed: tuple[Shape, ...]
    scales: tuple[int | None, ...]
    ordered: bool = False
    exact_floats: bool = False
    own_hash: bool = False


class Outlined(Protocol):
    """What two results have to agree on before they are compared.

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


@dataclass(frozen=True)
class Outline:
    """A result that is not there yet."""

    dialect: str
    columns: tuple[QueryColumn, ...]
    own_shapes_only: bool = False


class Result(Outlined, Protocol):
    """What a comparator needs of one side."""

    def leaves(self, plan: Plan) -> tuple[Leaf, ...]: ...
    def look(self, plan: Plan) -> Look: ...
    def sums(self, plan: Plan) -> tuple[dict[int, LeafSums], int]: ...
    def documents(self, plan: Plan) -> tuple[dict[int, int], int]: ...


class Asks(Protocol):
    """Runs an action on a session, again where it failed in passing."""

    def __call__(self, what: str, action: Callable[[QuerySession], T]) -> T: ...


class LiveResult:
    """Rows in an engine: a scratch table where they are kept, or the query itself.

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
        *,
        kept: bool,
    ) -> None:
        self.owner = owner
        self.dialect = dialect
        self.texts = texts
        self.query = query
        self.columns = tuple(columns)
        self._ask = ask
        self._seconds = seconds
        self._kept = kept
        self._looks: dict[Plan, Future[Look]] = {}

    def leaves(self, plan: Plan) -> tuple[Leaf, ...]:
        found = leaves_of(self.texts, self.columns, plan.agreed, plan.scales)
        if plan.ordered:
            found = tuple(replace(leaf, sorted=None) for leaf in found)
        if plan.exact_floats:
            found = tuple(replace(leaf, number=None) for leaf in found)
        return found

    def look(self, plan: Plan) -> Look:
        self.begin(plan)
        return self._looks[plan].result()

    def begin(self, plan: Plan) -> None:
        """Takes the first look in the background."""
        if plan not in self._looks:
            executor = ThreadPoolExecutor(1, "truecopy-look")
            self._looks[plan] = executor.submit(self._look, plan)
            executor.shutdown(wait=False)

    @property
    def is_settled(self) -> bool:
        """Whether nothing runs in the background."""
        return all(look.done() for look in self._looks.values())

    def settle(self) -> None:
        """Waits until nothing runs in the background, whatever comes of it."""
        wait(self._looks.values())

    def sums(self, plan: Plan) -> tuple[dict[int, LeafSums], int]:
        return checksums.leaf_sums(
            self.fetch, self.texts, self.leaves(plan), self.columns, self.query
        )

    def documents(self, plan: Plan) -> tuple[dict[int, int], int]:
        def measured(session: QuerySession) -> tuple[dict[int, int], int]:
            with session.limited(self._seconds):
                return checksums.document_sums(
                    session.stream, self.texts, self.leaves(plan), self.columns, self.query
                )

        return self._ask("checksum", measured)

    @property
    def spreads(self) -> bool:
        """Whether tasks of Spark can read its rows."""
        return self._ask("checksum", lambda session: can_spread(session, kept=self._kept))

    def frame(
        self, spark: SparkSession, statements: Sequence[str], texts: Sequence[str], folder: str
    ) -> DataFrame:
        """Its rows by statements of ours, for Spark."""

        def framed(session: QuerySession) -> DataFrame:
            with session.limited(self._seconds):
                return frame_of(spark, session, statements, texts, folder, kept=self._kept)

        return self._ask("checksum", framed)

    def fetch(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a small result."""
        return self._ask("checksum", lambda session: session.fetch(sql, self._seconds))

    def _look(self, plan: Plan) -> Look:
        return checksums.look(
            self.fetch,
            self.texts,
            self.leaves(plan),
            self.columns,
            self.query,
            own_hash=plan.own_hash,
        )
