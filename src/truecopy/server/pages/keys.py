"""The key space of a task's tables: what is pending, copied, verified, differing."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request, Response

from truecopy.metastore.validation_errors import NEW
from truecopy.model.errors import TruecopyError
from truecopy.model.relation import Key
from truecopy.server.control import Control, NotFound
from truecopy.server.pages.key_picture import Picture, picture
from truecopy.server.pages.rendering import show
from truecopy.server.pages.task import head
from truecopy.server.routing import NameInPath, Plane, Viewer
from truecopy.tasks.accepting import kept_task
from truecopy.tasks.key_ranges import key_ranges

router = APIRouter(prefix="/tasks/{name}/keys")
_MOST_WRONG = 2000
_MOST_TABLES = 60


@router.get("")
def keys_page(name: NameInPath, request: Request, who: Viewer, plane: Plane) -> Response:
    """A picture for each table; the target is asked for the ranges."""
    shown = head(plane, name, "keys")
    try:
        pictures, problem = list(_pictures(plane, name)), ""
    except TruecopyError as error:
        pictures, problem = [], str(error)
    more = max(len(pictures) - _MOST_TABLES, 0)
    return show(
        request,
        who,
        "keys",
        **shown,
        pictures=pictures[:_MOST_TABLES],
        more=more,
        problem=problem,
    )


def _pictures(plane: Control, name: str) -> Iterator[Picture]:
    """The tables with differing rows first."""
    wrong, verified = _known(plane, name)
    ranges = key_ranges(kept_task(plane.line(name)))
    for table in sorted(ranges, key=lambda one: (one not in wrong, one)):
        yield picture(table, ranges[table], wrong.get(table, []), table in verified)


def _known(plane: Control, name: str) -> tuple[dict[str, list[Key]], set[str]]:
    """Keys of rows that differ, by source table, and the tables that were compared after the copy."""
    wrong: dict[str, dict[Key, None]] = {}
    verified: set[str] = set()
    try:
        run = plane.verification(name)
        for leg in run.result.get("legs") or [run.result]:
            tables = leg.get("tables") or ()
            verified |= {one["source"] for one in tables if one.get("verdict") != "not_compared"}
        for one in plane.items(run.id, 0, _MOST_WRONG).items:
            key = tuple(one.get("key", {}).values())
            wrong.setdefault(str(one.get("source_table")), {})[key] = None
    except NotFound:
        pass
    for error in plane.errors(name, (NEW,), 0, _MOST_WRONG).errors:
        wrong.setdefault(error.table, {})[tuple(error.key.values())] = None
    return {table: list(keys) for table, keys in wrong.items()}, verified
