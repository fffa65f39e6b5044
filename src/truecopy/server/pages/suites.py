"""Suites of queries: their runs, and both answers to each query."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from truecopy.metastore.tasks import SUITE
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.server import models
from truecopy.server.pages.buttons import Button
from truecopy.server.pages.forms import Administers, Operates
from truecopy.server.pages.paging import ROWS, Part
from truecopy.server.pages.rendering import go, show
from truecopy.server.pages.rows import row_of
from truecopy.server.routing import Administrator, NameInPath, Offset, Plane, Viewer
from truecopy.tasks.commands import QUERIES

router = APIRouter()
_EXAMPLE = """\
control: mariadb://reader:${READER_PASSWORD}@old:3306/shop
test: mariadb://reader:${READER_PASSWORD}@new:3306/shop
queries:
  - name: orders by day
    query: SELECT ordered_on, count(*) AS orders FROM orders GROUP BY ordered_on
"""


@router.get("/suites")
def suites_page(request: Request, who: Viewer, plane: Plane) -> Response:
    """All suites, each with its last run."""
    return show(request, who, "suites", suites=plane.suites())


@router.get("/new-suite")
def new_suite_page(request: Request, who: Administrator) -> Response:
    """A suite to be pasted or written."""
    return show(request, who, "new_suite", name="", file=_EXAMPLE, error="")


@router.post("/new-suite", name="make_suite")
def make_suite(request: Request, acting: Administers, plane: Plane) -> Response:
    """Makes a suite; what is wrong is shown beside the file."""
    name, file = acting.form.text("name"), acting.form.text("file")
    try:
        made = plane.add_suite(name, file, acting.who.name)
    except TruecopyError as error:
        said = str(error)
        request.state.outcome = f"400 {' '.join(said.split())}"[:500]
        return show(request, acting.who, "new_suite", 400, name=name, file=file, error=said)
    return go(f"/suites/{made.name}", f"The suite {made.name} was made.")


@router.get("/suites/{name}")
def suite_page(
    name: NameInPath, request: Request, who: Viewer, plane: Plane, offset: Offset = 0
) -> Response:
    """A suite, and what its last run that has ended found."""
    suite = plane.suite(name)
    ended = plane.last(name, (QUERIES,), SUITE)
    found = plane.items(ended.id, offset, ROWS) if ended else None
    run = Button("Run", f"/suites/{name}/run", f"truecopy suite run {name}", style="main")
    return show(
        request,
        who,
        "suite",
        suite=suite,
        run=run,
        ended=models.run_of(ended) if ended else None,
        results=[_view(one) for one in found.items] if found else (),
        part=Part(offset, found.total) if found else None,
    )


@router.post("/suites/{name}/run", name="run_suite")
def run_suite(name: NameInPath, acting: Operates, plane: Plane) -> Response:
    """Runs it."""
    run = plane.run_suite(name, acting.who.name)
    return go(f"/suites/{name}", f"The suite runs: run {run.id}.")


@router.post("/suites/{name}/remove", name="delete_suite")
def remove(name: NameInPath, acting: Administers, plane: Plane) -> Response:
    """Forgets it."""
    if acting.form.text("confirm") != name:
        raise UsageError("write the suite's name to have it forgotten")
    plane.delete_suite(name)
    return go("/suites", f"Removed: the suite {name}")


def _view(result: dict[str, Any]) -> dict[str, Any]:
    """A result, and its differing rows as both ends have them."""
    rows = [row_of(one, ("control", "test")) for one in result.get("differences") or ()]
    return {**result, "rows": rows}
