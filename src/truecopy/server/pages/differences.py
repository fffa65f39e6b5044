"""Rows that the last verification found to differ, side by side."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from truecopy.server.control import NotFound
from truecopy.server.pages.buttons import run_button
from truecopy.server.pages.paging import ROWS, Part
from truecopy.server.pages.rendering import show
from truecopy.server.pages.rows import row_of
from truecopy.server.pages.task import head
from truecopy.server.routing import NameInPath, Offset, Plane, Viewer
from truecopy.tasks.commands import VERIFY

router = APIRouter(prefix="/tasks/{name}/differences")


@router.get("")
def differences_page(
    name: NameInPath, request: Request, who: Viewer, plane: Plane, offset: Offset = 0
) -> Response:
    """The verdict on each table, and the differing rows in pages."""
    shown = head(plane, name, "differences")
    shown["verify"] = run_button("Verify now", name, VERIFY)
    try:
        run = plane.verification(name)
    except NotFound:
        return show(request, who, "differences", **shown, run=None)
    found = plane.items(run.id, offset, ROWS)
    rows = [
        (one.get("source_table") or one.get("target_table") or "", row_of(one))
        for one in found.items
    ]
    legs = run.result.get("legs") or [run.result]
    tables = [table for leg in legs for table in leg.get("tables") or ()]
    part = Part(offset, found.total)
    return show(request, who, "differences", **shown, run=run, tables=tables, rows=rows, part=part)
