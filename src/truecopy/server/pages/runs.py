"""One run: what it came to, and what it said."""

from __future__ import annotations

import json

from fastapi import APIRouter, Request, Response

from truecopy.metastore.tasks import TASK
from truecopy.model.errors import TruecopyError
from truecopy.server.control import Control
from truecopy.server.models import RunModel
from truecopy.server.pages.buttons import stop_button
from truecopy.server.pages.forms import Operates
from truecopy.server.pages.rendering import go, show
from truecopy.server.routing import NumberInPath, Plane, Viewer
from truecopy.tasks.commands import Files

router = APIRouter(prefix="/runs/{number}")
_LINES, _BYTES = 400, 100_000


@router.get("")
def run_page(number: NumberInPath, request: Request, who: Viewer, plane: Plane) -> Response:
    """Its result and the end of its log."""
    run = plane.run(number)
    try:
        log, problem = _log_end(plane, run), ""
    except TruecopyError as error:
        log, problem = "", str(error)
    lines = log.splitlines()
    home = f"/tasks/{run.task}" if run.task_kind == TASK else f"/suites/{run.task}"
    return show(
        request,
        who,
        "run",
        run=run,
        home=home,
        stop=stop_button(run),
        result=json.dumps(run.result, indent=2, ensure_ascii=False) if run.result else "",
        log="\n".join(lines[-_LINES:]),
        cut=len(lines) > _LINES,
        problem=problem,
    )


@router.post("/stop", name="stop_run")
def stop(number: NumberInPath, _: Operates, plane: Plane) -> Response:
    """Asks it to end."""
    plane.stop_run(number)
    return go(f"/runs/{number}", f"Run {number} is asked to end.")


def _log_end(plane: Control, run: RunModel) -> str:
    """The last part of what a run said."""
    path = Files.of(run.task, run.id).log
    size = path.stat().st_size if path.exists() else 0
    return plane.log(run.id, max(size - _BYTES, 0)).text
