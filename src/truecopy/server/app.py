"""The application: the API and the pages, errors in one form, and what begins and ends with the server."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import cast

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError

from truecopy import telemetry
from truecopy.model.errors import TruecopyError, UsageError
from truecopy.server import admin, events, pages, suites, tasks
from truecopy.server.control import Control, NotFound, NotNow, NotReady
from truecopy.server.guard import Guard
from truecopy.server.identity import Doorkeeper
from truecopy.server.models import Problem
from truecopy.server.pages.refusals import refuse, wants_page
from truecopy.server.settings import ServerSettings
from truecopy.tasks.problems import TaskFileError
from truecopy.tasks.supervisor import Supervisor

_ANSWERS: dict[int | str, dict[str, object]] = {
    code: {"model": Problem, "description": text}
    for code, text in (
        (400, "The request makes no sense."),
        (401, "No token, or a wrong or expired one."),
        (403, "The role does not allow it."),
        (404, "There is no such thing."),
        (409, "It cannot be done as things stand."),
        (413, "The request is too large."),
        (422, "The request is not of the form described."),
        (429, "Too many requests."),
    )
}


def make_app(settings: ServerSettings) -> FastAPI:
    """The application of a server; `app.state` has `control`, `doorkeeper` and `settings` for pages."""
    app = FastAPI(
        title="Truecopy",
        version=version("truecopy"),
        description="Every task seen and steered from one place.",
        lifespan=_lifespan,
        responses=_ANSWERS,
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.is_ending = lambda: False
    app.state.control = Control()
    app.state.doorkeeper = Doorkeeper(settings)
    for router in (tasks.router, suites.router, events.router, admin.router):
        app.include_router(router)
    for page in pages.ROUTERS:
        app.include_router(page, include_in_schema=False)
    app.add_exception_handler(HTTPException, _http_error)
    for code in (404, 405):  # where there is no such route
        app.add_exception_handler(code, _http_error)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(TruecopyError, _ours)
    app.add_exception_handler(SQLAlchemyError, _no_metastore)
    app.add_middleware(Guard, settings=settings)
    if tracer := telemetry.tracer():
        from truecopy.server.tracing import Traced

        app.add_middleware(Traced, tracer=tracer)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: ServerSettings = app.state.settings
    supervisor = Supervisor(
        settings.program, settings.lease_seconds, settings.events_days, settings.audit_days
    )
    thread = threading.Thread(target=supervisor.watch, name="supervisor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        supervisor.close()
        thread.join(10)


def _answer(request: Request, status: int, error: str, problems: list[str]) -> Response:
    request.state.outcome = f"{status} {error}"
    if wants_page(request):
        return refuse(request, status, error, problems)
    return JSONResponse({"error": error, "problems": problems}, status)


def _http_error(request: Request, error: Exception) -> Response:
    # Also those of the router, which are not of this class and are made the same way.
    found = cast(HTTPException, error)
    answer = _answer(request, found.status_code, str(found.detail), [])
    answer.headers.update(found.headers or {})
    return answer


def _malformed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # Without what was given: it may be a token.
    problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return _answer(request, 422, "the request is not of the form described", problems)


def _ours(request: Request, error: Exception) -> Response:
    problems = list(error.problems) if isinstance(error, NotReady | TaskFileError) else []
    if isinstance(error, NotFound):
        status = 404
    elif isinstance(error, NotNow) or not isinstance(error, UsageError):
        status = 409
    else:
        status = 400
    return _answer(request, status, " ".join(str(error).split()), problems)


def _no_metastore(request: Request, error: Exception) -> Response:
    said = f"the metastore cannot be used now ({type(error).__name__})"
    return _answer(request, 503, said, [])
