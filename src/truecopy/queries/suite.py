"""A run of a suite: both ends, concurrency, repetitions, sinks, and a tidy scratch schema at either end.

This is the Python API: `truecopy.queries.suite.run_queries(…)`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from truecopy.engines.queries.failure import Failure, QueryFailed
from truecopy.model.endpoint import Endpoint, parse_endpoint
from truecopy.model.errors import CannotFinish
from truecopy.queries import plugins
from truecopy.queries.bank import Bank, kept
from truecopy.queries.filters import named, skip_reason
from truecopy.queries.parsing import NotParsed, Unsafe
from truecopy.queries.pool import Pool
from truecopy.queries.query import Query, SideQuery
from truecopy.queries.result import QueryResult, Skipped, Status, exit_code
from truecopy.queries.retry import retried
from truecopy.queries.scratch import held_prefix, name_of_run, sweep
from truecopy.queries.settings import Settings
from truecopy.queries.side import Side, is_definition
from truecopy.queries.sinks import Sink
from truecopy.queries.verify_query import Ends, verify_query

STOP_SECONDS = 0.5

Listener = Callable[[QueryResult, int, int], None]
"""Hears of each result, how many there are by now, and how many there will be."""


@dataclass(frozen=True)
class Report:
    """Everything that a run found."""

    results: list[QueryResult]
    swept: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 all answers agree, 1 some do not, 3 nothing could be compared."""
        return exit_code(self.results)

    def count(self, status: Status) -> int:
        """How many queries ended so."""
        return sum(result.status is status for result in self.results)


def run_queries(
    queries: Sequence[Query],
    control: str | Endpoint,
    test: str | Endpoint,
    settings: Settings | None = None,
    *,
    bank: str | None = None,
    sinks: Sequence[Sink] = (),
    listener: Listener | None = None,
) -> Report:
    """Verifies queries on two ends.

    Args:
        queries: From `truecopy.queries.sources.read_source`, or made by hand.
        control: The end whose answers are right.
        test: The end whose answers are verified.
        settings: Choices; the defaults serve most suites.
        bank: A query bank that stands for control, which then is not connected to.
        sinks: What gets each result as it comes, beside those that the settings name.
        listener: What is told of the progress.
    """
    chosen_settings = settings or Settings()
    wanted = named(queries, chosen_settings)
    ends = tuple(_endpoint(end) for end in (control, test))
    suite = wanted[0].suite if wanted else ""
    with ExitStack() as stack:
        all_sinks = [*sinks, *_named_sinks(chosen_settings)]
        for sink in all_sinks:
            stack.callback(sink.close)
        prefix = stack.enter_context(held_prefix(suite, (ends[0], ends[1]), chosen_settings))
        pools = stack.enter_context(_pools((ends[0], ends[1]), chosen_settings))
        needs_control = not chosen_settings.skip_control and bank is None
        dialects, swept = _prepared(pools, prefix, chosen_settings, control=needs_control)
        run = _Run(
            Ends(pools[0], pools[1], dialects),
            chosen_settings,
            prefix + name_of_run(),
            Bank(bank) if bank else None,
            all_sinks,
            listener,
        )
        return Report(run.results(wanted), swept)


def fill_bank(
    queries: Sequence[Query], control: str | Endpoint, settings: Settings | None = None
) -> Iterator[tuple[Query, dict[str, object] | None, str]]:
    """Runs control alone; gives for each query the line of the bank, or None and why there is none."""
    chosen_settings = settings or Settings()
    end = _endpoint(control)
    wanted = named(queries, chosen_settings)
    suite = wanted[0].suite if wanted else ""
    policy = plugins.load("retries", chosen_settings.retry)
    rewriter = plugins.load("rewriters", chosen_settings.rewriter)
    with ExitStack() as stack:
        prefix = stack.enter_context(held_prefix(suite, (end, end), chosen_settings))
        pool = Pool(end, chosen_settings.scratch[0], read_only=chosen_settings.read_only)
        stack.callback(pool.close)
        dialects, _ = _prepared((pool, pool), prefix, chosen_settings, control=True)
        run_name = name_of_run()
        for at, query in enumerate(wanted):
            skip = skip_reason(query, (dialects[0], dialects[0]), chosen_settings)
            if skip is not None:
                yield query, None, f"{skip[0]}: {skip[1]}"
                continue
            text = query.control.overridden(chosen_settings.overrides[0])
            failures: list[Failure] = []
            side = Side(
                "control",
                text,
                pool,
                chosen_settings,
                f"{prefix}{run_name}b{at}",
                failures,
                policy,
                rewriter,
            )
            try:
                result, rewritten = side.produce()
                line = kept(
                    query,
                    result,
                    side.report.seconds,
                    side.report.cpu_seconds,
                    definition=is_definition(rewritten),
                )
                yield query, line, ""
            except (QueryFailed, Unsafe, NotParsed) as error:
                yield query, None, str(error)
            except BaseException:
                side.abandon()
                raise
            finally:
                side.tear_down()


class _Run:
    def __init__(
        self,
        ends: Ends,
        settings: Settings,
        prefix: str,
        bank: Bank | None,
        sinks: Sequence[Sink],
        listener: Listener | None,
    ) -> None:
        self.ends, self.settings, self.prefix, self.bank = ends, settings, prefix, bank
        self.sinks, self.listener = sinks, listener
        self._stopping = threading.Event()

    def results(self, queries: Sequence[Query]) -> list[QueryResult]:
        """Results in the order of the queries; sinks get them as they come."""
        jobs = [
            (query, suite * self.settings.query_repetitions + again + 1)
            for suite in range(self.settings.suite_repetitions)
            for query in queries
            for again in range(self.settings.query_repetitions)
        ]
        found: dict[int, QueryResult] = {}
        executor = ThreadPoolExecutor(max(1, self.settings.concurrency), "truecopy-queries")
        waiting: dict[Future[QueryResult], int] = {}
        try:
            waiting |= {
                executor.submit(self._one, at, query, repetition): at
                for at, (query, repetition) in enumerate(jobs)
            }
            self._collect(waiting, found, len(jobs))
        except BaseException:
            self._stopping.set()
            executor.shutdown(wait=False, cancel_futures=True)
            # Again and again: a worker may have been between two statements.
            while any(future.running() for future in waiting):
                self.ends.control.stop()
                self.ends.test.stop()
                wait(waiting, timeout=STOP_SECONDS)
            raise
        finally:
            executor.shutdown(wait=True, cancel_futures=True)
        return [found[at] for at in sorted(found)]

    def _collect(
        self, waiting: dict[Future[QueryResult], int], found: dict[int, QueryResult], total: int
    ) -> None:
        while waiting:
            # A wait without an end would not let a signal through.
            done, _ = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                result = future.result()
                found[waiting.pop(future)] = result
                for sink in self.sinks:
                    sink.emit(result)
                if self.listener is not None:
                    self.listener(result, len(found), total)

    def _one(self, at: int, query: Query, repetition: int) -> QueryResult:
        if self._stopping.is_set():
            return QueryResult(query.suite, query.name, skipped_reason=Skipped.VERIFIER_INTERRUPTED)
        return verify_query(
            query, self.ends, self.settings, f"{self.prefix}{at}", self.bank, repetition
        )


@contextmanager
def _pools(ends: tuple[Endpoint, Endpoint], settings: Settings) -> Iterator[tuple[Pool, Pool]]:
    pools = (
        Pool(ends[0], settings.scratch[0], read_only=settings.read_only),
        Pool(ends[1], settings.scratch[1], read_only=settings.read_only),
    )
    try:
        yield pools
    finally:
        for pool in pools:
            pool.close()


def _prepared(
    pools: tuple[Pool, Pool], prefix: str, settings: Settings, *, control: bool
) -> tuple[tuple[str, str], list[str]]:
    """What both ends speak; sweeps what an earlier run left on them."""
    dialects, swept = [], []
    policy = plugins.load("retries", settings.retry)
    for pool, wanted, override in zip(pools, (control, True), settings.overrides, strict=True):
        if not wanted:
            dialects.append("")
            continue
        side = SideQuery("").overridden(override)

        def prepare(pool: Pool = pool, side: SideQuery = side) -> tuple[str, list[str]]:
            session = pool.take(side)
            with session.limited(settings.metadata_timeout):
                left = [] if settings.read_only or settings.explain else sweep(session, prefix)
            pool.give_back(session, side)
            return session.dialect, left

        try:
            dialect, left = retried(
                prepare, lambda: "connect", policy, settings.retries + 1, settings.backoff, []
            )
        except QueryFailed as error:
            raise CannotFinish(str(error)) from None
        dialects.append(dialect)
        swept += left
    return (dialects[0] or dialects[1], dialects[1]), swept


def _named_sinks(settings: Settings) -> list[Sink]:
    """Sinks by `NAME` or `NAME:TARGET`."""
    found: list[Sink] = []
    for spec in settings.sinks:
        name, _, target = spec.partition(":")
        found.append(plugins.load("sinks", name)(target))
    return found


def _endpoint(end: str | Endpoint) -> Endpoint:
    return parse_endpoint(end) if isinstance(end, str) else end
