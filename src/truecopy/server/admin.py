"""Tokens, sessions of browsers, and the audit log over HTTP."""

from __future__ import annotations

from fastapi import APIRouter, HTTPException, Request, Response

from truecopy.metastore.tokens import VIEW
from truecopy.server import models
from truecopy.server.identity import Doorkeeper, Who
from truecopy.server.routing import Administrator, Limit, NameInPath, Offset, Plane, Viewer

router = APIRouter(prefix="/api", tags=["administration"])
_DAY = 86_400


@router.get("/session")
def show_session(who: Viewer) -> models.Session:
    """Who asks, and what pages send with every change."""
    return _session(who)


@router.post("/session")
def log_in(asked: models.Login, request: Request, response: Response) -> models.Session:
    """Exchange a token for a session, which a browser keeps in a cookie that scripts cannot read."""
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    who = doorkeeper.log_in(request, response, asked.token)
    request.state.who = (who.name, who.role)
    return _session(who)


@router.delete("/session", status_code=204)
def log_out(_: Viewer, request: Request, response: Response) -> None:
    """End a session."""
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    doorkeeper.log_out(request, response)


@router.get("/tokens")
def list_tokens(_: Administrator, plane: Plane) -> list[models.TokenModel]:
    """All tokens, without what they are."""
    return [models.token_of(token) for token in plane.tokens.all()]


@router.post("/tokens", status_code=201)
def make_token(asked: models.NewToken, _: Administrator, plane: Plane) -> models.TokenMade:
    """Make a token; it is told in this answer and never again."""
    seconds = asked.days * _DAY if asked.days is not None else None
    text = plane.tokens.add(asked.name, asked.role, seconds)
    return models.TokenMade(name=asked.name, role=asked.role, token=text)


@router.delete("/tokens/{name}", status_code=204)
def remove_token(name: NameInPath, _: Administrator, plane: Plane) -> None:
    """End a token, and the sessions that began with it."""
    if not plane.tokens.remove(name):
        raise HTTPException(404, f"there is no token {name}")


@router.get("/audit")
def list_audit(
    _: Administrator, plane: Plane, before: Offset = 0, limit: Limit = 100
) -> list[models.AuditModel]:
    """Who asked for what, and what came of it; the newest first."""
    return [models.audit_of(line) for line in plane.events.audited(before, limit)]


def _session(who: Who) -> models.Session:
    assert who.may(VIEW)
    return models.Session.model_validate(
        {"name": who.name, "role": who.role, "csrf": who.csrf if who.session else ""}
    )
