"""What the routes do, without HTTP: pages call the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from truecopy.metastore.events import ASKED, Events
from truecopy.metastore.leases import Leases
from truecopy.metastore.task_runs import Run, TaskRuns
from truecopy.metastore.tasks import RUNNING, STOPPED, SUITE, TASK, TaskLine, Tasks
from truecopy.metastore.tokens import Tokens
from truecopy.metastore.validation_errors import STATUSES
from truecopy.metastore.validations import Validations
from truecopy.model.endpoint import mask_secrets, parse_endpoint
from truecopy.model.errors import UsageError
from truecopy.server import models
from truecopy.tasks import steering
from truecopy.tasks.accepting import kept_task, read_task, shown_text, suite_line, task_line
from truecopy.tasks.checking import check_document
from truecopy.tasks.commands import ASKED as CAN_BE_ASKED
from truecopy.tasks.commands import CUTOVER, QUERIES, REHEARSE, SWITCH_BACK, VERIFY, Files
from truecopy.tasks.file import Task
from truecopy.tasks.processes import this_machine
from truecopy.tasks.validation import validation_legs
from truecopy.transfer.continuous.standing import plain_error, read_validation
from truecopy.transfer.deletion import NoSuchTask, delete_task

_LOG_PART = 256 * 1024


class NotFound(UsageError):
    """There is no such thing."""


class NotNow(UsageError):
    """It cannot be done as things stand."""


class Control:
    """The control plane of one metastore."""

    def __init__(self) -> None:
        self.tasks, self.runs, self.leases = Tasks(), TaskRuns(), Leases()
        self.events, self.tokens, self.validations = Events(), Tokens(), Validations()

    # Tasks

    def summaries(self) -> list[models.TaskSummary]:
        """All tasks at a glance."""
        leases, verdicts = self.leases.lines(), self.runs.verdicts()
        return [
            models.TaskSummary(
                **models.summary_of(line, leases.get(line.lease), verdicts.get(line.name))
            )
            for line in self.tasks.all(TASK)
        ]

    def line(self, name: str, kind: str = TASK) -> TaskLine:
        line = self.tasks.find(name, kind)
        if line is None:
            raise NotFound(f"there is no {kind} {name}")
        return line

    def detail(self, name: str) -> models.TaskDetail:
        """One task with its file."""
        line = self.line(name)
        lease, verdict = self.leases.lines().get(line.lease), self.runs.verdicts().get(name)
        return models.TaskDetail(
            **models.summary_of(line, lease, verdict), **_told(kept_task(line), line)
        )

    def add(self, asked: models.NewTask, who: str) -> models.TaskMade:
        """Makes a task, after the look at its ends that `truecopy check` takes."""
        report: dict[str, Any] | None = None
        with read_task(asked.file) as task:
            if self.tasks.find(task.task) is not None:
                raise NotNow(f"there is a task {task.task} already")
            if asked.check and not task.validate_only:
                ready, report = check_document(task)
                if not ready:
                    raise NotReady(report)
            line = self.tasks.add(task_line(task, asked.file, asked.master, who))
        self.events.tell(line.name, ASKED, f"made by {who}")
        if asked.start:
            self.want(line.name, RUNNING, who)
        return models.TaskMade(**dict(self.detail(line.name)), check=report)

    def check(self, file: str) -> models.Checked:
        """What is missing before a task of this file can run."""
        with read_task(file) as task:
            ready, report = check_document(task)
        return models.Checked(ready=ready, report=report)

    def delete(self, name: str) -> list[str]:
        """Forgets a task that stands still, with what it has on both ends; rows stay."""
        line = self.line(name)
        self._require_still(line)
        said = []
        task = kept_task(line)
        for leg in validation_legs(task):
            secrets = parse_endpoint(leg.source), parse_endpoint(leg.target)
            with suppress(NoSuchTask):  # it never ran
                said += [mask_secrets(gone, secrets) for gone in delete_task(leg)]
        self._forget(line)
        return [*said, f"the task {name}"]

    def want(self, name: str, wanted: str, who: str) -> None:
        """Has a task started or stopped, by its keeper."""
        line = self.line(name)
        self.tasks.want(line.name, wanted)
        word = "started" if wanted == RUNNING else "stopped"
        self.events.tell(name, ASKED, f"{word} by {who}")

    def hold(self, name: str, who: str, *, paused: bool) -> list[str]:
        """Holds a task up, or lets it go on."""
        said = []
        for settings, control in steering.controls(self._task(name)):
            if paused:
                word = "paused" if control.pause() else "was paused already"
            else:
                word = "goes on" if control.resume() else "was not paused"
            said.append(f"{settings.task}: {word}")
        self.events.tell(name, ASKED, f"{'paused' if paused else 'resumed'} by {who}")
        return said

    def pace(self, name: str, asked: models.Pace, who: str) -> list[models.LegPace]:
        """Changes what a task may take from the databases."""
        changes = asked.model_dump(exclude={"reset"}, exclude_none=True)
        try:
            found = [
                models.LegPace(task=leg, limits=limits.plain(), changed=sorted(changed))
                for leg, limits, changed in steering.throttle(
                    self._task(name), changes, reset=asked.reset
                )
            ]
        except ValueError as error:
            raise UsageError(f"hours: {error}") from None
        if changes or asked.reset:
            self.events.tell(name, ASKED, f"pace changed by {who}", **changes)
        return found

    def status(self, name: str) -> models.TaskStatus:
        """How it stands, as its target knows."""
        return models.TaskStatus(task=name, legs=steering.status_documents(self._task(name)))

    # Validation

    def validation(self, name: str) -> models.TaskStatus:
        """How its validation stands, leg by leg."""
        legs = validation_legs(self._task(name))
        try:
            found = [read_validation(leg.task).plain() for leg in legs]
        except UsageError as error:
            raise NotFound(str(error)) from None
        return models.TaskStatus(task=name, legs=steering.without_secrets(found, legs))

    def errors(self, name: str, statuses: Sequence[str], offset: int, limit: int) -> models.Errors:
        """A page of rows that are wrong on the target."""
        legs = [leg.task for leg in validation_legs(self._task(name))]
        counts = Counter(dict.fromkeys(STATUSES, 0))
        for leg in legs:
            counts.update(self.validations.errors.counts(leg))
        found = self.validations.errors.page(legs, statuses or STATUSES, offset, limit)
        shown = [models.ErrorModel(**plain_error(one)) for one in found]
        return models.Errors(counts=counts, offset=offset, errors=shown)

    def settle(self, name: str, how: str, chosen: models.Chosen, who: str) -> int:
        """Has errors ignored, resolved, cleared or looked at again."""
        if bool(chosen.ids) == chosen.all:
            raise UsageError("name errors by their numbers in ids, or say all")
        change = getattr(self.validations.errors, how)
        legs = validation_legs(self._task(name))
        count = sum(change(leg.task, chosen.ids or None) for leg in legs)
        self.events.tell(name, ASKED, f"{how} of {count} errors by {who}")
        return int(count)

    def repair(self, name: str, chosen: models.Repair, who: str) -> models.Repaired:
        """What brings the rows of errors right; run when asked."""
        task = self._task(name)
        count, script = steering.repair_errors(
            task, chosen.ids or None, all_open=chosen.all, apply=chosen.apply
        )
        if chosen.apply:
            self.events.tell(name, ASKED, f"{count} statements of repair run by {who}")
        script = steering.without_secrets(script, validation_legs(task))
        return models.Repaired(statements=count, applied=chosen.apply, script=script)

    # Runs

    def ask(self, name: str, asked: models.NewRun, who: str) -> models.RunModel:
        """Asks for something that is a process of its own."""
        self.line(name)
        assert asked.kind in CAN_BE_ASKED
        if asked.kind in (CUTOVER, SWITCH_BACK) and asked.confirm != name:
            raise UsageError(f"a {asked.kind} locks writers out: write the task's name in confirm")
        for run in self.runs.open(name, TASK):
            if run.kind == asked.kind:
                raise NotNow(f"a {run.kind} of {name} is under way: run {run.id}")
        number = self.runs.ask(name, TASK, asked.kind, who)
        self.events.tell(name, ASKED, f"{asked.kind} asked for by {who}", run=number)
        return self.run(number)

    def run(self, number: int) -> models.RunModel:
        return models.run_of(self._run(number), self.runs.count_items(number))

    def stop_run(self, number: int) -> models.RunModel:
        """Asks a run to end; a cutover ends by itself only."""
        run = self._run(number)
        if run.kind in (CUTOVER, SWITCH_BACK, REHEARSE) and run.started_at:
            raise NotNow(f"a {run.kind} under way ends by itself: writers may be locked out")
        if run.ended_at:
            raise NotNow(f"run {number} has ended")
        self.runs.ask_stop(number)
        return self.run(number)

    def items(self, number: int, offset: int, limit: int) -> models.Items:
        self._run(number)
        total = self.runs.count_items(number)
        found = self.runs.items(number, offset, limit)
        return models.Items(run=number, total=total, offset=offset, items=found)

    def log(self, number: int, offset: int) -> models.Log:
        """A part of what a run said; only the machine that it ran on has it."""
        run = self._run(number)
        ended = bool(run.ended_at)
        if run.host and run.host != this_machine():
            raise NotNow(f"run {number} was on {run.host.partition('/')[0]}: its log is there")
        path = Files.of(run.task, run.id).log
        if not path.exists():
            return models.Log(text="", next=offset, ended=ended)
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(_LOG_PART)
        return models.Log(text=data.decode(errors="replace"), next=offset + len(data), ended=ended)

    def last(self, name: str, kinds: Sequence[str], kind: str = TASK) -> Run | None:
        """The last run of some kind that has ended."""
        self.line(name, kind)
        found = self.runs.latest(name, kind, kinds)
        return next((run for run in found if run.ended_at), None)

    def verification(self, name: str) -> models.RunModel:
        """The last verification that has ended."""
        run = self.last(name, (VERIFY,))
        if run is None:
            raise NotFound(f"{name} was not verified so far")
        return self.run(run.id)

    def cutover(self, name: str) -> models.CutoverState:
        """How far a cutover is."""
        legs = steering.cutover_documents(self._task(name))
        runs = self.runs.latest(name, TASK, (CUTOVER, REHEARSE, SWITCH_BACK), limit=20)
        return models.CutoverState(task=name, legs=legs, runs=[models.run_of(run) for run in runs])

    # Suites

    def suites(self) -> list[models.Suite]:
        return [self._suite(line) for line in self.tasks.all(SUITE)]

    def suite(self, name: str) -> models.Suite:
        return self._suite(self.line(name, SUITE))

    def add_suite(self, name: str, file: str, who: str) -> models.Suite:
        if self.tasks.find(name, SUITE) is not None:
            raise NotNow(f"there is a suite {name} already")
        return self._suite(self.tasks.add(suite_line(name, file, who)))

    def delete_suite(self, name: str) -> None:
        line = self.line(name, SUITE)
        self._require_still(line)
        self._forget(line)

    def run_suite(self, name: str, who: str) -> models.RunModel:
        self.line(name, SUITE)
        if self.runs.open(name, SUITE):
            raise NotNow(f"the suite {name} is under way")
        return self.run(self.runs.ask(name, SUITE, QUERIES, who))

    def _suite(self, line: TaskLine) -> models.Suite:
        last = self.runs.latest(line.name, SUITE, limit=1)
        return models.Suite(
            name=line.name,
            file=line.text,
            made_by=line.made_by,
            made_at=models.moment(line.made_at),
            last=self.run(last[0].id) if last else None,
        )

    # Helpers

    def _task(self, name: str) -> Task:
        return kept_task(self.line(name))

    def _run(self, number: int) -> Run:
        run = self.runs.find(number)
        if run is None:
            raise NotFound(f"there is no run {number}")
        return run

    def _require_still(self, line: TaskLine) -> None:
        lease = self.leases.lines().get(line.lease)
        if line.wanted != STOPPED or (lease is not None and lease.seconds_left > 0):
            raise NotNow(f"{line.name} runs: stop it first, and wait until it has stopped")

    def _forget(self, line: TaskLine) -> None:
        self.runs.forget(line.name, line.kind)
        self.tasks.remove(line.name, line.kind)
        self.leases.forget(line.lease)


class NotReady(UsageError):
    """A task that could not run; the report says what to mend."""

    def __init__(self, report: dict[str, Any]) -> None:
        super().__init__("the task cannot run: mend what the check found, or ask without it")
        legs = report.get("legs") or [report]
        self.problems = [
            " ".join(filter(None, (one.get("table"), one["message"], one.get("remedy"))))
            for leg in legs
            for one in leg["findings"]
            if one["level"] == "error"
        ]


def _told(task: Task, line: TaskLine) -> dict[str, Any]:
    tables = line.progress.get("tables") or {}
    return {
        "file": shown_text(task, line.text),
        "source": str(task.source),
        "target": str(task.target),
        "verifiers": steering.verifiers(task),
        "tables": dict(tables),
    }
