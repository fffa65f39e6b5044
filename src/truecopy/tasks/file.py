"""The task file: one source, one target, and what to do, in YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from truecopy.mapping.plan import Infer, MappingRules
from truecopy.mapping.rules import Rule
from truecopy.model.errors import UsageError
from truecopy.model.guarantees import Consistency, Delivery
from truecopy.stream.yaml_file import read_yaml
from truecopy.tasks.ends import Address, Shards, Source, Target
from truecopy.tasks.problems import TaskFileError, find_problems, unknown_keys
from truecopy.tasks.sections import (
    Chunks,
    Cutover,
    Spark,
    Stream,
    Throttle,
    Verify,
    Webhook,
)
from truecopy.tasks.tables import RouteTo, Tables, Transformers
from truecopy.tasks.values import SecretText, Section

SCHEMA_ADDRESS = "https://json-schema.org/draft/2020-12/schema"


class Task(Section):
    """Move the tables of a source to a target, keep them moving, and prove that every row arrived."""

    task: Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=64)]
    """Its name: by it the task is stopped, resumed and asked about, and its writes are marked."""
    source: Source
    """A database's URL, or a keyspace."""
    target: Target
    """A database's URL, or shards of a keyspace."""
    tables: Tables = Tables()
    """Which tables, rows and columns go over."""
    routes: dict[str, RouteTo] = Field(default_factory=dict)
    """Where tables go, by name or pattern; a name goes before a pattern."""
    transformers: dict[str, Transformers] = Field(default_factory=dict)
    """What happens to rows, by table or pattern; all that mean a table add up."""
    mask_key: SecretText | None = None
    """The key of masks that have none of their own."""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    """What a crash may do: `at-least-once`, `at-most-once`, `exactly-once`."""
    consistency: Consistency = Consistency.TABLE
    """What readers of the target may rely on: `row`, `table`, `transaction`."""
    verify: Verify = Verify()
    """How the copy is proved."""
    validate_only: bool = False
    """Write nothing: only check what another tool replicates, as `verify: {continuous: …}` says."""
    throttle: Throttle = Throttle()
    """What the work may take from the databases."""
    chunks: Chunks = Chunks()
    """How tables are cut for the copy."""
    stream: Stream = Stream()
    """How changes are read."""
    cascades: Literal["refuse", "target"] = "refuse"
    """Foreign keys whose cascades the source does not log: refuse such tables, or let the target cascade."""
    ddl: Literal["additive", "pause"] = "additive"
    """DDL on the source: apply what only adds and pause at the rest, or pause at all."""
    cutover: Cutover = Cutover()
    """How the target takes over."""
    spark: Spark = Spark()
    """Where the work runs."""
    metastore: SecretText | None = None
    """Where the task's state is kept: any SQLAlchemy URL. None: SQLite in the state folder."""
    webhook: Webhook | None = None
    """Who is told of a change of state."""

    _path: str = PrivateAttr(default="")

    @model_validator(mode="after")
    def _fits_together(self) -> Task:
        if self.validate_only and self.verify.continuous is None:
            raise ValueError("validate-only: nothing to do; write verify: {continuous: true}")
        try:
            self.mapping_rules()
        except UsageError as error:
            raise ValueError(str(error)) from None
        return self

    def mapping_rules(self, home: str | None = None, infer: Infer | None = None) -> MappingRules:
        """What mappings are planned from.

        Args:
            home: The source's default schema.
            infer: Tells the types of expressions (`truecopy.mapping.transformers.inferred_by`).
        """
        parts = ("tables.rules", self.tables.rules), ("transformers", self.transformers)
        rules = []
        for where, described in parts:
            for pattern, one in described.items():
                try:
                    rules.append(Rule(pattern, one.rules(self.mask_key), where))
                except UsageError as error:
                    raise UsageError(f"{where}.{pattern}.{error}") from None
        routes = tuple(route.route(pattern) for pattern, route in self.routes.items())
        return MappingRules(routes, tuple(rules), home, infer)

    @property
    def path(self) -> str:
        """The file that the task was read from."""
        return self._path

    @property
    def stream_endpoint(self) -> str:
        """The source as a stream's request names it: a URL without its secrets, or this file."""
        if isinstance(self.source, Address):
            return self.source.text
        return self._path


def load_task(path: Path | str) -> Task:
    """Reads a task file; everything that is wrong with it is said at once, a line each."""
    document = read_yaml(path, "the task file")
    task = parse_task(document, str(path))
    task._path = str(path)
    return task


def parse_task(document: object, name: str = "the task") -> Task:
    """The task of a document; `name` begins the lines about what is wrong with it."""
    if not isinstance(document, dict):
        raise TaskFileError(name, ["not a task; write at least task:, source: and target:"])
    problems = list(unknown_keys(Task, document))
    try:
        task = Task.model_validate(document)
    except ValidationError as error:
        problems += find_problems(error, document)
    if problems:
        raise TaskFileError(name, problems)
    return task


def task_schema() -> dict[str, Any]:
    """The JSON Schema of the file, for editors and other programs."""
    schema = Task.model_json_schema(by_alias=True)
    return {"$schema": SCHEMA_ADDRESS, **schema}


__all__ = ["Address", "Shards", "Task", "load_task", "parse_task", "task_schema"]
