"""For administrators: tokens, and who asked for what."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from truecopy.model.errors import UsageError
from truecopy.server import models
from truecopy.server.control import NotFound
from truecopy.server.pages.forms import Administers
from truecopy.server.pages.rendering import go, show
from truecopy.server.routing import Administrator, NameInPath, Offset, Plane

router = APIRouter()
_DAY = 86_400
_LINES = 100


@router.get("/tokens")
def tokens_page(request: Request, who: Administrator, plane: Plane) -> Response:
    """All tokens, without what they are."""
    return show(request, who, "tokens", tokens=_tokens(plane), made=None)


@router.post("/tokens", name="make_token")
def make_token(request: Request, acting: Administers, plane: Plane) -> Response:
    """Makes one, and shows it this once."""
    form = acting.form
    try:
        asked = models.NewToken.model_validate(
            {
                "name": form.text("name"),
                "role": form.text("role"),
                "days": form.text("days") or None,
            }
        )
    except ValueError:
        raise UsageError("a token has a name of letters and digits, a role, and days") from None
    seconds = asked.days * _DAY if asked.days is not None else None
    text = plane.tokens.add(asked.name, asked.role, seconds)
    made = models.TokenMade(name=asked.name, role=asked.role, token=text)
    return show(request, acting.who, "tokens", tokens=_tokens(plane), made=made)


@router.post("/tokens/{name}/remove", name="remove_token")
def remove_token(name: NameInPath, _: Administers, plane: Plane) -> Response:
    """Ends one, and the sessions that began with it."""
    if not plane.tokens.remove(name):
        raise NotFound(f"there is no token {name}")
    return go("/tokens", f"The token {name} has ended.")


@router.get("/audit")
def audit_page(request: Request, who: Administrator, plane: Plane, before: Offset = 0) -> Response:
    """The newest first."""
    lines = [models.audit_of(line) for line in plane.events.audited(before, _LINES)]
    more = lines[-1].id if len(lines) == _LINES else None
    return show(request, who, "audit", lines=lines, more=more)


def _tokens(plane: Plane) -> list[models.TokenModel]:
    return [models.token_of(token) for token in plane.tokens.all()]
