"""One query from its filter to its verdict: control, test, comparison, determinism, resolution."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from truecopy.engines.queries.failure import Failure, Kind, QueryFailed
from truecopy.queries import plugins
from truecopy.queries.bank import Bank
from truecopy.queries.compare import Comparison, compare_schema, plan_for, types_of
from truecopy.queries.determinism import Control, Determinism
from truecopy.queries.filters import skip_reason
from truecopy.queries.parsing import NotParsed, Unsafe
from truecopy.queries.pool import Pool
from truecopy.queries.query import Query
from truecopy.queries.resolve import resolve
from truecopy.queries.result import QueryResult, SideReport, Skipped, Status
from truecopy.queries.results import LiveResult, Outline, Result
from truecopy.queries.settings import Settings
from truecopy.queries.side import Side, is_definition
from truecopy.queries.verdict import Match


@dataclass(frozen=True)
class Ends:
    """Both ends of a run, and what they speak."""

    control: Pool
    test: Pool
    dialects: tuple[str, str]


class _Stopped(Exception):
    """The query has its verdict."""


class _Again(Exception):
    """Scratch tables or a server went away: the query starts again."""


def verify_query(
    query: Query,
    ends: Ends,
    settings: Settings,
    table: str,
    bank: Bank | None = None,
    repetition: int = 1,
) -> QueryResult:
    """Verifies one query; `table` is the start of the names of its scratch tables."""
    result = QueryResult(query.suite, query.name, repetition=repetition)
    started = time.monotonic()
    reason = skip_reason(query, ends.dialects, settings)
    if reason is not None:
        result.skipped_reason, result.detail = reason
    else:
        for submission in range(settings.resubmissions + 1):
            try:
                _Attempt(query, ends, settings, f"{table}_{submission}", bank, result).run()
                break
            except _Again:
                if submission == settings.resubmissions:
                    result.status = Status.FAILED
                    result.detail = result.failures[-1].message
            except Exception as error:
                logging.getLogger(__name__).exception("%s.%s", query.suite, query.name)
                result.failures.append(_unexpected(error))
                result.status, result.detail = Status.FAILED, result.failures[-1].message
                break
    result.seconds = time.monotonic() - started
    return result


def _unexpected(error: Exception) -> Failure:
    said = " ".join(str(error).split())[:300]
    return Failure(Kind.OTHER, f"unexpected {type(error).__name__}: {said}", stage="verifier")


class _Attempt:
    def __init__(
        self,
        query: Query,
        ends: Ends,
        settings: Settings,
        table: str,
        bank: Bank | None,
        result: QueryResult,
    ) -> None:
        self.query, self.settings, self.bank, self.result = query, settings, bank, result
        policy = plugins.load("retries", settings.retry)
        rewriter = plugins.load("rewriters", settings.rewriter)
        self.comparator = plugins.load("comparators", settings.comparator)
        sides = []
        for name, text, pool, override in (
            ("control", query.control, ends.control, settings.overrides[0]),
            ("test", query.test, ends.test, settings.overrides[1]),
        ):
            chosen = text.overridden(override)
            letter = f"{table}{name[0]}"
            sides.append(
                Side(name, chosen, pool, settings, letter, result.failures, policy, rewriter)
            )
        self.control, self.test = sides
        result.control = None if settings.skip_control else self.control.report
        result.test = self.test.report

    def run(self) -> None:
        try:
            self._run()
        except _Stopped:
            pass
        except (NotParsed, Unsafe) as error:
            self._skip(Skipped.UNSAFE, str(error))
        finally:
            self.control.tear_down()
            self.test.tear_down()

    def _run(self) -> None:
        if self.settings.explain:
            self._explain()
            return
        control, definition = self._control()
        test = self._test(self._foreseeing(control, definition))
        if control is None:
            self.result.status = Status.SUCCEEDED
            return
        try:
            if definition or self.settings.skip_checksum:
                compared = compare_schema(control, test)
            else:
                compared = self.comparator(control, test, self.settings, self.query.key)
            self._conclude(compared)
            if compared.match not in (Match.MATCH, Match.SCHEMA_MISMATCH):
                self._look_for_chance(control)
        except QueryFailed as error:
            self._resubmit_if_gone(error)
            self._fail(str(error))
            return
        if self.result.status is Status.FAILED:
            self._resolve()

    def _control(self) -> tuple[Result | None, bool]:
        if self.settings.skip_control:
            return None, False
        if self.bank is not None:
            kept = self.bank.find(self.query)
            if kept is None:
                self._skip(Skipped.NOT_IN_BANK, f"{self.query.name} is not in {self.bank.path}")
                raise _Stopped
            self.control.report.banked = True
            self.control.report.seconds = kept.seconds
            self.control.report.cpu_seconds = kept.cpu_seconds
            self.control.report.schema = types_of(kept)
            return kept, kept.definition
        try:
            if self.settings.plans:
                self.control.report.plan = self.control.explain()
            result, rewritten = self.control.produce()
        except QueryFailed as error:
            if _is_gone(error):
                raise _Again from None
            if error.failure.kind is Kind.TIME_LIMIT:
                self._skip(Skipped.CONTROL_QUERY_TIMED_OUT, str(error))
            elif error.failure.stage.endswith("set-up"):
                self._skip(Skipped.CONTROL_SETUP_QUERY_FAILED, str(error))
            else:
                self._skip(Skipped.CONTROL_QUERY_FAILED, str(error))
            raise _Stopped from None
        self.result.type = str(rewritten.type)
        return result, is_definition(rewritten)

    def _foreseeing(
        self, control: Result | None, definition: bool
    ) -> Callable[[Outline], None] | None:
        """Control is measured while the test query runs, except where it would disturb a gate on time."""
        settings = self.settings
        gated = settings.max_slowdown is not None or settings.max_cpu is not None
        if not isinstance(control, LiveResult) or definition or settings.skip_checksum or gated:
            return None
        first = control

        def foresee(test: Outline) -> None:
            plan = plan_for(first, test, settings)
            if plan is not None:
                first.begin(plan)

        return foresee

    def _test(self, foresee: Callable[[Outline], None] | None) -> LiveResult:
        try:
            if self.settings.plans:
                self.test.report.plan = self.test.explain()
            result, rewritten = self.test.produce(foresee)
        except QueryFailed as error:
            self._resubmit_if_gone(error)
            self._fail(str(error))
            raise _Stopped from None
        self.result.type = str(rewritten.type)
        return result

    def _conclude(self, compared: Comparison) -> None:
        result = self.result
        result.match, result.columns = compared.match, compared.columns
        result.differences, result.exact = compared.differences, compared.exact
        for side, rows in zip((result.control, result.test), compared.rows, strict=True):
            if side is not None:
                side.rows = rows
        if compared.match is Match.MATCH:
            result.regression = _regression(result.control, result.test, self.settings)
            result.status = Status.FAILED if result.regression else Status.SUCCEEDED
            result.detail = result.regression or ""
            return
        result.status = Status.FAILED
        result.detail = _in_words(compared)

    def _look_for_chance(self, control: Result) -> None:
        if not isinstance(control, LiveResult):
            return
        analysis = plugins.load("determinism", self.settings.determinism)
        found: Determinism = analysis(
            Control(
                self.control.sql,
                control.dialect,
                control,
                lambda: self.control.produce()[0],
                lambda sql: control.fetch(control.texts.escaped(sql)),
            ),
            self.comparator,
            self.settings,
        )
        self.result.determinism = str(found.verdict)
        if found.is_chance:
            self._skip(Skipped.NON_DETERMINISTIC, found.reason)
        elif found.reason:
            self.result.detail += f" ({found.verdict.lower().replace('_', ' ')}: {found.reason})"

    def _explain(self) -> None:
        try:
            self.control.report.plan = self.control.explain()
        except QueryFailed as error:
            self._skip(Skipped.CONTROL_QUERY_FAILED, str(error))
            return
        try:
            self.test.report.plan = self.test.explain()
        except QueryFailed as error:
            self._fail(str(error))
            return
        self.result.status = Status.SUCCEEDED
        same = self.control.report.plan == self.test.report.plan
        self.result.detail = "the plans are the same" if same else "the plans differ"

    def _resubmit_if_gone(self, error: QueryFailed) -> None:
        if error.failure.kind is Kind.CONNECTION or _is_gone(error):
            raise _Again

    def _fail(self, detail: str) -> None:
        self.result.status, self.result.detail = Status.FAILED, detail
        self._resolve()

    def _resolve(self) -> None:
        found = resolve(self.result, self.settings)
        if found is not None:
            self.result.resolved_by, self.result.detail = found
            self.result.status = Status.FAILED_RESOLVED

    def _skip(self, reason: Skipped, detail: str) -> None:
        self.result.status, self.result.skipped_reason = Status.SKIPPED, reason
        self.result.detail = detail


def _is_gone(error: QueryFailed) -> bool:
    """Whether it was a scratch table that was not there, and not a table of the query."""
    made = error.failure.stage not in ("control", "test", "control set-up", "test set-up")
    return made and error.failure.kind is Kind.GONE


def _regression(
    control: SideReport | None, test: SideReport | None, settings: Settings
) -> str | None:
    """What took too long on the test side, None where nothing did or nobody asked."""
    if control is None or test is None:
        return None
    for what, most, before, after in (
        ("time", settings.max_slowdown, control.seconds, test.seconds),
        ("CPU", settings.max_cpu, control.cpu_seconds, test.cpu_seconds),
    ):
        if most is None or before is None or after is None or after < settings.min_seconds:
            continue
        if after > most * before:
            return f"{what}: {before:.3f} s → {after:.3f} s, more than {most:g} times"
    return None


def _in_words(compared: Comparison) -> str:
    match compared.match:
        case Match.ROW_COUNT_MISMATCH:
            return f"rows: {compared.rows[0]} → {compared.rows[1]}"
        case Match.ROW_MISMATCH:
            return "each column agrees, but values stand in other rows"
        case _:
            wrong = [column for column in compared.columns if not column.match]
            schema = compared.match is Match.SCHEMA_MISMATCH
            return "; ".join(c.reason if schema else f"{c.name}: {c.reason}" for c in wrong)
