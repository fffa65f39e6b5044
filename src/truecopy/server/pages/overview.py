"""All tasks at a glance, and a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Request, Response

from truecopy.model.errors import TruecopyError
from truecopy.server import models
from truecopy.server.control import NotReady
from truecopy.server.pages.forms import Administers
from truecopy.server.pages.rendering import go, show
from truecopy.server.routing import Administrator, Plane, Viewer
from truecopy.tasks.problems import TaskFileError

router = APIRouter()
_EXAMPLE = """\
task: shop
source: mariadb://repl:${REPL_PASSWORD}@db1:3306/shop
target: postgresql://app:${APP_PASSWORD}@db2:5432/shop
verify:
  inline: true
  continuous: true
"""


@router.get("/")
def overview(request: Request, who: Viewer, plane: Plane) -> Response:
    """State, lag, rate and verdict of each."""
    tasks = plane.summaries()
    states = Counter(one.state for one in tasks)
    return show(request, who, "overview", tasks=tasks, states=states.most_common())


@router.get("/new")
def new_task_page(request: Request, who: Administrator) -> Response:
    """A task file to be pasted or written."""
    return show(request, who, "new", **_empty(_EXAMPLE))


@router.post("/new", name="make_task")
def make_task(request: Request, acting: Administers, plane: Plane) -> Response:
    """Looks at both ends of the file, or makes the task; what is wrong is shown beside the file."""
    who, form = acting.who, acting.form
    shown = _empty(form.text("file"), form.text("master"))
    try:
        if form.has("look"):
            found = plane.check(models.TaskFile(file=shown["file"] or " ").file)
            return show(request, who, "new", **{**shown, **_findings(found.report), "looked": True})
        asked = models.NewTask(
            file=shown["file"] or " ",
            master=shown["master"],
            check=not form.has("unchecked"),
            start=form.has("start"),
        )
        made = plane.add(asked, who.name)
    except NotReady as error:
        request.state.outcome = f"400 {error}"
        # The error has it in lines; the page shows what belongs together.
        found = plane.check(shown["file"])
        said = {"error": "The task cannot run as things stand.", **_findings(found.report)}
        return show(request, who, "new", 400, **{**shown, **said})
    except (TruecopyError, ValueError) as error:
        request.state.outcome = f"400 {' '.join(str(error).split())}"[:500]
        return show(request, who, "new", 400, **{**shown, **_refused(error)})
    return go(f"/tasks/{made.name}", f"The task {made.name} was made.")


def _empty(file: str, master: str = "") -> dict[str, Any]:
    return {
        "file": file,
        "master": master,
        "error": "",
        "problems": (),
        "legs": (),
        "looked": False,
    }


def _refused(error: Exception) -> dict[str, Any]:
    if isinstance(error, TaskFileError):
        return {"error": "The file is not right.", "problems": error.problems}
    if isinstance(error, TruecopyError):
        return {"error": str(error)}
    return {
        "error": "The file is too long, or the master is none."
    }  # pydantic's words are for programs


def _findings(report: dict[str, Any]) -> dict[str, Sequence[Any]]:
    return {"legs": report.get("legs") or [report]}
