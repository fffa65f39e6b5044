"""One task: how it stands, what it does, and what can be done with it."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request, Response

from truecopy.metastore.control import now
from truecopy.metastore.tasks import RUNNING, STOPPED, TASK
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.server import models
from truecopy.server.control import Control, NotFound
from truecopy.server.pages.buttons import HELD, buttons_of
from truecopy.server.pages.charts import chart
from truecopy.server.pages.forms import Administers, Operates
from truecopy.server.pages.phases import phases_of
from truecopy.server.pages.rendering import go, rate, seconds, show
from truecopy.server.routing import NameInPath, Plane, Viewer
from truecopy.tasks.commands import CUTOVER, REHEARSE, SWITCH_BACK

router = APIRouter(prefix="/tasks/{name}")
_MICROSECONDS = 1_000_000
SPANS = {"15m": 900, "1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600}
_EVENTS, _RUNS = 12, 100


def head(plane: Control, name: str, tab: str) -> dict[str, Any]:
    """What every page of a task begins with."""
    task = plane.detail(name)
    return {"task": task, "tab": tab, "buttons": list(buttons_of(task)), "name": name}


@router.get("")
def task_page(
    name: NameInPath, request: Request, who: Viewer, plane: Plane, span: str = "1h"
) -> Response:
    """Phases, tables, charts, validation, what happened."""
    shown = head(plane, name, "overview")
    chosen = span if span in SPANS else "1h"
    samples = plane.tasks.samples(name, now() - SPANS[chosen] * _MICROSECONDS)
    charts = (
        chart("Lag", samples, lambda one: one.lag_seconds, seconds),
        chart("Throughput", samples, lambda one: one.rate, rate),
    )
    task: models.TaskDetail = shown["task"]
    return show(
        request,
        who,
        "task",
        **shown,
        phases=phases_of(task),
        held=bool(task.progress and (task.progress.waits or "").startswith(HELD)),
        charts=[one for one in charts if one],
        span=chosen,
        spans=list(SPANS),
        validation=_validation(plane, name),
        verification=_verification(plane, name),
        events=[models.event_of(one) for one in plane.events.latest(name, limit=_EVENTS)],
        open_runs=[models.run_of(run) for run in plane.runs.open(name, TASK)],
    )


@router.get("/runs")
def runs_page(name: NameInPath, request: Request, who: Viewer, plane: Plane) -> Response:
    """What was run for a task, and all that happened to it."""
    shown = head(plane, name, "runs")
    runs = [models.run_of(run) for run in plane.runs.latest(name, TASK, limit=_RUNS)]
    events = [models.event_of(one) for one in plane.events.latest(name, limit=_RUNS)]
    return show(request, who, "runs", **shown, runs=runs, events=events)


@router.get("/settings")
def settings_page(name: NameInPath, request: Request, who: Viewer, plane: Plane) -> Response:
    """The file, what both ends promise together, the pace, and the end of the task."""
    shown = head(plane, name, "settings")
    try:
        legs, problem = plane.status(name).legs, ""
    except TruecopyError as error:
        legs, problem = [], str(error)
    return show(request, who, "settings", **shown, legs=legs, problem=problem)


# What can be done


@router.post("/start", name="start_task")
def start(name: NameInPath, acting: Operates, plane: Plane) -> Response:
    """Has it run."""
    plane.want(name, RUNNING, acting.who.name)
    return go(f"/tasks/{name}", f"{name} starts.")


@router.post("/stop", name="stop_task")
def stop(name: NameInPath, acting: Operates, plane: Plane) -> Response:
    """Has it stopped."""
    plane.want(name, STOPPED, acting.who.name)
    return go(f"/tasks/{name}", f"{name} stops.")


@router.post("/pause", name="pause_task")
def pause(name: NameInPath, acting: Operates, plane: Plane) -> Response:
    """Holds it up."""
    return go(f"/tasks/{name}", "; ".join(plane.hold(name, acting.who.name, paused=True)))


@router.post("/resume", name="resume_task")
def resume(name: NameInPath, acting: Operates, plane: Plane) -> Response:
    """Lets it go on."""
    return go(f"/tasks/{name}", "; ".join(plane.hold(name, acting.who.name, paused=False)))


@router.post("/throttle", name="throttle_task")
def throttle(name: NameInPath, acting: Operates, plane: Plane) -> Response:
    """Changes its pace."""
    plane.pace(name, _pace(acting), acting.who.name)
    return go(f"/tasks/{name}/settings", "The pace was changed; it holds within seconds.")


@router.post("/runs", name="ask_for_run")
def ask_for_run(name: NameInPath, acting: Operates, plane: Plane) -> Response:
    """Has something done in a process of its own."""
    form = acting.form
    kind = form.text("kind")
    if kind in (CUTOVER, SWITCH_BACK) and form.has("doubts") and not form.has("anyway"):
        raise UsageError("not all is as it should be: say that you have read it, or mend it first")
    asked = models.NewRun(kind=_kind(kind), confirm=form.text("confirm"))
    run = plane.ask(name, asked, acting.who.name)
    home = f"/tasks/{name}"
    if kind in (CUTOVER, SWITCH_BACK, REHEARSE):
        return go(f"{home}/cutover", f"The {kind} begins: run {run.id}.")
    return go(home, f"The {kind} begins: run {run.id}.")


@router.post("/remove", name="delete_task")
def remove(name: NameInPath, acting: Administers, plane: Plane) -> Response:
    """Forgets it."""
    if acting.form.text("confirm") != name:
        raise UsageError("write the task's name to have it forgotten")
    return go("/", "Removed: " + "; ".join(plane.delete(name)))


def _kind(text: str) -> Literal["verify", "check", "cutover", "rehearse", "switch-back"]:
    match text:
        case "verify" | "check" | "cutover" | "rehearse" | "switch-back":
            return text
    raise UsageError("there is no such run")


def _pace(acting: Operates) -> models.Pace:
    """What was filled in; an empty field leaves things as they are."""
    form = acting.form
    given: dict[str, Any] = {
        name: form.text(name).strip()
        for name in ("rate", "connections", "statement_seconds", "max_lag", "timezone")
        if form.text(name).strip()
    }
    if hours := form.text("hours").replace(",", " ").split():
        given["hours"] = [] if hours == ["none"] else hours
    try:
        return models.Pace(reset=form.has("reset"), **given)
    except ValueError:
        raise UsageError(
            "the pace: write whole numbers, seconds, and hours as 22:00-06:00"
        ) from None


def _validation(plane: Control, name: str) -> list[dict[str, Any]]:
    try:
        return plane.validation(name).legs
    except NotFound:
        return []


def _verification(plane: Control, name: str) -> models.RunModel | None:
    try:
        return plane.verification(name)
    except NotFound:
        return None
