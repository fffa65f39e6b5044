"""Sources, filters, overrides, determinism, resolvers, sinks: each stage by itself and by entry point."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.program import PROGRAM, truecopy
from tests.queries.ends import End, both, one, run
from truecopy.engines.queries.failure import Failure, Kind
from truecopy.model.errors import UsageError
from truecopy.model.secret import Secret
from truecopy.queries import plugins
from truecopy.queries.filters import named, skip_reason
from truecopy.queries.parsing import parse
from truecopy.queries.query import Override, Query, SideQuery
from truecopy.queries.resolve import resolve
from truecopy.queries.result import QueryResult, SideReport, Skipped, Status
from truecopy.queries.rewrite import substitute, unique_names
from truecopy.queries.settings import Settings
from truecopy.queries.sources import read_source
from truecopy.queries.suite_file import read_head
from truecopy.queries.verdict import Match

ENTRY = {
    "name": "q",
    "control": {"query": "SELECT 1 AS a", "schema": "old", "session": {"x": True}},
    "test": "SELECT 2 AS a",
    "setup": ["SET a = 1"],
    "key": "a",
    "password": "${PW}",
}


def test_yaml_and_json_lines_say_the_same(tmp_path: Path) -> None:
    yaml, lines = tmp_path / "s.yaml", tmp_path / "s.jsonl"
    yaml.write_text(json.dumps({"suite": "s", "queries": [ENTRY]}))
    lines.write_text(json.dumps({**ENTRY, "suite": "s"}) + "\n\n")
    assert read_source(str(yaml)) == read_source(str(lines))
    (query,) = read_source(str(yaml))
    assert (query.control.sql, query.test.sql, query.key) == (
        "SELECT 1 AS a",
        "SELECT 2 AS a",
        ("a",),
    )
    assert (query.control.schema, query.test.schema) == ("old", None)
    assert query.control.session == (("x", "true"),)
    assert "PW" not in repr(query)


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "both.sql").write_text("SELECT 1 AS a;\n")
    (tmp_path / "deep" / "two.control.sql").write_text("SELECT 1 AS a")
    (tmp_path / "deep" / "two.test.sql").write_text("SELECT 2 AS a")
    found = {(q.suite, q.name): (q.control.sql, q.test.sql) for q in read_source(str(tmp_path))}
    assert found == {
        (tmp_path.name, "both"): ("SELECT 1 AS a", "SELECT 1 AS a"),
        ("deep", "two"): ("SELECT 1 AS a", "SELECT 2 AS a"),
    }
    assert [q.name for q in read_source(str(tmp_path), "deep")] == ["two"]


@pytest.mark.parametrize("engine", ["duckdb_end", "sqlite_end", "postgres_end", "mariadb_end"])
def test_a_table(engine: str, request: pytest.FixtureRequest) -> None:
    end: End = request.getfixturevalue(engine)
    row = {
        "suite": "s",
        "name": "b",
        "key": '["a"]',
        **{
            f"{side}_{name}": value
            for side, number in (("control", 1), ("test", 2))
            for name, value in {
                "query": f"SELECT {number} AS a",
                "setup": f'["SET x = {number}", "SET y = 100%"]',
                "teardown": f'["SET x = -{number}"]',
                "catalog": f"c{number}",
                "schema": f"s{number}",
                "user": f"u{number}",
                "password": "${PW}",
                "session": f'{{"p": {number}, "q": true}}',
            }.items()
        },
    }
    quote = "`" if engine == "mariadb_end" else '"'
    names = [f"{quote}{name}{quote}" for name in row]
    end.execute(f"CREATE TABLE asked ({', '.join(f'{name} VARCHAR(99)' for name in names)})")
    values = ", ".join(f"'{value}'" for value in row.values())
    end.execute(f"INSERT INTO asked VALUES ({values})")
    end.execute(
        f"INSERT INTO asked ({', '.join([*names[:2], names[3], names[11]])})"
        " VALUES ('other', 'a', 'SELECT 3 AS a', 'SELECT 3 AS a')"
    )
    (query,) = read_source(f"{end.url}#asked", "s")
    for side, number in ((query.control, 1), (query.test, 2)):
        assert side == SideQuery(
            f"SELECT {number} AS a",
            (f"SET x = {number}", "SET y = 100%"),
            (f"SET x = -{number}",),
            f"c{number}",
            f"s{number}",
            f"u{number}",
            Secret("${PW}"),
            (("p", str(number)), ("q", "true")),
        )
    assert query.key == ("a",)
    (plain,) = read_source(f"{end.url}#asked", "other")
    assert plain.control == plain.test == SideQuery("SELECT 3 AS a")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queries: 3", "a list under `queries` is expected"),
        ("queries: [{name: a}]", "has no query for control"),
        ("queries: [{name: a, query: x, quarry: y}]", "query 1: quarry: Extra inputs"),
        ("queries: [{name: a, query: x}, {name: a, query: y}]", "two queries of w are named a"),
        ("{", "is not YAML"),
    ],
)
def test_wrong_suites_are_one_line(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=message.replace("[", r"\[")) as error:
        read_source(str(file))
    assert "\n" not in str(error.value)


def test_settings_of_a_suite(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "control: {url: 'duckdb:///a', scratch: mine, schema: old, session: {threads: 1}}\n"
        "test: duckdb:///b\nsettings: {retries: 7, relative-margin: 0, block: 'x*'}\nqueries: []\n"
    )
    head = read_head(str(file))
    assert (head.control, head.test) == ("duckdb:///a", "duckdb:///b")
    assert head.settings.scratch == ("mine", None)
    assert head.settings.overrides[0].schema == "old"
    assert (head.settings.retries, head.settings.relative_margin) == (7, 0.0)
    assert head.settings.block == ("x*",)
    file.write_text("settings: {retrys: 7}\nqueries: []\n")
    with pytest.raises(UsageError, match="unknown retrys"):
        read_head(str(file))


def test_names_and_types_choose() -> None:
    queries = [both(name, "SELECT 1 AS a") for name in ("one", "two", "three")]
    assert [q.name for q in named(queries, Settings(allow=("t*",), block=("s.two",)))] == ["three"]

    def reason(control: str, test: str | None = None, **choices: object) -> Skipped | None:
        found = skip_reason(both("q", control, test), ("postgres", "duckdb"), Settings(**choices))  # type: ignore[arg-type]
        return found and found[0]

    assert reason("SELECT 1 AS a") is None
    assert reason("SELEC 1 FRM (") is Skipped.SYNTAX_ERROR
    assert reason("SELECT 1; SELECT 2") is Skipped.SYNTAX_ERROR
    assert reason("SELECT 1", "DELETE FROM t") is Skipped.MISMATCHED_QUERY_TYPES
    assert reason("DROP TABLE t") is Skipped.UNSUPPORTED_QUERY_TYPE
    assert reason("DELETE FROM t", types=("select",)) is Skipped.FILTERED


def test_names_of_columns_are_made_valid_and_unique() -> None:
    assert unique_names(["a", "A", "", "x y", "a", "_col3"]) == [
        "a",
        "A_2",
        "_col3",
        "_col4",
        "a_3",
        "_col3_2",
    ]


def test_functions_are_substituted_by_rule() -> None:
    parsed = parse("SELECT approx_distinct(x), now() FROM t", "trino")
    found = substitute(parsed, {"approx_distinct": "count(distinct {0})"})
    assert found.sql.lower().startswith("select count(distinct x)")
    assert substitute(parsed, {"other": "1"}) is parsed


def test_substitutes_make_answers_equal(duckdb_end: End) -> None:
    sql = "SELECT id, my_random(id) AS r FROM t"
    found = one(duckdb_end, duckdb_end, sql, substitutes={"my_random": "({0} * 2)"})
    assert (found.status, found.detail) == (Status.SUCCEEDED, "")


def test_overrides_reach_the_session(postgres_end: End) -> None:
    postgres_end.execute("CREATE SCHEMA old; CREATE TABLE old.u AS SELECT 1 AS a")
    override = Override(schema="old", session=(("application_name", "mine"),))
    sql = "SELECT a, current_setting('application_name') AS n FROM u"
    found = one(postgres_end, postgres_end, sql, overrides=(override, override))
    assert (found.status, found.detail) == (Status.SUCCEEDED, "")
    other = one(postgres_end, postgres_end, sql, overrides=(override, Override(schema="old")))
    assert (other.match, other.detail[:2]) == (Match.COLUMN_MISMATCH, "n:")


@pytest.mark.parametrize(
    ("control", "verdict"),
    [
        ("SELECT id, random() AS r FROM t", "NON_DETERMINISTIC_COLUMNS"),
        (
            "SELECT id FROM t, range(CAST(1 + random() * 1000000 AS INTEGER)) WHERE id = 1",
            "NON_DETERMINISTIC_ROW_COUNT",
        ),
        ("SELECT id FROM t LIMIT 2", "NON_DETERMINISTIC_LIMIT_CLAUSE"),
        ("SELECT id FROM t ORDER BY id > 2 LIMIT 1", "NON_DETERMINISTIC_LIMIT_CLAUSE"),
        ("SELECT id, f FROM main.t WHERE id = 1", "NON_DETERMINISTIC_CATALOG"),
    ],
)
def test_chance_is_told_from_difference(control: str, verdict: str, duckdb_end: End) -> None:
    test = "SELECT 99 AS id" + (
        ", 0.5 AS r" if " r " in control else ", 0.5 AS f" if "id, f" in control else ""
    )
    if " r " in control or "id, f" in control:
        test = test.replace("0.5", "0.5::DOUBLE")
    found = one(
        duckdb_end,
        duckdb_end,
        control,
        f"{test} FROM t LIMIT 1",
        nondeterministic_catalogs=("main",),
    )
    assert (found.determinism, found.skipped_reason) == (verdict, Skipped.NON_DETERMINISTIC), (
        found.detail
    )


@pytest.mark.parametrize(
    ("sql", "other"),
    [
        ("SELECT id FROM t ORDER BY id LIMIT 2", "SELECT id FROM t ORDER BY id DESC LIMIT 2"),
        (
            "SELECT id FROM t WHERE id < 3 LIMIT 2",
            "SELECT id + 1 AS id FROM t WHERE id < 3 LIMIT 2",
        ),
    ],
)
def test_a_limit_with_a_total_order_or_that_cuts_nothing_is_deterministic(
    sql: str, other: str, duckdb_end: End
) -> None:
    found = one(duckdb_end, duckdb_end, sql, other)
    assert (found.status, found.determinism) == (Status.FAILED, "DETERMINISTIC")


def _failed(kind: Kind, control: int | None = None, test: int | None = None) -> QueryResult:
    result = QueryResult("s", "q", status=Status.FAILED)
    result.control = SideReport("c", memory_bytes=control)
    result.test = SideReport("t", memory_bytes=test)
    result.failures.append(Failure(kind, "it failed", stage="test"))
    return result


def test_failures_are_resolved_by_circumstances() -> None:
    settings = Settings()
    assert resolve(_failed(Kind.TIME_LIMIT), settings) == (
        "time-limit",
        "the test side reached a limit of time",
    )
    for control, test in ((None, None), (5, None), (None, 5), (5, 5), (4, 5)):
        assert resolve(_failed(Kind.MEMORY, control, test), settings) is None
    found = resolve(_failed(Kind.MEMORY, 5, 4), settings)
    assert found is not None
    assert found[0] == "memory"
    assert resolve(_failed(Kind.REFUSED), settings) is None


def test_a_limitation_of_the_verifier_is_a_failure_unless_it_is_asked_for() -> None:
    assert resolve(_failed(Kind.LIMITATION), Settings()) is None
    found = resolve(_failed(Kind.LIMITATION), Settings(resolvers=("limitation",)))
    assert found == ("limitation", "the checksums cannot be computed: it failed")


def test_a_test_side_with_less_memory_than_control_used(duckdb_end: End) -> None:
    small = Override(session=(("memory_limit", "20MB"), ("temp_directory", "")))
    sql = "SELECT i, concat('some text that takes room ', i) AS t FROM range(3000000) AS r(i)"
    found = one(duckdb_end, duckdb_end, sql, overrides=(Override(), small), retries=0)
    assert (found.status, found.resolved_by) == (Status.FAILED_RESOLVED, "memory"), found.detail
    assert found.failures[-1].kind is Kind.MEMORY
    both_small = one(duckdb_end, duckdb_end, sql, overrides=(small, small), retries=0)
    assert both_small.skipped_reason is Skipped.CONTROL_QUERY_FAILED


def test_ignored_functions_are_resolved(duckdb_end: End) -> None:
    sql, other = "SELECT upper(name) AS n FROM t", "SELECT upper(name) || '!' AS n FROM t"
    found = one(duckdb_end, duckdb_end, sql, other, ignored_functions=("upper",))
    assert (found.status, found.resolved_by) == (Status.FAILED_RESOLVED, "ignored-functions")


def test_decimals_with_fewer_digits_are_explained(postgres_end: End, mariadb_end: End) -> None:
    found = one(postgres_end, mariadb_end, "SELECT SUM(amount) / 7 AS a FROM t")
    assert (found.match, found.resolved_by) == (Match.COLUMN_MISMATCH, "decimal-scale")


def test_a_gate_on_time(postgres_end: End) -> None:
    slow = "SELECT id FROM t WHERE pg_sleep(0.1) IS NOT NULL"
    found = one(postgres_end, postgres_end, "SELECT id FROM t", slow, max_slowdown=1.5)
    assert (found.status, found.match) == (Status.FAILED, Match.MATCH)
    assert (found.regression or "").startswith("time: ")
    assert (
        one(postgres_end, postgres_end, slow, "SELECT id FROM t", max_slowdown=1.5).status
        is Status.SUCCEEDED
    )


def test_a_gate_on_cpu(duckdb_end: End) -> None:
    busy = "SELECT 1 AS n FROM (SELECT SUM(hash(i)) AS s FROM range(60000000) AS r(i)) WHERE s > 0"
    found = one(duckdb_end, duckdb_end, "SELECT 1 AS n", busy, max_cpu=2.0, concurrency=1)
    assert (found.status, found.match) == (Status.FAILED, Match.MATCH)
    assert (found.regression or "").startswith("CPU: ")
    quick = one(duckdb_end, duckdb_end, busy, "SELECT 1 AS n", max_cpu=2.0, concurrency=1)
    assert (quick.status, quick.regression) == (Status.SUCCEEDED, None)


def test_overrides_of_the_command_line(
    postgres_end: End, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password is named, never given: everyone can read a command line."""
    suite, secret = tmp_path / "s.yaml", tmp_path / "secret"
    suite.write_text("queries: [{name: q, query: SELECT current_user AS u}]\n")
    secret.write_text("hidden words\n")
    monkeypatch.setenv("READER", "hidden words")
    postgres_end.execute("CREATE ROLE reader LOGIN PASSWORD 'hidden words'")
    given = (
        "queries",
        "run",
        str(suite),
        "--control",
        postgres_end.url,
        "--test",
        postgres_end.url,
    )
    roles = ("--read-only", "--control-override", "user=reader", "--test-override", "user=reader")
    try:
        for password in ("password=${READER}", f"password=file:{secret}"):
            passwords = ("--control-override", password, "--test-override", password)
            ended = truecopy(*given, *roles, *passwords)
            assert (ended.code, ended.err) == (0, "")
        refused = truecopy(*given, *roles, "--test-override", "password=hidden words")
        assert refused.code == 2
        assert refused.err.startswith("truecopy: everyone on this machine can read a command line")
        assert "hidden" not in refused.err + refused.out
    finally:
        postgres_end.execute("DROP ROLE reader")


def test_repetitions(duckdb_end: End) -> None:
    results = run(
        duckdb_end,
        duckdb_end,
        both("q", "SELECT 1 AS a"),
        both("r", "SELECT 1 AS a"),
        suite_repetitions=2,
        query_repetitions=3,
    )
    assert sorted((r.name, r.repetition) for r in results) == [
        (n, i) for n in "qr" for i in range(1, 7)
    ]


OURS = """
from truecopy.queries.compare import Comparison, compare
from truecopy.queries.determinism import Determinism, Verdict
from truecopy.queries.query import Query, SideQuery
from truecopy.queries.rewrite import rewrite
from truecopy.queries.verdict import Match

seen = []

def source(location, suite):
    for name in ("keep", "export"):
        yield Query("s", name, SideQuery("SELECT 1 AS a"), SideQuery("SELECT 2 AS a"))

def no_exports(query, dialects):
    return "not here" if query.name == "export" else None

def rewriter(session, sql, table, settings):
    seen.append(sql)
    return rewrite(session, sql, table, settings)

def comparator(control, test, settings, key=()):
    seen.append("compared")
    return compare(control, test, settings, key)

def determinism(control, comparator, settings):
    return Determinism(Verdict.DETERMINISTIC, "I say so")

def retry(failure):
    return False

def resolver(result, settings):
    return "a known difference"

class Sink:
    def __init__(self, target):
        self.target = target
    def emit(self, result):
        seen.append((self.target, result.name, str(result.status)))
    def close(self):
        seen.append("closed")
"""


def test_every_stage_is_replaced_by_entry_point(
    duckdb_end: End, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "site" / "mine-1.dist-info"
    info.mkdir(parents=True)
    (tmp_path / "site" / "my_stages.py").write_text(OURS)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    stages = {
        "sources": "source",
        "filters": "no_exports",
        "rewriters": "rewriter",
        "comparators": "comparator",
        "determinism": "determinism",
        "retries": "retry",
        "resolvers": "resolver",
        "sinks": "Sink",
    }
    lines = [
        f"[truecopy.queries.{stage}]\nmine = my_stages:{name}\n" for stage, name in stages.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert set(stages) == set(plugins.GROUPS)
    queries = read_source("anywhere", kind="mine")
    results = run(
        duckdb_end,
        duckdb_end,
        *queries,
        filters=("mine",),
        rewriter="mine",
        comparator="mine",
        determinism="mine",
        retry="mine",
        resolvers=("mine",),
        sinks=("mine:there",),
    )
    module: ModuleType = sys.modules["my_stages"]
    kept, export = results
    assert (export.skipped_reason, export.detail) == (Skipped.CUSTOM_FILTER, "mine: not here")
    assert (kept.status, kept.resolved_by) == (Status.FAILED_RESOLVED, "mine")
    assert kept.determinism == "DETERMINISTIC"
    assert {"SELECT 1 AS a", "compared", ("there", "keep", "FAILED_RESOLVED"), "closed"} <= set(
        module.seen
    )


def test_the_stages_that_the_docs_show_are_whole() -> None:
    """One of each, under the name and with the arguments that the program calls it by."""
    text = (Path(__file__).parents[2] / "docs" / "queries.md").read_text()
    toml = next(block for block in _blocks(text, "toml") if "entry-points" in block)
    code = next(block for block in _blocks(text, "python") if "def from_git" in block)
    shown: dict[str, Any] = {}
    exec(compile(code, "queries.md", "exec"), shown)
    stages = tomllib.loads(toml)["project"]["entry-points"]
    assert {group.removeprefix("truecopy.queries.") for group in stages} == set(plugins.GROUPS)
    ours = {"sources": "yaml", "rewriters": "sqlglot", "comparators": "checksums"}
    ours |= {"determinism": "reruns", "retries": "passing", "resolvers": "memory", "sinks": "page"}
    for group, entries in stages.items():
        (place,) = entries.values()
        stage = shown[place.removeprefix("my_package:")]
        group_name = group.removeprefix("truecopy.queries.")
        like = plugins.load(group_name, ours[group_name]) if group_name in ours else skip_reason
        wanted = len(signature(like).parameters) - (group_name == "filters")
        assert len(signature(stage).parameters) == wanted, group


def _blocks(text: str, language: str) -> list[str]:
    return [part.partition("```")[0] for part in text.split(f"```{language}\n")[1:]]


def test_progress_is_drawn_on_a_terminal(duckdb_end: End, tmp_path: Path) -> None:
    suite = tmp_path / "s.yaml"
    suite.write_text(
        "queries: [{name: first, query: SELECT 1 AS a}, {name: last, query: SELECT 2 AS a}]"
    )
    arguments = [
        "queries",
        "run",
        str(suite),
        "--control",
        duckdb_end.url,
        "--test",
        duckdb_end.url,
    ]
    reading, writing = os.openpty()
    done = subprocess.run(
        [PROGRAM, *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=writing,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        timeout=120,
        check=False,
    )
    os.close(writing)
    drawn = b""
    try:
        while part := os.read(reading, 65536):
            drawn += part
    except OSError:
        pass  # the other end is closed
    os.close(reading)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    assert "2/2" in drawn.decode()


def test_a_stage_that_is_not_there_is_one_line(duckdb_end: End) -> None:
    with pytest.raises(UsageError, match="did you mean page"):
        run(duckdb_end, duckdb_end, both("q", "SELECT 1 AS a"), sinks=("pages:x",))


@pytest.mark.long
def test_the_program(duckdb_end: End, tmp_path: Path) -> None:
    suite, bank, page = tmp_path / "s.yaml", tmp_path / "s.bank", tmp_path / "s.html"
    queries = [
        {"name": "same", "query": "SELECT * FROM t"},
        {"name": "differs", "control": "SELECT 1 AS a", "test": "SELECT 2 AS a"},
        {"name": "broken", "query": "SELECT a FROM (t"},
    ]
    suite.write_text(json.dumps({"suite": "s", "queries": queries}))
    ends = ("--control", duckdb_end.url, "--test", duckdb_end.url)
    ended = truecopy("queries", "run", str(suite), *ends, "--json", "--page", str(page))
    assert ended.code == 1
    assert ended.err == ""
    events = {event["name"]: event for event in map(json.loads, ended.out.splitlines())}
    assert {name: event["status"] for name, event in events.items()} == {
        "same": "SUCCEEDED",
        "differs": "FAILED",
        "broken": "SKIPPED",
    }
    _check_schema(list(events.values()))
    assert "SEQ_SCAN" in events["same"]["control"]["plan"]
    html = page.read_text()
    assert all(word in html for word in ("FAILED", "SEQ_SCAN", "Differing rows", "CPU seconds"))
    assert truecopy("queries", "run", str(suite), *ends, "--allow", "same").code == 0
    assert truecopy("queries", "run", str(suite), *ends, "--allow", "broken").code == 3
    listed = truecopy("queries", "list", str(suite), *ends, "--json")
    assert [json.loads(line)["skipped_reason"] for line in listed.out.splitlines()] == [
        None,
        None,
        "SYNTAX_ERROR",
    ]
    explained = truecopy("queries", "explain", str(suite), *ends, "--json")
    plans = {e["name"]: e["test"] for e in map(json.loads, explained.out.splitlines())}
    assert "SEQ_SCAN" in plans["same"]["plan"]
    kept = truecopy(
        "queries",
        "bank",
        str(suite),
        "--control",
        duckdb_end.url,
        "--into",
        str(bank),
        "--block",
        "broken",
        "--json",
    )
    assert (kept.code, json.loads(kept.out)["kept"]) == (0, 2)
    later = truecopy(
        "queries", "run", str(suite), "--test", duckdb_end.url, "--bank", str(bank), "--json"
    )
    verdicts = {
        e["name"]: (e["status"], e["match"]) for e in map(json.loads, later.out.splitlines())
    }
    assert verdicts["same"] == ("SUCCEEDED", "MATCH")
    assert verdicts["differs"] == ("FAILED", "COLUMN_MISMATCH")
    alone = truecopy(
        "queries", "run", str(suite), "--test", duckdb_end.url, "--skip-control", "--json"
    )
    assert alone.code == 0
    unchecked = truecopy(
        "queries", "run", str(suite), *ends, "--skip-checksum", "--allow", "differs"
    )
    assert unchecked.code == 0
    assert truecopy("queries", "run", str(suite), *ends[:2]).code == 2


def _check_schema(events: list[dict[str, object]]) -> None:
    schema = json.loads(
        (Path(__file__).parents[2] / "docs" / "query-event.schema.json").read_text()
    )
    for event in events:
        assert set(event) == set(schema["required"]) == set(schema["properties"])
        for name, rule in schema["properties"].items():
            if "enum" in rule:
                assert event[name] in rule["enum"]
        for side in ("control", "test"):
            found = event[side]
            assert found is None or (
                isinstance(found, dict) and set(found) == set(schema["$defs"]["side"]["required"])
            )
    assert set(schema["properties"]["skipped_reason"]["enum"]) == {None, *map(str, Skipped)}
    assert set(schema["properties"]["status"]["enum"]) == set(map(str, Status))
    assert set(schema["properties"]["match"]["enum"]) == set(map(str, Match))


def test_a_changed_query_is_not_in_the_bank(duckdb_end: End, tmp_path: Path) -> None:
    from truecopy.queries.suite import fill_bank, run_queries

    bank = tmp_path / "b"
    query = Query("s", "q", SideQuery("SELECT id, f FROM t"), SideQuery("SELECT id, f FROM t"))
    ((_, line, _),) = list(fill_bank([query], duckdb_end.url))
    bank.write_text(json.dumps(line) + "\n")
    (same,) = run_queries([query], duckdb_end.url, duckdb_end.url, bank=str(bank)).results
    assert (same.status, same.control and same.control.banked) == (Status.SUCCEEDED, True)
    other = Query("s", "q", SideQuery("SELECT id FROM t"), SideQuery("SELECT id FROM t"))
    (changed,) = run_queries([other], duckdb_end.url, duckdb_end.url, bank=str(bank)).results
    assert changed.skipped_reason is Skipped.NOT_IN_BANK
