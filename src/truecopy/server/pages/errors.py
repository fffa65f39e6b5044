"""Rows that continuous validation found wrong: ignored, resolved, looked at again, repaired."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from truecopy.metastore.validation_errors import STATUSES
from truecopy.model.errors import UsageError
from truecopy.server import models
from truecopy.server.control import NotFound
from truecopy.server.pages.forms import Operates
from truecopy.server.pages.paging import ROWS, Part
from truecopy.server.pages.rendering import go, show
from truecopy.server.pages.rows import row_of
from truecopy.server.pages.task import head
from truecopy.server.routing import NameInPath, Offset, Plane, Viewer
from truecopy.verify.page import count

router = APIRouter(prefix="/tasks/{name}/errors")
_MOST = 1000
_WAYS = (
    ("recheck", "Recheck", "Look at these rows again now."),
    ("ignore", "Ignore", "Count them as ignored; they are still watched."),
    ("resolve", "Resolve", "Take them for settled until their rows change."),
    ("clear", "Clear", "Remove them from the record until their rows change."),
)
_DONE = {"recheck": "to be looked at again", "ignore": "ignored", "resolve": "resolved"}


@router.get("")
def errors_page(
    name: NameInPath,
    request: Request,
    who: Viewer,
    plane: Plane,
    status: Annotated[Literal["new", "ignored", "resolved", "all"], Query()] = "new",
    offset: Offset = 0,
) -> Response:
    """Errors of a status, in pages."""
    shown = head(plane, name, "errors")
    wanted = STATUSES if status == "all" else (status,)
    found = plane.errors(name, wanted, offset, ROWS)
    try:
        validation = plane.validation(name).legs
    except NotFound:
        validation = []
    return show(
        request,
        who,
        "errors",
        **shown,
        status=status,
        counts=found.counts,
        statuses=[*STATUSES, "all"],
        errors=[(one, row_of(one.model_dump())) for one in found.errors],
        part=Part(offset, sum(found.counts[one] for one in wanted)),
        ways=_WAYS,
        validation=validation,
    )


@router.post("/repair", name="repair_errors")
def repair(name: NameInPath, request: Request, acting: Operates, plane: Plane) -> Response:
    """First shows the statements; runs them when that is asked for with the same rows."""
    form = acting.form
    chosen = models.Repair(ids=_ids(acting), all=form.has("all"), apply=form.has("apply"))
    if not chosen.ids and not chosen.all:
        raise UsageError("tick the errors that are to be repaired, or all of them")
    done = plane.repair(name, chosen, acting.who.name)
    if chosen.apply:
        said = f"{count(done.statements, 'statement')} run; the rows are looked at again."
        return go(f"/tasks/{name}/errors", said)
    return show(
        request, acting.who, "repair", **head(plane, name, "errors"), repair=done, chosen=chosen
    )


@router.post("/{how}", name="settle_errors")
def settle(
    name: NameInPath,
    how: Literal["ignore", "resolve", "recheck", "clear"],
    acting: Operates,
    plane: Plane,
) -> Response:
    """Settles those that are ticked, or all."""
    chosen = models.Chosen(ids=_ids(acting), all=acting.form.has("all"))
    if chosen.all:
        chosen = models.Chosen(all=True)
    changed = plane.settle(name, how, chosen, acting.who.name)
    return go(f"/tasks/{name}/errors", f"{count(changed, 'error')} {_DONE.get(how, 'cleared')}.")


def _ids(acting: Operates) -> list[int]:
    return [one for one in acting.form.numbers("id") if 0 < one < 2**31][:_MOST]
