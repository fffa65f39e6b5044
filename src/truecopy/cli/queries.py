"""`truecopy queries`: does the new engine answer these queries as the old one did."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from truecopy.cli.progress import ERRORS, say
from truecopy.model.errors import UsageError

if TYPE_CHECKING:
    from truecopy.queries.query import Override, Query
    from truecopy.queries.result import QueryResult
    from truecopy.queries.settings import Settings
    from truecopy.queries.suite import Report
    from truecopy.queries.suite_file import SuiteHead

queries_app = typer.Typer(
    name="queries",
    help="Does the new engine answer these queries as the old one did.",
    no_args_is_help=True,
)

_Test = Annotated[str | None, typer.Option(help="URL of the end that is verified.")]
_ControlScratch = Annotated[str | None, typer.Option(help="Schema for tables on control.")]
_Json = Annotated[bool, typer.Option("--json", help="One event per line on standard output.")]
_REFERENCE = re.compile(r"\$\{\w+\}|file:.+")


@dataclass(frozen=True)
class _Chosen:
    """The queries of a command, what their suite says, and what the command line says of both."""

    source: str
    queries: list[Query]
    head: SuiteHead
    settings: Settings
    control: str | None


def _choose(
    source: Annotated[
        str, typer.Argument(help="A .yaml or .jsonl file, a folder of .sql files, or URL#table.")
    ],
    control: Annotated[
        str | None, typer.Option(help="URL of the end whose answers are right.")
    ] = None,
    suite: Annotated[str | None, typer.Option(help="Only the queries of this suite.")] = None,
    source_kind: Annotated[
        str | None, typer.Option("--source", help="Which source reads it, if not by its name.")
    ] = None,
    allow: Annotated[
        list[str], typer.Option(help="Only queries with these names; * is wild.")
    ] = [],  # noqa: B006 - typer's way
    block: Annotated[list[str], typer.Option(help="No query with these names.")] = [],  # noqa: B006
    types: Annotated[list[str], typer.Option("--type", help="Only queries of these types.")] = [],  # noqa: B006
    filters: Annotated[list[str], typer.Option("--filter", help="Filters of other packages.")] = [],  # noqa: B006
) -> _Chosen:
    """The options that all commands share."""
    from truecopy.queries.sources import read_source
    from truecopy.queries.suite_file import read_head

    head = read_head(source)
    found = read_source(source, suite, source_kind)
    if not found:
        raise UsageError(f"{source} has no queries{f' of the suite {suite}' if suite else ''}")
    settings = _changed(
        head.settings,
        allow=tuple(allow) or None,
        block=tuple(block) or None,
        types=tuple(types) or None,
        filters=tuple(filters) or None,
    )
    return _Chosen(source, found, head, settings, control or head.control)


def _choosing(command: Callable[..., int]) -> Callable[..., int]:
    """The command with the shared options before its own; it gets what they say as its first argument."""
    shared, own = signature(_choose).parameters, signature(command).parameters
    rest = list(own)[1:]

    @wraps(command)
    def told(**given: Any) -> int:
        return command(_choose(**{name: given.pop(name) for name in shared}), **given)

    hints = get_type_hints(_choose, include_extras=True) | get_type_hints(
        command, include_extras=True
    )
    told.__annotations__ = {name: hints[name] for name in (*shared, *rest)}
    told.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            each.replace(annotation=hints[each.name], kind=Parameter.KEYWORD_ONLY)
            for each in (*shared.values(), *(own[name] for name in rest))
        ]
    )
    return told


@queries_app.command()
@_choosing
def run(
    chosen: _Chosen,
    test: _Test = None,
    control_scratch: _ControlScratch = None,
    test_scratch: Annotated[
        str | None, typer.Option(help="Schema for tables on the test side.")
    ] = None,
    control_override: Annotated[
        list[str],
        typer.Option(
            help="catalog=, schema=, user=, password= or session.NAME= for every control query."
        ),
    ] = [],  # noqa: B006
    test_override: Annotated[list[str], typer.Option(help="Likewise for the test side.")] = [],  # noqa: B006
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Write nothing, not even scratch tables.")
    ] = False,
    skip_control: Annotated[
        bool, typer.Option("--skip-control", help="Run the test side only.")
    ] = False,
    skip_checksum: Annotated[
        bool, typer.Option("--skip-checksum", help="Run both sides, compare columns only.")
    ] = False,
    bank: Annotated[str | None, typer.Option(help="A query bank instead of control.")] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Queries at once.")] = None,
    repeat_suite: Annotated[
        int | None, typer.Option(min=1, help="Runs of the whole suite.")
    ] = None,
    repeat_query: Annotated[int | None, typer.Option(min=1, help="Runs of each query.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds for one statement.")] = None,
    retries: Annotated[
        int | None, typer.Option(min=0, help="Further tries after passing failures.")
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="Relative margin of floats; 0 is exact.")
    ] = None,
    absolute_margin: Annotated[
        float | None, typer.Option(help="Floats below it count as zero.")
    ] = None,
    ordered_arrays: Annotated[
        bool, typer.Option("--ordered-arrays", help="Compare arrays in their order.")
    ] = False,
    reruns: Annotated[
        int | None, typer.Option(min=0, help="Reruns of control after a mismatch.")
    ] = None,
    max_slowdown: Annotated[
        float | None, typer.Option(help="The test side may take so many times control's time.")
    ] = None,
    max_cpu: Annotated[float | None, typer.Option(help="Likewise for CPU time.")] = None,
    sample: Annotated[int | None, typer.Option(min=0, help="Differing rows per query.")] = None,
    plans: Annotated[bool, typer.Option("--plans", help="Keep both engines' plans.")] = False,
    page: Annotated[Path | None, typer.Option(help="Write the report as a page.")] = None,
    sink: Annotated[list[str], typer.Option(help="NAME:TARGET, more places for events.")] = [],  # noqa: B006
    as_json: _Json = False,
) -> int:
    """Run queries on both ends and compare their results.

    Results are written to a scratch schema on each end and compared there, by
    checksums; nothing else is written. A query that does not answer twice the
    same is skipped, and one that fails for a known reason is explained.

    \b
    Examples:
      truecopy queries run shop.yaml
      truecopy queries run shop.yaml --json
      truecopy queries run queries/ --control mariadb://app@old/shop --test postgresql://app@new/shop
      truecopy queries run shop.yaml --allow 'report_*' --max-slowdown 1.5 --page report.html

    Exit codes: 0 all answers agree or are explained, 1 some differ,
    2 wrong usage, 3 nothing could be compared.
    """
    from truecopy.queries.sinks import JsonLines, Page, Sink
    from truecopy.queries.suite import run_queries

    given = chosen.settings
    settings = _changed(
        given,
        concurrency=concurrency,
        suite_repetitions=repeat_suite,
        query_repetitions=repeat_query,
        timeout=timeout,
        retries=retries,
        relative_margin=margin,
        absolute_margin=absolute_margin,
        reruns=reruns,
        max_slowdown=max_slowdown,
        max_cpu=max_cpu,
        sample=sample,
        read_only=read_only or None,
        skip_control=skip_control or None,
        skip_checksum=skip_checksum or None,
        ordered_arrays=ordered_arrays or None,
        plans=plans or page is not None or None,
        sinks=(*given.sinks, *sink),
        scratch=(control_scratch or given.scratch[0], test_scratch or given.scratch[1]),
        overrides=(
            _override(given.overrides[0], control_override),
            _override(given.overrides[1], test_override),
        ),
    )
    test_end = _required(test or chosen.head.test, "--test")
    control_end = chosen.control or (test_end if skip_control or bank else None)
    sinks: list[Sink] = [JsonLines()] if as_json else []
    if page is not None:
        sinks.append(Page(str(page)))
    with ExitStack() as stack:
        listener = stack.enter_context(_Drawing()) if ERRORS.is_terminal else None
        report = run_queries(
            chosen.queries,
            _required(control_end, "--control"),
            test_end,
            settings,
            bank=bank,
            sinks=sinks,
            listener=listener,
        )
    if report.swept:
        say(f"dropped {len(report.swept)} scratch tables that an earlier run had left behind")
    if not as_json:
        _show(report)
    return report.exit_code


@queries_app.command("list")
@_choosing
def list_queries(chosen: _Chosen, test: _Test = None, as_json: _Json = False) -> int:
    """List the queries of a source, and which would be skipped and why; nothing is connected to.

    Each query is parsed in the dialects of both ends: wrong syntax, sides of
    two types, and statements that could change more than the scratch schema
    are told before anything runs.

    \b
    Examples:
      truecopy queries list shop.yaml
      truecopy queries list queries/ --type SELECT --json
    """
    from truecopy.queries.dialects import dialect_of
    from truecopy.queries.filters import named, skip_reason
    from truecopy.queries.parsing import NotParsed, parse

    dialects = (dialect_of(chosen.control), dialect_of(test or chosen.head.test))
    shown = Table("suite", "name", "type", "skipped")
    for query in named(chosen.queries, chosen.settings):
        reason = skip_reason(query, dialects, chosen.settings)
        try:
            kind = str(parse(query.control.sql, dialects[0]).type)
        except NotParsed:
            kind = ""
        row = {
            "suite": query.suite,
            "name": query.name,
            "type": kind,
            "skipped_reason": str(reason[0]) if reason else None,
            "detail": reason[1] if reason else "",
        }
        if as_json:
            _print_json(row)
        else:
            shown.add_row(
                query.suite, query.name, kind, escape(": ".join(reason)) if reason else ""
            )
    if not as_json:
        Console().print(shown)
    return 0


@queries_app.command()
@_choosing
def explain(chosen: _Chosen, test: _Test = None, as_json: _Json = False) -> int:
    """Ask both ends for their plans; nothing is run, so this tells quickly which queries are refused.

    A query that the new engine cannot plan (a function that it lacks, a table
    that is not there) fails here within milliseconds.

    \b
    Example:
      truecopy queries explain shop.yaml --test postgresql://app@new/shop
    """
    from truecopy.queries.sinks import JsonLines, Sink
    from truecopy.queries.suite import run_queries

    sinks: list[Sink] = [JsonLines()] if as_json else []
    report = run_queries(
        chosen.queries,
        _required(chosen.control, "--control"),
        _required(test or chosen.head.test, "--test"),
        replace(chosen.settings, explain=True),
        sinks=sinks,
    )
    if not as_json:
        _show(report)
    return report.exit_code


@queries_app.command()
@_choosing
def bank(
    chosen: _Chosen,
    into: Annotated[Path, typer.Option(help="The file that keeps control's results.")],
    control_scratch: _ControlScratch = None,
    as_json: _Json = False,
) -> int:
    """Run control alone and keep its checksums; `truecopy queries run --bank FILE` compares with them.

    For an old engine that is gone when the new one comes: fill the bank before
    an upgrade, and compare with it afterwards, on the same data.

    \b
    Examples:
      truecopy queries bank shop.yaml --into shop.bank
      truecopy queries run shop.yaml --bank shop.bank
    """
    from truecopy.queries.suite import fill_bank

    scratch = (control_scratch or chosen.settings.scratch[0], None)
    kept = failed = 0
    unfinished = into.with_name(f"{into.name}.unfinished")
    with unfinished.open("w", encoding="utf-8") as file:
        found = fill_bank(
            chosen.queries,
            _required(chosen.control, "--control"),
            replace(chosen.settings, scratch=scratch),
        )
        for query, line, reason in found:
            if line is None:
                failed += 1
                say(f"{query.suite}.{query.name} was not kept: {reason}")
            else:
                kept += 1
                file.write(json.dumps(line) + "\n")
    unfinished.replace(into)
    if as_json:
        _print_json({"bank": str(into), "kept": kept, "failed": failed})
    else:
        Console().print(f"kept {kept} results in {escape(str(into))}; {failed} were not")
    return 0 if kept and not failed else 3


class _Drawing:
    """Progress on standard error."""

    def __enter__(self) -> _Drawing:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=ERRORS,
            transient=True,
        )
        self._progress.start()
        self._task = self._progress.add_task("connecting", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, result: QueryResult, done: int, total: int) -> None:
        self._progress.update(
            self._task, description=f"{result.suite}.{result.name}", completed=done, total=total
        )


def _show(report: Report) -> None:
    from truecopy.queries.result import Status

    colours = {
        Status.SUCCEEDED: "green",
        Status.FAILED: "red",
        Status.FAILED_RESOLVED: "yellow",
        Status.SKIPPED: "dim",
    }
    console = Console()
    shown = Table("query", "status", "match", "control s", "test s", "")
    for result in report.results:
        times = [
            "" if side is None or side.seconds is None else f"{side.seconds:.2f}"
            for side in (result.control, result.test)
        ]
        words = [str(word) for word in (result.skipped_reason, result.determinism) if word]
        if result.resolved_by:
            words.append(f"by {result.resolved_by}")
        if result.detail:
            words.append(result.detail)
        shown.add_row(
            escape(f"{result.suite}.{result.name}"),
            f"[{colours[result.status]}]{result.status}[/]",
            str(result.match),
            *times,
            escape(": ".join(words)),
        )
    console.print(shown)
    counts = ", ".join(f"{report.count(s)} {s.lower().replace('_', ' ')}" for s in Status)
    console.print(f"{len(report.results)} queries: {counts}")


def _changed(settings: Settings, **changes: object) -> Settings:
    """The settings with what the command line says instead; None says nothing."""
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    return replace(settings, **given)


def _override(override: Override, words: list[str]) -> Override:
    from truecopy.queries.reading import read_override

    entry: dict[str, Any] = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator:
            raise UsageError(f"write NAME=VALUE instead of {word!r}")
        if name == "password" and not _REFERENCE.fullmatch(value):
            raise UsageError(
                "everyone on this machine can read a command line: write password='${NAME}', a variable of the"
                " environment, or password=file:/path"
            )
        if name.startswith("session."):
            entry.setdefault("session", {})[name.removeprefix("session.")] = value
        else:
            entry[name] = value
    given = read_override(entry, "an override")
    return replace(
        given,
        catalog=given.catalog or override.catalog,
        schema=given.schema or override.schema,
        user=given.user or override.user,
        password=given.password or override.password,
        session=tuple({**dict(override.session), **dict(given.session)}.items()),
    )


def _required(end: str | None, option: str) -> str:
    if end is None:
        raise UsageError(f"which end? Give {option} URL, or name it in the suite file")
    return end


def _print_json(row: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
