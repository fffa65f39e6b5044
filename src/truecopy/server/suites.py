"""Suites of queries over HTTP: run on both ends, with both answers."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException

from truecopy.metastore.tasks import SUITE
from truecopy.server import models
from truecopy.server.routing import (
    Administrator,
    Limit,
    NameInPath,
    Offset,
    Operator,
    Plane,
    Viewer,
)
from truecopy.tasks.commands import QUERIES

router = APIRouter(prefix="/api/suites", tags=["queries"])


@router.get("")
def list_suites(_: Viewer, plane: Plane) -> list[models.Suite]:
    """All suites, each with its last run."""
    return plane.suites()


@router.post("", status_code=201)
def make_suite(asked: models.NewSuite, who: Administrator, plane: Plane) -> models.Suite:
    """Make a suite of its file, which names both ends."""
    return plane.add_suite(asked.name, asked.file, who.name)


@router.get("/{name}")
def show_suite(name: NameInPath, _: Viewer, plane: Plane) -> models.Suite:
    """A suite and its last run."""
    return plane.suite(name)


@router.delete("/{name}", status_code=204)
def delete_suite(name: NameInPath, _: Administrator, plane: Plane) -> None:
    """Forget a suite and its results."""
    plane.delete_suite(name)


@router.post("/{name}/run", status_code=202)
def run_suite(name: NameInPath, who: Operator, plane: Plane) -> models.RunModel:
    """Run a suite, in a process of its own."""
    return plane.run_suite(name, who.name)


@router.get("/{name}/results")
def suite_results(
    name: NameInPath, _: Viewer, plane: Plane, offset: Offset = 0, limit: Limit = 100
) -> models.Items:
    """The results of the last run that has ended, a query each, with both answers."""
    run = plane.last(name, (QUERIES,), SUITE)
    if run is None:
        raise HTTPException(404, f"{name} was not run so far")
    return plane.items(run.id, offset, limit)
