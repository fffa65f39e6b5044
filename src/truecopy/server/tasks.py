"""Tasks over HTTP: made, started, watched, verified, cut over; their runs, errors and certificates."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Response

from truecopy.metastore.tasks import RUNNING, STOPPED, TASK
from truecopy.server import models
from truecopy.server.routing import (
    Administrator,
    Limit,
    NameInPath,
    NumberInPath,
    Offset,
    Operator,
    Plane,
    Viewer,
)

router = APIRouter(prefix="/api", tags=["tasks"])
CertificateId = Annotated[str, models.Field(pattern=r"^[0-9a-f]{8,64}$")]


@router.get("/tasks")
def list_tasks(_: Viewer, plane: Plane) -> list[models.TaskSummary]:
    """All tasks at a glance: state, phase, lag, rate, verdict."""
    return plane.summaries()


@router.post("/tasks", status_code=201)
def make_task(asked: models.NewTask, who: Administrator, plane: Plane) -> models.TaskMade:
    """Make a task of its file, after the look at both ends that `truecopy check` takes."""
    return plane.add(asked, who.name)


@router.post("/check")
def check_file(asked: models.TaskFile, _: Administrator, plane: Plane) -> models.Checked:
    """Look at both ends of a task that is not made."""
    return plane.check(asked.file)


@router.get("/tasks/{name}")
def show_task(name: NameInPath, _: Viewer, plane: Plane) -> models.TaskDetail:
    """A task with its file, and its tables as its run knows them."""
    return plane.detail(name)


@router.delete("/tasks/{name}")
def delete_task(name: NameInPath, _: Administrator, plane: Plane) -> models.Said:
    """Forget a task that has stopped, with its progress and its validation; copied rows stay."""
    return models.Said(said=plane.delete(name))


@router.post("/tasks/{name}/start")
def start_task(name: NameInPath, who: Operator, plane: Plane) -> models.TaskDetail:
    """Have a task run; it is started again when it ends by itself."""
    plane.want(name, RUNNING, who.name)
    return plane.detail(name)


@router.post("/tasks/{name}/stop")
def stop_task(name: NameInPath, who: Operator, plane: Plane) -> models.TaskDetail:
    """Have a task stopped; the same task goes on from there when it is started."""
    plane.want(name, STOPPED, who.name)
    return plane.detail(name)


@router.post("/tasks/{name}/pause")
def pause_task(name: NameInPath, who: Operator, plane: Plane) -> models.Said:
    """Hold a task up within seconds, wherever it runs; neither rows nor changes move."""
    return models.Said(said=plane.hold(name, who.name, paused=True))


@router.post("/tasks/{name}/resume")
def resume_task(name: NameInPath, who: Operator, plane: Plane) -> models.Said:
    """Let a task go on that was paused."""
    return models.Said(said=plane.hold(name, who.name, paused=False))


@router.post("/tasks/{name}/throttle")
def throttle_task(
    name: NameInPath, asked: models.Pace, who: Operator, plane: Plane
) -> list[models.LegPace]:
    """Change the pace of a task while it runs, and of later runs, until `reset`."""
    return plane.pace(name, asked, who.name)


@router.get("/tasks/{name}/status")
def task_status(name: NameInPath, _: Viewer, plane: Plane) -> models.TaskStatus:
    """How a task stands, as its target knows: phase, tables, lag, guarantee, throttle."""
    return plane.status(name)


@router.get("/tasks/{name}/samples")
def task_samples(
    name: NameInPath, _: Viewer, plane: Plane, since: Annotated[int, Query(ge=0, le=2**53)] = 0
) -> list[models.SampleModel]:
    """Lag and rate of the last day, for charts; `since` in microseconds of the Unix time."""
    plane.line(name)
    return [models.sample_of(one) for one in plane.tasks.samples(name, since)]


# Continuous validation


@router.get("/tasks/{name}/validation")
def task_validation(name: NameInPath, _: Viewer, plane: Plane) -> models.TaskStatus:
    """How the validation stands: what was checked, what is pending, errors, each table."""
    return plane.validation(name)


@router.get("/tasks/{name}/errors")
def list_errors(
    name: NameInPath,
    _: Viewer,
    plane: Plane,
    status: Annotated[list[Literal["new", "ignored", "resolved"]] | None, Query()] = None,
    offset: Offset = 0,
    limit: Limit = 100,
) -> models.Errors:
    """Rows that are wrong on the target, with both values."""
    return plane.errors(name, status or (), offset, limit)


@router.post("/tasks/{name}/errors/repair")
def repair_errors(
    name: NameInPath, asked: models.Repair, who: Operator, plane: Plane
) -> models.Repaired:
    """The statements that bring rows right; run on the target when asked."""
    return plane.repair(name, asked, who.name)


@router.post("/tasks/{name}/errors/{how}")
def settle_errors(
    name: NameInPath,
    how: Literal["ignore", "resolve", "recheck", "clear"],
    asked: models.Chosen,
    who: Operator,
    plane: Plane,
) -> models.Changed:
    """Have errors ignored, taken for settled, looked at again, or removed."""
    return models.Changed(count=plane.settle(name, how, asked, who.name))


# Runs


@router.post("/tasks/{name}/runs", status_code=202)
def ask_for_run(
    name: NameInPath, asked: models.NewRun, who: Operator, plane: Plane
) -> models.RunModel:
    """Verify, check, rehearse a cutover, cut over, or switch back, in a process of its own."""
    return plane.ask(name, asked, who.name)


@router.get("/tasks/{name}/runs")
def list_runs(
    name: NameInPath,
    _: Viewer,
    plane: Plane,
    kind: Annotated[list[str] | None, Query(max_length=20)] = None,
    limit: Limit = 50,
) -> list[models.RunModel]:
    """The last runs of a task, the newest first."""
    plane.line(name)
    known = [one for one in kind or () if one.isascii() and one.isprintable()]
    return [models.run_of(run) for run in plane.runs.latest(name, TASK, known, limit)]


@router.get("/tasks/{name}/verification")
def last_verification(name: NameInPath, _: Viewer, plane: Plane) -> models.RunModel:
    """The last verification that has ended; its differing rows are the items of the run."""
    return plane.verification(name)


@router.get("/tasks/{name}/cutover")
def task_cutover(name: NameInPath, _: Viewer, plane: Plane) -> models.CutoverState:
    """How far a cutover is, as the target knows, and the runs of cutovers."""
    return plane.cutover(name)


@router.get("/runs/{number}")
def show_run(number: NumberInPath, _: Viewer, plane: Plane) -> models.RunModel:
    """A run and its result."""
    return plane.run(number)


@router.post("/runs/{number}/stop")
def stop_run(number: NumberInPath, _: Operator, plane: Plane) -> models.RunModel:
    """Ask a run to end; a cutover under way ends by itself only."""
    return plane.stop_run(number)


@router.get("/runs/{number}/items")
def run_items(
    number: NumberInPath, _: Viewer, plane: Plane, offset: Offset = 0, limit: Limit = 100
) -> models.Items:
    """Differing rows of a verification, or results of queries."""
    return plane.items(number, offset, limit)


@router.get("/runs/{number}/log")
def run_log(
    number: NumberInPath,
    _: Viewer,
    plane: Plane,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> models.Log:
    """A part of what a run said, from a place on."""
    return plane.log(number, offset)


# Certificates


@router.get("/certificates")
def list_certificates(
    _: Viewer,
    plane: Plane,
    task: Annotated[str | None, Query(pattern=models.NAME)] = None,
    limit: Limit = 100,
) -> list[models.CertificateModel]:
    """Certificates, the newest first."""
    return [models.certificate_of(one) for one in plane.runs.certificates(task, limit)]


@router.get("/certificates/{certificate}")
def show_certificate(certificate: CertificateId, _: Viewer, plane: Plane) -> dict[str, Any]:
    """A certificate as a document."""
    return _certificate(plane, certificate)[0]


@router.get(
    "/certificates/{certificate}/page",
    response_class=Response,
    responses={200: {"content": {"text/html": {}}}},
)
def certificate_page(certificate: CertificateId, _: Viewer, plane: Plane) -> Response:
    """A certificate to read and to print."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
    return Response(
        _certificate(plane, certificate)[1],
        media_type="text/html; charset=utf-8",
        headers={"Content-Security-Policy": policy},
    )


def _certificate(plane: Plane, name: str) -> tuple[dict[str, Any], str]:
    found = plane.runs.certificate(name)
    if found is None:
        raise HTTPException(404, "there is no such certificate")
    return found
