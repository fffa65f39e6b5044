"""One side of one query: set-up, the query itself, its result, and tear-down that always runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from truecopy.engines.queries.failure import Failure, Kind, QueryFailed, failed
from truecopy.engines.queries.session import Outcome, QuerySession
from truecopy.model.errors import TruecopyError
from truecopy.queries.compare import types_of
from truecopy.queries.parsing import Type
from truecopy.queries.pool import Pool
from truecopy.queries.query import SideQuery
from truecopy.queries.result import SideReport
from truecopy.queries.results import Asks, LiveResult, Outline
from truecopy.queries.retry import Policy, retried
from truecopy.queries.rewrite import Rewriter, Rewritten, require_scratch
from truecopy.queries.scratch import placed
from truecopy.queries.settings import Settings

T = TypeVar("T")

_OF_THE_VERIFIER = (Kind.REFUSED, Kind.SYNTAX, Kind.OTHER, Kind.MEMORY)


class Side:
    """Runs one side. Whatever it makes has a name that starts with `table`."""

    def __init__(
        self,
        name: str,
        query: SideQuery,
        pool: Pool,
        settings: Settings,
        table: str,
        failures: list[Failure],
        policy: Policy,
        rewriter: Rewriter,
    ) -> None:
        self.name = name
        self.query = query
        self.report = SideReport(str(pool.endpoint))
        self._pool = pool
        self._settings = settings
        self._table = table
        self._failures = failures
        self._policy = policy
        self._rewriter = rewriter
        self._session: QuerySession | None = None
        self._made: list[str] = []
        self._teardown: list[str] = []  # what was found to be safe
        self._runs = 0
        self._is_over = False
        self._results: list[LiveResult] = []
        self._stage = name
        self.sql = query.sql

    def produce(
        self, foresee: Callable[[Outline], None] | None = None
    ) -> tuple[LiveResult, Rewritten]:
        """Set-up and the query, as one unit that is tried again as a whole.

        `foresee` is told before the query runs what its result will look like, where that costs little.
        """
        self._runs += 1
        table = f"{self._table}_{self._runs}"
        rewritten, outcome, maker = self._retried(
            lambda session: (*self._run(session, table, foresee), session)
        )
        if self._runs == 1:
            self.report.sql = rewritten.run or rewritten.result
            self.report.setup = [*self.query.setup, *rewritten.setup]
            self.report.seconds = outcome.seconds
            self.report.cpu_seconds = outcome.cpu_seconds
            self.report.memory_bytes = outcome.memory_bytes
        lasts = rewritten.run is None or maker.survives_crashes
        ask: Asks = self.ask if lasts else partial(self._ask_maker, maker)
        result = ask("describe", lambda session: self._live(session, rewritten, ask))
        self.report.schema = types_of(result)
        self._results.append(result)
        return result, rewritten

    def ask(self, what: str, action: Callable[[QuerySession], T]) -> T:
        """A question about the result; what only the verifier's own SQL can be blamed for is a limitation."""

        def asked(session: QuerySession) -> T:
            self._stage = f"{self.name} {what}"
            try:
                return action(session)
            except QueryFailed as error:
                if error.failure.kind in _OF_THE_VERIFIER and what != "explain":
                    raise QueryFailed(replace(error.failure, kind=Kind.LIMITATION)) from None
                raise

        return self._retried(asked)

    def _ask_maker(self, maker: QuerySession, what: str, action: Callable[[QuerySession], T]) -> T:
        """A question about a result that may have gone with the connection that made it."""

        def asked(session: QuerySession) -> T:
            if session is not maker:
                raise failed(
                    Kind.GONE, f"{session.endpoint}: a crash may have emptied a scratch table"
                )
            return action(session)

        return self.ask(what, asked)

    def explain(self) -> str:
        """The engine's plan of the query as the user wrote it."""
        return self.ask("explain", lambda session: session.explain(self.query.sql))

    def abandon(self) -> None:
        """Stops what runs, and leaves its connection: an interruption may have come in the midst of an answer."""
        if self._session is not None:
            with suppress(QueryFailed, TruecopyError, OSError):
                self._session.cancel()
            self._pool.give_back(self._session, self.query, broken=True)
            self._session = None

    def tear_down(self) -> None:
        """Drops what was made and runs the user's tear-down, whatever happened before."""
        self._settle()
        self._is_over = True
        if self._session is not None:
            self._pool.spare(self._session)
        try:
            if self._made or self._teardown:
                self._retried(self._clear)
        except QueryFailed:
            pass  # it is among the failures, and the next run sweeps what is left
        finally:
            if self._session is not None:
                self._pool.give_back(self._session, self.query)
                self._session = None

    def _settle(self) -> None:
        """Stops what is still measured: nobody will ask for it, and its failure is none."""
        if all(result.is_settled for result in self._results):
            return
        kept = len(self._failures)
        if self._session is not None:
            with suppress(QueryFailed, TruecopyError, OSError):
                self._session.cancel()
        for result in self._results:
            result.settle()
        del self._failures[kept:]

    def _clear(self, session: QuerySession) -> None:
        self._stage = f"{self.name} tear-down"
        with session.limited(self._settings.metadata_timeout):
            try:
                for statement in self._teardown:
                    session.run(statement, self._settings.timeout)
            finally:
                for name in self._made:
                    session.drop(name)

    def _run(
        self, session: QuerySession, table: str, foresee: Callable[[Outline], None] | None
    ) -> tuple[Rewritten, Outcome]:
        limit = self._settings.timeout
        self._stage = f"{self.name} set-up"
        session.make_scratch() if not self._settings.read_only else None
        teardown = [placed(session, statement, self._table)[0] for statement in self.query.teardown]
        for statement in teardown:
            require_scratch(session, statement, self._table)
        self._teardown = teardown
        for statement in self.query.setup:
            filled, names = placed(session, statement, self._table)
            require_scratch(session, filled, self._table)
            self._make_room(session, [name for name in names if name not in self._made])
            session.run(filled, limit)
        self._stage = self.name
        self.sql, _ = placed(session, self.query.sql, self._table)
        rewritten = self._rewriter(session, self.sql, table, self._settings)
        self._make_room(session, list(rewritten.tables))
        self._stage = f"{self.name} set-up"
        for statement in rewritten.setup:
            session.run(statement, limit)
        self._stage = self.name
        if rewritten.run is None:
            return rewritten, Outcome(0.0)
        if foresee is not None and rewritten.query is not None and session.describes_cheaply:
            self._foretell(session, rewritten.query, foresee)
        try:
            return rewritten, session.run(rewritten.run, limit)
        except QueryFailed as error:
            if error.failure.kind is Kind.MEMORY:
                self.report.memory_bytes = session.memory_bound()
            raise

    def _foretell(
        self, session: QuerySession, query: str, foresee: Callable[[Outline], None]
    ) -> None:
        try:
            columns = session.columns(query, self._settings.metadata_timeout)
        except QueryFailed as error:
            if error.failure.kind is Kind.CONNECTION:
                raise
            return  # the query itself will tell
        foresee(Outline(session.dialect, tuple(columns)))

    def _make_room(self, session: QuerySession, names: list[str]) -> None:
        for name in names:
            if name in self._made or session.keeps_scratch:
                session.drop(name)
            if name not in self._made:
                self._made.append(name)

    def _live(self, session: QuerySession, rewritten: Rewritten, ask: Asks) -> LiveResult:
        columns = session.columns(rewritten.result, self._settings.metadata_timeout)
        return LiveResult(
            ask,
            session.texts,
            session.dialect,
            rewritten.result,
            columns,
            self._settings.checksum_timeout,
            self,
            kept=rewritten.run is not None,
        )

    def _retried(self, action: Callable[[QuerySession], T]) -> T:
        def once() -> T:
            if self._pool.stopped and not self._is_over:
                raise failed(Kind.OTHER, "interrupted")
            if self._session is None:
                self._session = self._pool.take(self.query)
                if self._is_over:
                    self._pool.spare(self._session)
            session = self._session
            try:
                return action(session)
            except QueryFailed as error:
                self._leave(session, error)
                raise
            except Exception as error:
                explained = session.explained(error)
                if explained is None:
                    raise
                self._leave(session, explained)
                raise explained from None

        settings = self._settings
        return retried(
            once,
            lambda: self._stage,
            self._policy,
            settings.retries + 1,
            settings.backoff,
            self._failures,
        )

    def _leave(self, session: QuerySession, failed: QueryFailed) -> None:
        """A connection that is lost is not used again."""
        if failed.failure.kind is Kind.CONNECTION and self._session is session:
            self._pool.give_back(session, self.query, broken=True)
            self._session = None


def is_definition(rewritten: Rewritten) -> bool:
    """Whether only columns can be compared."""
    return rewritten.definition or rewritten.type in (Type.CREATE_VIEW, Type.CREATE_TABLE)
