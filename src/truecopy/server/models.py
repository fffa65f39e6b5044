"""What the API takes and gives. Times are ISO 8601 in UTC; null where there is none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from truecopy.metastore.events import Audited, Event
from truecopy.metastore.leases import LeaseLine
from truecopy.metastore.task_runs import Certificate, Run
from truecopy.metastore.tasks import FAILED, RUNNING, STARTING, STOPPED, Sample, TaskLine
from truecopy.metastore.tokens import Token
from truecopy.tasks import accepting

NAME = f"^{accepting.NAME}$"
Name = Annotated[str, Field(pattern=NAME)]
Number = Annotated[int, Field(ge=1, le=2**31 - 1)]
Role = Literal["view", "operate", "admin"]
RunKind = Literal["verify", "check", "cutover", "rehearse", "switch-back"]
LONGEST_FILE = 512 * 1024


class Model(BaseModel):
    """A document of the API; what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid")


class Problem(Model):
    """Why nothing came of a request, in a line; each problem where there are several."""

    error: str
    problems: list[str] = []


class Health(Model):
    """That the server answers, and reaches its metastore."""

    status: Literal["ok"]
    version: str


# Asking


class NewTask(Model):
    """A task, as its file."""

    file: Annotated[str, Field(min_length=1, max_length=LONGEST_FILE)]
    """The YAML of the task file; it names secrets and holds none."""
    master: Annotated[str, Field(max_length=255, pattern=r"^[^\s\x00-\x1f]*$")] = ""
    """Where Spark runs it, if the file does not say."""
    check: bool = True
    """Look at both ends first, and refuse a task that could not run."""
    start: bool = False
    """Start it at once."""


class TaskFile(Model):
    """A task file that is only looked at."""

    file: Annotated[str, Field(min_length=1, max_length=LONGEST_FILE)]


class NewSuite(Model):
    """A suite of queries, as its file."""

    name: Name
    file: Annotated[str, Field(min_length=1, max_length=LONGEST_FILE)]


class NewRun(Model):
    """Something to be done with a task."""

    kind: RunKind
    confirm: str = ""
    """For `cutover` and `switch-back`: the name of the task, so that nobody does it by mistake."""


class Chosen(Model):
    """Some errors by their numbers, or all of them."""

    ids: Annotated[list[Number], Field(max_length=1000)] = []
    all: bool = False


class Repair(Chosen):
    """Errors to repair; without numbers all that are new."""

    apply: bool = False
    """Run the statements on the target."""


class Pace(Model):
    """What a task may take from the databases; what is left out stays as it is."""

    rate: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Rows per second that the copy reads; 0: as fast as it goes."""
    connections: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """To each end at a time; 0: one per core."""
    statement_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    max_lag: Annotated[float, Field(ge=0, le=86_400)] | None = None
    hours: Annotated[list[Annotated[str, Field(max_length=20)]], Field(max_length=20)] | None = None
    """Parts of the day in which rows are copied: `22:00-06:00`; none: always."""
    timezone: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_+/-]+$")] | None = None
    reset: bool = False
    """First go back to what the file says."""


class NewToken(Model):
    """A token to be made."""

    name: Name
    role: Role
    days: Annotated[float, Field(gt=0, le=3650)] | None = 90


class Login(Model):
    """A token, to be exchanged for a session."""

    token: Annotated[str, Field(max_length=200)]


# Answers


class Progress(Model):
    """How far a run is, as it said last."""

    at: str | None
    phase: str | None
    waits: str | None
    rows_copied: int
    rows_about: int
    changes_applied: int
    rate: float
    seconds_left: float | None
    lag_seconds: float | None


class TaskSummary(Model):
    """A task at a glance.

    `state` is `running`, `starting`, `restarting`, `stopping`, `stopped` or `failed`; `verdict` is that of its last
    verification.
    """

    name: str
    state: str
    message: str
    wanted: str
    command: str
    master: str
    keeper: str | None
    verdict: str | None
    progress: Progress | None
    made_by: str
    made_at: str | None


class TaskDetail(TaskSummary):
    """A task with its file and its tables."""

    file: str
    source: str
    target: str
    verifiers: list[str]
    tables: dict[str, Any]
    """By name: `rows_copied`, `rows_about`, `chunks`, `chunks_copied`, `changes_applied`, `version`,
    `rate`, `seconds_left`, `lag_seconds`."""


class TaskMade(TaskDetail):
    """A task that was made, and what the look at its ends found."""

    check: dict[str, Any] | None


class Checked(Model):
    """What a look at both ends found, as `truecopy check --json` says it."""

    ready: bool
    report: dict[str, Any]


class TaskStatus(Model):
    """How each leg stands, as its target knows: the documents of `truecopy status --json`."""

    task: str
    legs: list[dict[str, Any]]


class Said(Model):
    """What came of a request, a line for each thing."""

    said: list[str]


class RunModel(Model):
    """A process of a task. `state` is `asked`, `running` or `ended`."""

    id: int
    task: str
    task_kind: str
    kind: str
    state: str
    asked_by: str
    asked_at: str | None
    started_at: str | None
    ended_at: str | None
    host: str
    pid: int
    exit_code: int | None
    message: str
    result: dict[str, Any]
    items: int
    """How many rows there are to be read: differing rows of a verification, results of queries."""


class Items(Model):
    """A page of differing rows, or of results of queries."""

    run: int
    total: int
    offset: int
    items: list[dict[str, Any]]


class Log(Model):
    """A part of what a run said; `next` is where to read on."""

    text: str
    next: int
    ended: bool


class SampleModel(Model):
    """How a task stood at a moment."""

    at: str
    lag_seconds: float | None
    rate: float
    rows_copied: int
    changes_applied: int


class ErrorModel(Model):
    """A row that is wrong on the target; values are canonical text."""

    id: int
    table: str
    key: dict[str, str | None]
    kind: str
    status: str
    columns: list[str]
    source: dict[str, str | None] | None
    target: dict[str, str | None] | None
    first_failed_at: str | None
    last_failed_at: str | None


class Errors(Model):
    """A page of errors, and how many there are of each status."""

    counts: dict[str, int]
    offset: int
    errors: list[ErrorModel]


class LegPace(Model):
    """What is in force for a leg, and which of it is not as in the file."""

    task: str
    limits: dict[str, Any]
    changed: list[str]


class Changed(Model):
    """How many errors were changed."""

    count: int


class Repaired(Model):
    """What brings the rows right, and whether it was run."""

    statements: int
    applied: bool
    script: str


class CutoverState(Model):
    """How far a cutover is, leg by leg, and what was done to get there."""

    task: str
    legs: list[dict[str, Any]]
    runs: list[RunModel]


class CertificateModel(Model):
    """A certificate, by which it is found."""

    id: str
    task: str
    run: int
    verdict: str
    made_at: str | None


class Suite(Model):
    """A suite of queries, and its last run."""

    name: str
    file: str
    made_by: str
    made_at: str | None
    last: RunModel | None


class EventModel(Model):
    """Something that happened to a task."""

    id: int
    at: str
    task: str
    kind: str
    message: str
    detail: dict[str, Any]


class AuditModel(Model):
    """Something that somebody asked for, and what came of it."""

    id: int
    at: str
    who: str
    role: str
    address: str
    action: str
    subject: str
    outcome: str


class TokenModel(Model):
    """What is known of a token."""

    name: str
    role: Role
    made_at: str | None
    expires_at: str | None
    expired: bool


class TokenMade(Model):
    """A new token; it is told this once."""

    name: str
    role: Role
    token: str


class Session(Model):
    """Who asks, what they may do, and what pages send as `X-Truecopy-CSRF` with every change."""

    name: str
    role: Role
    csrf: str


# From what the metastore keeps


def moment(microseconds: int) -> str | None:
    """A time for programs; None for never."""
    if not microseconds:
        return None
    return datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat(timespec="milliseconds")


def summary_of(line: TaskLine, lease: LeaseLine | None, verdict: str | None) -> dict[str, Any]:
    """The fields of a summary."""
    kept = lease is not None and lease.seconds_left > 0
    state = line.state
    if not kept:
        state = STARTING if line.wanted == RUNNING else FAILED if state == FAILED else STOPPED
    return {
        "name": line.name,
        "state": state,
        "message": line.message if kept or state == FAILED else "",
        "wanted": line.wanted,
        "command": line.command,
        "master": line.master,
        "keeper": lease.holder.partition("/")[0] if kept and lease else None,
        "verdict": verdict,
        "progress": progress_of(line),
        "made_by": line.made_by,
        "made_at": moment(line.made_at),
    }


def progress_of(line: TaskLine) -> Progress | None:
    """What the run said last."""
    told = line.progress
    if not told:
        return None
    return Progress(
        at=moment(line.progress_at),
        phase=told.get("phase"),
        waits=told.get("waits"),
        rows_copied=told.get("rows_copied") or 0,
        rows_about=told.get("rows_about") or 0,
        changes_applied=told.get("changes_applied") or 0,
        rate=told.get("rate") or 0.0,
        seconds_left=told.get("seconds_left"),
        lag_seconds=told.get("lag_seconds"),
    )


def run_of(run: Run, items: int = 0) -> RunModel:
    """A run as the API shows it."""
    return RunModel(
        id=run.id,
        task=run.task,
        task_kind=run.task_kind,
        kind=run.kind,
        state=run.state,
        asked_by=run.asked_by,
        asked_at=moment(run.asked_at),
        started_at=moment(run.started_at),
        ended_at=moment(run.ended_at),
        host=run.host.partition("/")[0],
        pid=run.pid,
        exit_code=run.exit_code,
        message=run.message,
        result=dict(run.result),
        items=items,
    )


def sample_of(sample: Sample) -> SampleModel:
    """A sample as the API shows it."""
    return SampleModel(**{**vars(sample), "at": moment(sample.at)})


def event_of(event: Event) -> EventModel:
    """An event as the API shows it."""
    return EventModel(**{**vars(event), "at": moment(event.at), "detail": dict(event.detail)})


def audit_of(line: Audited) -> AuditModel:
    """A line of the audit log as the API shows it."""
    return AuditModel(**{**vars(line), "at": moment(line.at)})


def certificate_of(one: Certificate) -> CertificateModel:
    """A certificate as the API lists it."""
    return CertificateModel(
        id=one.id, task=one.task, run=one.run_id, verdict=one.verdict, made_at=moment(one.made_at)
    )


def token_of(token: Token) -> TokenModel:
    """A token as the API lists it."""
    return TokenModel.model_validate(
        {
            "name": token.name,
            "role": token.role,
            "made_at": moment(token.made_at),
            "expires_at": moment(token.expires_at),
            "expired": token.is_expired,
        }
    )
