"""The task file: what is read, what is refused and how, and what is never shown."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.program import truecopy
from truecopy.mapping.rules import Computed, Fixed
from truecopy.model.errors import UsageError
from truecopy.model.guarantees import Consistency, Delivery
from truecopy.model.types import Boolean, Date, Decimal, Integer, Text
from truecopy.stream.request import Request
from truecopy.tasks.file import Address, Shards, Task, load_task, parse_task, task_schema

ENDS = {"task": "shop", "source": "sqlite:///a.db", "target": "sqlite:///b.db"}
DESIGN = """
task: shop
source: mariadb://repl:${REPL_PASSWORD}@db1:3306/shop
target: postgresql://app:${APP_PASSWORD}@db2:5432/shop
tables: {include: ["*"], exclude: ["tmp_*"]}
routes:
  orders: {table: sales.orders, columns: {cust: customer_id}}
delivery: at-least-once        # at-most-once, exactly-once
consistency: table             # row, table, transaction
verify:
  inline: true
  target: true
  continuous: {mode: full, validate-interval: 10s, row-error-delay: 30m}
"""
SHARDED = """
task: shop
source:
  keyspace: shop
  shards:
    "-80": {servers: ["mariadb://a:secret1@h1/shop", "mariadb://h2/shop"], serving: true}
    "80-": {servers: ["mariadb://h3/shop"], serving: true}
  sharding: {orders: {column: customer_id, function: hash}}
target: sqlite:///b.db
"""


def load(tmp_path: Path, text: str) -> Task:
    file = tmp_path / "task.yaml"
    file.write_text(text)
    return load_task(file)


def task(**sections: Any) -> Task:
    return parse_task({**ENDS, **sections})


def problems(**sections: Any) -> list[str]:
    with pytest.raises(UsageError) as error:
        parse_task({**ENDS, **sections}, "t.yaml")
    assert error.value.exit_code == 2
    lines = str(error.value).splitlines()
    assert all(line.startswith("t.yaml: ") for line in lines)
    return [line.removeprefix("t.yaml: ") for line in lines]


def test_reads_a_task(tmp_path: Path) -> None:
    found = load(tmp_path, DESIGN)
    assert found.task == "shop"
    assert (found.delivery, found.consistency) == (Delivery.AT_LEAST_ONCE, Consistency.TABLE)
    assert found.tables.exclude == ("tmp_*",)
    assert found.routes["orders"].columns == {"cust": "customer_id"}
    assert found.verify.continuous is not None
    assert found.verify.continuous.row_error_delay == 1800
    assert found.mapping_rules().routes[0].table == "sales.orders"


def test_secrets_are_looked_up_when_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = load(tmp_path, DESIGN)  # without the variables
    assert isinstance(found.source, Address)
    assert found.stream_endpoint == "mariadb://repl:${REPL_PASSWORD}@db1:3306/shop"
    monkeypatch.setenv("REPL_PASSWORD", "a/b@c")
    assert found.source.endpoint().password == "a/b@c"


@pytest.mark.parametrize(
    "password", ["${PW}", "file:${FOLDER}/password", "p@ss:w/rd"], ids=["variable", "file", "plain"]
)
def test_password_apart_from_the_url(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    (tmp_path / "password").write_text("p@ss:w/rd\n")
    monkeypatch.setenv("PW", "p@ss:w/rd")
    monkeypatch.setenv("FOLDER", str(tmp_path))
    for url in ("mysql://u@h/shop", "mysql://h/shop?a=b"):
        found = task(source={"url": url, "password": password}).source
        assert isinstance(found, Address)
        assert found.endpoint().password == "p@ss:w/rd"
        assert found.endpoint().host == "h"


def test_a_keyspace_as_source(tmp_path: Path) -> None:
    found = load(tmp_path, SHARDED)
    assert isinstance(found.source, Shards)
    assert [shard.name for shard in found.source.whole().shards] == ["-80", "80-"]
    # A stream reads the keyspace from the task file itself.
    assert Request(found.stream_endpoint).keyspace() == found.source.whole()


def test_nothing_shows_a_secret(tmp_path: Path) -> None:
    text = SHARDED + (
        "mask-key: hunter2\n"
        "webhook: https://hooks.example/hunter2\n"
        "throttle: {replicas: ['mysql://u:hunter2@h/shop?ssl_key=hunter2']}\n"
        "transformers: {a: {mask: {b: {key: hunter2}}}}\n"
    )
    found = load(tmp_path, text)
    shown = f"{found} {found!r} {found.model_dump_json()} {found.mapping_rules()!r}"
    assert "hunter2" not in shown
    assert "secret1" not in shown
    assert found.mask_key is not None
    assert found.mask_key.reveal() == "hunter2"


@pytest.mark.parametrize(
    "sections",
    [
        {"source": "u:hunter2@h/shop"},
        {"mask-key": ["hunter2"]},
        {"webhook": {"url": "hunter2", "event": 1}},
        {"source": {"keyspace": "k", "shards": {"-": {"servers": ["u:hunter2@h"]}}}},
        {"target": {"url": "hunter2", "password": {"hunter2": 1}}},
    ],
)
def test_errors_show_no_secret(sections: dict[str, Any]) -> None:
    assert "hunter2" not in "\n".join(problems(**sections))


def test_variables_in_plain_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATE", "5000")
    monkeypatch.setenv("REGION", "EU")
    found = task(
        throttle={"rate": "${RATE}"},
        tables={"rules": {"t": {"filter": "region = '${REGION}'"}}},
    )
    assert found.throttle.rate == 5000
    assert found.tables.rules["t"].filter == ("region = 'EU'",)
    assert problems(spark={"master": "${NOT_SET}"}) == [
        "spark.master: the environment variable NOT_SET is not set, but the task uses it"
    ]


def test_durations_sizes_hours() -> None:
    found = task(
        throttle={"max-lag": "1h30m", "statement-seconds": 0.5, "hours": ["22:00-06:00"]},
        stream={"max-bytes": "512k"},
        cutover={"max-downtime": "250ms"},
    )
    assert (found.throttle.max_lag, found.throttle.statement_seconds) == (5400, 0.5)
    assert (found.stream.max_bytes, found.cutover.max_downtime) == (512 << 10, 0.25)
    [night] = found.throttle.hours
    assert [night.contains(dt.time(hour)) for hour in (21, 22, 5, 6)] == [False, True, True, False]


def test_short_forms() -> None:
    found = task(
        routes={"a": "b.c"},
        verify={"continuous": True},
        transformers={
            "t": {
                "columns": ["id", "n"],
                "mask": ["email"],
                "add": {
                    "one": 1,
                    "yes": True,
                    "half": 0.5,
                    "day": dt.date(2024, 5, 1),
                    "twice": "n * 2",
                    "eu": {"value": "EU"},
                    "price": {"value": 1, "type": "decimal(2)"},
                    "typed": {"sql": "n", "type": "text"},
                },
            }
        },
        **{"mask-key": "k"},
    )
    rules = found.mapping_rules()
    assert rules.routes[0].table == "b.c"
    assert found.verify.continuous is not None
    [rule] = rules.rules
    assert rule.rules.include == ("id", "n")
    assert list(rule.rules.mask) == ["email"]
    assert rule.rules.add == {
        "one": Fixed("1", Integer()),
        "yes": Fixed("1", Boolean()),
        "half": Fixed("0.5", Decimal(None)),
        "day": Fixed("2024-05-01", Date()),
        "twice": Computed("n * 2"),
        "eu": Fixed("EU", Text()),
        "price": Fixed("1.00", Decimal(2)),
        "typed": Computed("n", Text()),
    }


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        (
            {"verify": {"continous": {}}},
            "verify.continous: unknown; did you mean continuous?",
        ),
        (
            {"verify": {"continuous": {"validate_interval": "1s"}}},
            "verify.continuous.validate_interval: unknown; did you mean validate-interval?",
        ),
        ({"transformers": {"t": {"drp": []}}}, "transformers.t.drp: unknown; did you mean drop?"),
        (
            {"source": {"url": "a://b", "pasword": "x"}},
            "source.pasword: unknown; did you mean password?",
        ),
        (
            {"source": {"keyspace": "k", "shards": {"-": {"server": []}}}},
            "source.shards.-.server: unknown; did you mean servers?",
        ),
        (
            {"consistency": "tabel"},
            "consistency: 'tabel' is none of 'row', 'table' or 'transaction'",
        ),
        ({"throttle": {"rate": 0}}, "throttle.rate: 0 is too small: at least 1"),
        ({"throttle": {"rate": "fast"}}, "throttle.rate: 'fast' is no whole number"),
        ({"throttle": {"max-lag": "10"}}, "throttle.max-lag: not a duration"),
        ({"throttle": {"hours": ["night"]}}, "throttle.hours.0: not a part of the day"),
        ({"stream": {"max-bytes": "many"}}, "stream.max-bytes: not a size"),
        ({"verify": {"inline": "perhaps"}}, "verify.inline: 'perhaps' is neither true nor false"),
        ({"verify": 3}, "verify: not a mapping"),
        ({"source": "shop"}, "source: not a database URL"),
        ({"task": "my shop"}, "task: only letters, digits, points, - and _"),
        (
            {"transformers": {"t": {"cast": {"a": "int"}}}},
            "transformers.t.cast.a: unknown type 'int'",
        ),
        (
            {"transformers": {"t": {"mask": ["a"]}}},
            "transformers.t.mask.a: no key; write mask-key:",
        ),
        (
            {"transformers": {"t": {"add": {"a": {"sql": "x", "value": 1}}}}},
            "transformers.t.add.a: either sql or value",
        ),
        (
            {"transformers": {"t": {"add": {"a": {"value": "x", "type": "integer"}}}}},
            "transformers.t.add.a: 'x' is no integer",
        ),
        ({"routes": {"a": "b.*"}}, "routes.a.table: b.* has more * than the pattern has"),
        ({"validate-only": True}, "validate-only: nothing to do"),
        (
            {"source": {"keyspace": "k", "shards": {"-80": {"servers": ["a://b"]}}}},
            "source: the serving shards of k do not fit together: nothing covers 80-",
        ),
    ],
)
def test_mistakes_in_one_line_with_the_path(sections: dict[str, Any], problem: str) -> None:
    lines = problems(**sections)
    assert [line for line in lines if line.startswith(problem)], lines


def test_all_mistakes_at_once() -> None:
    lines = problems(target=None, verfy={}, consistency="x", chunks={"rows": -1})
    assert [line.partition(":")[0] for line in lines] == [
        "verfy",
        "target",
        "consistency",
        "chunks.rows",
    ]


@pytest.mark.parametrize("document", [None, [], "task"])
def test_not_a_task(document: object) -> None:
    with pytest.raises(UsageError, match="not a task; write at least task:, source: and target:"):
        parse_task(document)


def test_published_schema_is_current() -> None:
    published = Path(__file__).parents[2] / "docs" / "task.schema.json"
    ended = truecopy("task", "schema")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == published.read_text(), (
        "write it again: truecopy task schema > docs/task.schema.json"
    )


def test_schema_knows_every_key() -> None:
    schema = task_schema()
    assert set(schema["properties"]) == {name.replace("_", "-") for name in Task.model_fields}
    assert schema["required"] == ["task", "source", "target"]
    assert "short" not in json.dumps(list(schema["$defs"]["Continuous"]))


def test_examples_of_the_documentation_are_tasks() -> None:
    text = (Path(__file__).parents[2] / "docs" / "task-file.md").read_text()
    examples = [part.partition("```")[0] for part in text.split("```yaml\n")[1:]]
    assert len(examples) > 10
    for example in examples:
        parse_task({**ENDS, "mask-key": "k", **yaml.safe_load(example)}, example)


def test_documentation_names_every_key() -> None:
    text = (Path(__file__).parents[2] / "docs" / "task-file.md").read_text()
    schema = task_schema()
    sections = [schema, *schema["$defs"].values()]
    for section in [*sections, *(part for s in sections for part in s.get("anyOf", ()))]:
        for key in section.get("properties", ()):
            assert f"`{key}`" in text, key
