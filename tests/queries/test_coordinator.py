"""Our use of the clients of Trino and Presto, which are real, against the protocol that they speak.

No database is mocked here: what a statement would answer is not claimed. Shown is what reaches a
coordinator (statements, user, password, catalog, schema, session, time zone, cancellation), and
what becomes of what one sends back (rows, types, failures).
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.queries.coordinator import Answer, Coordinator, coordinator
from truecopy.engines.queries.failure import Kind, QueryFailed
from truecopy.engines.queries.session import open_session
from truecopy.model.endpoint import parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.model.shape import Scalar
from truecopy.model.types import Decimal, Timestamp
from truecopy.queries.query import Override, Query, SideQuery
from truecopy.queries.result import QueryResult, Status
from truecopy.queries.settings import Settings
from truecopy.queries.suite import run_queries
from truecopy.queries.verdict import Match

SCHEMES = ("trino", "presto")
PREFIX = {"trino": "X-Trino-", "presto": "X-Presto-"}
SECRET = "correct horse"
COLUMNS = (("id", "bigint"), ("price", "decimal(12, 2)"), ("at", "timestamp(6)"))


def endpoint_url(scheme: str, place: Coordinator, login: str = "me") -> str:
    return f"{scheme}://{login}@localhost:{place.port}/hive/sales"


def always(answer: Answer) -> Callable[[str], Answer]:
    return lambda _: answer


@pytest.mark.parametrize("scheme", SCHEMES)
def test_rows_come_in_pages_and_columns_with_their_types(scheme: str) -> None:
    moment = "2024-06-01 12:00:00.000001"
    pages: list[list[list[object]]] = [
        [[1, "1.50", moment]],
        [[2, "2.50", moment], [3, None, None]],
    ]
    with coordinator(always(Answer(COLUMNS, pages))) as place:
        with open_session(parse_endpoint(endpoint_url(scheme, place))) as session:
            assert [row[0] for row in session.fetch("SELECT * FROM t", 30)] == [1, 2, 3]
            assert [len(block) for block in session.stream("SELECT * FROM t")] == [3]
            columns = session.columns("SELECT * FROM t", 30)
            assert session.usage() == (0.5, 1 << 20)
        assert place.asked[-1] == "SELECT * FROM (SELECT * FROM t) AS t LIMIT 0"
    assert [column.name for column in columns] == ["id", "price", "at"]
    kinds = [column.shape.type for column in columns if isinstance(column.shape, Scalar)]
    assert kinds[1:] == [Decimal(2), Timestamp(zone=False)]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_who_asks_and_where(scheme: str) -> None:
    with coordinator(always(Answer(COLUMNS[:1], ([[1]],)))) as place:
        with open_session(parse_endpoint(endpoint_url(scheme, place)), "mine") as session:
            session.use(None, "returns")
            session.set({"query_max_run_time": "1h", "join_distribution_type": "A=B"})
            session.make_scratch()
            session.run(session.create_as(session.scratch_name("t"), "SELECT 1 AS a"), 30)
            session.drop("t")
            assert session.scratch_tables("tcq_") == []
        assert place.asked == [
            'CREATE SCHEMA IF NOT EXISTS "hive"."mine"',
            'CREATE TABLE "hive"."mine"."t" AS SELECT 1 AS a',
            'DROP TABLE IF EXISTS "hive"."mine"."t"',
            'DROP VIEW IF EXISTS "hive"."mine"."t"',
            "SELECT table_name FROM \"hive\".information_schema.tables WHERE table_schema = 'mine'",
        ]
        prefix = PREFIX[scheme].lower()
        for headers in place.headers:
            said = {
                name.lower().removeprefix(prefix): value
                for name, value in headers.items()
                if name.lower().startswith(prefix)
            }
            assert (said["user"], said["catalog"], said["schema"]) == ("me", "hive", "returns")
            assert said["session"] == "query_max_run_time=1h,join_distribution_type=A%3DB"
            assert said["time-zone"] == "UTC"
            assert "Authorization" not in headers


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_statement_that_takes_too_long_is_cancelled(scheme: str) -> None:
    with coordinator(always(Answer(hangs=True))) as place:
        with (
            open_session(parse_endpoint(endpoint_url(scheme, place))) as session,
            pytest.raises(QueryFailed) as error,
        ):
            session.run("CREATE TABLE t AS SELECT 1 AS a", 0.5)
        assert error.value.failure.kind is Kind.TIME_LIMIT
        (deleted,) = place.cancelled
    start = "/v1/statement/executing/q0/" if scheme == "trino" else "/v1/query/q0"
    assert deleted.startswith(start)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("name", "type_", "kind"),
    [
        ("NO_NODES_AVAILABLE", "INSUFFICIENT_RESOURCES", Kind.TRANSIENT),
        ("REMOTE_HOST_GONE", "INTERNAL_ERROR", Kind.TRANSIENT),
        ("EXCEEDED_GLOBAL_MEMORY_LIMIT", "INSUFFICIENT_RESOURCES", Kind.MEMORY),
        ("EXCEEDED_TIME_LIMIT", "INSUFFICIENT_RESOURCES", Kind.TIME_LIMIT),
        ("TABLE_NOT_FOUND", "USER_ERROR", Kind.GONE),
        ("SYNTAX_ERROR", "USER_ERROR", Kind.SYNTAX),
        ("DIVISION_BY_ZERO", "USER_ERROR", Kind.REFUSED),
        ("HIVE_BAD_DATA", "EXTERNAL", Kind.OTHER),
    ],
)
def test_failures_are_told_apart(scheme: str, name: str, type_: str, kind: Kind) -> None:
    with (
        coordinator(always(Answer(error=(name, type_)))) as place,
        open_session(parse_endpoint(endpoint_url(scheme, place))) as session,
        pytest.raises(QueryFailed) as error,
    ):
        session.fetch("SELECT 1", 30)
    assert (error.value.failure.kind, error.value.failure.code) == (kind, name)
    assert str(error.value).endswith(f": it is {name}")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("status", "kind"), [(401, Kind.REFUSED), (404, Kind.CONNECTION), (500, Kind.CONNECTION)]
)
def test_answers_of_http_are_failures(scheme: str, status: int, kind: Kind) -> None:
    with (
        coordinator(always(Answer(http=status))) as place,
        open_session(parse_endpoint(endpoint_url(scheme, place))) as session,
        pytest.raises(QueryFailed) as error,
    ):
        session.fetch("SELECT 1", 30)
    assert error.value.failure.kind is kind


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_password_goes_by_tls(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = _certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    monkeypatch.setenv("PW", SECRET)
    with coordinator(always(Answer(COLUMNS[:1], ([[1]],))), (certificate, key)) as place:
        url = endpoint_url(scheme, place, "me:${PW}")
        with open_session(parse_endpoint(url)) as session:
            assert session.fetch("SELECT 1", 30) == [(1,)]
            assert SECRET not in str(session.endpoint)
        (headers,) = place.headers
    said = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert said == f"me:{SECRET}"


def test_a_catalog_is_needed() -> None:
    with pytest.raises(UsageError, match="names no catalog"):
        open_session(parse_endpoint("trino://me@localhost:1"))


def _like_an_engine(rows: int, failures: list[Answer]) -> Callable[[str], Answer]:
    """What a verification asks for, in answers that are always the same, after those that are wanted first."""

    def answer(sql: str) -> Answer:
        if failures and sql.startswith("CREATE TABLE"):
            return failures.pop(0)
        if sql.startswith("SELECT COUNT(*), "):
            return Answer((("n", "bigint"), ("x", "bigint"), ("w", "bigint")), ([[rows, 7, 0]],))
        if sql.endswith("LIMIT 0"):
            return Answer((("a", "bigint"), ("b", "varchar")))
        if sql.startswith("SELECT"):
            return Answer((("table_name", "varchar"),))
        return Answer(update=" ".join(sql.split()[:2]), memory=2 << 20)

    return answer


def _verified(
    scheme: str, tests: Callable[[str], Answer], **choices: object
) -> tuple[QueryResult, Coordinator, Coordinator]:
    side = SideQuery("SELECT a, b FROM t", ("SET SESSION x = 1",))
    queries = [Query("s", "q", side, side)]
    settings = Settings(**{"backoff": 0.05, "reruns": 0, "sample": 0, **choices})  # type: ignore[arg-type]
    with coordinator(_like_an_engine(3, [])) as control, coordinator(tests) as test:
        ends = endpoint_url(scheme, control), endpoint_url(scheme, test)
        (result,) = run_queries(queries, *ends, settings).results
        return result, control, test


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_verification_from_set_up_to_tear_down(scheme: str) -> None:
    override = Override(schema="other", session=(("p", "1"),))
    result, control, test = _verified(
        scheme, _like_an_engine(3, []), overrides=(Override(), override)
    )
    assert (result.status, result.match) == (Status.SUCCEEDED, Match.MATCH), result.detail
    assert (result.control and result.control.cpu_seconds) == 0.25
    for place in (control, test):
        kinds = [sql.split(" ", 2)[:2] for sql in place.asked]
        made = kinds.index(["CREATE", "TABLE"])
        assert ["SET", "SESSION"] in kinds[:made]
        assert ["SELECT", "COUNT(*),"] in kinds[made:]
        assert kinds[-2:] == [["DROP", "TABLE"], ["DROP", "VIEW"]]
    schema = f"{PREFIX[scheme]}Schema".lower()
    assert {k.lower(): v for k, v in control.headers[-1].items()}[schema] == "sales"
    assert {k.lower(): v for k, v in test.headers[-1].items()}[schema] == "other"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_passing_failure_is_tried_again_and_kept(scheme: str) -> None:
    gone = Answer(error=("NO_NODES_AVAILABLE", "INSUFFICIENT_RESOURCES"))
    result, _, test = _verified(scheme, _like_an_engine(3, [gone]))
    assert (result.status, result.match) == (Status.SUCCEEDED, Match.MATCH), result.detail
    assert [(f.kind, f.code, f.stage) for f in result.failures] == [
        (Kind.TRANSIENT, "NO_NODES_AVAILABLE", "test")
    ]
    assert sum(sql.startswith("CREATE TABLE") for sql in test.asked) == 2


@pytest.mark.parametrize("scheme", SCHEMES)
def test_memory_is_resolved_where_control_used_more(scheme: str) -> None:
    short = Answer(error=("EXCEEDED_GLOBAL_MEMORY_LIMIT", "INSUFFICIENT_RESOURCES"))
    result, _, _ = _verified(scheme, _like_an_engine(3, [short]))
    assert result.failures[-1].kind is Kind.MEMORY
    assert (result.status, result.resolved_by) == (Status.FAILED_RESOLVED, "memory")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_another_count_is_a_mismatch(scheme: str) -> None:
    result, _, _ = _verified(scheme, _like_an_engine(4, []))
    assert (result.status, result.match) == (Status.FAILED, Match.ROW_COUNT_MISMATCH)
    assert result.detail.startswith("rows: 3 → 4")


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of this machine, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths
