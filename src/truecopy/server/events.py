"""What happens, as it happens: events, the figures for Prometheus, and that the server is there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from truecopy.server import models
from truecopy.server.control import Control
from truecopy.server.metrics import prometheus
from truecopy.server.routing import Limit, Offset, Plane, Viewer

router = APIRouter(tags=["events"])
_TURN_SECONDS = 1.0
_BEAT_TURNS = 15
_streams: set[object] = set()

Task = Annotated[str | None, Query(pattern=models.NAME)]


@router.get("/api/events")
def list_events(
    _: Viewer, plane: Plane, task: Task = None, before: Offset = 0, limit: Limit = 100
) -> list[models.EventModel]:
    """The last events, the newest first; `before` is the number of one, for the page after it."""
    return [models.event_of(one) for one in plane.events.latest(task, before, limit)]


@router.get(
    "/api/events/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
def stream_events(request: Request, _: Viewer, plane: Plane, task: Task = None) -> Response:
    """Server-sent events: `event`, one that happened, and `tasks`, all summaries whenever one has changed.

    A browser that comes back says which event it saw last, and gets those after it.
    """
    if len(_streams) >= request.app.state.settings.streams:
        raise HTTPException(429, "too many event streams are open")
    seen = request.headers.get("last-event-id", "")
    start = int(seen) if seen.isascii() and seen.isdecimal() and len(seen) < 10 else None
    stream = _stream(plane, task, start, request.app.state.is_ending)
    return StreamingResponse(stream, media_type="text/event-stream")


@router.get("/healthz")
def health(plane: Plane) -> models.Health:
    """That the server answers and reaches its metastore; asks for no token."""
    plane.events.last_number()
    return models.Health(status="ok", version=version("truecopy"))


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}},
)
def metrics(_: Viewer, plane: Plane) -> Response:
    """The figures of all tasks, for Prometheus."""
    return Response(prometheus(plane), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _stream(
    plane: Control, task: str | None, start: int | None, is_ending: Callable[[], bool]
) -> AsyncIterator[str]:
    mark = object()
    _streams.add(mark)
    try:
        number = await run_in_threadpool(plane.events.last_number) if start is None else start
        told, turn = "", 0
        while not is_ending():  # a page that is open would keep the server from its end
            for one in await run_in_threadpool(partial(plane.events.after, number, task)):
                number = one.id
                yield _message("event", models.event_of(one).model_dump_json(), one.id)
            summaries = await run_in_threadpool(plane.summaries)
            shown = [one.model_dump() for one in summaries if task in (None, one.name)]
            if (text := json.dumps(shown, ensure_ascii=False)) != told:
                told = text
                yield _message("tasks", text)
            elif turn % _BEAT_TURNS == 0:
                yield ": still here\n\n"
            turn += 1
            await asyncio.sleep(_TURN_SECONDS)
    finally:
        _streams.discard(mark)


def _message(kind: str, data: str, number: int | None = None) -> str:
    name = f"id: {number}\n" if number is not None else ""
    return f"{name}event: {kind}\ndata: {data}\n\n"
